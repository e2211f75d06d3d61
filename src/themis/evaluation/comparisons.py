"""Statistics: the same seeds compared by pairs, and samples against published distributions.

factor(of=gandiva, over=themis).mean      # how many times larger, geometric mean over seeds
ks_distance(sizes, APP_GPU_SECONDS)       # largest vertical distance of two CDFs
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import NormalDist, fmean
from typing import TypeVar

from themis.evaluation.claims import NO_VALUE, Quantity, Verdict, quantity
from themis.sim.compare import t95
from themis.sim.workloads import Table

RESAMPLES = 2000
FEWEST = 6
"""With fewer pairs, chance alone often puts all of them on one side."""

Key = TypeVar("Key", str, float, int)


@dataclass(frozen=True, slots=True)
class Factor:
    """A ratio over seeds with its 95 % interval; one seed has none."""

    mean: float
    low: float | None = None
    high: float | None = None
    seeds: int = 1

    @property
    def above(self) -> bool:
        """Whether it is surely above one."""
        return self.seeds >= FEWEST and self.low is not None and self.low > 1.0

    @property
    def below(self) -> bool:
        """Whether it is surely below one."""
        return self.seeds >= FEWEST and self.high is not None and self.high < 1.0

    @property
    def shown(self) -> Quantity:
        """As a factor: 1.52x (1.31 to 1.80)."""
        return quantity(self.mean, ".2f", "x", self.low, self.high, limit=1.0)

    @property
    def shown_as_least(self) -> Quantity:
        """As the smallest of several factors."""
        if not math.isfinite(self.mean):
            return NO_VALUE
        return Quantity(f"at least {self.shown.text}", self.mean)

    @property
    def percent(self) -> Quantity:
        """As a change: -4.8 %."""
        low, high = (None if end is None else 100 * (end - 1) for end in (self.low, self.high))
        return quantity(100 * (self.mean - 1), "+.1f", " %", low, high, limit=0.0)


def factor(of: Sequence[float], over: Sequence[float]) -> Factor:
    """How many times larger `of` is than `over`: geometric mean over seeds, paired bootstrap.

    Pairs in which a run had no such number are left out.
    """
    logs = [
        math.log(one / other)
        for one, other in zip(of, over, strict=True)
        if math.isfinite(one) and math.isfinite(other) and one > 0 < other
    ]
    if not logs:
        return Factor(math.nan, seeds=0)
    if len(logs) < 2:
        return Factor(math.exp(logs[0]))
    # The same draws for the same number of seeds, so that a report never changes by itself.
    stream = Random(f"bootstrap/{len(logs)}")
    low, high = _interval((fmean(stream.choices(logs, k=len(logs))) for _ in range(RESAMPLES)),
                          len(logs))  # fmt: skip
    return Factor(math.exp(fmean(logs)), math.exp(low), math.exp(high), len(logs))


def _interval(drawn: Iterable[float], seeds: int) -> tuple[float, float]:
    """The 95 % interval of a bootstrap: further quantiles the fewer seeds there are.

    Plain quantiles are too narrow: with six seeds they contain the true mean 84 times in 100, not
    95. These are as far out as Student's t is (Hesterberg's expanded percentiles).
    """
    ordered = sorted(drawn)
    out = math.sqrt(seeds / (seeds - 1)) * t95(seeds - 1)
    place = round(NormalDist().cdf(-out) * len(ordered))
    return ordered[place], ordered[-1 - place]


def mean_ratio(of: Sequence[float], over: Sequence[float]) -> Factor:
    """The ratio of two means over the same seeds, with a bootstrap interval over pairs of seeds.

    For claims about means, where a factor per seed would answer another question.
    """
    pairs = [
        (one, other)
        for one, other in zip(of, over, strict=True)
        if math.isfinite(one) and math.isfinite(other)
    ]
    if not pairs or not math.fsum(other for _, other in pairs):
        return Factor(math.nan, seeds=0)
    if len(pairs) < 2:
        return Factor(_ratio(pairs))
    stream = Random(f"bootstrap/{len(pairs)}")
    low, high = _interval((_ratio(stream.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES)),
                          len(pairs))  # fmt: skip
    return Factor(_ratio(pairs), low, high, len(pairs))


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return math.fsum(one for one, _ in pairs) / math.fsum(other for _, other in pairs)


def with_seeds(found: Quantity, seeds: int, others: int) -> Quantity:
    """A number that states its count of seeds where the number beside it has another count."""
    if seeds == others or found == NO_VALUE:
        return found
    text = f"{found.text}; {seeds} seed{'s' * (seeds != 1)}"
    return Quantity(text, found.value, found.low, found.high)


def best(values: Mapping[Key, float], pick: Callable[..., Key]) -> Key | None:
    """The key with the smallest (`min`) or largest (`max`) value, of those that have one."""
    known = {key: value for key, value in values.items() if math.isfinite(value)}
    return pick(known, key=known.__getitem__) if known else None


def of_all(pick: Callable[[Sequence[float]], float], values: Sequence[float]) -> float:
    """The smallest (`min`) or largest (`max`); NaN while one of them is missing."""
    return pick(values) if values and all(map(math.isfinite, values)) else math.nan


def least(found: Mapping[str, Factor]) -> Factor:
    """The smallest of several; NaN while one of them is missing."""
    if all(math.isfinite(item.mean) for item in found.values()):
        return min(found.values(), key=lambda item: item.mean)
    return Factor(math.nan, seeds=0)


def at_least(found: Factor, wanted: float) -> Verdict:
    """HOLDS if a factor is surely at least `wanted`, PARTLY if it is surely above one."""
    if found.above:
        return Verdict.HOLDS if found.low is not None and found.low >= wanted else Verdict.PARTLY
    # A factor may be surely below `wanted` while it is open whether it is above one.
    less = found.seeds >= FEWEST and found.high is not None and found.high < wanted
    return Verdict.FAILS if less else Verdict.UNDECIDED


def at_most(found: Factor, wanted: float) -> Verdict:
    """HOLDS if a factor is surely at most `wanted`, PARTLY if it is surely below one."""
    if found.below:
        return Verdict.HOLDS if found.high is not None and found.high <= wanted else Verdict.PARTLY
    more = found.seeds >= FEWEST and found.low is not None and found.low > wanted
    return Verdict.FAILS if more else Verdict.UNDECIDED


def cdf_at(table: Table, value: float) -> float:
    """The share at or below a value, linear between the rows of a published distribution."""
    place = bisect_right(table, value, key=lambda row: row[0])
    if place == 0:
        return 0.0
    if place == len(table):
        return 1.0
    (low, below), (high, upto) = table[place - 1], table[place]
    return below + (upto - below) * (value - low) / (high - low)


def ks_distance(values: Sequence[float], table: Table, *, whole: bool = False) -> float:
    """The Kolmogorov-Smirnov distance of a sample from a published distribution.

    Args:
        values: The sample.
        table: Values with the share at or below each.
        whole: The sample was rounded to whole numbers, each of which stands for the half below it
            and the half above.
    """
    ordered = sorted(values)
    largest = 0.0
    for value in dict.fromkeys(ordered):
        upto = bisect_right(ordered, value) / len(ordered)
        below = bisect_left(ordered, value) / len(ordered)
        if whole:
            largest = max(largest, abs(upto - cdf_at(table, value + 0.5)))
        else:
            at = cdf_at(table, value)
            largest = max(largest, abs(upto - at), abs(at - below))
    return largest


def ks_limit(size: int) -> float:
    """The distance that one sample in twenty of the very distribution exceeds."""
    return 1.358 / math.sqrt(size)


def curve(values: Iterable[float], points: int = 400) -> tuple[list[float], list[float]]:
    """The empirical CDF of a sample, thinned to what a reader can see."""
    ordered = sorted(values)
    last = len(ordered) - 1
    picked = range(len(ordered))
    if len(ordered) > points:
        picked = range(0, len(ordered), math.ceil(len(ordered) / points))
    places = sorted({*picked, last})
    return [ordered[place] for place in places], [(place + 1) / len(ordered) for place in places]
