"""Jobs whose checkpoints are on one machine: they run there, and bids ask for GPUs there."""

from tests.support.scripted_world import simple_app
from themis.core.agent import commands as cmd
from themis.core.agent import events as ev
from themis.core.agent.agent import Agent
from themis.core.agent.job_assignment import JobNeed
from themis.core.agent.pinned_jobs import assign_at_home, bid_at_home
from themis.core.model import (
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
    LeaseSource,
    Machine,
    Offer,
    Row,
    Topology,
)
from themis.core.tuners import tuner_for

TOPOLOGY = Topology(tuple(Machine(f"m{n}", "r0", (2,)) for n in range(3)))
A, J0, J1 = AppId("a"), JobId("j0"), JobId("j1")


def gpus(*numbers: int) -> tuple[GpuId, ...]:
    return tuple(map(GpuId, numbers))


def need(name: JobId, most: int = 1, work: float = 100.0) -> JobNeed:
    return JobNeed(JobSpec(name, 1.0, most), work)


def leased(*numbers: int) -> ev.LeasesChanged:
    leases = tuple(Lease(gpu, A, 7, 0.0, 600.0, LeaseSource.AUCTION) for gpu in gpus(*numbers))
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


def test_gpus_of_running_jobs_are_left_to_them() -> None:
    seats = [TOPOLOGY.seats[gpu] for gpu in gpus(0, 1)]
    placed = assign_at_home([need(J0), need(J1)], seats, {J1: gpus(0)}, {J0: 0})
    assert placed == {J0: gpus(1), J1: gpus(0)}


def test_job_bound_to_its_first_machine_continues_on_several_machines() -> None:
    spec = simple_app(A, gpus=4, min_gpus=4, iterations=100)
    agent = Agent(spec, tuner_for(spec))
    assert started(agent.handle(leased(0, 1, 2, 3))) == {J0: gpus(0, 1, 2, 3)}
    assert agent.handle(ev.JobBound(1.0, J0, 0)) == []
    assert agent.placement == {J0: gpus(0, 1, 2, 3)}


def test_job_on_several_machines_leaves_when_its_checkpoints_are_elsewhere() -> None:
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


def test_agent_returns_the_wrong_gpu_and_starts_bound_job_at_home() -> None:
    agent = agent_of(1)
    assert started(agent.handle(leased(2))) == {J0: gpus(2)}
    told = agent.handle(ev.JobBound(1.0, J0, 0))
    assert not any(isinstance(item, cmd.StopJob | cmd.StartJob) for item in told)
    assert cmd.ReleaseGpus(gpus(2)) in told
    (answer,) = agent.handle(ev.Asked(2.0, Offer(1, gpus(0, 1, 2, 3), ()), TOPOLOGY))
    assert isinstance(answer, cmd.SendBid)
    assert {chunk.machine for row in answer.bid.rows for chunk in row.chunks} == {0}
    assert started(agent.handle(leased(1))) == {J0: gpus(1)}


def test_bound_job_does_not_replace_a_finished_job_elsewhere() -> None:
    agent = agent_of(2)
    agent.handle(ev.JobBound(0.0, J1, 0))
    assert started(agent.handle(leased(2))) == {J0: gpus(2)}
    told = agent.handle(ev.JobReached(5.0, J0, 1.0))
    assert not started(told)
    assert cmd.ReleaseGpus(gpus(2)) in told
    assert started(agent.handle(ev.JobBound(6.0, J1, None))) == {}
    assert started(agent.handle(leased(3))) == {J1: gpus(3)}


def test_competing_jobs_ask_for_any_gpus() -> None:
    agent = agent_of(2)
    agent.handle(ev.JobBound(0.0, J1, 0))
    (answer,) = agent.handle(ev.Asked(2.0, Offer(1, gpus(0, 1, 2, 3), ()), TOPOLOGY))
    assert isinstance(answer, cmd.SendBid)
    assert {chunk.machine for row in answer.bid.rows for chunk in row.chunks} == {None}


def wide_need(name: JobId, fewest: int, most: int) -> JobNeed:
    return JobNeed(JobSpec(name, 1.0, most, fewest), 100.0)


def test_job_larger_than_its_home_is_led_from_its_home() -> None:
    seats = [TOPOLOGY.seats[gpu] for gpu in gpus(0, 1, 2, 3, 4, 5)]
    needs, homes = [wide_need(J0, 3, 4), need(J1)], {J0: 1}
    placed = assign_at_home(needs, seats, {}, homes, wide={J0})
    assert placed == {J0: gpus(2, 3, 0, 1), J1: gpus(4)}
    around = assign_at_home(needs, seats, {J1: gpus(2)}, homes, wide={J0})
    assert around == {J0: gpus(3, 0, 1, 4), J1: gpus(2)}
    assert assign_at_home(needs, seats, around, homes, wide={J0}) == around, "it stays"
    near = assign_at_home(needs, seats, {J1: gpus(0)}, homes, wide={J0})
    assert near == {J0: gpus(2, 3, 4, 5), J1: gpus(0)}, "on as few machines as can be"
    five = [wide_need(J0, 5, 5), need(J1)]
    assert assign_at_home(five, seats, {J1: gpus(0)}, homes, wide={J0})[J0] == gpus(2, 3, 1, 4, 5)
    elsewhere = [seat for seat in seats if seat.machine != 1]
    assert J0 not in assign_at_home(needs, elsewhere, {}, homes, wide={J0})
    few = [TOPOLOGY.seats[gpu] for gpu in gpus(0, 2)]
    assert J0 not in assign_at_home(needs, few, {}, homes, wide={J0})


def test_bid_for_a_job_led_from_home_takes_other_gpus_anywhere() -> None:
    rows = (
        Row((Chunk(RACK, 4),), 30.0),
        Row((Chunk(CLUSTER, 3),), 45.0),
        Row((Chunk(CLUSTER, 4),), 40.0),
        Row((Chunk(CLUSTER, 6),), 35.0),
    )
    offer = Offer(1, gpus(0, 1, 2, 3, 4, 5), ())
    bound = bid_at_home(Bid(A, rows), {1: 4}, offer, TOPOLOGY, led={1: 3})
    assert bound.rows == (
        Row((Chunk(MACHINE, 2, 1), Chunk(SLOT, 1)), 45.0),
        Row((Chunk(MACHINE, 2, 1), Chunk(CLUSTER, 2)), 40.0),
    )
    elsewhere = Offer(1, gpus(0, 1, 4, 5), ())
    assert not bid_at_home(Bid(A, rows), {1: 4}, elsewhere, TOPOLOGY, led={1: 3}).rows


def test_agent_starts_a_job_larger_than_its_home_and_keeps_it() -> None:
    spec = simple_app(A, gpus=4, min_gpus=4, iterations=100)
    agent = Agent(spec, tuner_for(spec))
    assert started(agent.handle(leased(0, 1, 2, 3))) == {J0: gpus(0, 1, 2, 3)}
    # It was refused there: its checkpoints are on the second machine.
    assert started(agent.handle(ev.JobBound(1.0, J0, 1))) == {J0: gpus(2, 3, 0, 1)}
    assert agent.handle(ev.JobBound(2.0, J0, None)) == []
    successor = Agent(spec, tuner_for(spec))
    placement = ((J0, gpus(2, 3, 0, 1)),)
    assert successor.handle(ev.Resumed(3.0, TOPOLOGY, gpus(0, 1, 2, 3), placement)) == []


def test_agent_bids_for_a_job_larger_than_its_home() -> None:
    spec = simple_app(A, gpus=4, min_gpus=4, iterations=100)
    agent = Agent(spec, tuner_for(spec))
    agent.handle(ev.JobBound(1.0, J0, 1))
    (answer,) = agent.handle(ev.Asked(2.0, Offer(1, gpus(0, 1, 2, 3, 4, 5), ()), TOPOLOGY))
    assert isinstance(answer, cmd.SendBid)
    assert [row.chunks for row in answer.bid.rows] == [(Chunk(MACHINE, 2, 1), Chunk(CLUSTER, 2))]
