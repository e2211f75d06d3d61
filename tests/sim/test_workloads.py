import csv
import math
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from themis.core.fairness.loads import declared_phases, total_work
from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.core.model.zoo import IntensityGroup, entry, slowdown_of
from themis.errors import ConfigError, DuplicateError
from themis.sim.workloads import (
    APP_GPU_SECONDS,
    W2_GPUS_PER_JOB,
    W2_JOBS,
    SimApp,
    Table,
    Workload,
    generate_w2,
    quantile,
    realised_load,
    true_phases,
    workload,
)

MANY = 2000
# Kolmogorov-Smirnov: a right generator stays below this at 999 of 1000 seeds, and ours is fixed.
KS_BOUND = 1.95 / math.sqrt(MANY)


@cache
def many() -> Workload:
    return generate_w2(seed=11, apps=MANY)


def share_below(table: Table, value: float) -> float:
    """The cumulative share at a value, linear between the rows: the inverse of `quantile`."""
    for (low, below), (high, upto) in pairwise(table):
        if value <= high:
            return below + (upto - below) * max(0.0, value - low) / (high - low)
    return 1.0


def small_app(qualities: tuple[float, ...], phases: tuple[Phase, ...]) -> SimApp:
    times = (80.0, 100.0, 100.0, 120.0)
    jobs = tuple(JobSpec(JobId(f"j{i}"), time, 8) for i, time in enumerate(times))
    return SimApp(AppSpec(AppId("a"), OwnerId("o"), jobs, phases), 0.0, "VGG16", qualities)


GOLDEN = (27, "DeepSpeech", 4, 1.002447, [8245, 17668, 38282, 76565, 229739], 6287.4)

HALVING = (Phase(4, 8), Phase(2, 16), Phase(1, 36))


def works(app: SimApp) -> list[list[float]]:
    return [[load.work for load in phase] for phase in true_phases(app)]


def test_the_best_qualities_survive() -> None:
    app = small_app((0.9, 0.1, 0.8, 0.2), HALVING)
    assert works(app) == [[640, 800, 800, 960], [1600, 1920], [3600]]


def test_ties_of_quality_go_to_the_earlier_job() -> None:
    app = small_app((0.5, 0.5, 0.5, 0.5), HALVING)
    assert works(app) == [[640, 800, 800, 960], [1280, 1600], [2880]]


def test_targets_replace_the_iterations_of_a_phase() -> None:
    app = small_app((0.1, 0.2, 0.3, 0.4), (Phase(4, 9, (1, 2, 3, 4)),))
    assert works(app) == [[80, 200, 300, 480]]


def test_a_growing_phase_starts_fresh_jobs() -> None:
    app = small_app((0.9, 0.1, 0.8, 0.2), (Phase(2, 1), Phase(1, 1), Phase(2, 1)))
    assert works(app) == [[80, 100], [100], [100, 120]]


def test_phases_that_start_more_jobs_than_there_are_are_refused() -> None:
    app = small_app((0.9, 0.1, 0.8, 0.2), (Phase(4, 1), Phase(1, 1), Phase(2, 1)))
    with pytest.raises(ConfigError, match="jobs started by a"):
        true_phases(app)


def test_true_loads_keep_the_widths_of_their_jobs() -> None:
    load = true_phases(small_app((0.1, 0.2, 0.3, 0.4), HALVING))[0][0]
    assert (load.max_gpus, load.min_gpus) == (8, 1)


@pytest.mark.parametrize("qualities", [(0.1,), (0.1, 0.2, 0.3, math.nan)])
def test_unrankable_qualities_are_refused(qualities: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="qualities of a"):
        small_app(qualities, HALVING)


def test_a_workload_is_sorted_and_names_each_app_once() -> None:
    first = small_app((0.1, 0.2, 0.3, 0.4), HALVING)
    later = replace(first, arrival=5.0)
    with pytest.raises(ConfigError, match="sorted by arrival"):
        Workload("x", (later, first), 10.0, 1.0, 0, "x", 1)
    with pytest.raises(DuplicateError):
        Workload("x", (first, later), 10.0, 1.0, 0, "x", 1)


def test_the_default_is_85_apps_over_14_days() -> None:
    made = generate_w2(seed=3)
    assert len(made.apps) == 85
    assert made.horizon == pytest.approx(14 * 86400)
    assert 0 < made.apps[0].arrival <= made.apps[-1].arrival < made.horizon
    assert (made.name, made.generator, made.version, made.seed) == ("w2", "w2", 1, 3)


def test_the_expected_load_of_the_default_is_about_091() -> None:
    mean = math.fsum(
        (upto - below) * (low + high) / 2
        for (low, below), (high, upto) in pairwise(APP_GPU_SECONDS)
    )
    assert 85 * mean / (64 * 14 * 86400) == pytest.approx(0.9106, abs=1e-4)
    loads = [generate_w2(seed=seed).load for seed in range(20)]
    assert sum(loads) / len(loads) == pytest.approx(0.91, abs=0.06)


def test_the_horizon_scales_so_that_the_load_stays() -> None:
    assert generate_w2(seed=1, apps=340, gpus=256).horizon == pytest.approx(14 * 86400)
    assert generate_w2(seed=1, apps=17).horizon == pytest.approx(14 * 86400 / 5)


@pytest.mark.parametrize("load", [0.1, 0.9, 10.0])
def test_a_load_asked_for_is_the_load_of_what_really_runs(load: float) -> None:
    made = generate_w2(seed=4, apps=30, gpus=16, load=load)
    work = math.fsum(total_work(true_phases(app)) for app in made.apps)
    assert made.load == pytest.approx(load)
    assert work / (16 * made.horizon) == pytest.approx(load)
    assert realised_load(made.apps, 16, made.horizon) == made.load


def test_declared_work_is_the_work_drawn_but_for_part_of_an_iteration() -> None:
    # The draws are made again here, from the streams the generator uses.
    for index, app in enumerate(many().apps):
        drawn = quantile(APP_GPU_SECONDS, Random(f"11/work/{index}").random())
        declared = total_work(declared_phases(app.spec))
        assert 0 <= drawn - declared + 1e-6 < 1.2 + 1e-5
        assert declared == pytest.approx(drawn, rel=4e-4)


def test_app_sizes_follow_the_published_distribution() -> None:
    sizes = sorted(total_work(declared_phases(app.spec)) for app in many().apps)
    for rank, size in enumerate(sizes):
        assert abs(share_below(APP_GPU_SECONDS, size) - rank / MANY) < KS_BOUND


def test_jobs_per_app_follow_the_published_distribution() -> None:
    counts = Counter(len(app.spec.jobs) for app in many().apps)
    assert min(counts) == 1
    assert max(counts) <= 90
    below = 0
    for count in range(1, 91):
        below += counts[count]
        # Rounded after drawing: what came out as `count` was below count + 1/2.
        assert abs(share_below(W2_JOBS, count + 0.5) - below / MANY) < KS_BOUND


def test_gpus_per_job_follow_the_published_shares_and_are_one_per_app() -> None:
    counts: Counter[int] = Counter()
    for app in many().apps:
        (width,) = {job.max_gpus for job in app.spec.jobs}
        counts[width] += 1
    for width, share in {1: 0.20, 2: 0.18, 4: 0.60, 8: 0.02}.items():
        assert counts.pop(width) / MANY == pytest.approx(share, abs=KS_BOUND)
    assert not counts


def test_models_follow_the_category_shares_and_are_even_inside() -> None:
    models = Counter(app.model for app in many().apps)
    categories: Counter[str] = Counter()
    for model, count in models.items():
        categories[entry(model).category] += count
    for category, share in {"cv": 0.1, "nlp": 0.6, "speech": 0.3}.items():
        assert categories[category] / MANY == pytest.approx(share, abs=KS_BOUND)
    for model, share in {"VGG16": 0.02, "GNMT": 0.15, "WaveNet": 0.15}.items():
        assert models[model] / MANY == pytest.approx(share, abs=KS_BOUND)


def test_serial_times_spread_evenly_around_one_second() -> None:
    times = sorted(j.serial_iteration_time for app in many().apps[:500] for j in app.spec.jobs)
    for rank, time in enumerate(times):
        assert abs((time - 0.8) / 0.4 - rank / len(times)) < 1.95 / math.sqrt(len(times))


def test_poisson_arrivals_are_even_over_the_horizon_and_their_gaps_exponential() -> None:
    times = [app.arrival / many().horizon for app in many().apps]
    assert all(abs(time - rank / MANY) < KS_BOUND for rank, time in enumerate(times))
    gaps = sorted(MANY * (b - a) for a, b in pairwise(times))
    assert all(abs(1 - math.exp(-g) - i / MANY) < KS_BOUND for i, g in enumerate(gaps))


def test_three_in_ten_bursty_apps_follow_within_ten_minutes() -> None:
    made = generate_w2(seed=5, apps=MANY, load=0.1, bursty=True)
    times = [app.arrival for app in made.apps]
    close = sum(b - a <= 600 for a, b in pairwise(times)) / MANY
    # At this load the others come more than a day apart on average: few are close by chance.
    assert close == pytest.approx(0.3, abs=KS_BOUND)
    assert times[-1] < made.horizon
    assert made.name == "w2-bursty"


def test_bursts_fit_however_dense_the_arrivals_are() -> None:
    made = generate_w2(seed=5, apps=200, gpus=100_000, load=10.0, bursty=True)
    assert made.horizon < 200 * 600 * 0.3
    assert all(0 < app.arrival < made.horizon for app in made.apps)


def test_each_app_has_its_own_owner_and_a_plain_id() -> None:
    made = generate_w2(seed=6, apps=12)
    assert [app.spec.id for app in made.apps][:2] == ["w2-0001", "w2-0002"]
    assert len({app.spec.owner for app in made.apps}) == 12


def test_the_phases_are_a_halving_down_to_one() -> None:
    for app in generate_w2(seed=6, apps=40).apps:
        counts = [phase.jobs for phase in app.spec.phases]
        assert counts[0] == len(app.spec.jobs)
        assert counts[-1] == 1
        assert counts == [max(1, counts[0] // 2**p) for p in range(len(counts))]


def test_the_budget_is_even_over_the_phases() -> None:
    for app in generate_w2(seed=6, apps=40).apps:
        phases = declared_phases(app.spec)
        budget = total_work(phases)
        for phase in phases[:-1]:
            # Whole iterations: at most one of each job is missing.
            short = budget / len(phases) - total_work([phase])
            assert -1.3 <= short <= 1.2 * len(phase) + 0.1


def test_another_eta_keeps_other_survivors() -> None:
    app = next(a for a in generate_w2(seed=6, eta=4).apps if len(a.spec.jobs) >= 16)
    assert app.spec.phases[1].jobs == len(app.spec.jobs) // 4


def bodies(made: Workload) -> list[SimApp]:
    return [replace(app, arrival=0.0) for app in made.apps]


def test_more_apps_do_not_change_the_first_ones() -> None:
    few, more = generate_w2(seed=7, apps=20), generate_w2(seed=7, apps=60)
    assert bodies(more)[:20] == bodies(few)
    # Their order of arrival and the proportions of their gaps stay too.
    ratio = more.apps[0].arrival / few.apps[0].arrival
    for one, other in zip(few.apps, more.apps, strict=False):
        assert other.arrival == pytest.approx(ratio * one.arrival)


def test_another_load_only_stretches_time() -> None:
    light, heavy = generate_w2(seed=7, load=0.5), generate_w2(seed=7, load=1.0)
    assert bodies(light) == bodies(heavy)
    for one, other in zip(light.apps, heavy.apps, strict=True):
        assert one.arrival == pytest.approx(2 * other.arrival)


def test_bursts_and_hardware_change_nothing_else() -> None:
    plain = generate_w2(seed=7)
    assert bodies(generate_w2(seed=7, bursty=True)) == bodies(plain)
    k80 = generate_w2(seed=7, hardware="k80")
    for one, other in zip(plain.apps, k80.apps, strict=True):
        assert (one.model, one.arrival, one.spec.phases) == (
            other.model,
            other.arrival,
            other.spec.phases,
        )
        assert other.spec.jobs[0].slowdown == slowdown_of(other.model, "k80")


def test_another_seed_is_another_workload_and_the_same_seed_the_same() -> None:
    assert generate_w2(seed=8, apps=10) == generate_w2(seed=8, apps=10)
    assert bodies(generate_w2(seed=8, apps=10)) != bodies(generate_w2(seed=9, apps=10))


def test_a_seed_means_the_same_workload_for_ever() -> None:
    # If this fails on purpose, raise W2_VERSION: old results no longer compare.
    app = generate_w2(seed=1).apps[0]
    facts = (
        len(app.spec.jobs),
        app.model,
        app.spec.jobs[0].max_gpus,
        round(app.spec.jobs[0].serial_iteration_time, 6),
        [phase.iterations for phase in app.spec.phases],
        round(app.arrival, 1),
    )
    assert facts == GOLDEN


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_the_share_of_network_intensive_models_is_the_one_asked_for(share: float) -> None:
    made = generate_w2(seed=10, apps=600, network_intensive=share)
    groups = Counter(entry(app.model).group for app in made.apps)
    assert groups[IntensityGroup.NETWORK] / 600 == pytest.approx(share, abs=0.07 * (0 < share < 1))
    assert groups[IntensityGroup.NEITHER] == 0


def test_raising_the_network_intensive_share_moves_apps_one_way() -> None:
    def network(share: float) -> set[str]:
        made = generate_w2(seed=10, apps=200, network_intensive=share)
        return {a.spec.id for a in made.apps if entry(a.model).group is IntensityGroup.NETWORK}

    assert network(0.2) < network(0.6) < network(1.0)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"apps": 0}, id="no apps"),
        pytest.param({"apps": True}, id="a bool as count"),
        pytest.param({"apps": 2.0}, id="a float as count"),
        pytest.param({"apps": 10**9}, id="a billion apps"),
        pytest.param({"gpus": 0}, id="no GPUs"),
        pytest.param({"load": 0.0}, id="no load"),
        pytest.param({"load": -1.0}, id="negative load"),
        pytest.param({"load": 10.1}, id="too much load"),
        pytest.param({"load": math.nan}, id="NaN load"),
        pytest.param({"load": "0.9"}, id="a string as load"),
        pytest.param({"seed": -1}, id="negative seed"),
        pytest.param({"seed": "1"}, id="a string as seed"),
        pytest.param({"eta": 1}, id="nobody is ever stopped"),
        pytest.param({"network_intensive": 1.1}, id="more than all"),
        pytest.param({"network_intensive": -0.1}, id="less than none"),
        pytest.param({"bursty": 1}, id="a number as flag"),
        pytest.param({"hardware": "v1000"}, id="unknown hardware"),
        pytest.param({"hardware": 100}, id="a number as hardware"),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        workload("w2", **{"seed": 1, **options})
    assert caught.value.key in options


def test_a_workload_by_name_is_the_generator_s() -> None:
    assert workload("w2", seed=1, apps=5) == generate_w2(seed=1, apps=5)


def test_unknown_workloads_and_options_get_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'w2'"):
        workload("w22", seed=1)
    with pytest.raises(ConfigError, match="did you mean 'apps'"):
        workload("w2", seed=1, app=3)


def test_a_missing_seed_is_named() -> None:
    with pytest.raises(ConfigError, match="seed of workload w2"):
        workload("w2", apps=3)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 0.28, 0.999, 1.0])
def test_quantiles_invert_the_table(share: float) -> None:
    assert share_below(APP_GPU_SECONDS, quantile(APP_GPU_SECONDS, share)) == pytest.approx(share)


def test_the_tables_are_those_of_the_data_folder(themis_data: Path) -> None:
    given: dict[str, list[tuple[float, float]]] = {}
    with (themis_data / "themis_paper_cdfs.csv").open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            if row["workload"] == "themis2":
                point = (float(row["value"]), float(row["cdf"]))
                given.setdefault(row["quantity"], []).append(point)
    assert given["app_service_times"] == list(APP_GPU_SECONDS)
    assert given["num_jobs_per_app"] == list(W2_JOBS)
    assert given["max_gpus_per_job"][1:] == list(W2_GPUS_PER_JOB)


def test_demand_grows_from_phase_to_phase_when_asked() -> None:
    plain = generate_w2(seed=3, apps=30)
    grown = generate_w2(seed=3, apps=30, demand_growth=2)
    for app, wide in zip(plain.apps, grown.apps, strict=True):
        for number, (phase, wider) in enumerate(
            zip(true_phases(app), true_phases(wide), strict=True)
        ):
            assert [load.work for load in phase] == [load.work for load in wider]
            assert [load.max_gpus * 2**number for load in phase] == [
                load.max_gpus for load in wider
            ]
