"""The process that answers one question for the service: one JSON line in, many out.

    {"snapshot": {...}, "question": {...}}
    {"answer": {...}}           at once, then better and better; the last one has "final": true
    {"refused": {"who": ..., "reason": ...}}      instead, if there is none

It lives as long as its standard input: when the service is gone, or nobody wants the answer any
more, so is the worker. It is as nice as it can be: auctions that count come first. Should memory
run short, the worker goes, and not the service.
"""

import os
import resource
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from themis.errors import ConfigError, RefusedError, ThemisError
from themis.forecast.forecast import foresee
from themis.recording.cluster_snapshots import snapshot_from
from themis.recording.codec import decode, dumps, loads
from themis.recording.forecast_questions import ForecastQuestion
from themis.sim.gc_tuning import spare_memory_checks

_NICE = 10
_MOST_MEMORY = 8 << 30
"""Bytes of addresses; a fork of thousands of apps takes some hundred megabytes."""
_OOM_SCORE = 800
"""Of 1000, beside what it uses: the first to be ended when the machine is out of memory."""


def answer_to(text: str, sink: TextIO) -> None:
    """Answer the question in a line."""
    try:
        data: Any = loads(text)
        snapshot, question = (
            snapshot_from(data["snapshot"]),
            decode(ForecastQuestion, data["question"]),
        )
        for answer in foresee(snapshot, question, time.monotonic):
            _put(sink, {"answer": answer})
    except ConfigError as error:
        _put(sink, {"refused": {"who": error.key, "reason": str(error)}})
    except RefusedError as error:
        _put(sink, {"refused": {"who": error.who, "reason": error.reason}})
    except ThemisError as error:
        _put(sink, {"refused": {"who": "forecast", "reason": str(error)}})


def yield_to_others() -> None:
    """Take what others leave: of processors and of memory."""
    os.nice(_NICE)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    bound = _MOST_MEMORY if most == resource.RLIM_INFINITY else min(most, _MOST_MEMORY)
    with suppress(OSError, ValueError):  # Not every system has such a limit, or the file.
        resource.setrlimit(resource.RLIMIT_AS, (bound, most))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))


def _put(sink: TextIO, data: dict[str, Any]) -> None:
    sink.write(dumps(data) + "\n")
    sink.flush()


def _end_with(source: TextIO) -> None:
    """Be gone as soon as nobody is there to hear the answer."""
    source.read()
    os._exit(0)


if __name__ == "__main__":
    yield_to_others()
    spare_memory_checks()
    asked = sys.stdin.readline()
    threading.Thread(target=_end_with, args=(sys.stdin,), daemon=True).start()
    answer_to(asked, sys.stdout)
