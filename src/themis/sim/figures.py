"""Figures of runs, as SVG and PNG. matplotlib is imported when one is drawn.

draw_rho_cdf({"themis": result.apps, "fifo": other.apps}, Path("out/rho"))
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from themis.errors import ConfigError
from themis.fairness.ideal import Convention
from themis.model import AppId
from themis.sim.metrics import FAIR, HOUR, AppResult
from themis.sim.run import RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette: told apart with any kind of colour vision, and in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8F8F8F")
STYLES = ("-", "--", "-.", ":")


@contextmanager
def _axes(path: Path, width: float, height: float) -> Iterator["Axes"]:
    """Axes to draw on; afterwards `path` has an .svg and a .png beside each other."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - heavy, and only needed to draw
        from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and only needed to draw
    except ImportError as error:
        raise ConfigError(
            "figures", "matplotlib is missing", "pip install 'themis-scheduler[figures]'"
        ) from error
    # Fixed ids and no date, so that the same run gives the same bytes.
    settings: dict[Any, Any] = {"svg.hashsalt": "themis", "font.size": 9, "axes.spines.top": False}
    with mpl.rc_context({**settings, "axes.spines.right": False}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure.add_subplot()
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=150, metadata={"Software": None})


def draw_rho_cdf(results: Mapping[str, Sequence[AppResult]], path: Path) -> None:
    """The share of apps at or below each rho_ref, one line per policy."""
    with _axes(path, 6.0, 3.6) as axes:
        axes.axvspan(0.0, FAIR, color="#009E73", alpha=0.08, lw=0)
        for index, (policy, apps) in enumerate(results.items()):
            values = sorted(app.rho_ref[Convention.FAIR_SHARE] for app in apps)
            shares = [(place + 1) / len(values) for place in range(len(values))]
            axes.step(
                [0.0, *values],
                [0.0, *shares],
                where="post",
                color=COLOURS[index % len(COLOURS)],
                linestyle=STYLES[index % len(STYLES)],
                label=f"{policy} (max {values[-1]:.2f})",
            )
        axes.set_xscale("symlog", linthresh=2.0)
        axes.set_xlim(left=0.0)
        axes.set_xticks(ticks := [0.5, 1, 2, 5, 10, 20, 50], [f"{tick:g}" for tick in ticks])
        _, right = axes.get_xlim()
        axes.set_xlim(0.0, right)
        axes.set_ylim(0.0, 1.02)
        axes.set_xlabel("finish-time fairness rho against the fluid equal-share reference")
        axes.set_ylabel("share of apps")
        axes.set_title("How late apps finish (left is better; shaded: no later than their share)")
        axes.legend(frameon=False, loc="lower right")


def draw_timeline(result: RunResult, path: Path, until: float | None = None) -> None:
    """Which app held which GPU when."""
    apps = [app.app for app in result.apps]
    colour = app_colours(apps)
    gpus = result.topology.gpus
    end = until or max((item.end for item in result.segments), default=1.0)
    with _axes(path, 8.0, max(2.4, 0.16 * min(gpus, 64) + 1.2)) as axes:
        bars: dict[tuple[int, AppId], list[tuple[float, float]]] = {}
        for item in result.segments:
            if item.start < end:
                length = (min(item.end, end) - item.start) / HOUR
                bars.setdefault((item.gpu, item.app), []).append((item.start / HOUR, length))
        for (gpu, app), spans in bars.items():
            axes.broken_barh(spans, (gpu - 0.45, 0.9), facecolors=colour[app], lw=0)
        _mark_machines(axes, result)
        axes.set_xlim(0.0, end / HOUR)
        axes.set_ylim(gpus - 0.5, -0.5)
        axes.set_xlabel("hours")
        axes.set_title(f"GPU timeline under {result.summary['policy']} (one colour per app)")


def app_colours(apps: Sequence[AppId]) -> dict[AppId, Any]:
    """A colour for each app, neighbours in time well apart."""
    shades = [(1.0, 0), (0.55, 1), (0.3, 2)]
    palette = [(colour, strength) for strength, _ in shades for colour in COLOURS[:6]]
    return {app: palette[index % len(palette)] for index, app in enumerate(apps)}


def _mark_machines(axes: "Axes", result: RunResult) -> None:
    topology = result.topology
    middles = []
    for number, gpus in enumerate(topology.gpus_of):
        middles.append((gpus[0] + gpus[-1]) / 2)
        new_rack = number and topology.machines[number].rack != topology.machines[number - 1].rack
        if number:
            axes.axhline(gpus[0] - 0.5, color="black", lw=0.8 if new_rack else 0.25)
    axes.set_yticks(middles, [machine.name for machine in topology.machines], fontsize=7)
