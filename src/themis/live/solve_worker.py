"""The process that solves auctions for the service: one JSON line in, one or two out.

    {"id": 7, "due": 5241.8, "problem": {...}}        by the clock that all processes share
    {"id": 7, "final": false, "solution": {...}}      at once, in case the rest takes too long
    {"id": 7, "final": true, "solution": {...}}       or "failed": why there is none

It lives as long as its standard input: when the service is gone, so is the worker, even in the
middle of an auction.
"""

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from themis.auction import Problem, solver
from themis.auction.solver import preload
from themis.errors import ThemisError
from themis.records.codec import decode, dumps, loads


def main(name: str, source: TextIO, sink: TextIO) -> None:
    """Answer questions until there are no more."""
    preload(name)
    _put(sink, {"ready": True})
    for text in _lines(source):
        _answer(name, text, lambda data: _put(sink, data))


def _lines(source: TextIO) -> Iterator[str]:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in source:
            lines.put(line)
        # Nobody is there to hear the answer. The solver may be deep in a library: no tidy end.
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield lines.get()


def _answer(name: str, text: str, put: Callable[[dict[str, Any]], None]) -> None:
    data: Any = loads(text)
    due = float(data["due"])
    try:
        problem = decode(Problem, data["problem"])
        reserve = solver(name, lambda: 0.0).solve(problem)
        put({"id": data["id"], "final": False, "solution": reserve})
        best = solver(name, lambda: due - time.monotonic()).solve(problem)
        put({"id": data["id"], "final": True, "solution": best})
    except (ThemisError, ArithmeticError, ValueError, LookupError, MemoryError) as error:
        put({"id": data["id"], "final": True, "failed": f"{type(error).__name__}: {error}"})


def _put(sink: TextIO, data: dict[str, Any]) -> None:
    sink.write(dumps(data) + "\n")
    sink.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin, sys.stdout)
