"""A sweep with Ray Tune. One line makes it an app of Themis: the scheduler is wrapped."""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from themis.errors import ThemisError
from themis.integrations.ray_tune import ThemisScheduler


def train(config):
    """Fit a line with gradient descent; save with each report, and go on from what is saved."""
    dice = random.Random(0)
    xs = [dice.uniform(-1.0, 1.0) for _ in range(64)]
    data = [(x, 3.0 * x + 1.0 + dice.gauss(0.0, 0.1)) for x in xs]
    state = {"iteration": 0, "slope": 0.0, "offset": 0.0}
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = json.loads((Path(folder) / "state.json").read_text())
    while state["iteration"] < config["iterations"]:
        errors = [(state["slope"] * x + state["offset"] - y, x) for x, y in data]
        state["slope"] -= config["lr"] * 2 * sum(error * x for error, x in errors) / len(data)
        state["offset"] -= config["lr"] * 2 * sum(error for error, _ in errors) / len(data)
        state["iteration"] += 1
        time.sleep(config["pause"])
        loss = sum(error**2 for error, _ in errors) / len(data)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state.json").write_text(json.dumps(state))
            tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_directory(folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds, so there is some work")
    parser.add_argument("--storage", help="a folder that all machines see; ~/ray_results if not")
    parser.add_argument("--pretend", type=int, help="GPUs of this machine, to try it without any")
    options = parser.parse_args()
    last = options.iterations
    ray.init(num_gpus=options.pretend, include_dashboard=False)
    tuner = tune.Tuner(
        tune.with_resources(train, {"gpu": 1, "cpu": 1}),
        param_space={
            "lr": tune.loguniform(1e-3, 1.0),
            "iterations": last,
            "pause": options.pause,
        },
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=options.trials,
            scheduler=ThemisScheduler(ASHAScheduler(max_t=last, grace_period=min(4, last))),
        ),
        run_config=tune.RunConfig(name="tune-lr", storage_path=options.storage),
    )
    try:
        best = tuner.fit().get_best_result()
    except ThemisError as error:  # such as a token that is not a tenant's
        raise SystemExit(f"tune_lr.py: {error}") from None
    print("the best:", best.config["lr"], best.metrics["loss"])
