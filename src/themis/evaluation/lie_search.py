"""A search for the lie that pays best: at random, then closer and closer to the best so far.

    family = Family("T_id", (Axis("ideal", 0.2, 5.0), Axis("serial", 0.2, 5.0)))
    hunt = search(family, effort, score)          # as far as the scores that are there go
    hunt.wanted                                   # points whose score is still to be found

Everything follows from the family's name and the scores, so that a search goes on where it was.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

Point = tuple[float, ...]
"""A factor for each axis of a family."""

Score = Callable[[Point], float | None]
"""What a lie brings, if that is known already."""

PARENTS = 5
AT_RANDOM = 0.2
"""The share of each generation that looks anywhere, so that no hill is taken for the highest."""
HONEST = 0.5
"""The share of axes of a random point that stay honest, where there are several."""
FIRST_STEP, SHRINKING = 0.25, 0.75
"""Standard deviation of the first steps, as a part of the range, and how it falls."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One way to lie, with the range of factors (or seconds) that is searched."""

    lie: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Family:
    """Ways to lie that belong together."""

    name: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """How many lies are tried."""

    generations: int
    size: int

    @property
    def evaluations(self) -> int:
        """All of them; fewer are different ones."""
        return self.generations * self.size


@dataclass(frozen=True, slots=True)
class Hunt:
    """A search as far as it has come."""

    scores: dict[Point, float]
    wanted: tuple[Point, ...]
    tried: int
    """How many lies, counting those that were tried twice."""

    def best(self, count: int) -> list[Point]:
        """The best so far; of equals the first one tried."""
        return sorted(self.scores, key=lambda point: -self.scores[point])[:count]


def search(family: Family, effort: SearchEffort, score: Score) -> Hunt:
    """Try generation after generation, until one has lies whose score is not known."""
    scores: dict[Point, float] = {}
    for generation in range(effort.generations):
        hunt = Hunt(scores, (), generation * effort.size)
        points = proposals(family, generation, effort.size, hunt.best(PARENTS))
        found = {point: score(point) for point in points}
        wanted = tuple(point for point, value in found.items() if value is None)
        if wanted:
            return Hunt(scores, wanted, hunt.tried)
        for point, value in found.items():
            if value is not None:
                scores.setdefault(point, value)
    return Hunt(scores, (), effort.evaluations)


def proposals(
    family: Family, generation: int, size: int, parents: Sequence[Point]
) -> tuple[Point, ...]:
    """The lies of one generation: close to the parents, and some anywhere."""
    rng = Random(f"{family.name}/{generation}")
    step = FIRST_STEP * SHRINKING**generation
    points = []
    for number in range(size):
        if not parents or rng.random() < AT_RANDOM:
            points.append(_anywhere(family, rng))
        else:
            points.append(_near(family, parents[number % len(parents)], step, rng))
    return tuple(points)


def _anywhere(family: Family, rng: Random) -> Point:
    axes = family.axes
    drawn = [_rounded(axis.low * (axis.high / axis.low) ** rng.random()) for axis in axes]
    if len(axes) == 1:
        return tuple(drawn)
    lying = [rng.random() >= HONEST for _ in axes]
    lying[rng.randrange(len(axes))] = True
    return tuple(value if lies else 1.0 for value, lies in zip(drawn, lying, strict=True))


def _near(family: Family, parent: Point, step: float, rng: Random) -> Point:
    moved = []
    for axis, value in zip(family.axes, parent, strict=True):
        shift = rng.gauss(0.0, step) * math.log(axis.high / axis.low)
        # An honest axis stays so as a rule: one lie alone may well do better than several.
        stays = value == 1.0 and len(parent) > 1 and rng.random() >= AT_RANDOM
        inside = min(axis.high, max(axis.low, value * math.exp(shift)))
        moved.append(1.0 if stays else _rounded(inside))
    return tuple(moved)


def _rounded(value: float) -> float:
    """To three digits: finer differences between lies are of no interest."""
    return float(f"{value:.3g}")
