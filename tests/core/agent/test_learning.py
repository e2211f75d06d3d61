"""An agent that learns: measurements reach its bids, its phases to come and its placements."""

import math
from collections.abc import Sequence

import pytest

from tests.support.small_sims import sim_app
from themis.core.agent import Agent, Profiler, events
from themis.core.agent.carving import carve, shape_rates
from themis.core.agent.commands import AgentCommand, ReleaseGpus, SendBid, StartJob, StopJob
from themis.core.fairness import best_rate
from themis.core.model import (
    MACHINE,
    NO_SLOWDOWN,
    RACK,
    SLOT,
    AppId,
    Bid,
    GpuId,
    JobId,
    Lease,
    LeaseSource,
    Machine,
    MeasuredSlowdown,
    Offer,
    Phase,
    Slowdown,
    Topology,
)
from themis.core.tuners import tuner_for

TOPOLOGY = Topology(tuple(Machine(f"m{n}", "r0", (2,)) for n in range(4)))
"""Four machines of two GPUs each: a gang of four is spread over two of them at least."""
TRUTH = Slowdown((1.0, 1.0, 3.0, 3.0))
J0 = JobId("j0")


def _agent(
    *, learns: bool = True, believes: Slowdown = NO_SLOWDOWN, phases: Sequence[Phase] = ()
) -> Agent:
    jobs = phases[0].jobs if phases else 1
    app = sim_app("a", jobs=jobs, work=36000.0, max_gpus=4, slowdown=believes, phases=phases)
    profiler = Profiler(app.spec.jobs) if learns else None
    return Agent(app.spec, tuner_for(app.spec), profiler=profiler)


def _grant(agent: Agent, *gpus: int) -> list[AgentCommand]:
    leases = tuple(Lease(GpuId(g), AppId("a"), 1, 0.0, 600.0, LeaseSource.DIRECT) for g in gpus)
    return agent.handle(events.LeasesChanged(0.0, TOPOLOGY, leases))


def _measure(
    agent: Agent, gpus: Sequence[int], slowdown: float, job: JobId = J0
) -> list[AgentCommand]:
    """Three minutes of a process on these GPUs, after its first."""
    iterations = 60.0 * len(gpus) / slowdown
    held = tuple(map(GpuId, gpus))
    windows = tuple(
        events.Window(job, held, minute * iterations, iterations, 60.0) for minute in range(4)
    )
    return agent.handle(events.IterationsTimed(240.0, windows))


def _bid(agent: Agent) -> Bid:
    offer = Offer(1, tuple(map(GpuId, range(8))), (), ())
    (answer,) = agent.handle(events.Asked(300.0, offer, TOPOLOGY))
    assert isinstance(answer, SendBid)
    return answer.bid


def _table(agent: Agent) -> dict[tuple[int, int], float]:
    return {(row.level, row.count): row.seconds for row in _bid(agent).table}


def test_bids_go_from_wrong_by_three_to_right() -> None:
    agent, knowing = _agent(), _agent(learns=False, believes=TRUTH)
    for each in (agent, knowing):
        _grant(each, 0, 1, 2, 3)
    assert _table(agent)[RACK, 4] == pytest.approx(_table(knowing)[RACK, 4] / 3.0)
    _measure(agent, [0, 1, 2, 3], 3.0)
    for cell in ((SLOT, 1), (SLOT, 2), (RACK, 4)):
        assert _table(agent)[cell] == pytest.approx(_table(knowing)[cell])


def test_phases_to_come_count_with_what_was_learned() -> None:
    phases = (Phase(2, 600), Phase(1, 6000))
    agent = _agent(phases=phases)
    knowing = _agent(learns=False, believes=TRUTH, phases=phases)
    for each in (agent, knowing):
        _grant(each, 0, 1, 2, 3, 4, 5, 6, 7)
    _measure(agent, [0, 1, 2, 3], 3.0)
    assert _table(agent)[RACK, 8] == pytest.approx(_table(knowing)[RACK, 8])


def test_the_survivors_of_a_phase_keep_what_was_learned() -> None:
    agent = _agent(phases=(Phase(2, 600), Phase(1, 6000)))
    _grant(agent, 0, 1, 2, 3, 4, 5, 6, 7)
    _measure(agent, [0, 1, 2, 3], 3.0)
    agent.handle(events.JobReached(600.0, J0, 0.5))
    commands = agent.handle(events.JobReached(600.0, JobId("j1"), 0.6))
    starts = [command for command in commands if isinstance(command, StartJob)]
    assert [len(start.gpus) for start in starts] == [2], "two in one machine beat four in two"


def test_an_app_that_finds_spreading_slow_stops_it() -> None:
    agent = _agent()
    (start,) = _grant(agent, 0, 1, 2, 3)
    assert isinstance(start, StartJob)
    assert len(start.gpus) == 4
    commands = _measure(agent, [0, 1, 2, 3], 3.0)
    assert commands == [
        StopJob(J0),
        StartJob(J0, (GpuId(0), GpuId(1)), 36000.0),
        ReleaseGpus((GpuId(2), GpuId(3))),
    ]
    knowing = _agent(learns=False, believes=TRUTH)
    _grant(knowing, 0, 1, 2, 3)
    rows = {row.chunks: pytest.approx(row.seconds) for row in _bid(knowing).rows}
    assert {row.chunks: row.seconds for row in _bid(agent).rows} == rows


def test_spreading_that_costs_less_than_it_gives_goes_on() -> None:
    agent = _agent()
    _grant(agent, 0, 1, 2, 3)
    assert _measure(agent, [0, 1, 2, 3], 1.3) == []
    assert agent.placement == {J0: (0, 1, 2, 3)}
    assert _table(agent)[RACK, 4] == pytest.approx(36000.0 / 4 * 1.3)


def test_agent_without_learning_spreads_for_ever() -> None:
    agent = _agent(learns=False)
    _grant(agent, 0, 1, 2, 3)
    before = _table(agent)
    assert _measure(agent, [0, 1, 2, 3], 3.0) == []
    assert _table(agent) == before


def test_windows_before_a_lease_or_after_its_end_do_no_harm() -> None:
    agent = _agent()
    assert _measure(agent, [0, 1], 3.0) == []
    _grant(agent, 0, 1, 2, 3)
    before = _table(agent)
    assert _measure(agent, [0, 1, 2, 99], 3.0) == []
    assert _measure(agent, [-1, 1, 2, 3], 3.0) == []
    assert agent.handle(events.IterationsTimed(0.0, (events.Window(J0, (), 99.0, 9.0, 9.0),))) == []
    nothing = events.Window(J0, tuple(map(GpuId, range(4))), 99.0, math.nan, 0.0)
    assert agent.handle(events.IterationsTimed(0.0, (nothing,) * 9)) == []
    assert _table(agent) == before
    agent.handle(events.JobReached(0.0, J0, 0.1))
    assert _measure(agent, [0, 1, 2, 3], 3.0) == []


def test_a_narrow_gang_is_carved_where_it_was_measured_to_be_faster() -> None:
    """Within one slot a prior never says that fewer GPUs are faster; measurements may."""
    odd = Slowdown(
        (1.0, 1.0, 1.0, 1.0), (MeasuredSlowdown(SLOT, 4, 3.0), MeasuredSlowdown(SLOT, 3, 0.9))
    )
    topology = Topology((Machine("m0", "r0", (4,)),))
    carving = carve(topology.seats, jobs=1, min_gpus=1, max_gpus=4, slowdown=odd)
    assert [len(gang) for gang in carving.gangs] == [3]
    alone, _ = best_rate(odd, 1, 4, topology.seats)
    assert carving.rates[0] == pytest.approx(alone)
    assert shape_rates(((SLOT, 4),), 1, 1, 4, odd)[1] == pytest.approx(alone)
    assert shape_rates(((MACHINE, 4),), 1, 1, 4, odd)[1] == pytest.approx(4.0)
