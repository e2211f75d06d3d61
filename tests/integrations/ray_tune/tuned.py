"""A script with a Tuner, as people have them, that writes down what its trials did."""

import argparse
import json
import os
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, HyperBandScheduler

from themis.integrations.ray_tune import ThemisScheduler


def machine() -> str:
    """The pretended one, of several on this host."""
    return os.environ.get("THEMIS_METRICS", "").partition("-nodes/")[2].partition("/")[0]


def train(config: dict[str, Any]) -> None:
    step, checkpoint, start = 0, tune.get_checkpoint(), uuid.uuid4().hex
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            step = json.loads((Path(folder) / "step.json").read_text())
    while step < config["last"]:
        began = time.time()
        if not Path(config["hurry"]).exists():
            time.sleep(config["seconds"])
        step += 1
        told = {
            "loss": config["quality"] / step,
            "step": step,
            "start": start,
            "gpu": os.environ["CUDA_VISIBLE_DEVICES"],
            "machine": machine(),
            "began": began,
            "ended": time.time(),
        }
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "step.json").write_text(json.dumps(step))
            tune.report(told, checkpoint=tune.Checkpoint.from_directory(folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("scheduler", choices=["asha", "hyperband", "fifo"])
    parser.add_argument("name")
    parser.add_argument("--storage", required=True)
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--last", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--gpus", type=int, default=0, help="of this Ray itself")
    options = parser.parse_args()
    inside: Any = None
    if options.scheduler == "asha":
        inside = ASHAScheduler(max_t=options.last, grace_period=1, reduction_factor=2)
    elif options.scheduler == "hyperband":
        inside = HyperBandScheduler(max_t=options.last, reduction_factor=3)
    ray.init(
        num_cpus=options.gpus,
        num_gpus=options.gpus,
        include_dashboard=False,
        object_store_memory=100 * 1024**2,
    )
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1, "gpu": 1}),
        param_space={
            "quality": tune.grid_search([float(1 + index) for index in range(options.trials)]),
            "last": options.last,
            "seconds": options.seconds,
            "hurry": f"{options.storage}/hurry",
        },
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            scheduler=ThemisScheduler(
                inside,
                name=options.name,
                max_iterations=options.last,
                grace=20.0,
            ),
        ),
        run_config=tune.RunConfig(name=options.name, storage_path=options.storage, verbose=1),
    )
    tuner.fit()
