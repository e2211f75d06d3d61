"""How much slower a gang trains when its GPUs are far apart: S(level, GPU count).

vgg = Slowdown((1.0, 1.05, 1.29, 1.44))
vgg.at(level=RACK, count=4)   # 1.29
vgg.at(level=RACK, count=1)   # 1.0: one GPU waits for no other
"""

from dataclasses import dataclass
from functools import cached_property

from themis.core.model.ids import check_count, check_number
from themis.core.model.topology import LEVELS


@dataclass(frozen=True, slots=True)
class MeasuredSlowdown:
    """One measured slowdown; it may be below one or out of order, as real data is."""

    level: int
    count: int
    value: float


@dataclass(frozen=True)
class Slowdown:
    """A prior value per level, and measurements that replace it where they exist."""

    levels: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    measured: tuple[MeasuredSlowdown, ...] = ()

    def __post_init__(self) -> None:
        for level, value in zip(LEVELS, self.levels, strict=True):
            # Estimates are never below one: a prior that promises a speed-up is a mistake.
            check_number(f"slowdown at level {level}", value, low=1.0, high=1e6)
        for item in self.measured:
            check_count("measured slowdown level", item.level, low=0, high=3)
            check_count("measured slowdown GPU count", item.count)
            check_number("measured slowdown", item.value, above=True, high=1e6)

    @cached_property
    def _exact(self) -> dict[tuple[int, int], float]:
        return {(item.level, item.count): item.value for item in self.measured}

    def at(self, level: int, count: int) -> float:
        """S of one gang of `count` GPUs at a level; a count without data takes its level's."""
        if count <= 1:
            return 1.0
        if self.measured:
            return self._exact.get((level, count), self.levels[level])
        return self.levels[level]

    def rate(self, level: int, count: int) -> float:
        """Serial seconds of work done in one second by one gang."""
        return count / self.at(level, count)

    def with_measured(self, level: int, count: int, value: float) -> "Slowdown":
        """The same profile with one more (or a newer) measurement."""
        kept = tuple(m for m in self.measured if (m.level, m.count) != (level, count))
        items = sorted(
            (*kept, MeasuredSlowdown(level, count, value)), key=lambda m: (m.level, m.count)
        )
        return Slowdown(self.levels, tuple(items))


NO_SLOWDOWN = Slowdown()
