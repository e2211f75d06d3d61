"""How fast auctions are settled, all payments included: CPU ms of one thread, one JSON line.

python benchmarks/auction.py --gpus 64 --bidders 20 --fragmented --seeds 20

At 64 and 256 GPUs half of the auctions are recorded ones, cut or topped up to the number of
bidders, and plain HiGHS and Gurobi get the same ones, each in a process of its own with 60 s for
each auction. A time-out counts 60 s. Gurobi may live elsewhere: --gurobi-python says where. With
--budget-ms our solver has to answer by then; late_ms is the longest it took.
"""

import argparse
import gc
import json
import math
import os
import pickle
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import themis
from themis.auction import Problem, Solution, check_solution, solver
from themis.auction.solver import preload
from themis.errors import ConfigError
from themis.testing.auctions import generated_problem, recorded_problems, resized

LIMIT_SECONDS = 60
TOO_LARGE = 3
RECORDED = {64: ("testbed64", 85), 256: ("sim256", 120)}


def main() -> int:
    """Measure and print."""
    args = _arguments()
    if args.worker:
        return _work(args.worker, Path(args.problems), args.index, args.budget_ms)
    problems = _problems(args)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problems.pickle"
        path.write_bytes(pickle.dumps(problems))
        ours = _run(sys.executable, args.solver, path, args.budget_ms)
        ratios: dict[str, float | None] = {"highs": None, "gurobi": None}
        medians: dict[str, float | None] = {"highs": None, "gurobi": None}
        if args.gpus in RECORDED and args.opponents:
            for name, python in (("highs", sys.executable), ("gurobi", args.gurobi_python)):
                ratios[name], medians[name] = _compare(name, python, path, ours["ms"])
    times = sorted(ours["ms"])
    line: dict[str, float | int | bool | None] = {
        "gpus": args.gpus,
        "bidders": args.bidders,
        "fragmented": args.fragmented,
        "rows": round(statistics.median(ours["rows"])),
        "median_ms": round(statistics.median(times), 2),
        "p95_ms": round(_quantile(times, 0.95), 2),
        "cold_ms": round(ours["cold_ms"], 2),
        "calib_ms": round(ours["calib_ms"], 2),
        "exact_share": round(statistics.mean(ours["exact"]), 4),
        "gap_nats": max(ours["gap"]),
        "kept_error": max(ours["kept_error"]),
        "ratio_highs": ratios["highs"],
        "ratio_gurobi": ratios["gurobi"],
        "peak_rss_mb": round(ours["peak_rss_mb"], 1),
    }
    if args.opponents and args.gpus in RECORDED:
        line |= {"highs_ms": medians["highs"], "gurobi_ms": medians["gurobi"]}
    if args.budget_ms is not None:
        line |= {"budget_ms": args.budget_ms, "late_ms": round(times[-1], 2)}
    print(json.dumps(line), flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--bidders", type=int, default=20)
    parser.add_argument("--fragmented", action="store_true", help="40 %% of single GPUs offered")
    parser.add_argument("--seeds", type=int, default=20, help="how many auctions")
    parser.add_argument("--every-count", action="store_true", help="rows for every GPU count")
    parser.add_argument("--solver", default="default")
    parser.add_argument("--budget-ms", type=float, help="CPU ms after which an answer is due")
    parser.add_argument("--gurobi-python", default=sys.executable, help="where gurobipy is")
    parser.add_argument("--no-opponents", dest="opponents", action="store_false")
    parser.add_argument(
        "--cache",
        default=str(Path(tempfile.gettempdir()) / "themis-auctions"),
        help="recorded ones",
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--problems", help=argparse.SUPPRESS)
    parser.add_argument("--index", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def _problems(args: argparse.Namespace) -> list[Problem]:
    recorded = _recorded(args.gpus, Path(args.cache)) if args.gpus in RECORDED else []
    problems = []
    for seed in range(args.seeds):
        if recorded and seed % 2 and not args.every_count:
            source = recorded[seed // 2 % len(recorded)]
            problem = resized(source, args.gpus, args.bidders, seed, fragmented=args.fragmented)
        else:
            problem = generated_problem(
                args.gpus,
                args.bidders,
                seed,
                fragmented=args.fragmented,
                every_count=args.every_count,
            )
        problems.append(problem)
    return problems


def _recorded(gpus: int, cache: Path) -> list[Problem]:
    cluster, apps = RECORDED[gpus]
    path = cache / f"{cluster}-1.pickle"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        count = 20 if gpus == 64 else 12
        path.write_bytes(pickle.dumps(recorded_problems(cluster, count, apps=apps)))
    problems: list[Problem] = pickle.loads(path.read_bytes())
    return problems


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


# The process of one solver


class Answers(TypedDict):
    """What the process of a solver says of all auctions."""

    ms: list[float]
    rows: list[int]
    exact: list[bool]
    gap: list[float]
    kept_error: list[float]
    cold_ms: float
    calib_ms: float
    peak_rss_mb: float


def _work(name: str, path: Path, index: int | None, budget_ms: float | None) -> int:
    problems: list[Problem] = pickle.loads(path.read_bytes())
    try:
        solver(name)
    except ConfigError:
        return 2
    preload(name)
    # The auctions that wait for their turn are no heap that a round would have to look through.
    gc.collect()
    gc.freeze()
    calib_ms = _calibrate()
    if index is not None:
        problems = [problems[index]]
    try:
        cold_ms, _ = _timed(name, problems[0], budget_ms)
    except ConfigError:
        return TOO_LARGE
    answers: Answers = {
        "ms": [],
        "rows": [sum(len(bidder.rows) for bidder in problem.bidders) for problem in problems],
        "exact": [],
        "gap": [],
        "kept_error": [],
        "cold_ms": cold_ms,
        "calib_ms": calib_ms,
        "peak_rss_mb": 0.0,
    }
    for problem in problems if index is None else ():
        took, solution = _timed(name, problem, budget_ms)
        answers["ms"].append(took)
        check_solution(problem, solution)
        answers["exact"].append(solution.exact)
        answers["gap"].append(solution.bound - solution.value)
        widths = [(kept.high - kept.low) / 2 for kept in solution.kept.values()]
        answers["kept_error"].append(max(widths, default=0.0))
    answers["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(answers))
    return 0


def _timed(name: str, problem: Problem, budget_ms: float | None) -> tuple[float, Solution]:
    """CPU ms, and the answer."""
    started = time.process_time()

    def left() -> float:
        return started + 1e-3 * (budget_ms or 0.0) - time.process_time()

    solution = solver(name, None if budget_ms is None else left).solve(problem)
    return 1e3 * (time.process_time() - started), solution


def _calibrate() -> float:
    started = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number
    return 1e3 * (time.process_time() - started)


# The process that compares


def _run(python: str, name: str, path: Path, budget_ms: float | None) -> Answers:
    done = _start(python, name, path, budget_ms=budget_ms)
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr.strip()[-2000:]}")
    answers: Answers = json.loads(done.stdout)
    return answers


def _start(
    python: str,
    name: str,
    path: Path,
    index: int | None = None,
    *,
    budget_ms: float | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    command = [python, __file__, "--worker", name, "--problems", str(path)]
    command += [] if index is None else ["--index", str(index)]
    command += [] if budget_ms is None else ["--budget-ms", str(budget_ms)]
    # Wherever the interpreter lives, it runs this code.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    if python != sys.executable:
        environment["PYTHONPATH"] = str(Path(themis.__file__).parents[1])
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=environment, check=False
    )


def _compare(
    name: str, python: str, path: Path, ours: Sequence[float]
) -> tuple[float | None, float | None]:
    """How many times slower another solver is, and its ms: medians of the auctions it took."""
    ratios = []
    times = []
    large = late = 0
    for index, mine in enumerate(ours):
        try:
            done = _start(python, name, path, index, timeout=LIMIT_SECONDS + 5)
        except subprocess.TimeoutExpired:
            late += 1
            times.append(1e3 * LIMIT_SECONDS)
            ratios.append(times[-1] / mine)
            continue
        if done.returncode == TOO_LARGE:
            large += 1
        elif done.returncode:
            print(f"{name}: {done.stderr.strip()[-500:] or 'not installed'}", file=sys.stderr)
            return None, None
        else:
            times.append(json.loads(done.stdout)["cold_ms"])
            ratios.append(times[-1] / mine)
    print(
        f"{name}: {len(ratios)} auctions, {late} timed out, {large} too large for its licence",
        file=sys.stderr,
    )
    if not ratios:
        return None, None
    return round(statistics.median(ratios), 1), round(statistics.median(times), 1)


if __name__ == "__main__":
    sys.exit(main())
