"""What every figure is drawn on: one style, readable in print and with any colour vision.

drawing = Drawing()
with panels(drawing, 6.0, 3.6) as (axes,):
    for name, look in looks(usage).items():
        axes.plot(hours, usage[name], label=name, **look.line)
drawing.save("out/usage")       # an .svg and a .png; notebooks show a Drawing by themselves

matplotlib is imported when something is drawn.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from themis.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette: told apart with any kind of colour vision, and in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8F8F8F")
STYLES = ("-", "--", "-.", ":")
MARKERS = "osD^vP*X"

Dashes = str | tuple[float, tuple[float, ...]]
"""A name, or where to begin and the lengths of strokes and gaps."""

_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY, _BLACK, _GREY = COLOURS
_DASHED, _LONG, _SHORT, _EVEN = (
    (0.0, (5.0, 2.0)),
    (0.0, (7.0, 2.5)),
    (0.0, (3.0, 1.0)),
    (0.0, (4.0, 4.0)),
)
_DOTS, _FEW_DOTS = (0.0, (1.0, 1.5)), (0.0, (1.0, 4.0))
_DASH_DOT, _LONG_DASH = (0.0, (6.0, 2.0, 1.0, 2.0)), (0.0, (6.0, 1.5, 2.5, 1.5))
_TWO_DOTS = (0.0, (6.0, 1.5, 1.0, 1.5, 1.0, 1.5))
_THREE_DOTS = (0.0, (5.0, 1.2, 1.0, 1.2, 1.0, 1.2, 1.0, 1.2))
POLICY_LOOKS: Mapping[str, tuple[str, Dashes, str]] = {
    "themis": (_BLUE, "-", "o"),
    "themis-paper": (_SKY, _DASHED, "s"),
    "equal-share": (_VERMILION, _LONG, "D"),
    "worst-first": (_GREY, _DOTS, "^"),
    "min-max-rho": (_SKY, _DASH_DOT, "v"),
    "gandiva": (_GREEN, _SHORT, "P"),
    "tiresias": (_PURPLE, _LONG_DASH, "X"),
    "tiresias+pack": (_PURPLE, _TWO_DOTS, "*"),
    "optimus": (_ORANGE, _EVEN, "h"),
    "optimus+pack": (_ORANGE, _FEW_DOTS, "p"),
    "slaq": (_BLACK, _THREE_DOTS, "<"),
    "slaq+pack": (_BLACK, _DASHED, ">"),
    "drf": (_GREEN, _DASH_DOT, "d"),
    "fifo": (_GREY, _LONG, "8"),
    "static": (_VERMILION, _DOTS, "H"),
}
"""Colour, dashes and marker of each policy, the same in all figures. No two that are often seen
together share their dashes, and none that share a colour do."""

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


@dataclass(frozen=True, slots=True)
class LineStyle:
    """How something looks in a figure."""

    colour: str
    dashes: Dashes
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """What matplotlib calls it, for a line without markers."""
        return {"color": self.colour, "linestyle": self.dashes, "linewidth": 1.5}


def looks(names: Iterable[str]) -> dict[str, LineStyle]:
    """How the lines of a figure look: policies as in all figures, others in what is left.

    A name may say more after a comma, as `slaq, 5 of 6 seeds`, unless lines differ only in that. No
    two lines look alike, even without colours as long as there are few.
    """
    labels = list(dict.fromkeys(names))
    bare = [label.partition(",")[0] for label in labels]
    known = POLICY_LOOKS if len(set(bare)) == len(bare) else {}
    found = {
        label: LineStyle(*known[name])
        for label, name in zip(labels, bare, strict=True)
        if name in known
    }
    taken = {(look.colour, look.dashes) for look in found.values()}
    left = (look for look in map(_other, count()) if (look.colour, look.dashes) not in taken)
    return {label: found[label] if label in found else next(left) for label in labels}


def look(index: int) -> dict[str, Any]:
    """How a line that is no policy's looks, by its place among the lines."""
    return _other(index).line


def _other(index: int) -> LineStyle:
    """No two of 32 alike."""
    return LineStyle(
        COLOURS[index % len(COLOURS)],
        STYLES[(index + index // len(COLOURS)) % len(STYLES)],
        MARKERS[index % len(MARKERS)],
    )


def aside(index: int, lines: int, places: Sequence[float]) -> float:
    """How far sideways the points of one of some lines stand, so that no interval hides another.

    To both sides of where they belong, and by so little that nobody takes it for another value.
    """
    if lines < 2:
        return 0.0
    near = sorted(set(places))
    width = near[-1] - near[0] or 1.0
    gap = min((after - before for before, after in pairwise(near)), default=width)
    step = min(0.012 * width, min(0.036 * width, 0.15 * gap) / (lines - 1))
    return step * (index - (lines - 1) / 2)


LONG_HANDLE = 4.0
"""Of lines in a legend, in letters: enough to see how they are dashed."""

Corner = Literal["lower right", "lower left", "upper left", "upper right"]


def legend(axes: "Axes", lines: int, place: Corner) -> None:
    """Inside where there is room; beside the axes when there are many lines."""
    if not axes.get_legend_handles_labels()[1]:
        return
    if lines > 6:
        axes.legend(
            frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8,
            handlelength=LONG_HANDLE,
        )  # fmt: skip
    else:
        axes.legend(frameon=False, loc=place, handlelength=LONG_HANDLE)
