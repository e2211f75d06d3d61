"""The best lottery over allocations that are known already.

    best = balance(values, weights)
    best.probabilities, best.expected

Of all ways to draw one of the allocations, the one with the largest sum of w_i log E[value_i]. Its
dual has one price per bidder: maximise the sum of w_i log(price_i), where no allocation may be
worth more than all the weights together. Both are solved at once by an interior point method.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Real = npt.NDArray[np.float64]

STEPS = 80
"""About 15 are usual."""

SHRINK = 0.1
"""How much of the average complementarity each step aims to leave."""

CLOSE = 1e-10
"""Relative to the sum of weights: how much the best allocation may be worth more than a lottery."""

EXHAUSTED = 1e-16
"""Relative to the smallest weight: a target below which floating point gives no more."""

_ONE_THREAD = 2**18
"""Multiplications in one product that no library shares out."""

BOUNDARY = 0.995
"""How far towards the boundary a step may go."""


@dataclass(frozen=True, slots=True)
class Balance:
    """A lottery: the probability of each allocation, and what each bidder can expect of it."""

    probabilities: Real
    expected: Real

    def value(self, weights: Real) -> float:
        """The sum of w_i log E[value_i]."""
        return float(weights @ np.log(self.expected))

    def prices(self, weights: Real) -> Real:
        """What a unit of value to each bidder is worth: the gradient of the value."""
        return weights / self.expected


def balance(values: Real, weights: Real) -> Balance:
    """The best lottery.

    Args:
        values: What each allocation (row) is worth to each bidder (column), none negative; every
            bidder has an allocation that is worth something to it.
        weights: Of the bidders, above zero.
    """
    total = float(weights.sum())
    chances = np.full(len(values), 1.0 / len(values))
    prices = weights / (chances @ values)
    # Strictly inside: then every step of the method can stay so.
    prices *= 0.9 * total / float((values @ prices).max())
    slack = total - values @ prices
    best, least = chances, np.inf
    for _ in range(STEPS):
        expected = chances @ values
        worth_most = float((values @ (weights / expected)).max()) * float(chances.sum())
        if worth_most < least:
            best, least = chances, worth_most
        target = SHRINK * float(chances @ slack) / len(values)
        if least <= (1.0 + CLOSE) * total or target <= EXHAUSTED * float(weights.min()):
            break
        worth = values * prices
        push = (weights - expected * prices) - (target / slack - chances) @ worth
        try:
            change = _newton(worth, chances / slack, weights, push)
        except np.linalg.LinAlgError:
            break  # weights too far apart for floating point: what is in hand must do
        less = worth @ change
        more = target / slack - chances + chances * less / slack
        step = min(_room(np.ones_like(change), change), _room(chances, more), _room(slack, -less))
        prices = prices * (1.0 + step * change)
        chances = chances + step * more
        slack = slack - step * less  # worked out from the prices again it could round to zero
    best = best / best.sum()
    return Balance(best, best @ values)


def _newton(worth: Real, pull: Real, weights: Real, push: Real) -> Real:
    """How the logarithms of the prices should change.

    In logarithms, and with a diagonal of ones, weights may differ by many orders of magnitude.
    """
    matrix = _squared(worth, pull)
    matrix.flat[:: len(weights) + 1] += weights
    even = 1.0 / np.sqrt(matrix.diagonal())
    solved: Real = even * np.linalg.solve(matrix * even * even[:, None], push * even)
    return solved


def _squared(worth: Real, pull: Real) -> Real:
    """The weighted sum of the squares of all rows, in portions.

    Of larger products libraries make several threads, which cost more than they save here.
    """
    size = max(1, _ONE_THREAD // max(1, worth.shape[1] ** 2))
    total = np.zeros((worth.shape[1], worth.shape[1]))
    for start in range(0, len(worth), size):
        part = worth[start : start + size]
        total += (part.T * pull[start : start + size]) @ part
    return total


def _room(level: Real, change: Real) -> float:
    """How far one can go before something reaches zero, at most a whole step."""
    falling = change < 0.0
    if not falling.any():
        return 1.0
    return min(1.0, BOUNDARY * float((level[falling] / -change[falling]).min()))


def thin_out(values: Real, found: Balance, negligible: float) -> tuple[list[int], Real]:
    """The same expectations from few allocations: which ones, and their probabilities.

    Points of a space of n dimensions need n + 1 others at most to be mixed of. As long as there
    are more, weight can be shifted among them without any effect until one has none left.
    """
    chosen = [int(index) for index in np.flatnonzero(found.probabilities > negligible)]
    chances = found.probabilities[chosen]
    while len(chosen) > 1:
        points = np.vstack([values[chosen].T, np.ones(len(chosen))])
        _, sizes, directions = np.linalg.svd(points)
        if int((sizes > 1e-11 * sizes[0]).sum()) >= len(chosen):
            break
        shift = directions[-1]
        # A direction comes with either sign, by accident; the longest part decides.
        shift *= np.sign(shift[np.abs(shift).argmax()])
        falling = np.flatnonzero(shift > 0.0)
        steps = chances[falling] / shift[falling]
        first = int(falling[steps.argmin()])
        chances = np.maximum(chances - float(steps.min()) * shift, 0.0)
        chances = np.delete(chances, first)
        del chosen[first]
    return chosen, chances / chances.sum()
