"""What every figure is drawn on: one style, readable in print and with any colour vision.

drawing = Drawing()
with panels(drawing, 6.0, 3.6) as (axes,):
    axes.plot(hours, gpus, label="themis", **look(0))
drawing.save("out/usage")       # an .svg and a .png; notebooks show a Drawing by themselves

matplotlib is imported when something is drawn.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from themis.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette: told apart with any kind of colour vision, and in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8F8F8F")
STYLES = ("-", "--", "-.", ":")
MARKERS = "osD^vP*X"

# Fixed ids, so that the same run gives the same bytes.
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "themis",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
}


class Drawing:
    """A finished figure. Notebooks show it by themselves."""

    def __init__(self) -> None:
        try:
            from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and only needed to draw
        except ImportError as error:
            raise ConfigError(
                "figures", "matplotlib is missing", "pip install 'themis-scheduler[figures]'"
            ) from error
        self.figure: Figure = Figure(layout="constrained")

    def __repr__(self) -> str:
        titles = [axes.get_title() for axes in self.figure.axes]
        return f"Drawing({', '.join(titles)})"

    def save(self, path: Path | str) -> list[Path]:
        """Write an .svg and a .png beside each other; returns their paths."""
        stem = Path(path)
        # Not with_suffix, which would cut a name at its last dot.
        paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "png")]
        with _settings():
            # No date and no version: the same run gives the same bytes.
            self.figure.savefig(paths[0], metadata={"Date": None})
            self.figure.savefig(paths[1], dpi=150, metadata={"Software": None})
        return paths

    def _repr_png_(self) -> bytes:
        """What IPython asks for."""
        buffer = io.BytesIO()
        with _settings():
            self.figure.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


@contextmanager
def _settings() -> Iterator[None]:
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and only needed to draw

    with mpl.rc_context(_SETTINGS):
        yield


@contextmanager
def panels(
    drawing: Drawing, width: float, height: float, columns: int = 1, rows: int = 1
) -> Iterator[list["Axes"]]:
    """The axes of a figure, row by row; sizes are inches."""
    with _settings():
        drawing.figure.set_size_inches(width, height)
        yield list(drawing.figure.subplots(rows, columns, squeeze=False).flat)


def look(index: int) -> dict[str, Any]:
    """How the line of one policy looks: no two of 15 alike, even without colours."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": STYLES[(index + index // len(COLOURS)) % len(STYLES)],
        "linewidth": 1.5,
    }


Corner = Literal["lower right", "lower left", "upper left", "upper right"]


def legend(axes: "Axes", lines: int, place: Corner) -> None:
    """Inside where there is room; beside the axes when there are many lines."""
    if not axes.get_legend_handles_labels()[1]:
        return
    if lines > 6:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    else:
        axes.legend(frameon=False, loc=place)
