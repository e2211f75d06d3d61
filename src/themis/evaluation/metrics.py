"""Numbers of a run, each with its column in tables.

METRICS["max_rho"].of(record)
metrics("max_rho", "gpu_hours")      # the metrics that an experiment measures
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from themis.core.fairness.ideal_time import Convention
from themis.sim.metrics import quantile
from themis.sim.runs.result_cache import CachedRun

OURS, LITERAL = "themis", "themis-paper"
"""The presets: the default policy, and the mechanism as printed."""

Measure = Callable[[CachedRun], float]


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of a run. Without a title it is in no table of means."""

    of: Measure
    title: str = ""
    form: str = ""


def summary(key: str, convention: str = "") -> Measure:
    """A number of a run's summary; NaN where the run lacks it."""

    def of(record: CachedRun) -> float:
        value: Any = record.summary.get(key)
        if convention and value is not None:
            value = value[convention]
        return math.nan if value is None else float(value)

    return of


def gpu_over_work(record: CachedRun) -> float:
    """GPU time held per unit of bare work, so that seeds with more work do not weigh more."""
    useful = float(record.summary["gpu_hours_spent"]["useful"])
    return float(record.summary["gpu_hours"]) / useful if useful else math.nan


def spread(record: CachedRun) -> float:
    """From the 5th to the 95th percentile of rho, as the paper computes it."""
    values = [app.rho[Convention.PAPER] for app in record.apps]
    return quantile(values, 0.95) - quantile(values, 0.05)


def over_floor(floor: str) -> Measure:
    """Max rho_ref over the least that any policy could reach."""

    def of(record: CachedRun) -> float:
        lowest = record.summary.get(floor)
        worst = record.summary["max_rho_ref"]["fair_share"]
        return float(worst) / float(lowest) if lowest and worst else math.nan

    return of


METRICS = {
    "max_rho": Metric(summary("max_rho", "paper"), "max rho (paper)", ".2f"),
    "max_rho_alone": Metric(summary("max_rho_alone", "paper"), "of it alone", ".2f"),
    "spread_rho": Metric(spread, "p95 - p5 (paper)", ".2f"),
    "max_rho_ref": Metric(summary("max_rho_ref", "fair_share"), "max rho_ref", ".2f"),
    "p95_rho_ref": Metric(summary("p95_rho_ref", "fair_share"), "p95 rho_ref", ".2f"),
    "share_fair": Metric(summary("share_fair_ref", "fair_share"), "share fair", ".0%"),
    "floor": Metric(summary("floor_rho_ref"), "floor", ".2f"),
    "over_floor": Metric(over_floor("floor_rho_ref"), "max / floor", ".2f"),
    "placed_floor": Metric(summary("placed_floor_rho_ref"), "placed floor", ".2f"),
    "over_placed_floor": Metric(
        over_floor("placed_floor_rho_ref"), "max / placed floor", ".2f"
    ),
    "most_fair": Metric(summary("most_fair_ref"), "could be fair", ".1%"),
    "completion_h": Metric(summary("mean_completion_h"), "completion h", ".1f"),
    "fluid_h": Metric(summary("fluid_completion_h"), "fluid h", ".1f"),
    "placed_fluid_h": Metric(summary("placed_fluid_h")),
    "gpu_hours": Metric(summary("gpu_hours"), "GPU hours", ".0f"),
    "over_work": Metric(gpu_over_work, "GPU time / work", ".3f"),
    "placed": Metric(summary("placed_over_work")),
    "jain": Metric(summary("jain"), "Jain", ".3f"),
    "moves": Metric(summary("moves"), "moves", ".0f"),
    "auction_share": Metric(summary("auction_share_contended"), "by auction", ".0%"),
    "kept": Metric(summary("mean_kept_fraction"), "kept", ".2f"),
    "score": Metric(summary("placement_score"), "mean score", ".3f"),
}  # fmt: skip


def metrics(*names: str) -> dict[str, Metric]:
    """Some of these."""
    return {name: METRICS[name] for name in names}


MAIN = metrics("max_rho", "max_rho_ref", "share_fair", "completion_h", "over_work", "moves")
"""What nearly every table shows."""
