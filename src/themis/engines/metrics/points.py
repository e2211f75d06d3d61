"""What readers hand on, whatever they read: samples, and the place to read on from.

    stretch = reader.stretch(since=0, most=100)
    stretch.samples[0].values       # (("loss", 0.31), ("accuracy", 0.9))
    reader.stretch(stretch.end, 100)

A place is a number that only its reader understands, but for 0, which is the beginning. A reader
made anew goes on from a place as the old one would have.
"""

import math
from collections.abc import Iterable
from typing import Protocol

from themis.engines.metrics.jsonl import LONGEST_NAME, MOST_VALUES, MetricSample, SampleBatch

_LARGEST = 1e15


class Reader(Protocol):
    """Follows what one job writes. Blocking, for moments, so not for the event loop."""

    @property
    def trouble(self) -> str:
        """What was left out, for people; empty if nothing was."""

    def read(self, most: int | None = None) -> tuple[MetricSample, ...]:
        """New samples, oldest first, at most `most`; none if nothing can be read."""

    def stretch(self, since: int, most: int) -> SampleBatch:
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
