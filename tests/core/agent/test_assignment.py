"""Which job runs where: nobody moves without need, no GPU is used twice, gangs are respected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.core.agent import JobNeed, assign
from themis.core.model import NO_SLOWDOWN, GpuId, JobId, JobSpec, Machine, Slowdown, Topology

VGG = Slowdown((1.0, 1.05, 1.29, 1.44))
TOPOLOGY = Topology(
    (Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2, 2)), Machine("m2", "r1", (2, 2)))
)


def _need(
    number: int,
    work: float = 100.0,
    *,
    high: int = 4,
    low: int = 1,
    slowdown: Slowdown = NO_SLOWDOWN,
) -> JobNeed:
    return JobNeed(JobSpec(JobId(f"j{number}"), 1.0, high, low, slowdown), work)


def _assign(
    needs: list[JobNeed],
    gpus: list[int],
    running: dict[str, tuple[int, ...]] | None = None,
    *,
    restart: float = 0.0,
    sticky: bool = True,
) -> dict[str, tuple[int, ...]]:
    seats = [TOPOLOGY.seats[gpu] for gpu in gpus]
    before = {JobId(j): tuple(map(GpuId, gs)) for j, gs in (running or {}).items()}
    plan = assign(needs, seats, before, restart=restart, sticky=sticky)
    return {str(job): tuple(map(int, found)) for job, found in plan.items()}


def test_jobs_get_machines_of_their_own() -> None:
    plan = _assign([_need(0, slowdown=VGG), _need(1, slowdown=VGG)], list(range(8)))
    assert sorted(plan.values()) == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_no_job_or_no_gpu_places_nothing() -> None:
    assert _assign([], [0, 1]) == {}
    assert _assign([_need(0)], []) == {}


def test_the_longest_jobs_run_first_when_gpus_are_short() -> None:
    plan = _assign([_need(0, 10.0, low=4), _need(1, 99.0, low=4)], [0, 1, 2, 3])
    assert plan == {"j1": (0, 1, 2, 3)}


def test_running_job_stays_unless_another_placement_is_better() -> None:
    assert _assign([_need(0)], list(range(12)), {"j0": (8, 9, 10, 11)}) == {"j0": (8, 9, 10, 11)}


def test_without_stickiness_it_takes_the_first_place() -> None:
    plan = _assign([_need(0)], list(range(12)), {"j0": (8, 9, 10, 11)}, sticky=False)
    # Both are as fast; a gang that is where the job runs already is only kept by sticky agents
    # when it comes out of the carving.
    assert plan == {"j0": (0, 1, 2, 3)}


def test_newcomer_does_not_move_running_jobs() -> None:
    plan = _assign([_need(0), _need(1)], list(range(8)), {"j0": (2, 3, 4, 5)})
    assert plan["j0"] == (2, 3, 4, 5)
    assert plan["j1"] == (0, 1, 6, 7)


@pytest.mark.parametrize(("work", "moves"), [(20.0, False), (2000.0, True)])
def test_a_job_grows_only_when_that_pays_for_the_restart(work: float, moves: bool) -> None:
    # From one GPU to four saves 3/4 of the work, and costs 42 s.
    plan = _assign([_need(0, work)], [0, 1, 2, 3], {"j0": (0,)}, restart=42.0)
    assert plan == {"j0": (0, 1, 2, 3) if moves else (0,)}


def test_gain_below_two_percent_moves_no_job() -> None:
    slightly = Slowdown((1.0, 1.01, 1.01, 1.01))
    plan = _assign([_need(0, slowdown=slightly, high=2)], list(range(4)), {"j0": (1, 2)})
    assert plan == {"j0": (1, 2)}


def test_job_that_lost_a_gpu_restarts_on_the_rest() -> None:
    plan = _assign([_need(0)], [0, 1, 2], {"j0": (0, 1, 2, 3)})
    assert plan == {"j0": (0, 1, 2)}


def test_waiting_jobs_count_when_staying_is_compared_with_moving() -> None:
    # One job on four scattered GPUs at S = 4 does both in 2 x 4/4; two on a slot each in 1/2.
    slow = Slowdown((1.0, 4.0, 4.0, 4.0))
    needs = [_need(0, 1000.0, slowdown=slow), _need(1, 1000.0, slowdown=slow)]
    plan = _assign(needs, [0, 1, 4, 5], {"j0": (0, 1, 4, 5)}, restart=100.0)
    assert sorted(plan.values()) == [(0, 1), (4, 5)]


def test_gang_too_small_for_one_job_goes_to_another() -> None:
    needs = [_need(0, 900.0, low=4), _need(1, 100.0, low=1, high=2)]
    plan = _assign(needs, [0, 1])
    assert plan == {"j1": (0, 1)}


_NEEDS = st.lists(
    st.tuples(st.floats(1.0, 1e5), st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=6
).map(
    lambda rows: [
        _need(i, work, low=low, high=low + extra, slowdown=VGG)
        for i, (work, low, extra) in enumerate(rows)
    ]
)


_ALIKE = st.tuples(
    st.lists(st.floats(1.0, 1e5), min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 4)
).map(
    lambda row: [
        _need(i, work, low=row[1], high=row[1] + row[2], slowdown=VGG)
        for i, work in enumerate(row[0])
    ]
)


@st.composite
def _standing(
    draw: st.DrawFn, jobs: st.SearchStrategy[list[JobNeed]] = _NEEDS
) -> tuple[list[JobNeed], list[int], dict[str, tuple[int, ...]]]:
    needs = draw(jobs)
    order = draw(st.permutations(range(12)))
    running = {}
    for need in needs:
        count = draw(st.integers(need.spec.min_gpus, need.spec.max_gpus))
        if draw(st.booleans()) and count <= len(order):
            running[str(need.spec.id)] = tuple(sorted(order[:count]))
            order = order[count:]
    gpus = draw(st.sets(st.integers(0, 11)))
    return needs, sorted(gpus), running


@given(standing=_standing(), restart=st.sampled_from([0.0, 42.5, 1e6]), sticky=st.booleans())
def test_every_placement_is_within_the_gpus_and_the_bounds_of_its_jobs(
    standing: tuple[list[JobNeed], list[int], dict[str, tuple[int, ...]]],
    restart: float,
    sticky: bool,
) -> None:
    needs, gpus, running = standing
    plan = _assign(needs, gpus, running, restart=restart, sticky=sticky)
    used = [gpu for found in plan.values() for gpu in found]
    assert len(used) == len(set(used))
    assert set(used) <= set(gpus)
    bounds = {str(need.spec.id): need.spec for need in needs}
    for job, found in plan.items():
        assert bounds[job].min_gpus <= len(found) <= bounds[job].max_gpus
        assert list(found) == sorted(found)


@given(standing=_standing())
def test_costly_restarts_keep_unaffected_jobs_in_place(
    standing: tuple[list[JobNeed], list[int], dict[str, tuple[int, ...]]],
) -> None:
    needs, gpus, running = standing
    plan = _assign(needs, gpus, running, restart=1e12)
    for job, found in running.items():
        if set(found) <= set(gpus):
            assert plan[job] == found


@given(standing=_standing(_ALIKE))
def test_assigning_jobs_that_are_alike_again_changes_nothing(
    standing: tuple[list[JobNeed], list[int], dict[str, tuple[int, ...]]],
) -> None:
    needs, gpus, running = standing
    plan = _assign(needs, gpus, running, restart=42.5)
    assert _assign(needs, gpus, plan, restart=42.5) == plan
