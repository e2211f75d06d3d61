"""GPUs that are left over go to the jobs that end last."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.core.agent import JobNeed, assign, unequal_gangs
from themis.core.model import GpuId, JobId, JobSpec, Machine, Slowdown, Topology, level_of

VGG = Slowdown((1.0, 1.05, 1.29, 1.44))
TOPOLOGY = Topology(
    (Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2, 2)), Machine("m2", "r1", (2, 2)))
)


def jobs(*works: float, high: int = 2, low: int = 1) -> list[JobNeed]:
    return [
        JobNeed(JobSpec(JobId(f"j{number}"), 1.0, high, low, VGG), work)
        for number, work in enumerate(works)
    ]


def placed(
    needs: list[JobNeed],
    gpus: list[int],
    running: Mapping[str, tuple[int, ...]] | None = None,
    *,
    restart: float = 40.0,
    uneven: bool = True,
) -> dict[str, tuple[int, ...]]:
    seats = [TOPOLOGY.seats[gpu] for gpu in gpus]
    before = {JobId(job): tuple(map(GpuId, gang)) for job, gang in (running or {}).items()}
    plan = assign(needs, seats, before, restart=restart, uneven=uneven)
    return {str(job): tuple(map(int, gang)) for job, gang in plan.items()}


def widths(plan: dict[str, tuple[int, ...]]) -> dict[str, int]:
    return {job: len(gang) for job, gang in sorted(plan.items())}


def end(needs: list[JobNeed], plan: dict[str, tuple[int, ...]]) -> float:
    """When the last job ends, if it starts now."""
    ends = []
    for need in needs:
        gang = [TOPOLOGY.seats[gpu] for gpu in plan[str(need.spec.id)]]
        ends.append(need.work / need.spec.slowdown.rate(level_of(gang), len(gang)))
    return max(ends)


def test_the_longest_job_has_the_widest_gang() -> None:
    needs = jobs(900.0, 100.0, 100.0)
    assert widths(placed(needs, [0, 1, 2, 3], uneven=False)) == {"j0": 1, "j1": 1, "j2": 1}
    assert widths(placed(needs, [0, 1, 2, 3])) == {"j0": 2, "j1": 1, "j2": 1}


def test_wide_gangs_are_cut_first_so_that_they_are_close_together() -> None:
    plan = placed(jobs(900.0, 800.0, 100.0, 100.0, 100.0), list(range(7)))
    assert {plan["j0"], plan["j1"]} <= {(0, 1), (2, 3), (4, 5)}


def test_once_the_last_job_can_end_no_sooner_the_rest_is_left() -> None:
    plan = placed(jobs(900.0, 440.0, 100.0, 100.0, 100.0), list(range(8)))
    assert widths(plan) == {"j0": 2, "j1": 1, "j2": 1, "j3": 1, "j4": 1}


def test_several_steps_are_made_where_jobs_can_use_more() -> None:
    plan = placed(jobs(90.0, 10.0, 10.0, 10.0, high=4), [0, 1, 2, 3, 4, 5])
    assert widths(plan) == {"j0": 3, "j1": 1, "j2": 1, "j3": 1}


def test_nothing_changes_while_a_job_waits() -> None:
    needs = jobs(900.0, 100.0, 100.0, low=2)
    assert placed(needs, [0, 1, 2, 3, 4]) == placed(needs, [0, 1, 2, 3, 4], uneven=False)


def test_no_job_is_widened_if_another_ends_as_late() -> None:
    needs = jobs(100.0, 100.0, 10.0)
    assert widths(placed(needs, [0, 1, 2, 3])) == {"j0": 1, "j1": 1, "j2": 1}
    assert widths(placed(needs, [0, 1, 2, 3, 4])) == {"j0": 2, "j1": 2, "j2": 1}


def test_a_running_job_is_widened_when_that_pays_for_its_restart() -> None:
    running = {"j0": (0,), "j1": (2,)}
    long, short = jobs(900.0, 60.0), jobs(70.0, 60.0)
    assert placed(long, [0, 1, 2], running) == {"j0": (0, 1), "j1": (2,)}
    assert placed(short, [0, 1, 2], running) == {"j0": (0,), "j1": (2,)}


def test_the_longest_job_does_not_stay_narrow_because_it_was_first() -> None:
    needs = jobs(28_500.0, 28_000.0, 26_000.0, 25_000.0, 24_000.0, 23_900.0)
    plan = placed(needs, list(range(10)), {"j0": (0,)})
    assert widths(plan) == {"j0": 2, "j1": 2, "j2": 2, "j3": 2, "j4": 1, "j5": 1}
    assert widths(placed(needs, list(range(10)), {"j0": (0,)}, uneven=False))["j0"] == 1


def test_job_at_its_desired_width_stays() -> None:
    running = {"j0": (0,), "j1": (6, 7), "j2": (9,)}
    plan = placed(jobs(28_500.0, 28_000.0, 10_000.0, 9_000.0), [0, 6, 7, 8, 9, 10, 11], running)
    assert len(plan["j0"]) == 2
    assert (plan["j1"], plan["j2"]) == ((6, 7), (9,))


def test_a_job_takes_the_nearest_gpu_and_none_that_slows_it() -> None:
    running = {"j0": (0,), "j1": (4,)}
    assert placed(jobs(900.0, 60.0), [0, 2, 4, 8], running)["j0"] == (0, 2)
    far = Slowdown((1.0, 2.5, 2.5, 2.5))
    slow = [JobNeed(replace(need.spec, slowdown=far), need.work) for need in jobs(900.0, 60.0)]
    assert placed(slow, [0, 2, 4], running)["j0"] == (0,)


@given(
    works=st.lists(st.floats(1.0, 1e5), min_size=1, max_size=6),
    low=st.integers(1, 3),
    extra=st.integers(0, 3),
    gpus=st.sets(st.integers(0, 11), min_size=1),
)
def test_widening_never_delays_a_phase_or_uses_a_gpu_twice(
    works: list[float], low: int, extra: int, gpus: set[int]
) -> None:
    needs = jobs(*works, low=low, high=low + extra)
    before = placed(needs, sorted(gpus), uneven=False)
    after = placed(needs, sorted(gpus))
    used = [gpu for gang in after.values() for gpu in gang]
    assert len(used) == len(set(used))
    assert set(used) <= gpus
    assert set(after) == set(before)
    assert all(low <= len(gang) <= low + extra for gang in after.values())
    if len(after) == len(needs):
        assert end(needs, after) <= end(needs, before) * (1 + 1e-9)


@given(
    works=st.lists(st.floats(1.0, 1e5), min_size=1, max_size=6),
    gpus=st.sets(st.integers(0, 11), min_size=1),
)
def test_placing_again_what_was_placed_changes_nothing(works: list[float], gpus: set[int]) -> None:
    needs = jobs(*works, high=4)
    plan = placed(needs, sorted(gpus))
    assert placed(needs, sorted(gpus), plan) == plan


@given(
    st.lists(st.floats(10.0, 5000.0), min_size=1, max_size=6),
    st.sampled_from((1, 2, 4, 8)),
    st.sets(st.integers(0, 11), min_size=1),
    st.tuples(*[st.floats(1.0, 2.5)] * 4),
    st.floats(0.0, 100.0),
    st.randoms(use_true_random=False),
)
def test_cuts_that_could_not_end_sooner_are_left_out_without_loss(
    works: list[float],
    high: int,
    gpus: set[int],
    levels: tuple[float, float, float, float],
    restart: float,
    rng: random.Random,
) -> None:
    profile = Slowdown(levels)
    order = [
        (JobSpec(JobId(f"j{number}"), 1.0, high, 1, profile), work)
        for number, work in enumerate(sorted(works, reverse=True))
    ]
    seats = [TOPOLOGY.seats[gpu] for gpu in sorted(gpus)]
    free = rng.sample(seats, len(seats))
    placement = {}
    for job, _ in order:
        size = min(rng.randint(1, high), len(free))
        if size:
            placement[job.id] = tuple(sorted(free[:size], key=lambda seat: seat.gpu))
            free = free[size:]
    running = {job: gang for job, gang in placement.items() if rng.random() < 0.5}
    quick = unequal_gangs.widened(order, seats, placement, running, restart)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unequal_gangs, "_gains_by_width", lambda _: False)
        assert quick == unequal_gangs.widened(order, seats, placement, running, restart)
