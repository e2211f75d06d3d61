"""Every worked number about fairness, from the paper's example and from the specification."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from themis.core.agent import Agent, AppBidder, BidContext, JobNeed, commands, events
from themis.core.fairness import (
    Convention,
    FluidApp,
    JobLoad,
    PhaseLoad,
    Values,
    best_rate,
    declared_phases,
    demand_max,
    fluid_run,
    halving_from_budget,
    hyperband,
    ideal_time,
    is_envy_free,
    is_pareto_efficient,
    phase_time,
    reference_ideal_time,
    remaining_phases,
    rho,
    sharing_incentive,
    single_job_time,
    total_work,
)
from themis.core.model import (
    NO_SLOWDOWN,
    AppId,
    AppSpec,
    GpuId,
    GpuPosition,
    JobId,
    JobSpec,
    Machine,
    Offer,
    OwnerId,
    Phase,
    Slowdown,
    Topology,
)
from themis.core.tuners import tuner_for

SERIAL_TIMES = (80.0, 100.0, 100.0, 120.0)
JOBS = tuple(JobSpec(JobId(f"j{n}"), time, max_gpus=8) for n, time in enumerate(SERIAL_TIMES))
EXAMPLE = AppSpec(
    AppId("example"),
    OwnerId("ann"),
    JOBS,
    halving_from_budget(SERIAL_TIMES, budget=10_000.0),
    budget=10_000.0,
)


SENSITIVE = Slowdown((1.0, 1.0, 3.0, 4.0))
ONE, TWO = AppId("one"), AppId("two")


def machines(*sizes: int) -> tuple[GpuPosition, ...]:
    """The seats of machines of these sizes, all in one rack."""
    return Topology(tuple(Machine(f"m{n}", "r0", (size,)) for n, size in enumerate(sizes))).seats


def rates(seats: Sequence[GpuPosition], slowdowns: Mapping[AppId, Slowdown]) -> Values:
    """Apps of one job with four tasks value GPUs by how fast they train."""

    def value(app: AppId, gpus: frozenset[GpuId]) -> float:
        return best_rate(slowdowns[app], 1, 4, [seats[gpu] for gpu in sorted(gpus)])[0]

    return value


def gpus(*numbers: int) -> frozenset[GpuId]:
    return frozenset(GpuId(number) for number in numbers)


def even_phase_time(phase: PhaseLoad, total: int) -> float:
    """A phase whose jobs share the GPUs as evenly as whole GPUs allow, S = 1."""
    whole, extra = divmod(total, len(phase))
    evenly = [min(whole + (index < extra), job.max_gpus) for index, job in enumerate(phase)]
    best = [min(total, job.max_gpus) for job in phase]
    return phase_time([job.work for job in phase], evenly, best)


def even_shared_time(phases: Sequence[PhaseLoad], total: int) -> float:
    return math.fsum(even_phase_time(phase, total) for phase in phases)


def bid_seconds(agent: Agent, total: int) -> float:
    """What an agent says it needs with so many GPUs of one machine, nothing to restart."""
    topology = Topology((Machine("m0", "r0", (total,)),))
    offer = Offer(1, tuple(map(GpuId, range(total))), ())
    (answer,) = agent.handle(events.Asked(0.0, offer, topology))
    assert isinstance(answer, commands.SendBid)
    row = min((row for row in answer.bid.table if row.count == total), key=lambda row: row.level)
    assert [row.seconds for row in answer.bid.rows if row.gpus == total] == [row.seconds]
    return row.seconds


def in_phase(number: int, *, max_gpus: int = 8) -> Agent:
    """The agent of the example after so many phases; the jobs of 120 and 100 s are the best."""
    spec = replace(
        EXAMPLE,
        jobs=tuple(replace(job, max_gpus=max_gpus) for job in JOBS),
        checkpoint_seconds=0.0,
        restart_seconds=0.0,
    )
    tuner = tuner_for(spec, "halving")
    agent = Agent(spec, tuner)
    for _ in range(number):
        for job in [info.job for info in tuner.jobs_in_phase(tuner.phase)]:
            agent.handle(events.JobReached(0.0, job, -float(job[1:])))
    return agent


def test_budget_gives_phases_of_4_2_1_jobs_with_8_16_36() -> None:
    phases = [(phase.jobs, phase.iterations) for phase in EXAMPLE.phases]
    assert phases == [(4, 8), (2, 16), (1, 36)]
    assert total_work(declared_phases(EXAMPLE)) == 10_000.0


def test_the_ideal_time_of_the_example_is_2500_seconds() -> None:
    phases = declared_phases(EXAMPLE)
    assert demand_max(phases) == 32
    assert ideal_time(Convention.PAPER, phases, contention=4, capacity=16) == 2500.0


@pytest.mark.parametrize(
    ("total", "shared", "expected"),
    [(1, 10_000, 4.0), (2, 5000, 2.0), (4, 2500, 1.0), (8, 1250, 0.5), (16, 850, 0.34)],
)
def test_the_examples_shared_time_and_rho(total: int, shared: float, expected: float) -> None:
    phases = declared_phases(EXAMPLE)
    ideal = ideal_time(Convention.PAPER, phases, contention=4, capacity=16, budget=EXAMPLE.budget)
    found = even_shared_time(phases, total)
    assert found == pytest.approx(shared)
    assert rho(found, ideal) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("total", "shared"), [(1, 10_000), (2, 5000), (4, 2500), (8, 1250), (16, 850)]
)
def test_the_example_s_agent_bids_its_shared_time(total: int, shared: float) -> None:
    assert bid_seconds(in_phase(0), total) == pytest.approx(shared)


def test_the_example_s_agent_bids_1760_then_2160_seconds_for_its_survivors() -> None:
    # The second phase and the third, whose job is a copy of the upper median; then that one alone.
    assert bid_seconds(in_phase(1), 2) == pytest.approx(1760 + 2160)
    assert bid_seconds(in_phase(2), 2) == pytest.approx(2160)
    # With max_gpus 1 the longer job decides, and the last one cannot use the second GPU.
    assert bid_seconds(in_phase(1, max_gpus=1), 2) == pytest.approx(1920 + 2 * 2160)


@pytest.mark.parametrize(("high", "seconds"), [(8, 1760), (1, 1920)])
def test_a_bidder_s_second_phase_alone(high: int, seconds: float) -> None:
    jobs = [replace(job, max_gpus=high) for job in (JOBS[3], JOBS[1])]
    needs = tuple(JobNeed(job, 16 * job.serial_iteration_time) for job in jobs)
    bidder = AppBidder(EXAMPLE, restart_in_bids=False)
    topology = Topology((Machine("m0", "r0", (2,)),))
    offer = Offer(1, (GpuId(0), GpuId(1)), ())
    bid = bidder.bid(BidContext(needs, (), {}), offer, topology)
    assert [row.seconds for row in bid.rows if row.gpus == 2] == [seconds]


def test_the_second_phase_with_survivors_of_120_and_100_seconds() -> None:
    works = [16 * 120.0, 16 * 100.0]
    assert phase_time(works, [1.0, 1.0], [2.0, 2.0]) == 1760.0
    # With max_gpus 1 the longer job decides; the paper prints 3200 for 120 x 16.
    assert phase_time(works, [1.0, 1.0], [1.0, 1.0]) == 1920.0


def test_the_third_phase_copies_the_upper_median_survivor() -> None:
    survivors = (JOBS[3], JOBS[1])
    current = tuple(JobLoad(16 * job.serial_iteration_time, 8) for job in survivors)
    (last,) = remaining_phases(current, EXAMPLE, survivors, 1)[-1]
    assert phase_time([last.work], [2.0], [2.0]) == 2160.0


def test_the_fair_share_of_eight_jobs_of_four_gpus() -> None:
    budget = 1e6
    phases = tuple((JobLoad(budget / 4 / jobs, 4),) * jobs for jobs in (8, 4, 2, 1))
    found = ideal_time(Convention.FAIR_SHARE, phases, contention=5, capacity=64)
    assert found / budget == pytest.approx(0.1328, abs=5e-5)


@pytest.mark.parametrize(("total", "expected"), [(1, 1 / 2), (2, 1 / 4)])
def test_the_bid_table_of_a_job_with_200_serial_seconds_left(total: int, expected: float) -> None:
    rate, _ = best_rate(NO_SLOWDOWN, 1, 4, machines(2)[:total])
    assert rho(single_job_time(0.0, 200.0, rate), ideal_time=400.0) == expected


@pytest.mark.parametrize(("total", "expected"), [(1, 1 / 2), (2, 1 / 4)])
def test_an_agent_s_bid_table_with_200_serial_seconds_left(total: int, expected: float) -> None:
    spec = AppSpec(
        AppId("a"),
        OwnerId("ann"),
        (JobSpec(JobId("j0"), 100.0, max_gpus=4),),
        (Phase(1, 2),),
        checkpoint_seconds=0.0,
        restart_seconds=0.0,
    )
    found = bid_seconds(Agent(spec, tuner_for(spec)), total)
    assert rho(found, ideal_time=400.0) == expected


def test_hyperband_of_81_starts_81_34_15_8_and_5_jobs() -> None:
    assert [bracket.jobs for bracket in hyperband(81, eta=3)] == [81, 34, 15, 8, 5]


def test_fluid_equal_shares_give_wide_one_job_apps_rho_one() -> None:
    phases: tuple[PhaseLoad, ...] = ((JobLoad(6400.0, 64),),)
    apps = [FluidApp(AppId(f"a{n}"), 0.0, 1.0, phases) for n in range(4)]
    results = fluid_run(apps, capacity=64)
    for app in apps:
        result = results[app.id]
        ideal = reference_ideal_time(Convention.FAIR_SHARE, phases, result, capacity=64)
        assert result.completion / ideal == pytest.approx(1.0)


def test_instance_1_spreading_two_sensitive_apps_breaks_the_sharing_incentive() -> None:
    values = rates(machines(4, 4), {ONE: SENSITIVE, TWO: SENSITIVE})
    spread = {ONE: gpus(0, 1, 4, 5), TWO: gpus(2, 3, 6, 7)}
    packed = {ONE: gpus(0, 1, 2, 3), TWO: gpus(4, 5, 6, 7)}
    phases = ((JobLoad(1200.0, 4),),)
    ideal = ideal_time(Convention.FAIR_SHARE, phases, contention=2, capacity=8)

    def rhos(held: Mapping[AppId, frozenset[GpuId]]) -> dict[AppId, float]:
        return {
            app: rho(single_job_time(0.0, 1200.0, values(app, held[app])), ideal) for app in held
        }

    # Two GPUs of each machine: half the speed of a private machine, S = 3 for all four.
    assert sharing_incentive(rhos(spread)).violations == ((ONE, 2.0), (TWO, 2.0))
    assert not is_pareto_efficient(spread, values)
    assert sharing_incentive(rhos(packed))
    assert is_pareto_efficient(packed, values)
    assert is_envy_free(packed, values)


def test_instance_2_the_large_machine_for_the_insensitive_app_breaks_two_properties() -> None:
    # One machine with four GPUs and two with two; app one does not mind distance.
    values = rates(machines(4, 2, 2), {ONE: NO_SLOWDOWN, TWO: SENSITIVE})
    wrong = {ONE: gpus(0, 1, 2, 3), TWO: gpus(4, 5, 6, 7)}
    right = {ONE: gpus(4, 5, 6, 7), TWO: gpus(0, 1, 2, 3)}
    envy = is_envy_free(wrong, values).envy
    assert envy is not None
    assert (envy.app, envy.envied, envy.own, envy.other) == (TWO, ONE, 2.0, 4.0)
    better = is_pareto_efficient(wrong, values).better
    assert better is not None
    assert values(ONE, better[ONE]) == 4.0
    assert values(TWO, better[TWO]) > 2.0
    assert is_envy_free(right, values)
    assert is_pareto_efficient(right, values)
