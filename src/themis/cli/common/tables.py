"""Tables of 80 columns, printed at once where they fit.

    listing("", ("app", "-GPUs"), rows).print()

Rich would take a second for a thousand rows, and a good part of a short command to be imported. It
lays out what it is needed for: what has to be folded, and what is not ASCII.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import typer

from themis.cli.common.output import STYLE, escape_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.table import Table

WIDTH = 80
"""Tables fit into this width, also without a terminal."""
_GAP = "  "
_SIGNS = "-=~"
_LEAST = 18
"""The shortest that a text is cut to: the length of the longest reason."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A table; see `listing`."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def print(self) -> None:
        """Print it on standard output."""
        out = sys.stdout
        width = shutil.get_terminal_size((WIDTH, 24)).columns if out.isatty() else WIDTH
        fitting = self.fitting(width)
        lines = fitting.lines(width)
        if lines is None:
            wide_console().print(fitting)
            return
        if out.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}:
            head = 1 if self.title else 0
            lines[head] = f"\x1b[1m{lines[head]}\x1b[0m"
        typer.echo("\n".join(lines))

    def fitting(self, width: int) -> Listing:
        """The same with texts cut, in columns where that is allowed, so far as it is too wide."""
        cut = [index for index, column in enumerate(self.columns) if column.startswith("~")]
        if not cut or not self.rows:
            return self
        names = (column.lstrip(_SIGNS) for column in self.columns)
        widths = [max(map(len, texts)) for texts in zip(names, *self.rows, strict=True)]
        others = sum(size for index, size in enumerate(widths) if index not in cut)
        room = (width - others - len(_GAP) * (len(widths) - 1)) // len(cut)
        rows = tuple(
            tuple(_short(text, room) if at in cut else text for at, text in enumerate(row))
            for row in self.rows
        )
        return Listing(self.title, self.columns, rows)

    def lines(self, width: int) -> list[str] | None:
        """As Rich would print it; None where that takes more than filling up columns."""
        names = tuple(column.lstrip(_SIGNS) for column in self.columns)
        grid = (names, *self.rows)
        if not all(text.isascii() for row in (*grid, (self.title,)) for text in row):
            return None
        widths = [max(map(len, texts)) for texts in zip(*grid, strict=True)]
        whole = sum(widths) + len(_GAP) * (len(widths) - 1)
        if whole > width or len(self.title) > whole:
            return None
        numbers = [column.startswith("-") for column in self.columns]

        def line(row: tuple[str, ...]) -> str:
            cells = zip(row, widths, numbers, strict=True)
            return _GAP.join(
                text.rjust(size) if number else text.ljust(size) for text, size, number in cells
            )

        title = [self.title.ljust(whole)] if self.title else []
        return [*title, line(names), "─" * whole, *map(line, self.rows)]

    def __rich__(self) -> Table:
        """The same for Rich."""
        from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - only needed when something is shown
        from rich.table import Table  # noqa: PLC0415 - see above
        from rich.text import Text  # noqa: PLC0415 - see above

        table = Table(
            title=Text(self.title) if self.title else None,
            title_justify="left",
            box=SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            collapse_padding=True,
        )
        for column in self.columns:
            number, whole = column.startswith("-"), column.startswith(tuple(_SIGNS))
            side: Literal["left", "right"] = "right" if number else "left"
            table.add_column(column.lstrip(_SIGNS), justify=side, no_wrap=whole, overflow="fold")
        for row in self.rows:
            # As text and not as markup: a name may hold anything.
            table.add_row(*map(Text, row))
        return table


def listing(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Listing:
    """A table that fits into 80 columns.

    Args:
        title: Above it, if any.
        columns: Their names. One of numbers begins with `-`, one that is never folded with `=`, and
            one of texts that are cut rather than have anything folded with `~`.
        rows: What stands in them.
    """
    return Listing(title, tuple(columns), tuple(tuple(map(cell, row)) for row in rows))


def _short(text: str, room: int) -> str:
    most = max(_LEAST, room)
    return text if len(text) <= most else f"{text[: most - 3].rstrip()}..."


def cell(value: object) -> str:
    """A value as it stands in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape_line(str(value)).replace("\n", " ")


def wide_console() -> Console:
    """Where tables go: as wide as the terminal, or 80 columns."""
    from rich.console import Console  # noqa: PLC0415 - only needed when something is shown

    width = None if sys.stdout.isatty() else WIDTH
    return Console(no_color=not STYLE.color, width=width, highlight=False)
