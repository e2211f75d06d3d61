"""What a run cost on the machine that made it. Nothing of it goes into results.

watch = Stopwatch()
run(config, watch=watch)
watch.timing(config).spans["bid"].median      # seconds of processor time
"""

import time  # noqa: TID251 - it measures this machine; what happens in a run never depends on it
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from themis.sim.config import RunConfig
from themis.sim.metrics import quantile

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Span:
    """How long something took each time, in seconds."""

    count: int
    total: float
    median: float
    p95: float
    longest: float


@dataclass(frozen=True, slots=True)
class Timing:
    """One run: its processor seconds, and those of its bids and auctions."""

    config: RunConfig
    cpu_s: float
    spans: Mapping[str, Span]
    commit: str = UNKNOWN
    """Of the code that made the run, where that is known."""


class Stopwatch:
    """Collects times of this process, so that others on the machine matter little."""

    def __init__(self) -> None:
        self._started = time.process_time()
        self._times: dict[str, array[float]] = {}

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        """Time what happens within."""
        started = time.process_time()
        try:
            yield
        finally:
            taken = time.process_time() - started
            self._times.setdefault(what, array("d")).append(taken)

    def timing(self, config: RunConfig, commit: str = UNKNOWN) -> Timing:
        """All of it, up to now."""
        spans = {
            name: Span(len(t), sum(t), quantile(t, 0.5), quantile(t, 0.95), max(t))
            for name, t in sorted(self._times.items())
        }
        return Timing(config, time.process_time() - self._started, spans, commit)
