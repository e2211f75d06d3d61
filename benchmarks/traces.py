"""How long a million rows take: CPU seconds and memory of validating and of importing a trace.

python benchmarks/traces.py [--rows N] prints one JSON line; it exits 1 when over the bar.
"""

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from themis.sim.traces import plan_workload, read_trace, write_workload

ROWS = 1_000_000
BAR_SECONDS = 20.0
BAR_MB = 500.0
BURSTS = (1, 1, 1, 1, 1, 1, 2, 5, 12)
"""Sizes that are equally likely: three jobs an app, as in the Philly trace."""


def write_trace(path: Path, rows: int) -> None:
    """A plain CSV with bursts, some 300 owners and a bad row in a thousand."""
    rng = random.Random(1)
    now, left, owner, gpus = 0.0, 0, "", 1
    with path.open("w", encoding="utf-8") as file:
        file.write("submit_s,duration_s,num_gpus,owner\n")
        for number in range(rows):
            if not left:
                left = rng.choice(BURSTS)
                owner, gpus = f"user{rng.randrange(300)}", rng.choice((1, 1, 1, 2, 4, 8))
                now += rng.expovariate(1 / 40)
            left -= 1
            now += 3 * rng.random()
            duration = "?" if number % 1000 == 999 else f"{rng.lognormvariate(7, 2):.1f}"
            file.write(f"{now:.3f},{duration},{gpus},{owner}\n")


def measure(rows: int, folder: Path) -> dict[str, object]:
    """Validate, then import from the start, as two commands would."""
    trace_file, out = folder / "trace.csv", folder / "workload.jsonl"
    write_trace(trace_file, rows)
    started = time.process_time()
    read_trace(trace_file)
    validated = time.process_time()
    trace = read_trace(trace_file)
    plan = plan_workload(trace, "benchmark")
    write_workload(out, plan.header, plan.lines())
    imported = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = imported - started
    return {
        "benchmark": "traces",
        "rows": trace.rows,
        "jobs": len(trace.jobs),
        "apps": plan.header.apps,
        "seconds": round(seconds, 3),
        "validate_cpu_s": round(validated - started, 3),
        "import_cpu_s": round(imported - validated, 3),
        "peak_rss_mb": round(peak, 1),
        "within_bar": seconds <= BAR_SECONDS and peak <= BAR_MB,
    }


def main() -> int:
    """Measure, print, and judge by the bar."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=ROWS)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(parser.parse_args().rows, Path(folder))
    print(json.dumps(result))
    return 0 if result["within_bar"] else 1


if __name__ == "__main__":
    sys.exit(main())
