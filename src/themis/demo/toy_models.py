"""Small models on generated data, trained by descent in plain Python: no package is needed.

model = Ridge(random.Random(7))
model.step(0.1, [3, 1, 4])      # the rows of a batch
model.loss()
"""

import math
import random
from collections.abc import Callable, Sequence
from operator import mul
from typing import Protocol

ROWS = 96


class ToyModel(Protocol):
    """A model that improves step by step, or diverges if the rate is too high."""

    weights: list[float]
    """The state that a checkpoint keeps."""

    def step(self, lr: float, batch: Sequence[int]) -> None:
        """One step of descent on these rows."""

    def loss(self) -> float:
        """The loss on all rows; perhaps not finite."""


class Ridge:
    """Least squares on noisy lines: converges quickly, and diverges where the rate is too high."""

    def __init__(self, rng: random.Random) -> None:
        self._x = _normal_rows(rng, 8)
        truth = [rng.gauss(0.0, 1.0) for _ in range(8)]
        self._y = [_dot(row, truth) + 0.1 * rng.gauss(0.0, 1.0) for row in self._x]
        self.weights = [0.0] * 8

    def step(self, lr: float, batch: Sequence[int]) -> None:
        """One step of descent on these rows."""
        errors = [2.0 * (_dot(self._x[row], self.weights) - self._y[row]) for row in batch]
        self.weights = _descended(self.weights, lr, errors, [self._x[row] for row in batch])

    def loss(self) -> float:
        """The mean of squares."""
        errors = [
            _dot(row, self.weights) - wanted for row, wanted in zip(self._x, self._y, strict=True)
        ]
        return _dot(errors, errors) / len(errors)


class Logistic:
    """Two classes that overlap a little."""

    def __init__(self, rng: random.Random) -> None:
        self._x = _normal_rows(rng, 8)
        truth = [4.0 * rng.gauss(0.0, 1.0) for _ in range(8)]
        self._y = [float(rng.random() < _sigmoid(_dot(row, truth))) for row in self._x]
        self.weights = [0.0] * 8

    def step(self, lr: float, batch: Sequence[int]) -> None:
        """One step of descent on these rows."""
        errors = [_sigmoid(_dot(self._x[row], self.weights)) - self._y[row] for row in batch]
        self.weights = _descended(self.weights, lr, errors, [self._x[row] for row in batch])

    def loss(self) -> float:
        """The cross entropy."""
        total = 0.0
        for row, wanted in zip(self._x, self._y, strict=True):
            chance = _sigmoid(_dot(row, self.weights))
            total -= math.log(max(1e-9, chance if wanted else 1.0 - chance))
        return total / len(self._x)


class Network:
    """A hidden layer of 8 that learns a sine."""

    def __init__(self, rng: random.Random) -> None:
        self._x = [rng.uniform(-2.0, 2.0) for _ in range(ROWS)]
        self._y = [math.sin(2.0 * x) for x in self._x]
        self.weights = [0.5 * rng.gauss(0.0, 1.0) for _ in range(3 * 8)]

    def step(self, lr: float, batch: Sequence[int]) -> None:
        """One step of descent on these rows."""
        slopes, errors = [], []
        out = self.weights[16:]
        for row in batch:
            x = self._x[row]
            hidden = self._hidden(x)
            errors.append(2.0 * (_dot(hidden, out) - self._y[row]))
            back = [weight * (1.0 - each * each) for weight, each in zip(out, hidden, strict=True)]
            slopes.append([*(each * x for each in back), *back, *hidden])
        self.weights = _descended(self.weights, lr, errors, slopes)

    def loss(self) -> float:
        """The mean of squares."""
        out = self.weights[16:]
        errors = [_dot(self._hidden(x), out) - y for x, y in zip(self._x, self._y, strict=True)]
        return _dot(errors, errors) / len(errors)

    def _hidden(self, x: float) -> list[float]:
        first, bias = self.weights[:8], self.weights[8:16]
        return [math.tanh(a * x + b) for a, b in zip(first, bias, strict=True)]


MODELS: dict[str, Callable[[random.Random], ToyModel]] = {
    "ridge": Ridge,
    "logistic": Logistic,
    "network": Network,
}


def _normal_rows(rng: random.Random, columns: int) -> list[list[float]]:
    return [[rng.gauss(0.0, 1.0) for _ in range(columns)] for _ in range(ROWS)]


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(map(mul, left, right), 0.0)


def _sigmoid(value: float) -> float:
    # Beyond this it is 0 or 1 anyway, and `exp` would refuse.
    return 1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, value))))


def _descended(
    weights: Sequence[float], lr: float, errors: Sequence[float], slopes: Sequence[Sequence[float]]
) -> list[float]:
    """Weights after one step; a row's slope is its error times these."""
    rate = lr / len(errors)
    return [
        weight - rate * _dot(errors, column)
        for weight, column in zip(weights, zip(*slopes, strict=True), strict=True)
    ]
