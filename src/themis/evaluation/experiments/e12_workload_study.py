"""E12: what apps look like (figures 1 to 4 of the paper), and whether our workloads do, too."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

from themis.evaluation.app_samples import (
    PHILLY,
    PHILLY_85,
    PROBE,
    TRACE_STUDY,
    W1,
    W2,
    AppSample,
    generated,
    measured,
)
from themis.evaluation.claims import (
    Claim,
    ClaimAnswer,
    Quantity,
    by_construction,
    check,
    details,
    quantity,
)
from themis.evaluation.comparisons import curve, ks_distance, ks_limit
from themis.evaluation.experiment import (
    FEWER_REPORT_SEEDS,
    Experiment,
    Figure,
    Findings,
    NumberTable,
    Results,
    Row,
    number_table,
)
from themis.evaluation.figures.charts import Bars, Curve, Panel, plot_bars, plot_cdfs, plot_demand
from themis.sim.compare import Estimate, estimate
from themis.sim.figures.plot_style import Drawing
from themis.sim.workloads import (
    APP_GPU_SECONDS,
    W1_GPUS_PER_JOB,
    W1_JOBS,
    W2_GPUS_PER_JOB,
    W2_JOBS,
)
from themis.sim.workloads import Table as Distribution

HOUR, DAY = 3600.0, 86400.0
SIZES = (1, 2, 4, 8)

Samples = Mapping[str, AppSample]


# Claims


def _answer(ours: Quantity, is_so: bool, *more: tuple[str, str]) -> ClaimAnswer:
    """We chose the distributions to meet the published figures."""
    return ClaimAnswer(ours, by_construction(is_so), printed=None, details=details(*more))


def _near(share: float, published: float, apps: int) -> bool:
    """Whether chance, or five points in a hundred, explains a difference of shares."""
    return abs(share - published) <= max(0.05, 1.96 * math.sqrt(published * (1 - published) / apps))


def _upto(values: Sequence[float], value: float) -> float:
    return sum(one <= value for one in values) / len(values)


def _single(samples: Samples) -> ClaimAnswer:
    jobs = samples[TRACE_STUDY].jobs
    share = jobs.count(1) / len(jobs)
    return _answer(quantity(100 * share, ".0f", " %"), _near(share, 0.10, len(jobs)))


def _most(samples: Samples) -> ClaimAnswer:
    most = max(samples[TRACE_STUDY].jobs)
    return _answer(quantity(most, ".0f"), most <= 100)


def _median(
    samples: Samples, values: Callable[[AppSample], Sequence[float]], paper: float, form: str,
    unit: str,
) -> ClaimAnswer:  # fmt: skip
    """A published median: half of the generated values lie at or below it."""
    study = samples[TRACE_STUDY]
    share = _upto(values(study), paper)
    # Jobs of an app are alike, so apps count as the independent sample.
    return _answer(
        quantity(median(values(study)), form, unit),
        _near(share, 0.5, len(study.jobs)),
        ("at or below the paper's", f"{share:.0%}"),
    )


def _demand(
    samples: Samples, of: Callable[[AppSample], list[float]], is_so: Callable[[Estimate], bool],
    unit: str,
) -> ClaimAnswer:  # fmt: skip
    mean = estimate(of(samples[TRACE_STUDY]))
    ends = () if mean.half is None else (mean.mean - mean.half, mean.mean + mean.half)
    return _answer(quantity(mean.mean, ".1f", unit, *ends), is_so(mean))


def _means(sample: AppSample) -> list[float]:
    return [steps.mean for steps in sample.demands]


def _peaks(sample: AppSample) -> list[float]:
    return [max(steps.values) / steps.mean for steps in sample.demands]


def _distance(samples: Samples, name: str, of: Callable[[AppSample], float]) -> ClaimAnswer:
    sample = samples[name]
    limit = max(0.05, ks_limit(len(sample.jobs)))
    found = of(sample)
    return _answer(
        quantity(found, ".3f"),
        found <= limit,
        ("generated apps", str(len(sample.jobs))),
        ("counts as the same up to", f"{limit:.3f}"),
    )


def _works(unit: float, sample: AppSample) -> list[float]:
    return [work / unit for work in sample.app_works]


def _job_works(unit: float, sample: AppSample) -> list[float]:
    return [work / unit for work in sample.job_works]


def _distance_claims(name: str, jobs: Distribution, gpus: Distribution) -> list[Claim[Samples]]:
    """Three distributions of a workload against the published ones."""
    kinds: dict[str, Callable[[AppSample], float]] = {
        "GPU time of apps": lambda one: ks_distance(one.app_works, APP_GPU_SECONDS),
        "jobs per app": lambda one: ks_distance(one.jobs, jobs, whole=True),
        "GPUs per job": lambda one: max(
            abs(_upto(one.app_gpus, value) - share) for value, share in gpus
        ),
    }
    return [
        Claim(
            f"{name}-{kind.lower().replace(' ', '-')}",
            f"{name.upper()}: {kind} as published",
            Quantity("distance 0", 0.0),
            partial(_distance, name=name, of=of),
            "Distances",
        )
        for kind, of in kinds.items()
    ]


def claims() -> tuple[Claim[Samples], ...]:
    """The published figures, each against our generated apps."""
    why = "Published figures"
    return (
        Claim("single", "Apps with a single job", Quantity("~10 %", 10), _single, why),
        Claim("most", "Most jobs of an app", Quantity("100", 100), _most, why),
        Claim("jobs", "Jobs of the median app", quantity(75, "g"),
              partial(_median, values=lambda one: one.jobs, paper=75, form=".0f", unit=""), why),
        Claim("app", "GPU time of the median app", quantity(11.5, "g", " GPU-days"),
              partial(_median, values=partial(_works, DAY), paper=11.5, form=".1f",
                      unit=" GPU-days"), why),
        Claim("job", "GPU time of the median job", quantity(3.75, "g", " GPU-hours"),
              partial(_median, values=partial(_job_works, HOUR), paper=3.75, form=".2f",
                      unit=" GPU-hours"), why),
        Claim("demand", "Mean demand", Quantity("~50 GPUs", 50),
              partial(_demand, of=_means, unit=" GPUs",
                      is_so=lambda mean: abs(mean.mean - 50) <= max(7.5, mean.half or 0.0)), why),
        Claim("bursty", "Demand is bursty: peak / mean", Quantity("bursty"),
              partial(_demand, of=_peaks, unit="x", is_so=lambda mean: mean.mean >= 3), "Bursts"),
        *_distance_claims(W1, W1_JOBS, W1_GPUS_PER_JOB),
        *_distance_claims(W2, W2_JOBS, W2_GPUS_PER_JOB),
    )  # fmt: skip


# Tables and figures


def _table(samples: Samples) -> NumberTable:
    rows: list[Row] = [("paper", 0.10, 75, 100, 11.5, 3.75, None, 50, None)]
    for name, one in samples.items():
        has = bool(one.demands)
        rows.append(
            (
                name, one.jobs.count(1) / len(one.jobs), median(one.jobs), max(one.jobs),
                median(one.app_works) / DAY, median(one.job_works) / HOUR,
                sum(one.app_gpus) / len(one.app_gpus),
                estimate(_means(one)).mean if has else None,
                estimate(_peaks(one)).mean if has else None,
            )
        )  # fmt: skip
    columns = {
        "apps": "", "single job": ".0%", "median jobs": ".0f", "most jobs": ".0f",
        "median app, GPU-days": ".2f", "median job, GPU-hours": ".2f", "mean GPUs per job": ".2f",
        "mean demand, GPUs": ".0f", "peak / mean": ".1f",
    }  # fmt: skip
    return number_table("apps", "What apps are like", columns, rows)


def _points(samples: Samples) -> NumberTable:
    quantities: dict[str, Callable[[AppSample], Sequence[float]]] = {
        "jobs_per_app": lambda one: one.jobs,
        "app_gpu_seconds": lambda one: one.app_works,
        "job_gpu_seconds": lambda one: one.job_works,
    }
    rows = [
        (name, title, *point)
        for name, one in samples.items()
        for title, of in quantities.items()
        for point in zip(*curve(of(one)), strict=True)
    ]
    columns = ("apps", "quantity", "value", "share_at_or_below")
    return number_table("distributions", "The curves of the figures", columns, rows, shown=False)


def _curves(
    samples: Samples, names: Sequence[str], of: Callable[[AppSample], Sequence[float]]
) -> dict[str, Curve]:
    return {name: curve(of(samples[name])) for name in names if name in samples}


def _jobs_figure(samples: Samples) -> Drawing:
    def curves(*names: str) -> dict[str, Curve]:
        return _curves(samples, names, lambda one: one.jobs)

    published = ((1, 0.10), (75, 0.5), (100, 1.0))
    return plot_cdfs(
        [
            Panel("Trace study", "jobs per app", curves(TRACE_STUDY, PHILLY_85), published),
            Panel("W1", "jobs per app", curves(W1), W1_JOBS),
            Panel("W2", "jobs per app", curves(W2), W2_JOBS, corner="lower right"),
        ]
    )


def _app_time_figure(samples: Samples) -> Drawing:
    works = partial(_works, DAY)
    both = [(value / DAY, share) for value, share in APP_GPU_SECONDS]
    left = _curves(samples, (TRACE_STUDY, PHILLY_85, PHILLY), works)
    right = _curves(samples, (W1, W2), works)
    return plot_cdfs(
        [
            Panel("Trace study", "GPU-days per app", left, ((11.5, 0.5),), log=True),
            Panel("W1 and W2", "GPU-days per app", right, both, log=True),
        ]
    )


def _job_time_figure(samples: Samples) -> Drawing:
    lines = _curves(samples, (TRACE_STUDY, PHILLY_85, PHILLY), partial(_job_works, HOUR))
    panel = Panel("GPU time of single jobs", "GPU-hours per job", lines, ((3.75, 0.5),), log=True)
    return plot_cdfs([panel])


def _demand_figure(samples: Samples) -> Drawing:
    demands = {f"{TRACE_STUDY}, first seed": samples[TRACE_STUDY].demands[0]}
    real = (samples[name] for name in (PHILLY_85, PHILLY) if name in samples)
    return plot_demand(demands | {one.name: one.demands[0] for one in real if one.demands})


def _gpus_figure(samples: Samples) -> Drawing:
    shown = {}
    for name, published in ((W1, W1_GPUS_PER_JOB), (W2, W2_GPUS_PER_JOB)):
        bars = {"published": _steps(published), name: _shares(samples[name].app_gpus)}
        if PHILLY in samples:
            bars[PHILLY] = _shares(samples[PHILLY].app_gpus)
        shown[name.upper()] = Bars([str(size) for size in SIZES], bars)
    return plot_bars("GPUs per job", "share of apps", shown)


def _steps(table: Distribution) -> list[float]:
    """The share of each size in a published distribution."""
    upto = dict(table)
    shares, before = [], 0.0
    for size in SIZES:
        shares.append(upto.get(size, before) - before)
        before = upto.get(size, before)
    return shares


def _shares(values: Sequence[int]) -> list[float]:
    return [values.count(size) / len(values) for size in SIZES]


FIGURES: dict[str, tuple[str, Callable[[Samples], Drawing]]] = {
    "jobs_per_app": ("Jobs per app. Circles are published points.", _jobs_figure),
    "app_gpu_time": ("GPU time per app. Circles are published points.", _app_time_figure),
    "task_durations": (
        "GPU time of single jobs. The circle is the published median.", _job_time_figure
    ),
    "demand": (
        "GPUs wanted over time if every app got all it can use at once.", _demand_figure
    ),
    "gpus_per_job": ("GPUs per job, share of apps; published figures beside.", _gpus_figure),
}  # fmt: skip


def _notes(seeds: Sequence[int], real: Samples, lost: Sequence[str]) -> tuple[str, ...]:
    made = f"Generated from seeds {seeds[0]} to {seeds[-1]}, {len(seeds)} of them."
    if not real:
        return made, "THEMIS_DATA names no folder with a real trace, so none is shown."
    about = (
        "Philly is another cluster than the paper's. Its sweeps are bursts of similar jobs of one "
        f"owner; most apps of the whole trace are single jobs. The owner {PROBE}, a probe, is left "
        "out. 'Philly, 85 apps' are 76 bursts of 10 to 100 jobs and 9 single jobs of two weeks, "
        "picked to resemble the paper's trace study. GPU time there is what jobs held."
    )
    return made, about, *lost


def study(results: Results) -> Findings:
    """Generate the workloads and compare them with the published figures."""
    scope = results.scope
    made = generated(scope)
    real, lost = ({}, []) if scope.data is None else measured(scope.data)
    samples = {**made, **real}
    return Findings(
        check(claims(), made),
        (_table(samples), _points(samples)),
        tuple(
            Figure(name, caption, partial(draw, samples))
            for name, (caption, draw) in FIGURES.items()
        ),
        _notes(scope.seeds_of(FEWER_REPORT_SEEDS, quick=3), real, lost),
    )


EXPERIMENT = Experiment(
    "E12",
    "What apps look like",
    "About a tenth of the apps are single jobs, others have up to 100 and 75 in the median; the "
    "median app takes 11.5 GPU-days and the median job 3.75 GPU-hours; demand is bursty, about 50 "
    "GPUs on average.",
    study,
    reads_data=True,
    module=__name__,
)
