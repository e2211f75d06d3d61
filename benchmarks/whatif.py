"""How fast a what-if is answered: seconds to the first answer and to the last, one JSON line.

python benchmarks/whatif.py --apps 50 --seeds 8

A cluster of 64 GPUs (testbed64) in the middle of its work: apps of W2, all submitted within minutes
and run for `--warm` seconds under `themis`. The question goes to the process that answers for the
service, so the start of Python and the snapshot's way there count. `rough` is the first line: equal
shares of a fluid, before any run. `outline` is the answer of a run with longer leases, where the
app takes so long that there is one; `first` the first answer of a run that is like the cluster,
`final` the last one. The same with `_cpu` is what the worker had used of a processor by then, as it
is nice and waits for everybody else on a busy machine. `rough_error` and `outline_error` are how
far these finishes were from the median in the end, as a share of it.

Exits 1 unless the first answer of a run, be it an outline, came within 5 s and the last one within
60 s (and 5 s for the process to begin and end); with fewer than 50 apps nothing is judged (`met` is
null).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from themis.core.arbiter.state_parts import SettingsPart
from themis.recording.cluster_snapshots import Snapshot, dumps_snapshot
from themis.recording.codec import dumps
from themis.recording.forecast_questions import ForecastCase, ForecastQuestion
from themis.sim.config import RunConfig, prepare
from themis.sim.snapshot_sim import Fork

FIRST, LAST, SLACK = 5.0, 60.0, 5.0


def crowded(apps: int, warm: float, seed: int) -> tuple[Snapshot, ForecastCase]:
    """The state, and an app that is not there."""
    prepared = prepare(RunConfig(cluster="testbed64", workload="w2", apps=apps + 1, seed=seed))
    *present, new = prepared.workload.apps
    arrivals = tuple(replace(app, arrival=float(index)) for index, app in enumerate(present))
    fork = Fork(
        prepared.topology,
        replace(prepared.workload, apps=arrivals),
        prepared.policy,
        replace(prepared.settings, solve_work=2000),
        seed=seed,
        costs=prepared.costs,
    )
    fork.advance(warm)
    # As a service knows it: not when processes end what they are doing. And with its settings: the
    # budget for auctions above only makes this state quickly.
    snapshot = fork.snapshot("themis")
    state = {**snapshot.state, "settings": SettingsPart(prepared.settings, None)}
    pictures = tuple(replace(app, waiting=None) for app in snapshot.apps)
    taken = replace(snapshot, state=state, apps=pictures, agenda=None)
    return taken, ForecastCase("as written", new.spec)


def ask(snapshot: Snapshot, question: ForecastQuestion) -> dict[str, Any]:
    """Ask the worker; when it said what."""
    began = time.monotonic()
    text = f'{{"snapshot":{dumps_snapshot(snapshot)},"question":{dumps(question)}}}\n'
    found: dict[str, Any] = {"bytes": len(text), "rough": None, "outline": None, "first": None}
    guesses: dict[str, float] = {}
    command = [sys.executable, "-m", "themis.forecast.worker"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(text)
        process.stdin.flush()
        for line in process.stdout:
            answer = json.loads(line)["answer"]
            taken, used = round(time.monotonic() - began, 2), _used(process.pid)
            case = answer["cases"][0]
            if found["rough"] is None:
                found |= {"rough": taken, "rough_cpu": used}
                guesses["rough"] = case["finish"]["mid"]
            if case["outlined"] and found["outline"] is None:
                found |= {"outline": taken, "outline_cpu": used}
                guesses["outline"] = case["finish"]["mid"]
            if case["seeds"] and found["first"] is None:
                found |= {"first": taken, "first_cpu": used}
            if answer["final"]:
                found |= {"final": taken, "final_cpu": used}
                found |= {"runs": answer["done"], "of": answer["total"], "seeds": case["seeds"]}
                found |= {"finish": case["finish"], "rho": case["rho"]}
                for name, guess in guesses.items() if case["seeds"] else ():
                    found[f"{name}_error"] = round(guess / case["finish"]["mid"] - 1.0, 2)
                break
        process.stdin.close()
    return found


def _used(process: int) -> float:
    """Seconds of a processor that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return round((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 2)


def main() -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apps", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=LAST)
    parser.add_argument("--warm", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    snapshot, case = crowded(given.apps, given.warm, given.seed)
    found = ask(snapshot, ForecastQuestion((case,), given.seeds, given.seconds))
    ran = [found[name] for name in ("outline", "first") if found[name] is not None]
    met = bool(ran) and min(ran) <= FIRST and found["final"] <= LAST + SLACK
    told = {
        "benchmark": "whatif",
        "gpus": 64,
        "apps": len(snapshot.apps),
        **found,
        "load": round(os.getloadavg()[0], 1),
        "met": met if given.apps >= 50 else None,
    }
    print(json.dumps(told))
    return 1 if told["met"] is False else 0


if __name__ == "__main__":
    sys.exit(main())
