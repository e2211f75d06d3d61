"""Slurm's accounting: what `sacct -P -X` prints.

sacct -a -P -X -S 2024-01-01 -o JobID,User,Submit,Start,End,State,AllocTRES > jobs.txt

Other columns are ignored. Times may be seconds since 1970 (SLURM_TIME_FORMAT=%s). AllocGRES, which
Slurm had before 21.08, does where there is no AllocTRES.
"""

import re
import sys
from functools import lru_cache

from themis.sim.traces.csv_tables import ColumnNames, Ids, Parser, row_of
from themis.sim.traces.fields import MAX_SECONDS, gpus_of, owner_of, time_of
from themis.sim.traces.trace import BadRowError, Dropped, TraceJob

COLUMNS = ("jobid", "user", "submit", "start", "end", "state", "alloctres")
DELIMITER = "|"
_GRES = re.compile(r"(?:^|,)\s*(?:gres[:/])?gpu(?::[a-z][^:,()]*)?(?::(\d+))?(?=[(,]|\s*$)")
_INSTEAD = {"jobid": "jobidraw", "alloctres": "allocgres"}
"""Columns that do as well."""
_BEGUN_AGAIN = {"REQUEUED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "RESIZING"}
"""States of a job after which the same number may come once more (`sacct --duplicates`)."""


def sacct_parser(first_line: str, where: str) -> Parser:
    """What reads the rows below this header.

    Raises:
        ConfigError: The header lacks a column or has one twice.
    """
    header = ColumnNames(first_line, where, DELIMITER)
    columns = _columns(header)
    header.check(columns)
    name, user, submit, start, end, state, tres = map(header.place, columns)
    width, attempts = len(header.names), Attempts()

    def parse(line: int, text: str) -> TraceJob | Dropped:
        if text == first_line:
            raise BadRowError("the header again")
        row = text.split(DELIMITER)
        if len(row) != width:  # quotes mean nothing to sacct, so only the count is checked
            row = row_of(text.replace('"', ""), DELIMITER, width)
        if "." in row[name]:
            return Dropped.JOB_STEP
        submitted = _time("Submit", row[submit])
        if submitted is None:
            raise BadRowError("Submit is missing", row[submit])
        began, ended = _time("Start", row[start]), _time("End", row[end])
        gpus = _gpus(row[tres])
        # CANCELLED by 1234: who did it makes no other state.
        status = sys.intern(row[state].split(" ", 1)[0].strip())
        attempts.add(row[name], status)
        if began is None:
            return Dropped.NEVER_STARTED
        if ended is None:
            return Dropped.STILL_RUNNING
        length = span("End", began, ended)
        if not gpus:
            return Dropped.ZERO_GPUS
        if not length:
            return Dropped.ZERO_DURATION
        if status == "REQUEUED":  # its work was lost, and is in a later row
            return Dropped.REQUEUED
        return TraceJob(line, submitted, length, gpus, owner_of(row[user]), None, status)

    return parse


def _columns(header: ColumnNames) -> tuple[str, ...]:
    """The names that the columns have here."""
    names = {column: _INSTEAD.get(column, column) for column in header.missing(COLUMNS)}
    return tuple(
        names[column] if names.get(column) in header.names else column for column in COLUMNS
    )


class Attempts:
    """Refuses a job that was there before, unless it had to begin again."""

    def __init__(self) -> None:
        self._ids = Ids()
        self._open: set[str] = set()

    def add(self, text: str, status: str) -> None:
        """One more row.

        Raises:
            BadRowError: The job was there before, and over.
        """
        name = text.strip()
        if name in self._open:
            self._open.discard(name)
        else:
            self._ids.add(name)
        if status in _BEGUN_AGAIN:
            self._open.add(name)


def _time(name: str, text: str) -> float | None:
    """As `time_of`, and seconds since 1970."""
    seconds = len(text) in {9, 10} and text.isascii() and text.isdigit()
    return float(text) if seconds else time_of(name, text)


def span(name: str, start: float, end: float) -> float:
    """From start to end.

    Raises:
        BadRowError: The end is before the start, or centuries after it.
    """
    if end < start:
        raise BadRowError(f"{name} is before the start", f"by {start - end:g} s")
    if end - start > MAX_SECONDS:
        raise BadRowError(f"{name} is too long after the start", f"{end - start:g} s")
    return end - start


@lru_cache(maxsize=4096)
def _gpus(text: str) -> int:
    """GPUs in a list as cpu=8,gres/gpu=4,gres/gpu:v100=4,node=1, or as gpu:v100:4(IDX:0-3).

    The count without a type is the sum of those with one, which are all that some sites record.
    """
    if "=" not in text:
        found = _GRES.findall(text.lower())
        return sum(gpus_of("gpu in AllocGRES", count or "1") for count in found)
    total, typed = None, 0
    for item in text.split(","):
        key, equals, value = item.strip().lower().partition("=")
        if not equals or not key.startswith("gres/gpu"):
            continue
        if key == "gres/gpu":
            total = gpus_of("gres/gpu in AllocTRES", value)
        elif key.startswith("gres/gpu:"):
            typed += gpus_of("gres/gpu in AllocTRES", value)
    return typed if total is None else total
