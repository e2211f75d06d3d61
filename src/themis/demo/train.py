"""A small training program that keeps the job contract. Each iteration is a real step of descent.

    python -m themis.demo.train --task ridge --lr 0.1 --pace 0.2 --slowdown 1,1.05,1.3,1.45

Real GPUs would set the pace; here a step is done at once, and the program sleeps for the rest of
the time that it would take with this many GPUs at such a distance from each other.
"""

import argparse
import json
import math
import os
import random
import sys
import time
from pathlib import Path

from themis.demo.toy_models import MODELS, ROWS, ToyModel
from themis.reporting import (
    GRACEFUL_EXIT,
    checkpoint_dir,
    checkpoint_due,
    max_iterations,
    report,
    should_stop,
)

CHECKPOINT = "model.json"
WORST = 1e6
"""The loss that is reported for a model that has diverged."""


def main(arguments: list[str] | None = None) -> int:
    """Train to the end, or until a checkpoint is asked for."""
    should_stop()  # From now on SIGTERM is noticed.
    given = _parser().parse_args(arguments)
    folder = checkpoint_dir(given.folder)
    model = MODELS[given.task](random.Random(f"{given.seed}"))
    done = _load(folder, model)
    last = max_iterations(given.iterations)
    # On several machines all parts do the same; the first one reports and saves.
    first = os.environ.get("THEMIS_RANK", "0") == "0"
    pace = given.pace * _slower(given.slowdown)
    while done < last and not should_stop():
        began = time.monotonic()
        model.step(given.lr, _batch(given.seed, done, given.batch))
        loss = model.loss()
        done += 1
        time.sleep(max(0.0, pace - (time.monotonic() - began)))
        if first:
            report(done, min(loss, WORST) if math.isfinite(loss) else WORST)
            if checkpoint_due():
                _save(folder, model, done)
    if first:
        _save(folder, model, done)
    return 0 if done >= last else GRACEFUL_EXIT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--task", choices=sorted(MODELS), default="ridge")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0, help="of data, weights and batches")
    parser.add_argument("--iterations", type=int, default=100, help="outside Themis")
    parser.add_argument("--folder", default="checkpoints", help="for checkpoints, outside Themis")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds an iteration on one GPU")
    parser.add_argument(
        "--slowdown", default="1,1,1,1", help="in a slot, a machine, a rack, across racks"
    )
    return parser


def _batch(seed: int, done: int, size: int) -> list[int]:
    """The batch of an iteration is the same however often the job was interrupted before it."""
    rng = random.Random(f"{seed}/{done}")
    return [rng.randrange(ROWS) for _ in range(size)]


def _slower(levels: str) -> float:
    """The time of an iteration on the job's GPUs, relative to one GPU."""
    count = int(os.environ.get("THEMIS_GPU_COUNT") or 1)
    level = int(os.environ.get("THEMIS_LEVEL") or 0)
    return (float(levels.split(",")[level]) if count > 1 else 1.0) / max(1, count)


def _load(folder: Path, model: ToyModel) -> int:
    try:
        saved = json.loads((folder / CHECKPOINT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0
    model.weights = saved["weights"]
    return int(saved["done"])


def _save(folder: Path, model: ToyModel, done: int) -> None:
    """Under another name first: a job may be killed at any moment."""
    partial = folder / f".{CHECKPOINT}"
    text = json.dumps({"done": done, "weights": model.weights})
    partial.write_text(text, encoding="utf-8")
    partial.replace(folder / CHECKPOINT)


if __name__ == "__main__":
    sys.exit(main())
