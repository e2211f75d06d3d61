"""The process that solves auctions for the service: one question in, one or two JSON lines out.

    SolveQuestion(7, due=5241.8, pack(problem))       by the clock that all processes share
    {"id": 7, "final": false, "solution": {...}}      at once, in case the rest takes too long
    {"id": 7, "final": true, "solution": {...}}       or "failed": why there is none

If time is up with the first answer already, it is the last. Questions are pickled, which takes a
tenth of the time for hundreds of bidders. They come from the service that started this process, and
from no other process.

The worker lives as long as its standard input: when the service is gone, so is the worker, even in
the middle of an auction.
"""

import os
import pickle
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, TextIO

from themis.core.auction import solver
from themis.core.auction.solvers.registry import preload
from themis.errors import ThemisError
from themis.recording.codec import dumps
from themis.recording.packed_auctions import PackedProblem, unpack


@dataclass(frozen=True, slots=True)
class SolveQuestion:
    """An auction, and when its answer must be ready."""

    number: int
    due: float
    packed: PackedProblem

    def put(self, sink: IO[bytes]) -> None:
        """Write the question."""
        sink.write(pickle.dumps(self, pickle.HIGHEST_PROTOCOL))
        sink.flush()


def main(name: str, source: IO[bytes], sink: TextIO) -> None:
    """Answer questions until there are no more."""
    preload(name)
    _put(sink, {"ready": True})
    for question in questions(source):
        _answer(name, question, lambda data: _put(sink, data))


def questions(source: IO[bytes]) -> Iterator[SolveQuestion]:
    """Questions, for as long as the service is there."""
    asked: queue.SimpleQueue[SolveQuestion] = queue.SimpleQueue()

    def read() -> None:
        with suppress(EOFError, pickle.UnpicklingError):
            while True:
                asked.put(pickle.load(source))
        # No process waits for the answer. The solver may be deep in a library: no tidy end.
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield asked.get()


def _answer(name: str, question: SolveQuestion, put: Callable[[dict[str, Any]], None]) -> None:
    number, due = question.number, question.due
    try:
        problem = unpack(question.packed)
        reserve = solver(name, lambda: 0.0).solve(problem)
        late = time.monotonic() >= due
        put({"id": number, "final": late, "solution": reserve})
        if late:
            return
        best = solver(name, lambda: due - time.monotonic()).solve(problem)
        put({"id": number, "final": True, "solution": best})
    except (ThemisError, ArithmeticError, ValueError, LookupError, MemoryError) as error:
        put({"id": number, "final": True, "failed": f"{type(error).__name__}: {error}"})


def _put(sink: TextIO, data: dict[str, Any]) -> None:
    sink.write(dumps(data) + "\n")
    sink.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin.buffer, sys.stdout)
