"""Figures of runs, as SVG and PNG. matplotlib is imported when one is drawn.

draw_rho_cdf({"themis": result.apps, "fifo": other.apps}, Path("out/rho"))
plot_timeline(result)           # a Drawing: shown by a notebook, or saved
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from themis.core.fairness.ideal_time import Convention
from themis.core.model import AppId, Topology
from themis.errors import unknown_name
from themis.recording.cluster_files import cluster
from themis.sim.compare import METRICS, Comparison
from themis.sim.figures.plot_style import COLOURS, Drawing, aside, legend, looks, panels
from themis.sim.metrics import FAIR, HOUR, AppResult
from themis.sim.run import RunResult, Segment
from themis.sim.runs.result_cache import CachedRun, score_shares, usage_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINEAR = 2.0
"""Up to here the axis of rho is linear."""
_SWEPT = ("max_rho_ref", "share_fair_ref", "mean_completion_h")


def draw_rho_cdf(results: Mapping[str, Sequence[AppResult]], path: Path) -> None:
    """The share of apps at or below each rho_ref, one line per policy."""
    plot_rho_cdf(results).save(path)


def plot_rho_cdf(results: Mapping[str, Sequence[AppResult]]) -> Drawing:
    """The share of apps at or below each rho_ref, one line per policy."""
    drawing = Drawing()
    with panels(drawing, 7.5 if len(results) > 6 else 6.0, 3.6) as (axes,):
        axes.axvspan(0.0, FAIR, color="#009E73", alpha=0.08, lw=0)
        for policy, look in looks(results).items():
            apps = results[policy]
            values = sorted(app.rho_ref[Convention.FAIR_SHARE] for app in apps)
            shares = [(place + 1) / len(values) for place in range(len(values))]
            label = f"{policy} (max {values[-1]:.2f})"
            axes.step([0.0, *values], [0.0, *shares], where="post", label=label, **look.line)
        # Most of what matters lies below 2; a few unlucky apps may lie far beyond.
        axes.set_xscale("symlog", linthresh=_LINEAR)
        axes.set_xlim(left=0.0)
        ticks = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500]
        right = max(axes.get_xlim()[1], 1.1 * _LINEAR)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xlim(0.0, right)
        axes.set_ylim(0.0, 1.02)
        axes.set_xlabel(
            f"rho against the fluid equal-share reference (log scale above {_LINEAR:g})"
        )
        axes.set_ylabel("share of apps")
        axes.set_title("How late apps finish (left is better; shaded: no later than their share)")
        legend(axes, len(results), "lower right")
    return drawing


def draw_timeline(result: RunResult, path: Path, until: float | None = None) -> None:
    """Which app held which GPU when."""
    plot_timeline(result, until).save(path)


def plot_timeline(result: RunResult, until: float | None = None) -> Drawing:
    """Which app held which GPU when."""
    apps = [app.app for app in result.apps]
    name = f"GPU timeline under {result.summary['policy']} (one colour per app)"
    return _timeline(result.segments, result.topology, apps, name, until)


def _timeline(
    segments: Sequence[Segment],
    topology: Topology,
    apps: Sequence[AppId],
    title: str,
    until: float | None = None,
) -> Drawing:
    colour = app_colours(apps)
    end = until or max((item.end for item in segments), default=1.0)
    drawing = Drawing()
    with panels(drawing, 8.0, max(2.4, 0.16 * min(topology.gpus, 64) + 1.2)) as (axes,):
        axes.grid(visible=False)
        bars: dict[tuple[int, AppId], list[tuple[float, float]]] = {}
        for item in segments:
            if item.start < end:
                length = (min(item.end, end) - item.start) / HOUR
                bars.setdefault((item.gpu, item.app), []).append((item.start / HOUR, length))
        for (gpu, app), spans in bars.items():
            axes.broken_barh(spans, (gpu - 0.45, 0.9), facecolors=colour[app], lw=0)
        _mark_machines(axes, topology)
        axes.set_xlim(0.0, end / HOUR)
        axes.set_ylim(topology.gpus - 0.5, -0.5)
        axes.set_xlabel("hours")
        axes.set_title(title)
    return drawing


def app_colours(apps: Sequence[AppId]) -> dict[AppId, Any]:
    """A colour for each app, neighbours in time well apart."""
    shades = [(1.0, 0), (0.55, 1), (0.3, 2)]
    palette = [(colour, strength) for strength, _ in shades for colour in COLOURS[:6]]
    return {app: palette[index % len(palette)] for index, app in enumerate(apps)}


def _mark_machines(axes: "Axes", topology: Topology) -> None:
    middles = []
    for number, gpus in enumerate(topology.gpus_of):
        middles.append((gpus[0] + gpus[-1]) / 2)
        new_rack = number and topology.machines[number].rack != topology.machines[number - 1].rack
        if number:
            axes.axhline(gpus[0] - 0.5, color="black", lw=0.8 if new_rack else 0.25)
    axes.set_yticks(middles, [machine.name for machine in topology.machines], fontsize=7)


def plot_usage(
    usages: Mapping[str, tuple[float, Sequence[float]]],
    gpus: int,
    title: str = "Utilisation over time, mean over seeds",
) -> Drawing:
    """The share of GPUs held over time: the length of a step, and the GPUs held in each."""
    drawing = Drawing()
    with panels(drawing, 7.5, 3.2) as (axes,):
        for policy, look in looks(usages).items():
            step, held = usages[policy]
            hours = [place * step / HOUR for place in range(len(held) + 1)]
            shares = [value / gpus for value in held]
            axes.stairs(shares, hours, label=policy, baseline=None, **look.line)
        axes.set_ylim(0.0, 1.02)
        axes.set_xlim(left=0.0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_xlabel("hours")
        axes.set_ylabel("GPUs held")
        axes.set_title(title)
        legend(axes, len(usages), "lower left")
    return drawing


def plot_placement(scores: Mapping[str, Sequence[tuple[float, float]]]) -> Drawing:
    """The share of GPU time at or below each placement score (1 / slowdown)."""
    drawing = Drawing()
    with panels(drawing, 7.5 if len(scores) > 6 else 6.0, 3.6) as (axes,):
        for policy, look in looks(scores).items():
            pairs = scores[policy]
            total = sum(weight for _, weight in pairs) or 1.0
            seen, values, shares = 0.0, [0.0], [0.0]
            for score, weight in sorted(pairs):
                seen += weight
                values.append(score)
                shares.append(seen / total)
            mean = sum(score * weight for score, weight in pairs) / total
            label = f"{policy} (mean {mean:.3f})"
            axes.step(values, shares, where="post", label=label, **look.line)
        low = min((score for pairs in scores.values() for score, _ in pairs), default=0.5)
        axes.set_xlim(max(0.0, low - 0.03), 1.005)
        axes.set_ylim(0.0, 1.02)
        axes.set_xlabel("placement score: speed here / speed on GPUs side by side")
        axes.set_ylabel("share of GPU time")
        axes.set_title("How well jobs are placed (right is better)")
        legend(axes, len(scores), "upper left")
    return drawing


def plot_sweep(comparison: Comparison) -> Drawing:
    """Worst rho, share of fair apps and completion against the swept key, with 95 % intervals."""
    values = comparison.values
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    places = (
        [float(value) for value in values] if numeric else [float(n) for n in range(len(values))]
    )
    metrics = [metric for metric in METRICS if metric.name in _SWEPT]
    drawing = Drawing()
    with panels(drawing, 10.0, 3.2, columns=len(metrics)) as parts:
        for axes, metric in zip(parts, metrics, strict=True):
            for index, (policy, look) in enumerate(looks(comparison.policies).items()):
                found = [comparison.estimates(policy, value)[metric.name] for value in values]
                shift = aside(index, len(comparison.policies), places)
                axes.errorbar(
                    [place + shift for place in places],
                    [item.mean for item in found],
                    yerr=[item.half or 0.0 for item in found],
                    label=policy,
                    marker=look.marker,
                    markersize=4,
                    capsize=2.5,
                    elinewidth=0.9,
                    **look.line,
                )
            if not numeric or len(places) <= 6:
                axes.set_xticks(places, [str(value) for value in values])
            axes.set_xlabel(comparison.swept or "")
            axes.set_title(metric.label)
            if metric.form.endswith("%"):
                axes.set_ylim(0.0, 1.05)
                axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
            else:
                axes.set_ylim(bottom=0.0)
        legend(parts[-1], 7, "upper left")
    return drawing


RUN_FIGURES = ("rho", "timeline", "usage", "placement")


def run_figure(result: RunResult, kind: str) -> Drawing:
    """A figure of one run.

    Raises:
        ConfigError: No such figure, or matplotlib is missing.
    """
    policy = result.prepared.config.policy
    match kind:
        case "rho":
            return plot_rho_cdf({policy: result.apps})
        case "timeline":
            return plot_timeline(result)
        case "usage":
            usage = usage_of(result.segments)
            return plot_usage(
                {policy: (usage.step, usage.gpus)}, result.topology.gpus, "Utilisation over time"
            )
        case "placement":
            return plot_placement({policy: score_shares(result.outcome.scores)})
        case _:
            raise unknown_name("plot", kind, RUN_FIGURES)


def comparison_figure(comparison: Comparison, kind: str | None = None) -> Drawing:
    """A figure of a comparison; unless said `sweep` for a sweep and `rho` otherwise.

    Raises:
        ConfigError: No such figure, or matplotlib is missing.
    """
    kinds = ("sweep", "timeline") if comparison.swept else RUN_FIGURES
    kind = kind or kinds[0]
    if kind not in kinds:
        raise unknown_name("plot", kind, kinds)
    if kind == "sweep":
        return plot_sweep(comparison)
    pooled = {group.policy: group.runs for group in comparison.groups}
    first = comparison.groups[0].runs[0]
    if kind == "rho":
        return plot_rho_cdf(
            {name: [a for r in runs for a in r.apps] for name, runs in pooled.items()}
        )
    if kind == "usage":
        usages = {name: _mean_usage(runs) for name, runs in pooled.items()}
        return plot_usage(usages, first.summary["gpus"])
    if kind == "placement":
        return plot_placement(
            {name: score_shares(s for r in runs for s in r.scores) for name, runs in pooled.items()}
        )
    title = (
        f"GPU timeline under {first.config.policy}, seed {first.config.seed} (one colour per app)"
    )
    topology = cluster(first.config.cluster, first.config.contention)
    return _timeline(comparison.segments, topology, [app.app for app in first.apps], title)


def _mean_usage(runs: Sequence[CachedRun]) -> tuple[float, list[float]]:
    """GPUs held, mean over the runs, in the longest of their steps."""
    step = max(run.usage.step for run in runs)
    sums: list[float] = []
    for run in runs:
        # Steps are hours times a power of two.
        ratio = round(step / run.usage.step)
        for place, held in enumerate(run.usage.gpus):
            index = place // ratio
            sums.extend([0.0] * (index + 1 - len(sums)))
            sums[index] += held / ratio
    return step, [value / len(runs) for value in sums]
