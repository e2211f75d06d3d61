"""The trace study's published figures, met by the distributions chosen for it."""

from functools import cache
from statistics import fmean, median

import pytest

from themis.core.fairness.loads import total_work
from themis.core.tuners import Single, tuner_for
from themis.sim.workloads import Workload, generate_trace_study, true_phases, workload

GOLDEN = (94, "DeepSpeech", [4489, 11238, 5284])


@cache
def many() -> Workload:
    return generate_trace_study(seed=2, apps=1000)


def demand(made: Workload) -> tuple[float, float]:
    """Mean and peak of the GPUs that apps would use if they got all they ask for at once."""
    steps = []
    for app in made.apps:
        for load in true_phases(app)[0]:
            steps.append((app.arrival, load.max_gpus))
            steps.append((app.arrival + load.work / load.max_gpus, -load.max_gpus))
    now = peak = 0
    area = since = 0.0
    for at, change in sorted(steps):
        area += now * (min(at, made.horizon) - since)
        since = min(at, made.horizon)
        now += change
        peak = max(peak, now)
    return area / made.horizon, peak


def test_the_jobs_per_app_are_as_published() -> None:
    counts = [len(app.spec.jobs) for app in many().apps]
    assert counts.count(1) / len(counts) == pytest.approx(0.10, abs=0.03)
    assert median(counts) == pytest.approx(75, abs=3)
    assert max(counts) == 100


def test_the_median_app_takes_eleven_and_a_half_gpu_days() -> None:
    works = [total_work(true_phases(app)) for app in many().apps]
    assert median(works) / 86400 == pytest.approx(11.5, rel=0.06)


def test_the_median_job_takes_three_and_three_quarter_gpu_hours() -> None:
    works = [load.work for app in many().apps for load in true_phases(app)[0]]
    assert median(works) / 3600 == pytest.approx(3.75, rel=0.04)


def test_the_demand_is_fifty_gpus_on_average_and_bursty() -> None:
    mean, peak = demand(many())
    assert mean == pytest.approx(50, rel=0.05)
    assert peak > 5 * mean


def test_single_seeds_of_85_apps_scatter_around_the_figures() -> None:
    made = [generate_trace_study(seed=seed) for seed in range(10)]
    assert {len(one.apps) for one in made} == {85}
    assert fmean(one.load * 64 for one in made) == pytest.approx(50, rel=0.06)
    sizes = [median(total_work(true_phases(app)) for app in one.apps) for one in made]
    assert fmean(sizes) / 86400 == pytest.approx(11.5, rel=0.1)


def test_it_is_bursty_unless_asked_otherwise_and_names_its_generator() -> None:
    made = workload("trace-study", seed=1, apps=5)
    assert (made.name, made.generator, made.version) == ("trace-study-bursty", "trace-study", 1)
    assert workload("trace-study", seed=1, apps=5, bursty=False).name == "trace-study"


def test_its_jobs_train_to_their_end() -> None:
    app = generate_trace_study(seed=1).apps[0]
    assert isinstance(tuner_for(app.spec, app.tuner), Single)


def test_a_seed_means_the_same_workload_for_ever() -> None:
    # If this fails on purpose, raise TRACE_STUDY_VERSION: old results no longer compare.
    app = generate_trace_study(seed=1).apps[0]
    assert (len(app.spec.jobs), app.model, list(app.spec.phases[0].targets[:3])) == GOLDEN
