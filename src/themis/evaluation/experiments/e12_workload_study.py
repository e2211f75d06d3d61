"""E12: what apps look like (figures 1 to 4 of the paper), and whether our workloads do, too."""

import math
from collections.abc import Callable, Sequence
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
from themis.evaluation.comparisons import curve, ks_distance, ks_limit
from themis.evaluation.experiment import (
    FEWER_REPORT_SEEDS,
    Claim,
    Column,
    Experiment,
    Figure,
    Findings,
    NumberTable,
    Results,
    Row,
    Told,
    Verdict,
    alike,
    told,
)
from themis.evaluation.report.charts import Bars, Curve, Panel, plot_bars, plot_cdfs, plot_demand
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


# What the paper says, and whether it is so


def _claims(made: dict[str, AppSample]) -> list[Claim]:
    study = made[TRACE_STUDY]
    why = "Only these figures are published; our distributions were chosen to meet them."
    single = study.jobs.count(1) / len(study.jobs)
    means = [steps.mean for steps in study.demands]
    peaks = [max(steps.values) / steps.mean for steps in study.demands]
    return [
        _given("Apps with a single job", Told("~10 %", 10), told(100 * single, ".0f", " %"),
               _near(single, 0.10, len(study.jobs)), why),
        _given("Most jobs of an app", Told("100", 100), told(max(study.jobs), ".0f"),
               max(study.jobs) <= 100, why),
        _middle("Jobs of the median app", 75, study.jobs, study, ".0f", "", why),
        _middle("GPU time of the median app", 11.5, [work / DAY for work in study.app_works],
                study, ".1f", " GPU-days", why),
        _middle("GPU time of the median job", 3.75, [work / HOUR for work in study.job_works],
                study, ".2f", " GPU-hours", why),
        _spread("Mean demand", Told("~50 GPUs", 50), means,
                lambda mean: abs(mean.mean - 50) <= max(7.5, mean.half or 0.0), " GPUs", why),
        _spread("Demand is bursty: peak / mean", Told("bursty"), peaks,
                lambda mean: mean.mean >= 3, "x", "If all got what they can use at once. " + why),
        *_distances(made),
    ]  # fmt: skip


def _given(statement: str, paper: Told, ours: Told, is_so: bool, why: str) -> Claim:
    return alike(statement, paper, ours, Verdict.GIVEN if is_so else Verdict.FAILS, why)


def _near(share: float, published: float, apps: int) -> bool:
    """Whether chance, or five points in a hundred, explain how a share differs."""
    return abs(share - published) <= max(0.05, 1.96 * math.sqrt(published * (1 - published) / apps))


def _middle(
    statement: str, paper: float, values: Sequence[float], of: AppSample, form: str, unit: str,
    why: str,
) -> Claim:  # fmt: skip
    """A published median: half of what was generated lies at or below it."""
    share = _upto(values, paper)
    # Jobs of an app are alike, so it is apps that count.
    return _given(
        statement, told(paper, "g", unit), told(median(values), form, unit),
        _near(share, 0.5, len(of.jobs)), f"{share:.0%} lie at or below the paper's. {why}",
    )  # fmt: skip


def _spread(
    statement: str, paper: Told, values: Sequence[float], is_so: Callable[[Estimate], bool],
    unit: str, why: str,
) -> Claim:  # fmt: skip
    mean = estimate(values)
    low, high = (
        (None, None) if mean.half is None else (mean.mean - mean.half, mean.mean + mean.half)
    )
    return _given(statement, paper, told(mean.mean, ".1f", unit, low, high), is_so(mean), why)


def _distances(made: dict[str, AppSample]) -> list[Claim]:
    claims = []
    for name, jobs, gpus in ((W1, W1_JOBS, W1_GPUS_PER_JOB), (W2, W2_JOBS, W2_GPUS_PER_JOB)):
        one = made[name]
        limit = max(0.05, ks_limit(len(one.jobs)))
        why = (
            f"Kolmogorov-Smirnov distance of {len(one.jobs)} generated apps from the published "
            f"points; up to {limit:.3f} counts as the same; chance exceeds it now and then."
        )
        works = ks_distance(one.app_works, APP_GPU_SECONDS)
        counts = ks_distance(one.jobs, jobs, whole=True)
        shares = max(abs(_upto(one.app_gpus, value) - share) for value, share in gpus)
        for what, distance, how in (
            ("GPU time of apps", works, why + _W2_WORK if name == W2 else why),
            ("jobs per app", counts, why),
            (
                "GPUs per job",
                shares,
                f"Largest difference of a share; up to {limit:.3f} counts as none.",
            ),
        ):
            statement = f"{name.upper()}: {what} as published"
            claims.append(
                _given(statement, Told("distance 0", 0.0), told(distance, ".3f"),
                       distance <= limit, how)
            )  # fmt: skip
    return claims


_W2_WORK = " Measured on the work that runs; survivors are not the median job of the declaration."


def _upto(values: Sequence[float], value: float) -> float:
    return sum(one <= value for one in values) / len(values)


# Tables and figures


def _table(samples: dict[str, AppSample]) -> NumberTable:
    rows: list[Row] = [("paper", 0.10, 75, 100, 11.5, 3.75, None, 50, None)]
    for name, one in samples.items():
        means = [steps.mean for steps in one.demands]
        peaks = [max(steps.values) / steps.mean for steps in one.demands]
        rows.append(
            (
                name, one.jobs.count(1) / len(one.jobs), median(one.jobs), max(one.jobs),
                median(one.app_works) / DAY, median(one.job_works) / HOUR,
                sum(one.app_gpus) / len(one.app_gpus),
                estimate(means).mean if means else None, estimate(peaks).mean if peaks else None,
            )
        )  # fmt: skip
    columns = (
        Column("apps"), Column("single job", ".0%"), Column("median jobs", ".0f"),
        Column("most jobs", ".0f"), Column("median app, GPU-days", ".2f"),
        Column("median job, GPU-hours", ".2f"), Column("mean GPUs per job", ".2f"),
        Column("mean demand, GPUs", ".0f"), Column("peak / mean", ".1f"),
    )  # fmt: skip
    return NumberTable("apps", "What apps are like", columns, tuple(rows))


def _points(samples: dict[str, AppSample]) -> NumberTable:
    rows: list[Row] = []
    for name, one in samples.items():
        for quantity, values in (
            ("jobs_per_app", one.jobs), ("app_gpu_seconds", one.app_works),
            ("job_gpu_seconds", one.job_works),
        ):  # fmt: skip
            rows += [(name, quantity, *point) for point in zip(*curve(values), strict=True)]
    columns = (Column("apps"), Column("quantity"), Column("value"), Column("share_at_or_below"))
    return NumberTable(
        "distributions", "The curves of the figures", columns, tuple(rows), shown=False
    )


def _scaled(table: Distribution, unit: float) -> list[tuple[float, float]]:
    return [(value / unit, share) for value, share in table]


def _figures(samples: dict[str, AppSample]) -> tuple[Figure, ...]:
    real = [samples[name] for name in (PHILLY_85, PHILLY) if name in samples]
    study, w1, w2 = (samples[name] for name in (TRACE_STUDY, W1, W2))

    def curves(
        of: Callable[[AppSample], Sequence[float]], unit: float, *parts: AppSample
    ) -> dict[str, Curve]:
        return {part.name: curve(value / unit for value in of(part)) for part in parts}

    def jobs() -> list[Panel]:
        def of(one: AppSample) -> Sequence[float]:
            return one.jobs

        beside = [one for one in real if one.name == PHILLY_85]
        return [
            Panel("Trace study", "jobs per app", curves(of, 1, study, *beside),
                  ((1, 0.10), (75, 0.5), (100, 1.0))),
            Panel("W1", "jobs per app", curves(of, 1, w1), W1_JOBS),
            Panel("W2", "jobs per app", curves(of, 1, w2), W2_JOBS, corner="lower right"),
        ]  # fmt: skip

    def works() -> list[Panel]:
        def of(one: AppSample) -> Sequence[float]:
            return one.app_works

        return [
            Panel("Trace study", "GPU-days per app", curves(of, DAY, study, *real),
                  ((11.5, 0.5),), log=True),
            Panel("W1 and W2", "GPU-days per app", curves(of, DAY, w1, w2),
                  _scaled(APP_GPU_SECONDS, DAY), log=True),
        ]  # fmt: skip

    def tasks() -> list[Panel]:
        def of(one: AppSample) -> Sequence[float]:
            return one.job_works

        lines = curves(of, HOUR, study, *real)
        title = "GPU time of single jobs"
        return [Panel(title, "GPU-hours per job", lines, ((3.75, 0.5),), log=True)]

    demands = {f"{study.name}, first seed": study.demands[0]}
    demands |= {one.name: one.demands[0] for one in real if one.demands}
    figures = [
        Figure("jobs_per_app", "Jobs per app. Circles are published points.",
               lambda: plot_cdfs(jobs())),
        Figure("app_gpu_time", "GPU time per app. Circles are published points.",
               lambda: plot_cdfs(works())),
        Figure("task_durations", "GPU time of single jobs. The circle is the published median.",
               lambda: plot_cdfs(tasks())),
        Figure("demand", "GPUs wanted over time if every app got all it can use at once.",
               lambda: plot_demand(demands)),
        Figure("gpus_per_job", "GPUs per job, share of apps; published figures beside.",
               lambda: _gpus_figure(samples)),
    ]  # fmt: skip
    return tuple(figures)


def _gpus_figure(samples: dict[str, AppSample]) -> Drawing:
    shown = {}
    for name, table in ((W1, W1_GPUS_PER_JOB), (W2, W2_GPUS_PER_JOB)):
        bars = {"published": _steps(table), name: _shares(samples[name].app_gpus)}
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


def study(results: Results) -> Findings:
    """Generate the workloads and hold them against what is published."""
    made = generated(results.scope)
    data = results.scope.data
    real, lost = ({}, []) if data is None else measured(data)
    samples = {**made, **real}
    seeds = results.scope.seeds_of(FEWER_REPORT_SEEDS, quick=3)
    notes = [f"Generated from seeds {seeds[0]} to {seeds[-1]}, {len(seeds)} of them."]
    if real:
        notes.append(
            "Philly is another cluster than the paper's. Its sweeps are bursts of like jobs of one "
            f"owner; most apps of the whole trace are single jobs. The owner {PROBE}, a probe, is "
            "left out. 'Philly, 85 apps' are 76 bursts of 10 to 100 jobs and 9 single jobs of two "
            "weeks, picked to resemble the paper's trace study. GPU time there is what jobs held."
        )
        notes += lost
    else:
        notes.append("THEMIS_DATA names no folder with a real trace, so none is beside.")
    return Findings(
        claims=tuple(_claims(made)),
        tables=(_table(samples), _points(samples)),
        figures=_figures(samples),
        notes=tuple(notes),
    )


EXPERIMENT = Experiment(
    "E12",
    "What apps look like",
    "About a tenth of the apps are single jobs, others have up to 100 and 75 in the median; the "
    "median app takes 11.5 GPU-days and the median job 3.75 GPU-hours; demand is bursty, about 50 "
    "GPUs on average.",
    study,
    reads_data=True,
)
