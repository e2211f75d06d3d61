"""How well bids foresee the time of a phase: one JSON line per workload and cluster.

python benchmarks/prediction.py --apps 85 --seeds 10

Every phase of every app runs on fixed GPUs, drawn from the rows of its own bid, with no noise, no
costs and no other apps; see `tests.support.phase_timing`. Errors are |predicted / realised - 1|;
phases with fewer GPUs than their jobs could use are told apart. It exits 1 when a median is over
the bar.
"""

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence

from tests.support.phase_timing import Trial, trials
from themis.core.model.presets import preset
from themis.errors import ThemisError
from themis.sim.workloads import workload

WORKLOADS = ("w1", "w2")
CLUSTERS = ("testbed64", "sim256")
BAR = 0.05


def measure(name: str, cluster: str, apps: int, seeds: int) -> list[Trial]:
    """All phases of so many apps of each seed."""
    topology = preset(cluster)
    return [
        trial
        for seed in range(1, seeds + 1)
        for app in workload(name, seed=seed, apps=apps, gpus=topology.gpus).apps
        for trial in trials(app, topology, random.Random(f"{seed}/{app.spec.id}"))
    ]


def percentile(errors: Sequence[float], share: float) -> float:
    """The smallest error that at least this share does not exceed."""
    return sorted(errors)[min(len(errors) - 1, int(share * len(errors)))]


def summary(found: Sequence[Trial]) -> dict[str, float]:
    """Median and 95th percentile for the GPUs as won, and for the rows as bid."""
    errors = [abs(trial.error) for trial in found]
    bid_errors = [abs(trial.bid_error) for trial in found]
    crowded = [abs(trial.error) for trial in found if trial.crowded] or [0.0]
    return {
        "phases": len(found),
        "median_error": round(statistics.median(errors), 4),
        "p95_error": round(percentile(errors, 0.95), 4),
        "median_crowded_error": round(statistics.median(crowded), 4),
        "median_signed_error": round(statistics.median(trial.error for trial in found), 4),
        "median_bid_error": round(statistics.median(bid_errors), 4),
        "p95_bid_error": round(percentile(bid_errors, 0.95), 4),
    }


def main() -> int:
    """Measure, print as they come, and judge by the bar."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="may be repeated")
    parser.add_argument("--cluster", action="append", help="a preset; may be repeated")
    parser.add_argument("--apps", type=int, default=30, help="of each seed")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    within = True
    for name in args.workload or WORKLOADS:
        for cluster in args.cluster or CLUSTERS:
            try:
                figures = summary(measure(name, cluster, args.apps, args.seeds))
            except ThemisError as error:
                parser.error(str(error))
            line = {"benchmark": "prediction", "workload": name, "cluster": cluster, **figures}
            print(json.dumps(line), flush=True)
            medians = (value for key, value in figures.items() if key.startswith("median"))
            within = within and all(abs(value) <= BAR for value in medians)
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
