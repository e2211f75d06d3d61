"""The job log that Microsoft published with its Philly traces: one long JSON list.

[{"status": "Pass", "vc": "6214e9", "jobid": "application_1_2", "user": "ab12cd",
  "submitted_time": "2017-10-09 07:02:44",
  "attempts": [{"start_time": "2017-10-09 07:02:51", "end_time": "2017-10-09 07:10:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}]}, ...]

Read object by object, so that memory does not grow with the file. Objects that follow each other
without a list (JSON lines) are read too.
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping

from themis.recording.codec import TOO_DEEP, TOO_LONG
from themis.sim.traces.csv_tables import Ids
from themis.sim.traces.fields import MAX_GPUS, MAX_SECONDS, owner_of, time_of
from themis.sim.traces.sacct import span
from themis.sim.traces.text_lines import OpenTextFile, is_text
from themis.sim.traces.trace import BadRowError, Dropped, Tally, TraceJob

CHUNK = 2**18
MAX_OBJECT = 2**24
"""Characters. Where one job takes more, the file is broken."""

_BETWEEN = frozenset(" \t\r\n,[]\ufeff")


def read_philly_log(source: OpenTextFile, tally: Tally) -> None:
    """Read all jobs. After a place that is not JSON nothing more can be told apart."""
    ids = Ids()
    try:
        for line, data in _objects(source):
            try:
                tally.take(_job(line, data, ids))
            except BadRowError as error:
                tally.refuse(line, error)
    except _BrokenError as error:
        reason = "not JSON: nothing from here on was read"
        tally.refuse(error.line, BadRowError(reason, error.reason))


class _BrokenError(Exception):
    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def _objects(source: OpenTextFile) -> Iterator[tuple[int, object]]:
    """The values in the file with the lines on which they begin."""
    decode = json.JSONDecoder().raw_decode
    text, place, line, ended = "", 0, 1, False
    while True:
        start = _next_value(text, place)
        line += text.count("\n", place, start)
        place = start
        if place < len(text):
            try:
                value, after = decode(text, place)
            except (ValueError, RecursionError) as error:
                # Perhaps the rest has only not been read yet.
                if ended or len(text) - place > MAX_OBJECT:
                    raise _broken(error, line, text, place) from None
            else:
                # A number that ends where the text ends may go on.
                if ended or after < len(text):
                    yield line, value
                    line += text.count("\n", place, after)
                    place = after
                    continue
        elif ended:
            return
        chunk = source.text.read(CHUNK)
        source.report()
        ended = not chunk
        text, place = text[place:] + chunk, 0


def _next_value(text: str, place: int) -> int:
    while place < len(text) and text[place] in _BETWEEN:
        place += 1
    return place


def _broken(error: Exception, line: int, text: str, place: int) -> _BrokenError:
    if isinstance(error, json.JSONDecodeError):
        return _BrokenError(line + text.count("\n", place, error.pos), error.msg)
    return _BrokenError(line, TOO_DEEP if isinstance(error, RecursionError) else TOO_LONG)


def _job(line: int, data: object, ids: Ids) -> TraceJob | Dropped:
    if not isinstance(data, dict):
        raise BadRowError("not an object", data)
    submitted = time_of("submitted_time", data.get("submitted_time"))
    if submitted is None:
        raise BadRowError("submitted_time is missing")
    name = _text(data, "jobid")
    attempts = data.get("attempts")
    if not isinstance(attempts, list):
        raise BadRowError("attempts is not a list", attempts)
    runs = [run for run in map(_attempt, attempts) if run is not None]
    status = _text(data, "status")
    ids.add(name)
    if not runs:
        return Dropped.NEVER_STARTED
    if any(math.isnan(length) for length, _ in runs):
        return Dropped.STILL_RUNNING
    gpus = max(count for _, count in runs)
    if not gpus:
        return Dropped.ZERO_GPUS
    # Attempts may differ in width; what counts is the GPU time they took together.
    duration = math.fsum(length * count for length, count in runs) / gpus
    if not duration:
        return Dropped.ZERO_DURATION
    if duration > MAX_SECONDS:
        raise BadRowError(f"the attempts take more than {MAX_SECONDS:g} s")
    if gpus > MAX_GPUS:
        raise BadRowError(f"an attempt has more than {MAX_GPUS} GPUs")
    owner = owner_of(_text(data, "user") or _text(data, "vc"))
    return TraceJob(line, submitted, duration, gpus, owner, None, sys.intern(status))


def _attempt(data: object) -> tuple[float, int] | None:
    """Seconds (NaN while it runs) and GPUs of an attempt; None if it never started."""
    if not isinstance(data, dict):
        raise BadRowError("an attempt is not an object", data)
    start = time_of("start_time", data.get("start_time"))
    end = time_of("end_time", data.get("end_time"))
    if start is None:
        return None
    length = math.nan if end is None else span("end_time", start, end)
    return length, _gpus(data.get("detail"))


def _gpus(detail: object) -> int:
    if detail is None:
        return 0
    if not isinstance(detail, list):
        raise BadRowError("detail is not a list", detail)
    total = 0
    for machine in detail:
        gpus = machine.get("gpus") if isinstance(machine, dict) else None
        if not isinstance(gpus, list):
            raise BadRowError("gpus is not a list", gpus)
        total += len(gpus)
    return total


def _text(data: Mapping[str, object], key: str) -> str:
    value = data.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRowError(f"{key} is not a text", value)
    if not value.isascii() and not is_text(value):
        raise BadRowError(f"{key} is not UTF-8")
    return value
