"""A small training program that keeps the job contract. Each iteration is a real step of descent.

    python -m themis.demo.train --task ridge --lr 0.1 --pace 0.2 --slowdown 1,1.05,1.3,1.45

Real GPUs would set the pace; here a step is done at once, and the program sleeps for the rest of
the time that it would take with so many GPUs at such a distance from each other.
"""

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # Many such programs share few cores.

import numpy as np  # noqa: E402 -- after its threads are limited

from themis.reporting import report  # noqa: E402

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
RESUMABLE = 75
CHECKPOINT = "model.npz"


class Ridge:
    """Least squares on noisy lines: converges quickly, and diverges where the rate is too high."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.x = rng.normal(size=(256, 16))
        self.y = self.x @ rng.normal(size=16) + 0.1 * rng.normal(size=256)
        self.weights: Array = np.zeros(16)

    def step(self, lr: float, batch: Array) -> float:
        """One step; returns the loss on all data."""
        x, y = self.x[batch], self.y[batch]
        self.weights = self.weights - lr * 2.0 * x.T @ (x @ self.weights - y) / len(y)
        return float(np.mean((self.x @ self.weights - self.y) ** 2))


class Logistic:
    """Two classes that overlap a little."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.x = rng.normal(size=(256, 8))
        chance = 1.0 / (1.0 + np.exp(-4.0 * (self.x @ rng.normal(size=8))))
        self.y = (rng.uniform(size=256) < chance).astype(float)
        self.weights: Array = np.zeros(8)

    def step(self, lr: float, batch: Array) -> float:
        """One step; returns the loss on all data."""
        x, y = self.x[batch], self.y[batch]
        self.weights = self.weights - lr * x.T @ (self._chance(x) - y) / len(y)
        p = np.clip(self._chance(self.x), 1e-9, 1 - 1e-9)
        return float(-np.mean(self.y * np.log(p) + (1.0 - self.y) * np.log(1.0 - p)))

    def _chance(self, x: Array) -> Array:
        made: Array = 1.0 / (1.0 + np.exp(-np.clip(x @ self.weights, -50.0, 50.0)))
        return made


class Network:
    """A hidden layer of 16 that learns a sine."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.x = rng.uniform(-3.0, 3.0, size=(256, 1))
        self.y = np.sin(2.0 * self.x[:, 0])
        self.weights: Array = rng.normal(size=16 * 3) * 0.5

    def step(self, lr: float, batch: Array) -> float:
        """One step; returns the loss on all data."""
        x, y = self.x[batch], self.y[batch]
        a, b, c = self.weights[:16], self.weights[16:32], self.weights[32:]
        hidden = np.tanh(x * a + b)
        error = hidden @ c - y
        back = error[:, None] * c * (1.0 - hidden**2)
        slope = np.concatenate(
            [(back * x).mean(0), back.mean(0), (error[:, None] * hidden).mean(0)]
        )
        self.weights = self.weights - lr * 2.0 * slope
        a, b, c = self.weights[:16], self.weights[16:32], self.weights[32:]
        return float(np.mean((np.tanh(self.x * a + b) @ c - self.y) ** 2))


TASKS: dict[str, Callable[[np.random.Generator], Ridge | Logistic | Network]] = {
    "ridge": Ridge,
    "logistic": Logistic,
    "network": Network,
}


def main(arguments: list[str] | None = None) -> int:
    """Train to THEMIS_MAX_ITERATIONS, or until told to go."""
    given = _parser().parse_args(arguments)
    folder = Path(os.environ.get("THEMIS_CHECKPOINT_DIR", "."))
    told_to_go = _listen()
    model = TASKS[given.task](np.random.default_rng(given.seed))
    done = _load(folder, model)
    last = int(float(os.environ.get("THEMIS_MAX_ITERATIONS") or given.iterations))
    # On several machines all do the same; one of them tells of it and saves.
    first = os.environ.get("THEMIS_RANK", "0") == "0"
    pace = given.pace * _slower(given.slowdown)
    while done < last and not told_to_go:
        began = time.monotonic()
        # The batch of an iteration is the same however often the job was interrupted before it.
        batch = np.random.default_rng((given.seed, done)).integers(0, 256, size=given.batch)
        with np.errstate(over="ignore", invalid="ignore"):
            loss = model.step(given.lr, batch)
        done += 1
        time.sleep(max(0.0, pace - (time.monotonic() - began)))
        if first:
            report(done, min(loss, 1e6) if math.isfinite(loss) else 1e6)
    if first:
        _save(folder, model, done)
    return 0 if done >= last else RESUMABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--task", choices=sorted(TASKS), default="ridge")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0, help="of data, weights and batches")
    parser.add_argument("--iterations", type=int, default=100, help="outside Themis")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds an iteration on one GPU")
    parser.add_argument(
        "--slowdown", default="1,1,1,1", help="in a slot, a machine, a rack, across racks"
    )
    return parser


def _slower(levels: str) -> float:
    """What one iteration takes with the GPUs that the job has, of what it takes with one."""
    count = int(os.environ.get("THEMIS_GPU_COUNT") or 1)
    level = int(os.environ.get("THEMIS_LEVEL") or 0)
    return (float(levels.split(",")[level]) if count > 1 else 1.0) / max(1, count)


def _listen() -> list[int]:
    """A list that is no longer empty once the job is told to save and go."""
    told: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        told.append(number)

    signal.signal(signal.SIGTERM, note)
    return told


def _load(folder: Path, model: Ridge | Logistic | Network) -> int:
    try:
        with np.load(folder / CHECKPOINT) as saved:
            model.weights = saved["weights"]
            return int(saved["done"])
    except FileNotFoundError:
        return 0


def _save(folder: Path, model: Ridge | Logistic | Network, done: int) -> None:
    """Under another name first: a job may be killed at any moment."""
    partial = folder / f".{CHECKPOINT}"
    with partial.open("wb") as file:
        np.savez(file, weights=model.weights, done=done)
    partial.replace(folder / CHECKPOINT)


if __name__ == "__main__":
    sys.exit(main())
