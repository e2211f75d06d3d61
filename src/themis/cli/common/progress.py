"""A progress bar that is never silent for long, also while one step of the work takes long.

with talking_bar("evaluating", 17, even=False) as bar:
    bar.begin(0, "E1: evaluating")      # and, between calls: "E1: evaluating (4 s): 0 of 17"
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from themis.cli.common.output import STYLE, Bar, console, progress_bar, span

BEAT = 0.1
"""Seconds between two looks whether there was a word lately."""
NAME = "heartbeat"


@contextmanager
def talking_bar(
    description: str,
    total: int = 1,
    *,
    numbers: bool = True,
    even: bool = True,
    at_once: bool = False,
) -> Iterator[Bar]:
    """As `progress_bar`, but without a terminal a thread repeats what is being done.

    Args:
        description: What is done.
        total: How much of it there is.
        numbers: Whether to show both.
        even: Whether what is done tells how long the rest takes.
        at_once: Whether to say it when it begins, also if it may be quick.
    """
    first = "" if at_once else description
    with progress_bar(first, total, numbers=numbers, even=even) as bar:
        if STYLE.quiet or console(stderr=True).is_terminal:
            bar.update(0, description)
            yield bar
            return
        talking = _Talking(bar, description, timed=not even)
        if at_once:
            talking.begin(0, description)
        over = threading.Event()
        thread = threading.Thread(target=_beat, args=(talking, over), name=NAME, daemon=True)
        thread.start()
        try:
            yield talking
        finally:
            over.set()
            thread.join()


def _beat(talking: "_Talking", over: threading.Event) -> None:
    with suppress(OSError, ValueError):  # The reader has gone.
        while not over.wait(BEAT):
            talking.beat()


class _Talking(Bar):
    """Repeats the last progress line; called by two threads."""

    def __init__(self, bar: Bar, description: str, *, timed: bool) -> None:
        self._bar = bar
        self._lock = threading.Lock()
        self._what = description
        self._timed = timed
        self._done = 0
        self._since = time.monotonic()

    def update(self, done: int, description: str | None = None, total: int | None = None) -> None:
        with self._lock:
            self._note(done, description)
            self._bar.update(done, self._what, total)

    def begin(self, done: int, description: str) -> None:
        with self._lock:
            self._note(done, description)
            self._bar.begin(done, self._what)

    def _note(self, done: int, description: str | None) -> None:
        self._done = done
        if description is not None and description != self._what:
            self._what, self._since = description, time.monotonic()

    def beat(self) -> None:
        """The bar knows when it spoke last, and is silent if that was just now."""
        with self._lock:
            # Where the rest can be told by what is done, the bar says how long it took.
            far = f" ({span(time.monotonic() - self._since)})" if self._timed else ""
            self._bar.update(self._done, f"{self._what}{far}")
