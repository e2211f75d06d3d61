"""A tuner of one's own: stops trials below the median, and begins new ones near the best."""

import argparse
import random
from statistics import median

from themis import OwnTuner


class Median(OwnTuner):
    """Ends a trial that is worse than half of the others were at the same iteration."""

    def should_stop(self, trial):
        if trial.iterations < 5:
            return False
        others = [other.metric_at(trial.iterations) for other in self.training]
        known = [metric for metric in others if metric is not None]
        return len(known) >= 3 and trial.metric > median(known)

    def suggest(self, trial):
        done = [other for other in self.trials.values() if other.iterations >= 5]
        if not done:
            return trial.params  # as the search in the app file drew them
        best = min(done, key=lambda other: other.cost)
        lr = best.params["lr"] * random.uniform(0.5, 2.0)
        return {"lr": min(1.0, max(1e-3, lr))}

    def placed(self, trial, gpus):
        print(f"trial {trial.name} with {trial.params}: {gpus} GPUs", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("app", nargs="?", default="app.yaml")
    parser.add_argument("--key", help="the same key is the same search, also when it is over")
    options = parser.parse_args()
    found = Median().run(options.app, key=options.key)
    best = next((job for job in found["jobs"] if job["job"] == found["best"]), None)
    print(found["app"], found["outcome"], best and (best["params"], best["metric"]))
