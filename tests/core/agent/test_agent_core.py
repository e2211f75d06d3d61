"""The agent: what it does about leases, jobs that get there, and jobs that die."""

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirements import examples
from tests.support.small_sims import sim_app
from themis.core.agent import Agent, events
from themis.core.agent.commands import (
    AgentCommand,
    AnnouncePhase,
    FinishApp,
    ReleaseGpus,
    SendBid,
    StartJob,
    StopJob,
)
from themis.core.agent.job_assignment import JobNeed, assign
from themis.core.model import (
    AppId,
    GpuId,
    JobId,
    JobSpec,
    Lease,
    LeaseSource,
    Machine,
    Offer,
    Phase,
    Slowdown,
    Topology,
)
from themis.core.tuners import tuner_for
from themis.sim.workloads import SimApp

TOPOLOGY = Topology((Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2, 2))))
J0, J1, J2, J3 = (JobId(f"j{i}") for i in range(4))


def _agent(app: SimApp) -> Agent:
    return Agent(app.spec, tuner_for(app.spec))


def _leases(gpus: Sequence[int], token: int = 1) -> tuple[Lease, ...]:
    return tuple(Lease(GpuId(g), AppId("a"), token, 0.0, 600.0, LeaseSource.DIRECT) for g in gpus)


def _change(
    agent: Agent,
    *,
    granted: Sequence[int] = (),
    renewed: Sequence[int] = (),
    revoked: Sequence[int] = (),
    token: int = 1,
) -> list[AgentCommand]:
    return agent.handle(
        events.LeasesChanged(
            0.0, TOPOLOGY, _leases(granted, token), _leases(renewed), _leases(revoked)
        )
    )


def _start(job: JobId, gpus: Sequence[int], until: float) -> StartJob:
    return StartJob(job, tuple(map(GpuId, gpus)), until)


def _reach(agent: Agent, job: JobId, metric: float = 0.5) -> list[AgentCommand]:
    return agent.handle(events.JobReached(0.0, job, metric))


def test_a_grant_starts_jobs_on_it() -> None:
    agent = _agent(sim_app("a", jobs=2, work=100.0, max_gpus=2))
    assert _change(agent, granted=[0, 1, 2, 3]) == [
        _start(J0, [0, 1], 100.0),
        _start(J1, [2, 3], 100.0),
    ]
    assert agent.placement == {J0: (0, 1), J1: (2, 3)}


def test_a_renewal_touches_nothing() -> None:
    agent = _agent(sim_app("a", work=100.0, max_gpus=2))
    _change(agent, granted=[0, 1])
    assert _change(agent, renewed=[0, 1]) == []


def test_a_revocation_stops_only_the_job_that_is_hit() -> None:
    agent = _agent(sim_app("a", jobs=2, work=100.0, max_gpus=2, min_gpus=2))
    _change(agent, granted=[0, 1, 4, 5])
    commands = _change(agent, revoked=[4, 5])
    assert commands == [StopJob(J1)]
    assert agent.placement == {J0: (0, 1)}
    assert agent.gpus == {0, 1}


def test_job_that_loses_part_of_its_gang_continues_with_the_rest() -> None:
    agent = _agent(sim_app("a", work=100.0, max_gpus=4))
    _change(agent, granted=[0, 1, 2, 3])
    assert _change(agent, revoked=[2, 3]) == [StopJob(J0), _start(J0, [0, 1], 100.0)]


def test_a_gpu_taken_and_given_back_at_once_needs_a_new_process() -> None:
    agent = _agent(sim_app("a", work=100.0, max_gpus=1))
    _change(agent, granted=[0])
    commands = agent.handle(
        events.LeasesChanged(0.0, TOPOLOGY, _leases([0], token=2), (), _leases([0], token=1))
    )
    assert commands == [StopJob(J0), _start(J0, [0], 100.0)]


def test_a_swap_is_one_move() -> None:
    agent = _agent(sim_app("a", work=100.0, max_gpus=2))
    _change(agent, granted=[0, 1])
    assert _change(agent, granted=[4, 5], revoked=[0, 1]) == [
        StopJob(J0),
        _start(J0, [4, 5], 100.0),
    ]


def test_gpus_that_no_job_can_use_are_returned() -> None:
    agent = _agent(sim_app("a", work=100.0, max_gpus=2))
    commands = _change(agent, granted=[0, 1, 2])
    assert commands == [_start(J0, [0, 1], 100.0), ReleaseGpus((GpuId(2),))]
    assert agent.gpus == {0, 1}


def test_too_few_gpus_for_a_gang_are_given_back() -> None:
    agent = _agent(sim_app("a", work=100.0, max_gpus=4, min_gpus=4))
    assert _change(agent, granted=[0, 1]) == [ReleaseGpus((GpuId(0), GpuId(1)))]


def test_gpus_that_would_only_slow_it_down_are_given_back() -> None:
    steep = Slowdown((1.0, 9.0, 9.0, 9.0))
    agent = _agent(sim_app("a", work=100.0, max_gpus=4, slowdown=steep))
    commands = _change(agent, granted=[0, 1, 4])
    assert commands == [_start(J0, [0, 1], 100.0), ReleaseGpus((GpuId(4),))]


def test_the_last_job_of_a_single_phase_ends_the_app() -> None:
    agent = _agent(sim_app("a", jobs=2, work=100.0))
    _change(agent, granted=[0, 1])
    assert _reach(agent, J1, 0.1) == [ReleaseGpus((GpuId(1),))]
    assert _reach(agent, J0, 0.9) == [FinishApp(J1)]


def test_after_the_end_nothing_starts_any_more() -> None:
    agent = _agent(sim_app("a", work=100.0))
    _change(agent, granted=[0])
    _reach(agent, J0)
    assert _change(agent, granted=[1]) == []
    assert _reach(agent, J0) == []


def test_the_end_of_a_phase_is_announced_and_survivors_start_again() -> None:
    app = sim_app("a", jobs=4, max_gpus=2, phases=(Phase(4, 10), Phase(2, 20), Phase(1, 30)))
    agent = _agent(app)
    _change(agent, granted=[0, 1, 2, 3])
    for job, metric in ((J0, 0.4), (J1, 0.3), (J2, 0.2)):
        _reach(agent, job, metric)
    commands = _reach(agent, J3, 0.1)
    assert commands[0] == AnnouncePhase(1, ((J2, 30.0), (J3, 30.0)))
    assert sorted(c.job for c in commands[1:] if isinstance(c, StartJob)) == [J2, J3]
    assert {c.until for c in commands[1:] if isinstance(c, StartJob)} == {30.0}
    assert agent.target(J3) == 30.0


def test_gpus_are_held_over_the_end_of_a_phase_that_is_near() -> None:
    phases = (Phase(2, 10), Phase(1, 1000))
    agent = _agent(sim_app("a", jobs=2, max_gpus=1, phases=phases))
    _change(agent, granted=[0, 1])
    agent.handle(events.Progressed(0.0, ((J1, 5.0),)))
    # The other job needs 5 s: the phase ends within 30 s and the next one may want the GPU.
    assert _reach(agent, J0) == []
    assert _reach(agent, J1)[0] == AnnouncePhase(1, ((J0, 1010.0),))


def test_gpus_are_given_back_when_the_end_of_the_phase_is_far() -> None:
    phases = (Phase(2, 1000), Phase(1, 1000))
    agent = _agent(sim_app("a", jobs=2, max_gpus=1, phases=phases))
    _change(agent, granted=[0, 1])
    assert _reach(agent, J0) == [ReleaseGpus((GpuId(0),))]


def test_waiting_jobs_replace_a_finished_one() -> None:
    agent = _agent(sim_app("a", jobs=3, work=100.0, max_gpus=4, min_gpus=4))
    assert _change(agent, granted=[0, 1, 2, 3]) == [_start(J0, [0, 1, 2, 3], 100.0)]
    assert _reach(agent, J0) == [_start(J1, [0, 1, 2, 3], 100.0)]
    assert _reach(agent, J1) == [_start(J2, [0, 1, 2, 3], 100.0)]


def test_a_lost_job_starts_again_and_counts_from_what_it_saved() -> None:
    agent = _agent(sim_app("a", work=100.0, max_gpus=1))
    _change(agent, granted=[0])
    agent.handle(events.Progressed(0.0, ((J0, 60.0),)))
    assert agent.handle(events.JobLost(0.0, J0, 50.0)) == [_start(J0, [0], 100.0)]
    bid = agent.handle(events.Asked(0.0, Offer(1, (GpuId(0),), (), (GpuId(0),)), TOPOLOGY))
    assert isinstance(bid[0], SendBid)
    assert {row.seconds for row in bid[0].bid.table} == {50.0}


def test_news_of_jobs_it_does_not_train_changes_nothing() -> None:
    agent = _agent(sim_app("a", jobs=2, phases=(Phase(1, 10),)))
    _change(agent, granted=[0])
    assert agent.handle(events.JobLost(0.0, JobId("x"), 1.0)) == []
    assert _reach(agent, J1) == []
    assert agent.handle(events.Progressed(0.0, ((J1, 5.0),))) == []
    assert agent.placement == {J0: (0,)}


def test_a_question_is_answered_for_its_round_with_progress_counted() -> None:
    agent = _agent(sim_app("a", work=100.0, max_gpus=1))
    agent.handle(events.Progressed(0.0, ((J0, 40.0),)))
    offer = Offer(7, (GpuId(0), GpuId(1)), ())
    (answer,) = agent.handle(events.Asked(0.0, offer, TOPOLOGY))
    assert isinstance(answer, SendBid)
    assert answer.round == 7
    assert answer.bid.app == "a"
    assert [row.seconds for row in answer.bid.rows] == pytest.approx([60.0])


def test_a_phase_that_lets_jobs_use_more_gpus_widens_them() -> None:
    phases = (Phase(2, 10), Phase(1, 1000, gpu_factor=4))
    agent = _agent(sim_app("a", jobs=2, max_gpus=1, phases=phases))
    _change(agent, granted=[0, 1])
    agent.handle(events.Progressed(0.0, ((J1, 9.0),)))
    _reach(agent, J0)
    commands = _reach(agent, J1)
    assert commands == [AnnouncePhase(1, ((J0, 1010.0),)), _start(J0, [0, 1], 1010.0)]


def test_job_seen_at_its_target_keeps_running_until_it_reports() -> None:
    agent = _agent(sim_app("a", jobs=3, work=100.0))
    _change(agent, granted=[0, 1, 2])
    agent.handle(events.Progressed(0.0, ((J0, 100.0), (J1, 100.0), (J2, 40.0))))
    assert _reach(agent, J0, 0.3) == [ReleaseGpus((GpuId(0),))]
    assert agent.placement == {J1: (1,), J2: (2,)}
    assert _reach(agent, J1, 0.1) == [ReleaseGpus((GpuId(1),))]
    assert _reach(agent, J2, 0.2) == [FinishApp(J1)]


def test_job_evicted_at_its_target_restarts_to_report() -> None:
    agent = _agent(sim_app("a", work=100.0))
    _change(agent, granted=[0])
    agent.handle(events.Progressed(0.0, ((J0, 100.0),)))
    assert _change(agent, revoked=[0]) == [StopJob(J0)]
    assert _change(agent, granted=[1], token=2) == [_start(J0, [1], 100.0)]


def _unlike(*works: int, gang: int = 1) -> Agent:
    """An agent of jobs with so much work, each on a gang of this size."""
    phases = (Phase(len(works), max(works), targets=works),)
    jobs = len(works)
    return _agent(sim_app("a", jobs=jobs, phases=phases, max_gpus=gang, min_gpus=gang))


def test_the_longest_job_does_not_wait_for_shorter_ones() -> None:
    """It alone decides when the app ends, and a bid for fewer GPUs said that it would run."""
    agent = _unlike(9000, 4000, 3000)
    _change(agent, granted=[0, 4, 6])
    assert agent.placement == {J0: (0,), J1: (4,), J2: (6,)}
    assert _change(agent, revoked=[0]) == [StopJob(J0), StopJob(J2), _start(J0, [6], 9000.0)]
    assert agent.placement == {J0: (6,), J1: (4,)}


def test_the_longest_job_takes_the_gang_of_the_shortest() -> None:
    agent = _unlike(9000, 4000, 3000, gang=2)
    _change(agent, granted=[0, 1, 2, 3, 4, 5])
    gangs = dict(agent.placement)
    _change(agent, revoked=gangs[J0])
    assert agent.placement == {J0: gangs[J2], J1: gangs[J1]}


def test_evicted_job_is_next() -> None:
    agent = _unlike(9000, 4000, 3000)
    _change(agent, granted=[0, 4, 6])
    _change(agent, revoked=[0])
    assert _reach(agent, J1) == [_start(J2, [4], 3000.0)]
    # And when leases change again nobody moves back.
    assert _change(agent, revoked=[4]) == [StopJob(J2)]


@pytest.mark.parametrize(
    "works",
    [
        # Two of them must follow each other, in whatever order.
        pytest.param((5500, 4900, 6000), id="it ends as late"),
        pytest.param((3000, 3000, 3000), id="equal jobs"),
        pytest.param((9000, 4000, 100), id="one that is nearly over"),
    ],
)
def test_job_waits_where_that_delays_no_other(works: tuple[int, ...]) -> None:
    agent = _unlike(*works)
    _change(agent, granted=[0, 4, 6])
    # Those that run have got a little further by then.
    agent.handle(events.Progressed(0.0, ((J1, 60.0), (J2, 60.0))))
    assert _change(agent, revoked=agent.placement[J0]) == [StopJob(J0)]


def test_restarts_count_before_a_job_gives_way() -> None:
    phases = (Phase(3, 3000, targets=(3000, 1000, 900)),)
    for restart, gives_way in ((10.0, True), (1000.0, False)):
        agent = _agent(sim_app("a", jobs=3, phases=phases, costs=(0.0, restart)))
        _change(agent, granted=[0, 4, 6])
        _change(agent, revoked=agent.placement[J0])
        assert (J0 in agent.placement) is gives_way


def test_briefly_absent_job_evicts_no_other() -> None:
    agent = _unlike(9000, 4000, 3000)
    _change(agent, granted=[0, 4])
    agent.handle(events.JobSetAside(0.0, J0, 0.0))
    assert set(agent.placement) == {J1, J2}
    assert agent.handle(events.JobBack(0.0, J0)) == []


def test_jobs_of_different_widths_do_not_change_places() -> None:
    """A gang that suits one of them leaves GPUs over, or is too narrow, for another."""
    specs = (
        JobSpec(J0, 1.0, 1, 1, Slowdown()),
        JobSpec(J1, 1.0, 4, 1, Slowdown()),
        JobSpec(J2, 1.0, 4, 4, Slowdown()),
    )
    seats = TOPOLOGY.seats
    needs = [
        JobNeed(spec, work) for spec, work in zip(specs, (9000.0, 3000.0, 9000.0), strict=True)
    ]
    running = {J1: tuple(map(GpuId, range(4))), J2: tuple(map(GpuId, range(4, 8)))}
    assert assign(needs, seats, running, giving_way=True) == running


@given(
    works=st.lists(st.integers(1, 10**6), min_size=2, max_size=9),
    count=st.integers(1, 8),
)
def test_longer_jobs_run_only_where_the_last_one_then_ends_sooner(
    works: list[int], count: int
) -> None:
    needs = [
        JobNeed(JobSpec(JobId(f"j{number}"), 1.0, 1, 1, Slowdown()), float(work))
        for number, work in enumerate(works)
    ]
    seats = TOPOLOGY.seats[: min(count, len(works))]
    running = {needs[number].spec.id: (seat.gpu,) for number, seat in enumerate(seats)}
    before, after = (
        _list_end(needs, assign(needs, seats, running, restart=10.0, giving_way=giving_way))
        for giving_way in (False, True)
    )
    assert after <= before


def _list_end(needs: Sequence[JobNeed], placement: Mapping[JobId, object]) -> float:
    """When the last job is over if the longest that waits comes next."""
    ends = [need.work for need in needs if need.spec.id in placement]
    for work in sorted((n.work for n in needs if n.spec.id not in placement), reverse=True):
        ends.sort()
        ends[0] += work
    return max(ends)


@given(seed=st.integers(0, 10**6))
@examples(60)
def test_one_gpu_jobs_are_placed_as_the_general_way_places_them(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 9)
    targets = tuple(rng.randint(200, 3000) for _ in range(count))
    app = sim_app("a", jobs=count, phases=(Phase(count, max(targets), targets=targets),))
    quick, general = _agent(app), _agent(app)
    general._singles = False
    held: dict[GpuId, Lease] = {}
    token = 0
    for step in range(6):
        gone = rng.sample(sorted(held), rng.randint(0, len(held)))
        revoked = tuple(held.pop(gpu) for gpu in gone)
        free = [gpu for gpu in map(GpuId, range(8)) if gpu not in held]
        granted = []
        for gpu in rng.sample(free, rng.randint(0, len(free))):
            token += 1
            held[gpu] = Lease(gpu, AppId("a"), token, 0.0, 600.0, LeaseSource.DIRECT)
            granted.append(held[gpu])
        change = events.LeasesChanged(600.0 * step, TOPOLOGY, tuple(granted), (), revoked)
        assert quick.handle(change) == general.handle(change)
        assert quick.placement == general.placement
        for gpu in sorted(set(held) - quick.gpus):
            del held[gpu]
