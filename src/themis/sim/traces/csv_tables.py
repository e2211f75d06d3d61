"""Traces as CSV: the plain format, and the Philly files that are tables.

One reader for all: columns are found by their names, in any order, and others are ignored. A field
may be quoted but not hold a line end, so that a lost quote spoils one line and not the rest.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from sys import intern

from themis.errors import ConfigError
from themis.sim.traces.fields import UNKNOWN_OWNER, gpus_of, owner_of, seconds_of
from themis.sim.traces.trace import BadRowError, Dropped, TraceJob

Parser = Callable[[int, str], TraceJob | Dropped]
"""From a line's number and its text; raises BadRowError."""

DELIMITERS = ",;\t"


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of one kind of table; the first three are always needed, `needed` as well."""

    submit: str
    duration: str
    gpus: str
    owner: str
    app: str = ""
    id: str = ""
    status: str = "status"
    needed: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Those without which it is another table."""
        return (self.submit, self.duration, self.gpus, *self.needed)


LAYOUTS = {
    "philly-apps": Layout(
        "job_submit_s", "duration_s", "num_gpus", "vc", "app", "philly_job_id", needed=("app", "vc")
    ),
    "philly-csv": Layout("submit_s", "duration_s", "num_gpus", "vc", id="job_id", needed=("vc",)),
    "csv": Layout("submit_s", "duration_s", "num_gpus", "owner", "app"),
}
"""In the order in which they are tried."""


class ColumnNames:
    """The names of the columns, in lower case. The delimiter is the most frequent candidate."""

    def __init__(self, line: str, where: str, delimiters: str = DELIMITERS) -> None:
        self.delimiter = max(delimiters, key=line.count)
        self._where = where
        try:
            fields = split_row(line, self.delimiter)
        except BadRowError:
            fields = line.split(self.delimiter)
        self.names = [name.strip().lower() for name in fields]

    def check(self, columns: Sequence[str]) -> None:
        """Insist on these columns.

        Raises:
            ConfigError: One is missing or there twice.
        """
        if missing := self.missing(columns):
            given = ", ".join(self.names)[:200]
            verb = "is" if len(missing) == 1 else "are"
            allowed = f"a header with {', '.join(columns)}: {', '.join(missing)} {verb} missing"
            raise ConfigError("columns", given, allowed, self._where)
        for name in columns:
            if self.names.count(name) > 1:
                raise ConfigError("columns", f"{name} twice", "every column once", self._where)

    def missing(self, columns: Sequence[str]) -> list[str]:
        """Those of these columns that are not there."""
        return [name for name in columns if name not in self.names]

    def place(self, name: str) -> int:
        """Where a column stands that is there."""
        return self.names.index(name)

    def find(self, name: str) -> int | None:
        """Where a column stands that may be missing."""
        return self.names.index(name) if name in self.names else None


def layout_of(header: ColumnNames) -> str | None:
    """The kind of table with this header."""
    names = set(header.names)
    return next((kind for kind, each in LAYOUTS.items() if names.issuperset(each.columns)), None)


def table_parser(kind: str, first_line: str, where: str) -> Parser:
    """What reads the rows below this header.

    Raises:
        ConfigError: The header lacks a column or has one twice.
    """
    layout, header = LAYOUTS[kind], ColumnNames(first_line, where)
    header.check(layout.columns)
    submit, duration, gpus = map(header.place, layout.columns[:3])
    owner, app, status = map(header.find, (layout.owner, layout.app, layout.status))
    number = header.find(layout.id)
    delimiter, width = header.delimiter, len(header.names)
    ids = Ids()

    def parse(line: int, text: str) -> TraceJob | Dropped:
        if text == first_line:
            raise BadRowError("the header again")
        row = text.split(delimiter)
        if len(row) != width or '"' in text:
            row = row_of(text, delimiter, width)
        at = seconds_of(layout.submit, row[submit])
        length = seconds_of(layout.duration, row[duration])
        count = gpus_of(layout.gpus, row[gpus])
        if number is not None:
            ids.add(row[number])
        if not count:
            return Dropped.ZERO_GPUS
        if not length:
            return Dropped.ZERO_DURATION
        return TraceJob(
            line,
            at,
            length,
            count,
            UNKNOWN_OWNER if owner is None else owner_of(row[owner]),
            None if app is None else intern(row[app].strip()) or None,
            "" if status is None else intern(row[status].strip()),
        )

    return parse


def row_of(text: str, delimiter: str, width: int) -> list[str]:
    """The fields of a row that must have this many; empty ones at the end are forgiven.

    Raises:
        BadRowError: It has fewer or more, or its quotes are wrong.
    """
    row = split_row(text, delimiter) if '"' in text else text.split(delimiter)
    if len(row) != width:
        if len(row) < width:
            raise BadRowError("too few fields", text)
        if any(field.strip() for field in row[width:]):
            raise BadRowError("too many fields", text)
    return row


def split_row(text: str, delimiter: str) -> list[str]:
    """The fields of one line, some of them quoted.

    Raises:
        BadRowError: The quotes are wrong.
    """
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        raise BadRowError("the quotes are wrong", text) from None


class Ids:
    """Refuses a job that was there before, as where files that overlap were joined."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def add(self, text: str) -> None:
        """One more job; no name is no name twice.

        Raises:
            BadRowError: It was there before.
        """
        name = text.strip()
        if name in self._seen:
            raise BadRowError("the job was on an earlier line", name)
        if name:
            self._seen.add(name)
