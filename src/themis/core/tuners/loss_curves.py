"""Loss curves, and fitting them to the losses seen so far.

    fits = fit_curves([(1, 2.1), (2, 1.6), (3, 1.3), ...])      # the best first
    fits[0].curve.loss(200)                                     # what to expect at iteration 200

Two shapes: a power law, floor + scale * n^-rate, and an exponential, floor + scale * exp(-rate n).
For a given rate the best floor and scale are a linear least-squares problem, so only the rate is
searched: over a grid, then by golden section between the neighbours of the best point.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

RECENT = 0.2
"""A point counts half as much as one that is later by this share of the iterations seen."""

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_REFINEMENTS = 10
_OUTLIER = 3.0


class CurveShape(StrEnum):
    """How a loss falls."""

    POWER = "power"
    EXPONENTIAL = "exponential"


# Rates worth trying; those of an exponential are per all the iterations seen.
_RATES = {
    CurveShape.POWER: tuple(0.1 * 1.5**step for step in range(10)),
    CurveShape.EXPONENTIAL: tuple(0.1 * 1.7**step for step in range(11)),
}


@dataclass(frozen=True, slots=True)
class LossCurve:
    """A loss that falls to a floor; iterations count from one."""

    shape: CurveShape
    floor: float
    scale: float
    rate: float

    def loss(self, iteration: float) -> float:
        """The loss at an iteration."""
        return self.floor + self.scale * _basis(self.shape, self.rate, max(1.0, iteration))

    def stop_at(self, window: float, gain: float, most: int) -> int:
        """The first iteration from which `window` more would lower the loss by less than `gain`.

        Both shapes fall ever more slowly, so there is one such point; at most `most`.
        """
        low, high = 1, most
        while low < high:
            middle = (low + high) // 2
            if self.loss(middle) - self.loss(middle + window) < gain:
                high = middle
            else:
                low = middle + 1
        return high


@dataclass(frozen=True, slots=True)
class Fit:
    """A curve and how far from it the points lie: root of the weighted mean square."""

    curve: LossCurve
    error: float


def fit_curves(
    points: Sequence[tuple[float, float]], *, floor: float | None = None
) -> tuple[Fit, ...]:
    """Fit every shape to points (iteration, loss), recent ones counting most; best fit first.

    Points that are not finite are left out. One that lies far off all others counts little. There
    is no answer below two points of different iterations.

    Args:
        points: What was seen.
        floor: The loss cannot fall below it; ignored if it already has.
    """
    kept = [(n, loss) for n, loss in points if math.isfinite(loss) and n >= 1.0]
    if len({n for n, _ in kept}) < 2:
        return ()
    if floor is not None and min(loss for _, loss in kept) < floor:
        floor = None
    last = max(n for n, _ in kept)
    weights = [0.5 ** ((last - n) / (RECENT * last)) for n, _ in kept]
    fits = []
    for shape in CurveShape:
        first = _fit(shape, kept, weights, last, floor)
        softened = _soften(first.curve, kept, weights)
        fits.append(first if softened == weights else _fit(shape, kept, softened, last, floor))
    return tuple(sorted(fits, key=lambda fit: fit.error))


def _fit(
    shape: CurveShape,
    points: Sequence[tuple[float, float]],
    weights: Sequence[float],
    last: float,
    floor: float | None,
) -> Fit:
    unit = last if shape is CurveShape.EXPONENTIAL else 1.0
    losses = [loss for _, loss in points]

    def attempt(rate: float) -> tuple[float, float, float, float]:
        basis = [_basis(shape, rate / unit, n) for n, _ in points]
        return (*_solve(basis, losses, weights, floor), rate)

    tried = [attempt(rate) for rate in _RATES[shape]]
    best = min(range(len(tried)), key=lambda index: tried[index][0])
    low = math.log(tried[max(0, best - 1)][3])
    high = math.log(tried[min(len(tried) - 1, best + 1)][3])
    chosen = tried[best]
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = attempt(math.exp(left)), attempt(math.exp(right))
    for _ in range(_REFINEMENTS):
        if at_left[0] <= at_right[0]:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = attempt(math.exp(left))
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = attempt(math.exp(right))
    square, scale, base, rate = min(chosen, at_left, at_right)
    return Fit(LossCurve(shape, base, scale, rate / unit), math.sqrt(square / math.fsum(weights)))


def _solve(
    basis: Sequence[float], losses: Sequence[float], weights: Sequence[float], floor: float | None
) -> tuple[float, float, float]:
    """Weighted square, scale and floor of the best loss = floor + scale * basis, never rising."""
    total = sum(weights)
    mean_x = sum(w * x for w, x in zip(weights, basis, strict=True)) / total
    mean_y = sum(w * y for w, y in zip(weights, losses, strict=True)) / total
    spread = joint = 0.0
    for w, x, y in zip(weights, basis, losses, strict=True):
        spread += w * (x - mean_x) ** 2
        joint += w * (x - mean_x) * (y - mean_y)
    # A basis without spread, or losses that rise: the best that never rises is flat.
    scale = max(0.0, joint / spread) if spread > 0.0 else 0.0
    base = mean_y - scale * mean_x
    if floor is not None and base < floor:
        base = floor
        squares = sum(w * x * x for w, x in zip(weights, basis, strict=True))
        cross = sum(w * x * (y - floor) for w, x, y in zip(weights, basis, losses, strict=True))
        scale = cross / squares if squares > 0.0 else 0.0
    square = sum(
        w * (y - base - scale * x) ** 2 for w, x, y in zip(weights, basis, losses, strict=True)
    )
    return square, scale, base


def _soften(
    curve: LossCurve, points: Sequence[tuple[float, float]], weights: Sequence[float]
) -> list[float]:
    """Weights in which points far off the curve count ever less (Cauchy)."""
    distances = [abs(loss - curve.loss(n)) for n, loss in points]
    limit = _OUTLIER * median(distances)
    if limit <= 0.0:
        return list(weights)
    return [
        weight / (1.0 + (distance / limit) ** 2)
        for weight, distance in zip(weights, distances, strict=True)
    ]


def _basis(shape: CurveShape, rate: float, iteration: float) -> float:
    if shape is CurveShape.POWER:
        return float(iteration**-rate)
    return math.exp(-rate * iteration)
