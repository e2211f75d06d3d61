"""A search for the lie that pays best: at random, then closer and closer to the best so far.

    family = Family("T_id", (Axis("ideal", 0.2, 5.0), Axis("serial", 0.2, 5.0)))
    state = search(family, effort, score)         # as far as the known scores go
    state.wanted                                  # points whose score is still unknown

Everything follows from the family's name and the scores, so that a search resumes where it was.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

Point = tuple[float, ...]
"""A factor for each axis of a family."""

Score = Callable[[Point], float | None]
"""The gain of a lie, or None while it is unknown."""

PARENTS = 5
AT_RANDOM = 0.2
"""The share of each generation drawn anywhere, so that the search leaves a local maximum."""
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
    """How many lies a search tries."""

    generations: int
    size: int

    @property
    def evaluations(self) -> int:
        """All lies, with repetitions."""
        return self.generations * self.size


@dataclass(frozen=True, slots=True)
class SearchState:
    """How far a search has come."""

    scores: dict[Point, float]
    wanted: tuple[Point, ...]
    tried: int
    """How many lies, with repetitions."""

    def best(self, count: int) -> list[Point]:
        """The best so far; among equals the first that was tried."""
        return sorted(self.scores, key=lambda point: -self.scores[point])[:count]


def search(family: Family, effort: SearchEffort, score: Score) -> SearchState:
    """Try generation after generation, up to one with lies whose score is unknown."""
    scores: dict[Point, float] = {}
    for generation in range(effort.generations):
        state = SearchState(scores, (), generation * effort.size)
        points = proposals(family, generation, effort.size, state.best(PARENTS))
        found = {point: score(point) for point in points}
        wanted = tuple(point for point, value in found.items() if value is None)
        if wanted:
            return SearchState(scores, wanted, state.tried)
        for point, value in found.items():
            if value is not None:
                scores.setdefault(point, value)
    return SearchState(scores, (), effort.evaluations)


def proposals(
    family: Family, generation: int, size: int, parents: Sequence[Point]
) -> tuple[Point, ...]:
    """The lies of one generation: most close to the parents, some anywhere."""
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
        # An honest axis mostly stays honest: one lie alone may do better than several.
        stays = value == 1.0 and len(parent) > 1 and rng.random() >= AT_RANDOM
        inside = min(axis.high, max(axis.low, value * math.exp(shift)))
        moved.append(1.0 if stays else _rounded(inside))
    return tuple(moved)


def _rounded(value: float) -> float:
    """To three digits: finer differences between lies do not matter."""
    return float(f"{value:.3g}")
