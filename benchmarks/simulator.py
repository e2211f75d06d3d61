"""How fast the simulator is: events handled per CPU second, one JSON line per policy.

python benchmarks/simulator.py --policy themis --policy equal-share --apps 20 --seed 1

`work_done_share` is the work that was done over the work there was: anything but 1 means that a
run lost or repeated training, and the exit code is 1.
"""

import argparse
import json
import math
import resource
import sys
import time

from themis.core.fairness.loads import total_work
from themis.errors import ThemisError
from themis.sim import RunConfig, prepare, run
from themis.sim.workloads import true_phases

POLICIES = ("equal-share", "themis")
PRECISION = 1e-9


def measure(config: RunConfig) -> dict[str, object]:
    """Simulate once; what it did and what it cost."""
    started = time.process_time()
    prepared = prepare(config)
    result = run(prepared, keep_segments=False)
    cpu = time.process_time() - started
    due = math.fsum(total_work(true_phases(app)) for app in prepared.workload.apps)
    done = math.fsum(account.useful for account in result.outcome.spent.values())
    share = done / due
    return {
        "benchmark": "simulator",
        "policy": config.policy,
        "cluster": config.cluster,
        "workload": config.workload,
        "apps": config.apps,
        "seed": config.seed,
        "rounds": result.outcome.rounds,
        "events": result.outcome.events,
        "events_per_cpu_s": round(result.outcome.events / cpu),
        "cpu_s": round(cpu, 3),
        # Of the process so far: with several policies it never falls from one to the next.
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        # Sums of many steps are exact to about this only.
        "work_done_share": 1.0 if abs(share - 1.0) <= PRECISION else share,
    }


def main() -> int:
    """Measure every policy asked for, print as they come, and judge by the work done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", action="append", help="may be repeated")
    parser.add_argument("--apps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", default="testbed64")
    parser.add_argument("--workload", help="default: w2 on testbed64, w1 elsewhere")
    args = parser.parse_args()
    whole = True
    for policy in args.policy or POLICIES:
        config = RunConfig(
            cluster=args.cluster,
            workload=args.workload or ("w2" if args.cluster == "testbed64" else "w1"),
            apps=args.apps,
            seed=args.seed,
            policy=policy,
        )
        try:
            line = measure(config)
        except ThemisError as error:
            parser.error(str(error))
        print(json.dumps(line), flush=True)
        whole = whole and line["work_done_share"] == 1.0
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
