"""The profiler: what it believes of measured iterations, when, and what it never falls for."""

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.core.agent import Profiler
from themis.core.agent.profiler import EvidenceRule
from themis.core.model import CLUSTER, LEVELS, MACHINE, RACK, SLOT, JobId, JobSpec, Slowdown
from themis.errors import ConfigError

PRIOR = Slowdown((1.0, 1.1, 1.5, 2.0))
J0, J1, J2 = (JobId(f"j{number}") for number in range(3))


def _job(name: JobId = J0, serial: float = 1.0, gpus: int = 4, prior: Slowdown = PRIOR) -> JobSpec:
    return JobSpec(name, serial, gpus, slowdown=prior)


def _see(
    profiler: Profiler,
    level: int,
    count: int,
    slowdown: float,
    *,
    job: JobId = J0,
    serial: float = 1.0,
    times: int = 3,
    first: float = 100.0,
    iterations: float = 30.0,
) -> bool:
    """Measure a job of this true serial time that is slowed down so much."""
    changed = False
    for _ in range(times):
        seconds = iterations * serial * slowdown / count
        changed |= profiler.observe(
            job, level, count, first=first, iterations=iterations, seconds=seconds
        )
    return changed


def test_without_measurements_a_job_is_as_declared() -> None:
    profiler = Profiler([_job()])
    assert profiler.learned(_job()) == _job()
    assert profiler.estimated(J0)


def test_a_measured_cell_replaces_the_prior() -> None:
    profiler = Profiler([_job()])
    assert _see(profiler, RACK, 4, 3.0)
    profile = profiler.learned(_job()).slowdown
    assert profile.at(RACK, 4) == pytest.approx(3.0)
    assert profile.at(RACK, 1) == 1.0
    assert profile.at(MACHINE, 4) == 1.1
    assert not profiler.estimated(J0)


def test_measured_values_below_one_and_out_of_order_are_kept() -> None:
    profiler = Profiler([_job()])
    _see(profiler, MACHINE, 4, 1.6)
    _see(profiler, RACK, 4, 0.8)
    profile = profiler.learned(_job()).slowdown
    assert profile.at(MACHINE, 4) == pytest.approx(1.6)
    assert profile.at(RACK, 4) == pytest.approx(0.8)
    assert profile.levels[RACK] == 1.0, "for other counts it is an estimate, never below one"


@pytest.mark.parametrize(
    ("times", "iterations", "first", "believed"),
    [
        pytest.param(3, 30.0, 100.0, True, id="enough of both"),
        pytest.param(2, 30.0, 100.0, False, id="two windows might both be stalls"),
        pytest.param(3, 6.0, 100.0, False, id="18 iterations are too few"),
        pytest.param(4, 6.0, 100.0, True, id="24 are not"),
        pytest.param(9, 30.0, 0.0, False, id="all of it is warm-up"),
        pytest.param(9, 30.0, 9.9, False, id="some of it is warm-up"),
    ],
)
def test_belief_needs_windows_and_iterations_after_the_warm_up(
    times: int, iterations: float, first: float, believed: bool
) -> None:
    profiler = Profiler([_job()])
    changed = _see(profiler, RACK, 4, 3.0, times=times, iterations=iterations, first=first)
    assert changed is believed
    assert (profiler.learned(_job()).slowdown.at(RACK, 4) != 1.5) is believed


def test_jobs_of_one_model_learn_together_though_their_iterations_differ() -> None:
    jobs = [_job(J0, 0.8), _job(J1, 1.25)]
    profiler = Profiler(jobs)
    _see(profiler, RACK, 4, 3.0, job=J0, serial=0.8, times=2)
    assert _see(profiler, RACK, 4, 3.0, job=J1, serial=1.25, times=1)
    learned = [profiler.learned(job) for job in jobs]
    assert [job.slowdown.at(RACK, 4) for job in learned] == pytest.approx([3.0, 3.0])
    assert [job.serial_iteration_time for job in learned] == [0.8, 1.25]
    assert learned[0].slowdown is learned[1].slowdown, "compared by identity where speed counts"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(_job(J1, prior=Slowdown((1.0, 1.0, 1.2, 1.3))), id="another profile"),
        pytest.param(_job(J1, gpus=8), id="another width"),
    ],
)
def test_jobs_that_differ_learn_apart(other: JobSpec) -> None:
    profiler = Profiler([_job(), other])
    _see(profiler, RACK, 4, 3.0)
    assert profiler.learned(other) == other
    assert profiler.estimated(J1)


def test_one_gpu_corrects_the_serial_time_and_leaves_no_slowdown_there() -> None:
    jobs = [_job(J0, 1.0), _job(J1, 3.0)]
    profiler = Profiler(jobs)
    # Declared twice as fast as it is, for both.
    _see(profiler, RACK, 4, 1.5, serial=2.0)
    assert profiler.learned(jobs[0]).slowdown.at(RACK, 4) == pytest.approx(3.0)
    _see(profiler, SLOT, 1, 1.0, serial=2.0)
    first, second = map(profiler.learned, jobs)
    assert first.serial_iteration_time == pytest.approx(2.0)
    assert second.serial_iteration_time == pytest.approx(6.0)
    assert first.slowdown.at(SLOT, 1) == 1.0
    assert first.slowdown.at(RACK, 4) == pytest.approx(1.5)


def test_the_time_of_an_iteration_is_as_measured_whatever_was_declared() -> None:
    for serial in (0.5, 1.0, 2.0):
        for order in ((SLOT, RACK), (RACK, SLOT)):
            profiler = Profiler([_job(serial=serial)])
            for level in order:
                count, slowdown = (1, 1.0) if level == SLOT else (4, 1.7)
                _see(profiler, level, count, slowdown, serial=1.2)
            learned = profiler.learned(_job(serial=serial))
            for level, count, slowdown in ((SLOT, 1, 1.0), (RACK, 4, 1.7)):
                seconds = learned.serial_iteration_time / learned.slowdown.rate(level, count)
                assert seconds == pytest.approx(1.2 * slowdown / count)


def test_a_count_without_data_takes_what_others_at_its_level_had() -> None:
    profiler = Profiler([_job()])
    _see(profiler, RACK, 4, 3.0)
    profile = profiler.learned(_job()).slowdown
    assert profile.at(RACK, 2) == profile.at(RACK, 3) == pytest.approx(3.0)


def test_farther_apart_is_not_thought_faster_nor_nearer_slower() -> None:
    flat = Slowdown((1.0, 1.0, 1.0, 1.0))
    profiler = Profiler([_job(prior=flat)])
    _see(profiler, RACK, 4, 3.0)
    assert profiler.learned(_job(prior=flat)).slowdown.levels == pytest.approx((1.0, 1.0, 3.0, 3.0))
    steep = Slowdown((1.0, 2.0, 5.0, 9.0))
    profiler = Profiler([_job(prior=steep)])
    _see(profiler, RACK, 4, 1.2)
    levels = profiler.learned(_job(prior=steep)).slowdown.levels
    assert levels == pytest.approx((1.0, 1.2, 1.2, 9.0))


def test_a_few_outliers_change_nothing() -> None:
    profiler = Profiler([_job()])
    for number in range(30):
        _see(profiler, RACK, 4, 50.0 if number % 3 == 0 else 1.6, times=1)
    assert profiler.learned(_job()).slowdown.at(RACK, 4) == pytest.approx(1.6)


def test_noise_is_averaged_out_to_a_few_percent() -> None:
    errors = []
    for seed in range(50):
        rng = random.Random(f"noise {seed}")
        profiler = Profiler([_job()])
        for _ in range(40):
            _see(profiler, RACK, 4, 3.0 * math.exp(rng.gauss(0.0, 0.1)), times=1)
        errors.append(abs(profiler.learned(_job()).slowdown.at(RACK, 4) / 3.0 - 1.0))
    errors.sort()
    assert errors[25] < 0.03
    assert errors[-1] < 0.09


def test_old_measurements_are_forgotten() -> None:
    profiler = Profiler([_job()])
    _see(profiler, RACK, 4, 3.0, times=1000)
    _see(profiler, RACK, 4, 1.2, times=32)
    assert profiler.learned(_job()).slowdown.at(RACK, 4) == pytest.approx(1.2)


def test_a_small_change_is_not_worth_a_new_profile() -> None:
    profiler = Profiler([_job()], EvidenceRule(memory=3))
    _see(profiler, RACK, 4, 3.0)
    before = profiler.learned(_job()).slowdown
    assert not _see(profiler, RACK, 4, 3.05, times=9)
    assert profiler.learned(_job()).slowdown is before
    assert _see(profiler, RACK, 4, 3.1, times=9)


GARBAGE = (0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 5e-324, 1e-300, 1e300)


@pytest.mark.parametrize(
    ("iterations", "seconds"),
    # Equal ones, however odd, are an iteration a second.
    [pair for pair in itertools.product((30.0, *GARBAGE), GARBAGE) if pair[0] != pair[1]],
)
def test_garbage_teaches_nothing(iterations: float, seconds: float) -> None:
    profiler = Profiler([_job()])
    for _ in range(5):
        profiler.observe(J0, RACK, 4, first=100.0, iterations=iterations, seconds=seconds)
    assert profiler.learned(_job()) == _job()


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"job": JobId("nobody")}, id="a job that is not there"),
        pytest.param({"level": 4}, id="a level that is not there"),
        pytest.param({"level": -1}, id="a level below all"),
        pytest.param({"count": 0}, id="no GPUs"),
        pytest.param({"first": math.nan}, id="a process that started never"),
    ],
)
def test_measurements_of_nothing_are_ignored(given: dict[str, Any]) -> None:
    profiler = Profiler([_job()])
    values: dict[str, Any] = {"job": J0, "level": RACK, "count": 4, "first": 100.0} | given
    for _ in range(5):
        assert not profiler.observe(**values, iterations=30.0, seconds=90.0)
    assert profiler.learned(_job()) == _job()
    assert profiler.learned(_job(JobId("nobody"))) == _job(JobId("nobody"))


def test_the_oddest_measurements_that_are_believed_make_a_profile() -> None:
    for one, four in ((0.01, 1e4), (1e4, 0.01)):
        profiler = Profiler([_job()])
        _see(profiler, SLOT, 1, one)
        _see(profiler, RACK, 4, four)
        assert profiler.learned(_job()).slowdown.at(RACK, 4) == pytest.approx(four / one)


NUMBER = st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.lists(st.tuples(st.integers(-2, 5), st.integers(-1, 9), NUMBER, NUMBER, NUMBER), max_size=40)
)
def test_whatever_is_measured_the_profile_can_be_used(
    windows: list[tuple[int, int, float, float, float]],
) -> None:
    profiler = Profiler([_job()])
    for level, count, first, iterations, seconds in windows * 3:
        profiler.observe(J0, level, count, first=first, iterations=iterations, seconds=seconds)
    learned = profiler.learned(_job())
    assert 0.0 < learned.serial_iteration_time < math.inf
    for level in LEVELS:
        assert learned.slowdown.levels[level] >= 1.0
        assert all(0.0 < learned.slowdown.rate(level, count) < math.inf for count in range(1, 10))


def test_jobs_with_more_gpus_in_a_later_phase_use_what_was_learned() -> None:
    profiler = Profiler([_job()])
    _see(profiler, CLUSTER, 8, 4.0)
    assert profiler.learned(_job(gpus=8)).slowdown.at(CLUSTER, 8) == pytest.approx(4.0)


def test_a_rule_that_could_never_believe_is_refused() -> None:
    with pytest.raises(ConfigError, match="memory"):
        EvidenceRule(least_windows=8, memory=4)
    with pytest.raises(ConfigError, match="step"):
        EvidenceRule(step=-0.1)


@pytest.mark.parametrize("serial", [1e-4, 1.0, 3e5])
def test_first_measurement_replaces_a_guessed_time(serial: float) -> None:
    profiler = Profiler([_job()], estimated=True)
    assert _see(profiler, RACK, 4, PRIOR.at(RACK, 4), serial=serial)
    job = profiler.learned(_job())
    assert job.serial_iteration_time == pytest.approx(serial)
    assert job.slowdown.at(RACK, 4) == pytest.approx(PRIOR.at(RACK, 4)), "four are not slow"
    assert _see(profiler, MACHINE, 2, 2.0, serial=serial)
    assert profiler.learned(_job()).slowdown.at(MACHINE, 2) == pytest.approx(2.0)
    assert not _see(profiler, MACHINE, 4, 1e6, serial=serial), "that was a process at rest"
