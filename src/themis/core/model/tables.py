"""Valuations by the column: many tables have the same levels and counts, and other seconds.

    shape = TableShape(((MACHINE, 2), (MACHINE, 4)))
    table = Table(shape, (900.0, 500.0))
    table[1]                          # TableRow(MACHINE, 4, 500.0), made on access

An app is asked for hundreds of rows in every round, and most are never read one by one.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, overload

from themis.core.model.bids import TableRow
from themis.core.model.topology import LEVELS


class TableShape:
    """The levels and counts of a table's rows, in their order."""

    __slots__ = ("alone", "columns", "most", "rows")

    def __init__(self, rows: tuple[tuple[int, int], ...]) -> None:
        self.rows = rows
        self.most = max([count for _, count in rows], default=0)
        """The largest count."""
        self.alone = tuple([index for index, (_, count) in enumerate(rows) if count == 1])
        """Which rows are about a single GPU."""
        self.columns = tuple(self._column(level) for level in LEVELS)
        """For each level its counts, rising, and what picks their seconds from those of all."""

    def _column(self, level: int) -> tuple[list[int], "itemgetter[Any]"]:
        found = sorted(
            [(count, at) for at, (apart, count) in enumerate(self.rows) if apart == level]
        )
        places = [at for _, at in found]
        first = places[0] if places else 0
        if places == list(range(first, first + len(places))):
            pick: itemgetter[Any] = itemgetter(slice(first, first + len(places)))
        else:
            pick = itemgetter(*places)
        return ([count for count, _ in found], pick)


@lru_cache(maxsize=1024)
def shape_of(rows: tuple[tuple[int, int], ...]) -> TableShape:
    """The shape with these levels and counts, one for all who ask."""
    return TableShape(rows)


class RowTable(Sequence[TableRow]):
    """Rows of a valuation. Equal to the tuple of them."""

    __slots__ = ("seconds", "shape")

    def __init__(self, shape: TableShape, seconds: tuple[float, ...]) -> None:
        self.shape = shape
        self.seconds = seconds

    @staticmethod
    def of(rows: Sequence[TableRow]) -> "RowTable":
        """The same rows, by the column."""
        if isinstance(rows, RowTable):
            return rows
        shape = shape_of(tuple([(row.level, row.count) for row in rows]))
        return RowTable(shape, tuple([row.seconds for row in rows]))

    def __len__(self) -> int:
        return len(self.seconds)

    def __iter__(self) -> Iterator[TableRow]:
        for (level, count), seconds in zip(self.shape.rows, self.seconds, strict=True):
            yield TableRow(level, count, seconds)

    @overload
    def __getitem__(self, index: int) -> TableRow: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TableRow, ...]: ...
    def __getitem__(self, index: int | slice) -> TableRow | tuple[TableRow, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        level, count = self.shape.rows[index]
        return TableRow(level, count, self.seconds[index])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RowTable):
            return self.seconds == other.seconds and self.shape.rows == other.shape.rows
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
