"""Rates of alike jobs on shapes: as the carving gives them, found sooner."""

from hypothesis import given
from hypothesis import strategies as st

from themis.core.agent.carving import shape_rates
from themis.core.agent.training_rates import (
    MOST_REMEMBERED,
    JobRates,
    Runs,
    in_runs,
    rates_of,
    spelled_out,
)
from themis.core.model import CLUSTER, LEVELS, MACHINE, SLOT, MeasuredSlowdown, Slowdown

VGG = Slowdown((1.0, 1.05, 1.29, 1.44))

_VALUES = st.sampled_from([1.0, 1.05, 1.3, 1.5, 2.0, 4.0, 9.0])
_PRIORS = st.tuples(_VALUES, _VALUES, _VALUES, _VALUES)
_CHUNKS = st.tuples(st.sampled_from(LEVELS), st.integers(1, 9))
_SHAPES = st.dictionaries(_CHUNKS, st.sampled_from([1, 2, 3, 7, 20]), min_size=1, max_size=4)


@st.composite
def _kinds(draw: st.DrawFn) -> tuple[int, int, Slowdown]:
    low = draw(st.sampled_from([1, 1, 2, 3, 4]))
    levels = draw(_PRIORS)
    if draw(st.booleans()):
        one, two, three, four = sorted(levels)
        levels = (one, two, three, four)
    measured = draw(st.sampled_from([(), (), (MeasuredSlowdown(MACHINE, 3, 0.9),)]))
    return low, low + draw(st.sampled_from([0, 1, 2, 3, 7, 12])), Slowdown(levels, measured)


@given(kind=_kinds(), shape=_SHAPES, jobs=st.sampled_from([1, 2, 3, 5, 8, 20, 100]))
def test_the_short_way_finds_what_the_carving_finds_to_the_last_bit(
    kind: tuple[int, int, Slowdown], shape: dict[tuple[int, int], int], jobs: int
) -> None:
    low, high, slowdown = kind
    runs: Runs = tuple((level, count, many) for (level, count), many in sorted(shape.items()))
    found = JobRates(low, high, slowdown).reach(runs, jobs)
    assert found == shape_rates(spelled_out(runs), jobs, low, high, slowdown)


@given(shape=_SHAPES)
def test_a_shape_is_the_same_in_runs_and_spelled_out(shape: dict[tuple[int, int], int]) -> None:
    chunks = tuple(sorted(chunk for chunk, many in shape.items() for _ in range(many)))
    assert spelled_out(in_runs(chunks)) == chunks
    assert in_runs(chunks[::-1]) == in_runs(chunks)


def test_too_few_gpus_for_a_gang_train_nothing() -> None:
    assert rates_of(4, 4, VGG).reach(((MACHINE, 3, 1),), 2) == (0.0, 0.0)
    # Three here and three there make a gang across racks.
    assert rates_of(4, 4, VGG).reach(((MACHINE, 3, 2),), 2) == (4 / 1.44, 4 / 1.44)


def test_jobs_of_one_gpu_run_one_on_each() -> None:
    assert rates_of(1, 1, VGG).reach(((SLOT, 2, 3), (CLUSTER, 4, 1)), 7) == (7.0, 1.0)


def _known(rates: JobRates, jobs: int) -> set[Runs]:
    return {runs for runs, by_jobs in rates._known.items() if jobs in by_jobs}


def test_apps_with_the_same_kind_of_job_share_what_was_found() -> None:
    assert rates_of(1, 4, VGG) is rates_of(1, 4, Slowdown(VGG.levels))


def test_learned_rates_do_not_grow_with_shapes() -> None:
    rates = JobRates(1, 1, VGG)
    for count in range(1, 3 * MOST_REMEMBERED):
        rates.reach(((CLUSTER, count, 1),), 1)
    assert 0 < len(_known(rates, 1)) <= MOST_REMEMBERED
    assert rates.reach(((CLUSTER, 1, 1),), 1) == (1.0, 1.0)


def test_learned_rates_do_not_grow_with_numbers_of_jobs() -> None:
    rates = JobRates(1, 1, VGG)
    numbers = range(1, 41)
    for jobs in numbers:
        for count in range(1, 2000):
            rates.reach(((CLUSTER, count, 1),), jobs)
    assert 0 < sum(len(_known(rates, jobs)) for jobs in numbers) <= MOST_REMEMBERED
    assert rates.reach(((CLUSTER, 7, 1),), 40) == (7.0, 1.0)
