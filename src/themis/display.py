"""Tables for notebooks: as HTML where it can be shown, as plain text everywhere else.

    sheet = Sheet("sweep: running", (Table(("job", "loss"), (("0", 0.31), ("1", None))),))
    sheet.html()        # what a notebook shows
    sheet.text()        # what a terminal shows

Names, messages and parameters are untrusted. The HTML escapes everything, has no script and loads
nothing; in both forms unprintable characters are written as escapes, and long texts are cut.
Standard library only, because the client uses it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

MOST_ROWS = 200
"""Rows of a table that are shown."""
MOST_TEXT = 200
"""Characters of a text that are shown."""
_NOTHING = "-"

_CELL = "padding:2px 10px;text-align:{}"


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows; numbers are aligned to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A heading, tables, and lines of text below them."""

    title: str
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()

    def html(self) -> str:
        """HTML with all texts escaped."""
        parts = [f"<p><b>{_safe(self.title)}</b></p>"] if self.title else []
        parts += [_table_html(table) for table in self.tables]
        parts += [f"<p>{_safe(note)}</p>" for note in self.notes]
        return f"<div>{''.join(parts)}</div>"

    def text(self) -> str:
        """Plain text."""
        parts = [shown(self.title)] if self.title else []
        parts += [_table_text(table) for table in self.tables]
        parts += [shown(note) for note in self.notes]
        return "\n".join(parts)


class Displayed:
    """A value that notebooks show as its sheet."""

    __slots__ = ()

    def _sheet(self) -> Sheet:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self._sheet().html()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For IPython in a terminal."""
        printer.text(repr(self) if cycle else self._sheet().text())


def shown(value: object) -> str:
    """A value as a short text on one line."""
    if value is None or value in ("", [], (), {}):
        return _NOTHING
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case Mapping():
            return _cut(", ".join(f"{_plain(key)}={shown(item)}" for key, item in _few(value)))
        case list() | tuple():
            return _cut(", ".join(shown(item) for item in value[:MOST_ROWS]))
        case _:
            return _cut(_plain(value))


def _few(value: Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
    return list(value.items())[:MOST_ROWS]


def _plain(value: object) -> str:
    """Text on one line, without control characters."""
    try:
        text = str(value)
    except ValueError:  # an integer of thousands of digits
        text = "a very large number"
    text = text[: 4 * MOST_TEXT]
    return "".join(ch if ch.isprintable() else ascii(ch)[1:-1] for ch in text)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def _safe(value: object) -> str:
    return escape(shown(value), quote=True)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _right(table: Table) -> list[bool]:
    """Which columns hold numbers."""
    return [
        any(_is_number(row[index]) for row in table.rows)
        and all(_is_number(row[index]) or row[index] is None for row in table.rows)
        for index in range(len(table.columns))
    ]


def _table_html(table: Table) -> str:
    sides = ["right" if right else "left" for right in _right(table)]
    head = "".join(
        f'<th style="{_CELL.format(side)}">{_safe(name)}</th>'
        for name, side in zip(table.columns, sides, strict=True)
    )
    rows = "".join(
        f"<tr>{''.join(_cell_html(item, side) for item, side in zip(row, sides, strict=True))}</tr>"
        for row in table.rows[:MOST_ROWS]
    )
    caption = f"<p>{_safe(table.title)}</p>" if table.title else ""
    made = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"{caption}{made}{f'<p>{_more(table)}</p>' if _more(table) else ''}"


def _cell_html(value: object, side: str) -> str:
    return f'<td style="{_CELL.format(side)}">{_safe(value)}</td>'


def _more(table: Table) -> str:
    left = len(table.rows) - MOST_ROWS
    return f"and {left} more" if left > 0 else ""


def _table_text(table: Table) -> str:
    cells = [[shown(item) for item in row] for row in (table.columns, *table.rows[:MOST_ROWS])]
    widths = [max(len(row[index]) for row in cells) for index in range(len(table.columns))]
    rights = _right(table)
    lines = [_line(row, widths, rights) for row in cells]
    lines.insert(1, "─" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join([*filter(None, [shown(table.title) if table.title else ""]), *lines]
                     + ([_more(table)] if _more(table) else []))  # fmt: skip


def _line(cells: Sequence[str], widths: Sequence[int], rights: Sequence[bool]) -> str:
    placed = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, rights, strict=True)
    )
    return "  ".join(placed).rstrip()
