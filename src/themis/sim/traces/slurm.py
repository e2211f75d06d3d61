"""Slurm's accounting: what `sacct -P -X` prints.

sacct -a -P -X -S 2024-01-01 -o JobID,User,Submit,Start,End,State,AllocTRES > jobs.txt
"""

import sys
from functools import lru_cache

from themis.sim.traces.fields import MAX_SECONDS, gpus_of, owner_of, time_of
from themis.sim.traces.tables import Header, Ids, Parser, row_of
from themis.sim.traces.trace import BadRowError, Dropped, TraceJob

COLUMNS = ("jobid", "user", "submit", "start", "end", "state", "alloctres")
DELIMITER = "|"


def sacct_parser(first_line: str, where: str) -> Parser:
    """What reads the rows below this header.

    Raises:
        ConfigError: The header lacks a column or has one twice.
    """
    header = Header(first_line, where, DELIMITER)
    header.check(COLUMNS)
    name, user, submit, start, end, state, tres = map(header.place, COLUMNS)
    width, ids = len(header.names), Ids()

    def parse(line: int, text: str) -> TraceJob | Dropped:
        if text == first_line:
            raise BadRowError("the header again")
        row = text.split(DELIMITER)
        if len(row) != width:  # quotes mean nothing to sacct, so only the count is checked
            row = row_of(text.replace('"', ""), DELIMITER, width)
        if "." in row[name]:
            return Dropped.JOB_STEP
        submitted = time_of("Submit", row[submit])
        if submitted is None:
            raise BadRowError("Submit is missing", row[submit])
        began, ended = time_of("Start", row[start]), time_of("End", row[end])
        gpus = _gpus(row[tres])
        ids.add(row[name])
        if began is None:
            return Dropped.NEVER_STARTED
        if ended is None:
            return Dropped.STILL_RUNNING
        length = span("End", began, ended)
        if not gpus:
            return Dropped.ZERO_GPUS
        if not length:
            return Dropped.ZERO_DURATION
        # CANCELLED by 1234: who did it makes no other state.
        status = sys.intern(row[state].split(" ", 1)[0].strip())
        return TraceJob(line, submitted, length, gpus, owner_of(row[user]), None, status)

    return parse


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
    """GPUs in a list as cpu=8,gres/gpu=4,gres/gpu:v100=4,node=1.

    The count without a type is the sum of those with one, which are all that some sites record.
    """
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
