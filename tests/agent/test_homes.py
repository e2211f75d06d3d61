"""Jobs whose checkpoints are on one machine: they run there, and bids ask for GPUs there."""

from themis.agent import commands as cmd
from themis.agent import events as ev
from themis.agent.assignment import Need
from themis.agent.core import Agent
from themis.agent.homes import assign_at_home, bid_at_home
from themis.model import (
    CLUSTER,
    MACHINE,
    RACK,
    SLOT,
    AppId,
    Bid,
    Chunk,
    GpuId,
    JobId,
    JobSpec,
    Lease,
    Machine,
    Offer,
    Row,
    Source,
    Topology,
)
from themis.testing.world import simple_app
from themis.tuners import tuner_for

TOPOLOGY = Topology(tuple(Machine(f"m{n}", "r0", (2,)) for n in range(3)))
A, J0, J1 = AppId("a"), JobId("j0"), JobId("j1")


def gpus(*numbers: int) -> tuple[GpuId, ...]:
    return tuple(map(GpuId, numbers))


def need(name: JobId, most: int = 1, work: float = 100.0) -> Need:
    return Need(JobSpec(name, 1.0, most), work)


def leased(*numbers: int) -> ev.LeasesChanged:
    leases = tuple(Lease(gpu, A, 7, 0.0, 600.0, Source.AUCTION) for gpu in gpus(*numbers))
    return ev.LeasesChanged(0.0, TOPOLOGY, granted=leases)


def started(commands: list[cmd.AgentCommand]) -> dict[JobId, tuple[GpuId, ...]]:
    return {item.job: item.gpus for item in commands if isinstance(item, cmd.StartJob)}


def agent_of(jobs: int) -> Agent:
    spec = simple_app(A, gpus=1, jobs=jobs, iterations=100)
    return Agent(spec, tuner_for(spec))


def test_jobs_with_a_home_run_there_and_others_around_them() -> None:
    needs = [need(J0, 2), need(J1, 2)]
    seats = [TOPOLOGY.seats[gpu] for gpu in gpus(0, 1, 2, 3)]
    assert assign_at_home(needs, seats, {}, {J0: 1}) == {J0: gpus(2, 3), J1: gpus(0, 1)}
    assert assign_at_home(needs, seats, {}, {J0: 2}) == {J1: gpus(0, 1)}, "it waits for its machine"
    both = assign_at_home([need(J0), need(J1)], seats, {}, {J0: 1, J1: 1})
    assert both == {J0: gpus(2), J1: gpus(3)}


def test_what_others_run_on_is_left_to_them() -> None:
    seats = [TOPOLOGY.seats[gpu] for gpu in gpus(0, 1)]
    placed = assign_at_home([need(J0), need(J1)], seats, {J1: gpus(0)}, {J0: 0})
    assert placed == {J0: gpus(1), J1: gpus(0)}


def test_a_job_on_several_machines_goes_on_when_it_is_bound_to_the_first() -> None:
    spec = simple_app(A, gpus=4, min_gpus=4, iterations=100)
    agent = Agent(spec, tuner_for(spec))
    assert started(agent.handle(leased(0, 1, 2, 3))) == {J0: gpus(0, 1, 2, 3)}
    assert agent.handle(ev.JobBound(1.0, J0, 0)) == []
    assert agent.placement == {J0: gpus(0, 1, 2, 3)}


def test_a_job_on_several_machines_does_not_stay_where_it_would_find_nothing() -> None:
    seats = [TOPOLOGY.seats[gpu] for gpu in gpus(0, 1, 2, 3)]
    placed = assign_at_home([need(J0, 4)], seats, {J0: gpus(1, 2)}, {J0: 1})
    assert placed == {J0: gpus(2, 3)}


def test_a_bid_asks_for_gpus_at_home_only() -> None:
    rows = (
        Row((Chunk(SLOT, 1),), 50.0),
        Row((Chunk(MACHINE, 2),), 30.0),
        Row((Chunk(RACK, 2),), 35.0),
        Row((Chunk(CLUSTER, 3),), 20.0),
        Row((Chunk(SLOT, 1, 0), Chunk(SLOT, 1)), 25.0),
    )
    offer = Offer(1, gpus(0, 1, 2, 3, 4, 5), ())
    bound = bid_at_home(Bid(A, rows), {1: 2}, offer, TOPOLOGY)
    assert bound.rows == (
        Row((Chunk(SLOT, 1, 1),), 50.0),
        Row((Chunk(MACHINE, 2, 1),), 30.0),
        Row((Chunk(SLOT, 1, 0), Chunk(SLOT, 1, 1)), 25.0),
    )
    elsewhere = Offer(1, gpus(0, 1), ())
    assert not bid_at_home(Bid(A, rows), {1: 2}, elsewhere, TOPOLOGY).rows


def test_an_agent_whose_job_is_bound_gives_the_wrong_gpu_back_and_starts_it_at_home() -> None:
    agent = agent_of(1)
    assert started(agent.handle(leased(2))) == {J0: gpus(2)}
    told = agent.handle(ev.JobBound(1.0, J0, 0))
    assert not any(isinstance(item, cmd.StopJob | cmd.StartJob) for item in told)
    assert cmd.ReleaseGpus(gpus(2)) in told
    (answer,) = agent.handle(ev.Asked(2.0, Offer(1, gpus(0, 1, 2, 3), ()), TOPOLOGY))
    assert isinstance(answer, cmd.Answer)
    assert {chunk.machine for row in answer.bid.rows for chunk in row.chunks} == {0}
    assert started(agent.handle(leased(1))) == {J0: gpus(1)}


def test_a_bound_job_does_not_take_the_place_of_one_that_is_done_elsewhere() -> None:
    agent = agent_of(2)
    agent.handle(ev.JobBound(0.0, J1, 0))
    assert started(agent.handle(leased(2))) == {J0: gpus(2)}
    told = agent.handle(ev.JobReached(5.0, J0, 1.0))
    assert not started(told)
    assert cmd.ReleaseGpus(gpus(2)) in told
    assert started(agent.handle(ev.JobBound(6.0, J1, None))) == {}
    assert started(agent.handle(leased(3))) == {J1: gpus(3)}


def test_where_others_wait_any_gpus_are_asked_for() -> None:
    agent = agent_of(2)
    agent.handle(ev.JobBound(0.0, J1, 0))
    (answer,) = agent.handle(ev.Asked(2.0, Offer(1, gpus(0, 1, 2, 3), ()), TOPOLOGY))
    assert isinstance(answer, cmd.Answer)
    assert {chunk.machine for row in answer.bid.rows for chunk in row.chunks} == {None}
