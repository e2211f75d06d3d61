"""How quick the live service is: real processes on loopback, one JSON line for each case.

python benchmarks/live.py                          # all cases, three runs of each
python benchmarks/live.py --case round hostile --runs 1

change    From the end of one app to the running process of the next on the same GPU, with a real
          node: the old process is told to go (and goes), the lease moves, the next agent hears of
          it and starts its job. `heard_s` is the part until that agent heard.
round     1,000 agents, each with its own connection; all are asked (policy themis, f=0).
          `round_s` is from the opening of a round until its plan is made, `told_s` until the last
          agent has heard; `rss_mb` is the most that the service's process ever had.
hostile   2,000 agents, 30 % dead, 10 % slow, 10 % hostile: `over_s` is by how much rounds end later
          than their deadline, which is that of the bids plus the solver's budget; 99th percentile.
          `told_s` is from the opening of a round until the last agent has heard, when all of it is
          on disk, and `told_worst_s` the longest of these.
          `lost` and `lost_reports` are calls of agents and of nodes that nobody answered (they were
          cancelled, or took too long); `flood_lost` those that hostile agents make besides, with
          two seconds of patience. `--verbose` tells how calls of each kind ended.
restart   A service with 10,000 apps is killed and started again: `first_s` until its first round
          is open and it answers (`answer_s`); `cpu_s` is what it used until then.
idle      CPU of a service with 16 nodes and nothing to do.
growth    What the store grows by in a day with 100 apps whose jobs train, at the default beat.
submit    From the submission of an app to its first running process, with a real node and nothing
          else to do: `submit_s` for owners without any app, `next_s` for one who has agents.
verbs     `themis ls` and `themis status` as whole commands, with 1,000 apps; `ls_cpu_s` and
          `status_cpu_s` are their processor's part.
reading   CPU of a real node with 100 jobs that report ten lines a second each, all of which their
          agent hears; `lines` is how many a second were written, `heard` how many it heard.

Figures are medians of the runs. Made-up agents and nodes (tests.support.load_clients) are one
process; `calib_ms` is a fixed piece of Python before each run, `calib_cpu_ms` the processor's part
of it: what else the machine does is the difference. Exits 1 when a bar is missed.
"""

import argparse
import asyncio
import json
import math
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from live_lab import (
    MARK,
    Agent,
    Lab,
    Line,
    agents_for,
    apps_of,
    keep_compiled,
    open_folder,
    wait,
)
from live_people import reading, submit, verbs

from tests.support.load_clients import AgentPlan
from themis.core.arbiter import Settings
from themis.core.arbiter.records import RoundRecord
from themis.core.model import AppSpec
from themis.protocol.agent_messages import EndApp

DAY = 86400.0
LOST = {
    "lost": "UnavailableError",
    "lost_reports": "node UnavailableError",
    "flood_lost": "flood UnavailableError",
}
"""Figures, and how what they count begins in what the crowd saw."""


def hostile_mix(agents: tuple[AgentPlan, ...]) -> tuple[AgentPlan, ...]:
    """Of ten, three dead, one slow and one hostile."""
    kinds = (
        "dead",
        "honest",
        "slow",
        "honest",
        "dead",
        "honest",
        "hostile",
        "honest",
        "dead",
        "honest",
    )
    return tuple(replace(agent, kind=kinds[number % 10]) for number, agent in enumerate(agents))


# Cases


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured, and by what it is judged: no figure above its bar."""

    measure: Callable[[Path, argparse.Namespace], dict[str, float]]
    bars: Mapping[str, float]


def change(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Leases that move."""
    return asyncio.run(_changes(folder, args.changes))


async def _changes(folder: Path, count: int) -> dict[str, float]:
    marks = open_folder(folder / "marks")
    # A GPU that comes free is dealt at once, not together with others.
    lab = Lab(folder, {"pooling": 0, "idle_after": 0}, "equal-share")
    specs = apps_of(count + 1, jobs=1)
    lab.fill(specs, nodes=1, gpus=1)
    took, heard = [], []
    with lab.service() as service, lab.real_node():
        waiting = [Agent(lab, spec, f"{MARK} && exec sleep 600", marks) for spec in specs]
        ended = math.nan
        try:
            while waiting:
                app = await _next_running(waiting)
                took.append(float(app.marks()[0]) - ended)
                heard.append(app.heard - ended)
                waiting.remove(app)
                ended = time.time()
                app.link.say(EndApp())
                await app.task
        finally:
            for app in waiting:
                app.task.cancel()
        memory = service.memory_mb()
    # The first one had nobody to take over from.
    return {
        "change_s": statistics.median(took[1:]),
        "worst_s": max(took[1:]),
        "heard_s": statistics.median(heard[1:]),
        "rss_mb": memory,
    }


async def _next_running(apps: list[Agent]) -> Agent:
    async with asyncio.timeout(60):
        while True:
            for app in apps:
                if app.marks():
                    return app
                if app.task.done():
                    app.task.result()
            await asyncio.sleep(0.005)


def full_round(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """A thousand honest agents."""
    settings = {"lease": 12, "grace": 1, "bid_deadline": 4, "solve_budget": 0.5, "idle_after": 0}
    lab = Lab(folder, settings, options={"f": 0, "guard_rounds": 0})
    specs = apps_of(args.agents or 1000)
    seen = _rounds(lab, specs, agents_for(lab, specs), args)
    return {
        "round_s": statistics.median(seen.took),
        "worst_s": max(seen.took),
        "told_s": statistics.median(seen.told),
        "bids_s": statistics.median(seen.bids),
        "rounds": len(seen.took),
        "failed": seen.failed,
        "asked": seen.asked,
        "rss_mb": seen.rss_mb,
        "cpu_s": seen.cpu_s,
        **seen.lost,
    }


def hostile(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Two thousand, half of them no good."""
    settings = {"lease": 12, "grace": 1, "bid_deadline": 2, "solve_budget": 1, "idle_after": 0}
    lab = Lab(folder, settings, options={"f": 0, "guard_rounds": 0})
    specs = apps_of(args.agents or 2000)
    seen = _rounds(lab, specs, hostile_mix(agents_for(lab, specs)), args)
    over = [took - 3.0 for took in seen.took]
    return {
        "over_s": sorted(over)[math.ceil(0.99 * len(over)) - 1],
        "over_median_s": statistics.median(over),
        "told_s": statistics.median(seen.told),
        "told_worst_s": max(seen.told),
        "rounds": len(over),
        "failed": seen.failed,
        "asked": seen.asked,
        "rss_mb": seen.rss_mb,
        "cpu_s": seen.cpu_s,
        **seen.lost,
    }


@dataclass(frozen=True, slots=True)
class _Seen:
    took: list[float]
    told: list[float]
    bids: list[float]
    failed: int
    asked: float
    rss_mb: float
    cpu_s: float
    """Of the service and its solver, from beat to beat."""
    lost: Mapping[str, int]
    """Calls that came back without an answer."""


def _rounds(
    lab: Lab, specs: list[AppSpec], agents: tuple[AgentPlan, ...], args: argparse.Namespace
) -> _Seen:
    """Let so many rounds pass; the first ones, when not everybody is there yet, do not count."""
    count = 16 if args.agents and args.agents < 200 else 64
    lab.fill(specs, nodes=count)
    lease = float(str(lab.settings["lease"]))
    with lab.service() as service, lab.crowd(agents, lab.nodes(count)) as crowd:
        # Everybody has begun after two beats.
        wait(2 * lease + 3.0, service, crowd)
        ready, used = time.time(), service.cpu_s()
        wait(args.rounds * lease, service, crowd)
        memory, cpu = service.memory_mb(), service.cpu_s() - used
        sights = crowd.say_end()
    if args.verbose:
        print(json.dumps(sights["counts"]), file=sys.stderr)
    zero = lab.zero()
    rounds = [
        item for item in lab.rounds() if item.trigger == "beat" and zero + item.opened > ready
    ]
    if not rounds:
        raise RuntimeError("no round passed: the machine has too much else to do")
    told = [
        max((at for at in sights["leases"] if 0 <= at - zero - item.opened < lease), default=0.0)
        - zero
        - item.opened
        for item in rounds
    ]
    bids = [sights["bid"].get(str(item.round), 0.0) - zero - item.opened for item in rounds]
    if args.verbose:
        for item in rounds:
            print(
                item.round, item.settled - item.opened, item.failed, item.offered, file=sys.stderr
            )
    return _Seen(
        [item.settled - item.opened for item in rounds],
        told,
        bids,
        sum(bool(item.failed) for item in rounds),
        statistics.median(map(_asked, rounds)),
        memory,
        cpu / args.rounds,
        {
            name: sum(count for end, count in sights["counts"].items() if end.startswith(words))
            for name, words in LOST.items()
        },
    )


def _asked(record: RoundRecord) -> int:
    return sum(line.invited for line in record.apps)


def restart(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Ten thousand apps, and a service that begins again."""
    settings = {"lease": 15, "grace": 1, "idle_after": 0}
    lab = Lab(folder, settings)
    lab.fill(apps_of(args.agents or 10_000), nodes=16, tenants=False)
    lease = float(settings["lease"])
    with lab.service() as service, lab.crowd(nodes=lab.nodes(16)) as crowd:
        # Long enough for a round.
        wait(lease + 5.0, service, crowd)
        service.kill()
        # Over the opening of the next: it is due when the service is back.
        time.sleep(lease)
        with lab.service() as again:
            used = again.cpu_s()
            wait(lease, again, crowd)
            memory = again.memory_mb()
    zero = lab.zero()
    opened = min(
        (zero + item.opened for item in lab.rounds() if zero + item.opened > again.began),
        default=math.inf,
    )
    return {
        # A round that is due is dated before its service answers anybody.
        "first_s": max(opened, again.answered) - again.began,
        "answer_s": again.answered - again.began,
        "cpu_s": used,
        "rss_mb": memory,
    }


def idle(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Nothing to do."""
    lab = Lab(folder, {})
    specs = apps_of(args.agents)
    lab.fill(specs, nodes=16)
    with lab.service() as service, lab.crowd(agents_for(lab, specs), lab.nodes(16)) as crowd:
        wait(10.0, service, crowd)
        before, began = service.cpu_s(), time.time()
        wait(args.seconds, service, crowd)
        share = (service.cpu_s() - before) / (time.time() - began)
        memory = service.memory_mb("VmRSS")
    return {"cpu_percent": 100.0 * share, "rss_mb": memory}


def growth(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """What the log holds after some rounds more, and after some minutes without any."""
    settings = {"lease": 12, "grace": 1, "bid_deadline": 2, "solve_budget": 1}
    lab = Lab(folder, settings)
    specs = apps_of(args.agents or 100)
    lab.fill(specs, nodes=16)
    lease, held = float(settings["lease"]), []
    with lab.service() as service:
        plans = agents_for(lab, specs, runs=True)
        with lab.crowd(plans, lab.nodes(16)) as crowd:
            wait(2 * lease, service, crowd)
            for _ in range(2):
                held.append((lab.log_bytes(), len(lab.rounds())))
                wait(args.rounds * lease, service, crowd)
            held.append((lab.log_bytes(), len(lab.rounds())))
    (first, rounds), (last, later) = held[0], held[-1]
    each = (last - first) / max(1, later - rounds)
    return {"round_kb": each / 1e3, "day_mb": each * DAY / Settings().lease / 1e6}


CASES: Mapping[str, Case] = {
    "change": Case(change, {"change_s": 0.3}),
    "round": Case(full_round, {"round_s": 1.5, "rss_mb": 200.0}),
    "hostile": Case(hostile, {"over_s": 0.25}),
    "restart": Case(restart, {"first_s": 5.0}),
    "idle": Case(idle, {"cpu_percent": 2.0}),
    "growth": Case(growth, {}),
    "submit": Case(submit, {"submit_s": 0.5}),
    "verbs": Case(verbs, {"ls_s": 0.3, "status_s": 0.3}),
    "reading": Case(reading, {"cpu_percent": 10.0}),
}


def main() -> int:
    """Measure, print, and judge by the bars."""
    args = _arguments()
    # Ended from outside, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    missed = False
    with tempfile.TemporaryDirectory(prefix="themis-compiled-") as compiled:
        keep_compiled(Path(compiled))
        for name in args.case:
            case = CASES[name]
            runs = []
            for _ in range(args.runs):
                calibration = calibrate()
                runs.append({**_measure(case, args), **calibration})
            line = summary(name, runs, case.bars)
            print(json.dumps(line), flush=True)
            missed = missed or not line["met"]
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--agents", type=int, default=0, help="others than each case's own number")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each run")
    parser.add_argument("--changes", type=int, default=10, help="leases that move, in each run")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to be idle")
    parser.add_argument("--folder", help="where stores are put: on the disk to be measured")
    parser.add_argument("--verbose", action="store_true", help="tell more, to standard error")
    return parser.parse_args()


def _measure(case: Case, args: argparse.Namespace) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="themis-live-", dir=args.folder))
    # A job under another user must get to its mark.
    folder.chmod(0o755)
    try:
        return case.measure(folder, args)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def calibrate() -> dict[str, float]:
    """Milliseconds for a fixed piece of work, by the clock and of the processor."""
    began, used = time.perf_counter(), time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number * number % 7
    assert total > 0
    took, cpu = time.perf_counter() - began, time.process_time() - used
    return {"calib_ms": 1e3 * took, "calib_cpu_ms": 1e3 * cpu}


def summary(name: str, runs: list[dict[str, float]], bars: Mapping[str, float]) -> Line:
    """The medians, and whether they are within the bars."""
    medians = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    return {
        "benchmark": "live",
        "case": name,
        "runs": len(runs),
        **{key: round(value, 3) for key, value in medians.items()},
        "bars": dict(bars),
        "met": all(medians[key] <= bar for key, bar in bars.items()),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    sys.exit(main())
