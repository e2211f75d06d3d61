"""Samples, which all readers return, and the place where the next read begins.

    batch = reader.batch(since=0, most=100)
    batch.samples[0].values         # (("loss", 0.31), ("accuracy", 0.9))
    reader.batch(batch.end, 100)

A place is a number that only its reader understands, but for 0, which is the beginning. A reader
made anew goes on from a place as the old one would have.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

MOST_VALUES, LONGEST_NAME = 8, 64
"""Most values of one sample, and the longest name; other values are left out."""
_LARGEST = 1e15


@dataclass(frozen=True, slots=True)
class MetricSample:
    """The values that a job reports for one iteration."""

    iteration: float
    loss: float | None
    """None if it was not reported. Infinite or undefined values are kept of the metric only, as
    `nan`."""
    time: float | None
    """Seconds on the job's clock."""
    others: tuple[tuple[str, float], ...] = ()
    """Other values by name, in the order of the line."""
    end: int = field(default=0, compare=False)
    """Where it ends in the file."""

    @property
    def values(self) -> tuple[tuple[str, float], ...]:
        """Its loss and the others, by name."""
        return self.others if self.loss is None else (("loss", self.loss), *self.others)


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Samples from one part of a file."""

    samples: tuple[MetricSample, ...]
    end: int
    """Where the next read begins; beyond the last sample if other lines follow it."""
    more: bool
    """Whether the file goes on after it."""
    trouble: str = ""
    """Why something could not be read, as in `Reader.trouble`."""


class Reader(Protocol):
    """Follows what one job writes. Blocking, for moments, so not for the event loop."""

    @property
    def trouble(self) -> str:
        """What was left out, for people; empty if nothing was."""

    def read(self, most: int | None = None) -> tuple[MetricSample, ...]:
        """New samples, oldest first, at most `most`; none if nothing can be read."""

    def batch(self, since: int, most: int) -> SampleBatch:
        """Samples from a place on."""


def number(value: object) -> float | None:
    """A finite number of ordinary size, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -_LARGEST <= value <= _LARGEST:  # not a number is not between them either
        return None
    return float(value)


def parsed(text: str | None) -> float | None:
    """The number that a text spells, or None; it may be infinite, or not a number."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def sample(
    iteration: float | None,
    time: float | None,
    values: Iterable[tuple[str, float | None]],
    metric: str,
) -> MetricSample | None:
    """A sample of these values, if they have an iteration.

    Args:
        iteration: Which, as it was found.
        time: Seconds on the job's clock.
        values: By name; of one name the first counts, and too many or odd ones are left out.
        metric: The name that is never among those left out for being too many, or for being no
            finite number: reported as `nan`, because a diverged job must not rank well.
    """
    step = number(iteration)
    if step is None or step < 0:
        return None
    kept: dict[str, float] = {}
    for name, given in values:
        value = number(given)
        if value is None and given is not None and name == metric:
            value = math.nan
        if value is None or name in kept or not _is_name(name):
            continue
        if len(kept) < MOST_VALUES or name == metric:
            kept[name] = value
    if len(kept) > MOST_VALUES:
        last_other = [name for name in kept if name != metric][-1]
        del kept[last_other]
    loss = kept.pop("loss", None)
    return MetricSample(step, loss, number(time), tuple(kept.items()))


def _is_name(name: str) -> bool:
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        return False
    # Half a character cannot be sent on.
    return not any("\ud800" <= letter <= "\udfff" for letter in name)
