"""How fast auctions are settled, all payments included: CPU ms of one thread, one JSON line.

python benchmarks/auction.py --gpus 64 --bidders 20 --fragmented --seeds 20

At 64 and 256 GPUs half of the auctions are recorded ones, cut or topped up to the number of
bidders, and plain HiGHS and Gurobi get the same ones. Everybody has settled a small auction before
the clock starts, so that no one pays for loading; `cold_ms` is our first one in a fresh process.
Opponents get a process and 60 s of CPU time for each auction; a time-out counts 60 s. Gurobi may
live elsewhere: --gurobi-python says where. `disagreement` is the largest difference, in nats,
between their values and ours, `kept_disagreement` that of kept fractions where all win the same
rows. Exits 1 when an opponent and we cannot both be right.

The recorded auctions are those of a run simulated at the start, which takes a while; --recorded
names a folder to keep them in. With --budget-ms our solver has to answer by then; late_ms is the
longest it took.
"""

import argparse
import functools
import gc
import hashlib
import json
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import themis
from tests.support.random_auctions import generated_problem, recorded_problems, resized
from themis.core.auction import Problem, Solution, check_solution, solver
from themis.core.auction.solvers.comparison import compare
from themis.core.auction.solvers.registry import preload
from themis.errors import ConfigError
from themis.recording.auction_files import (
    AuctionFile,
    auction_files,
    auction_text,
    machines_not_offered,
    read_auction,
)
from themis.recording.codec import decode, dumps, loads

LIMIT_SECONDS = 60
HANGS_AFTER_SECONDS = 1800
"""By the wall clock, in which others may have the machine: only so that nothing waits forever."""
NOT_INSTALLED, TOO_LARGE = 2, 3
"""What a worker says by its exit code."""


@dataclass(frozen=True, slots=True)
class Source:
    """The run that recorded auctions come from."""

    cluster: str
    apps: int
    most: int
    """Different auctions; more seeds begin anew, with other bidders."""


RECORDED = {64: Source("testbed64", 85, 20), 256: Source("sim256", 120, 12)}


def main() -> int:
    """Measure and print."""
    args = _arguments()
    if args.worker:
        return _work(args)
    problems = _problems(args)
    opponents: dict[str, Opponent] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder, problems)
        cold = _run(args.solver, folder, args.budget_ms, index=0, cold=True)
        ours = _run(args.solver, folder, args.budget_ms)
        if args.gpus in RECORDED and args.opponents:
            pythons = {"highs": sys.executable, "gurobi": args.gurobi_python}
            opponents = {
                name: _compare(name, python, folder, problems, ours)
                for name, python in pythons.items()
            }
    print(json.dumps(_line(args, problems, cold, ours, opponents)), flush=True)
    clashes = [clash for opponent in opponents.values() for clash in opponent.clashes]
    for clash in clashes:
        print(clash, file=sys.stderr)
    return 1 if clashes else 0


def _line(
    args: argparse.Namespace,
    problems: Sequence[Problem],
    cold: "Report",
    ours: "Report",
    opponents: dict[str, "Opponent"],
) -> dict[str, object]:
    times = sorted(answer.ms for answer in ours.answers)
    solutions = [answer.solution for answer in ours.answers]
    widths = [k.high - k.low for solution in solutions for k in solution.kept.values()]
    nobody = Opponent()
    line: dict[str, object] = {
        "gpus": args.gpus,
        "bidders": args.bidders,
        "fragmented": args.fragmented,
        "seeds": args.seeds,
        "every_count": args.every_count,
        "horizon": args.horizon,
        "solver": args.solver,
        "rows": round(statistics.median(sum(len(b.rows) for b in p.bidders) for p in problems)),
        "median_ms": round(statistics.median(times), 2),
        "p95_ms": round(_quantile(times, 0.95), 2),
        "cold_ms": round(cold.answers[0].ms, 2),
        "calib_ms": round(ours.calib_ms, 2),
        "exact_share": round(statistics.mean(solution.exact for solution in solutions), 4),
        "gap_nats": max(solution.bound - solution.value for solution in solutions),
        "kept_error": max(widths, default=0.0) / 2,
        "ratio_highs": opponents.get("highs", nobody).ratio,
        "ratio_gurobi": opponents.get("gurobi", nobody).ratio,
        "peak_rss_mb": round(ours.peak_rss_mb, 1),
    }
    for name, opponent in opponents.items():
        line[f"{name}_ms"] = opponent.median_ms
    if opponents:
        line["timed_out"] = {name: opponent.late for name, opponent in opponents.items()}
        line["too_large"] = {name: opponent.large for name, opponent in opponents.items()}
        line["disagreement"] = _largest([o.values for o in opponents.values()])
        line["kept_disagreement"] = _largest([o.kept for o in opponents.values()])
    if args.budget_ms is not None:
        line |= {"budget_ms": args.budget_ms, "late_ms": round(times[-1], 2)}
    return line


def _largest(differences: Sequence[Sequence[float]]) -> float | None:
    return max((number for some in differences for number in some), default=None)


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
    parser.add_argument("--recorded", type=Path, help="a folder to keep recorded auctions in")
    parser.add_argument(
        "--horizon",
        choices=("end", "lease"),
        default="lease",
        help="what rows of recorded auctions are worth; policy themis has lease",
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--problems", help=argparse.SUPPRESS)
    parser.add_argument("--index", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--limited", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.seeds < 1:
        parser.error("--seeds: at least 1")
    return args


# The auctions


def _problems(args: argparse.Namespace) -> list[Problem]:
    recorded: Sequence[Problem] = ()
    if args.gpus in RECORDED and args.seeds > 1 and not args.every_count:
        recorded = _recorded(RECORDED[args.gpus], args.seeds // 2, args.recorded, args.horizon)
    problems = []
    for seed in range(args.seeds):
        if recorded and seed % 2:
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


def _recorded(source: Source, wanted: int, keep: Path | None, horizon: str) -> list[Problem]:
    record = functools.partial(recorded_problems, source.cluster, apps=source.apps, horizon=horizon)
    if keep is None:
        # The first ones are the same, however many are asked for.
        return record(min(wanted, source.most))
    run = f"{source.cluster}-w2-{source.apps}-{horizon}"
    folder = keep / f"{run}-{themis.__version__}-{_code_digest()}"
    if not folder.exists():
        keep.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=keep) as name:
            draft = Path(name) / "draft"
            draft.mkdir()
            _write(draft, record(source.most))
            draft.rename(folder)
    return _read(folder)


def _code_digest() -> str:
    """Of everything that a recorded run follows from.

    Solvers are left out: they are what is compared, on the same auctions before and after a change.
    """
    package = Path(themis.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        if place.parts[0] != "auction":
            digest.update(f"{place}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _write(folder: Path, problems: Sequence[Problem]) -> None:
    for index, problem in enumerate(problems):
        auction = AuctionFile(problem, machines_not_offered(problem))
        (folder / f"auction-{index:06d}.json").write_text(auction_text(auction))


def _read(folder: Path) -> list[Problem]:
    return [read_auction(path).problem for path in auction_files(folder)]


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


# The process of one solver


@dataclass(frozen=True, slots=True)
class Answer:
    """To one auction, and the CPU ms it took."""

    ms: float
    solution: Solution


@dataclass(frozen=True, slots=True)
class Report:
    """What the process of a solver prints."""

    answers: tuple[Answer, ...]
    calib_ms: float
    peak_rss_mb: float


def _work(args: argparse.Namespace) -> int:
    name = args.worker
    problems = _read(Path(args.problems))
    if args.index is not None:
        problems = [problems[args.index]]
    try:
        preload(name)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return NOT_INSTALLED
    if name == "highs":
        from themis.core.auction.solvers.highs import OPTIONS  # noqa: PLC0415 - needs highspy

        # As fast as people use it, though it then calls some answers best that are not.
        OPTIONS["presolve"] = "choose"
    # The auctions that wait for their turn are no heap that a round would have to look through.
    gc.collect()
    gc.freeze()
    calib_ms = _calibrate()
    if not args.cold:
        _timed(name, generated_problem(64, 4, seed=-1), None)
    if args.limited:
        # Of CPU time, like all that is measured here. Nobody handles the signal: it ends us.
        signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
    try:
        answers = tuple(_timed(name, problem, args.budget_ms) for problem in problems)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return TOO_LARGE
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    for problem, answer in zip(problems, answers, strict=True):
        check_solution(problem, answer.solution)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(dumps(Report(answers, calib_ms, peak)))
    return 0


def _timed(name: str, problem: Problem, budget_ms: float | None) -> Answer:
    started = time.process_time()

    def left() -> float:
        return started + 1e-3 * (budget_ms or 0.0) - time.process_time()

    solution = solver(name, None if budget_ms is None else left).solve(problem)
    return Answer(1e3 * (time.process_time() - started), solution)


def _calibrate() -> float:
    started = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number
    return 1e3 * (time.process_time() - started)


# The process that compares


def _run(
    name: str,
    folder: Path,
    budget_ms: float | None,
    index: int | None = None,
    *,
    cold: bool = False,
) -> Report:
    done = _start(sys.executable, name, folder, index, budget_ms=budget_ms, cold=cold)
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr.strip()[-2000:]}")
    return decode(Report, loads(done.stdout))


def _start(
    python: str,
    name: str,
    folder: Path,
    index: int | None = None,
    *,
    budget_ms: float | None = None,
    cold: bool = False,
    limited: bool = False,
) -> subprocess.CompletedProcess[str]:
    command = [python, __file__, "--worker", name, "--problems", str(folder)]
    command += [] if index is None else ["--index", str(index)]
    command += [] if budget_ms is None else ["--budget-ms", str(budget_ms)]
    command += ["--cold"] if cold else []
    command += ["--limited"] if limited else []
    # Wherever the interpreter lives, it runs this code.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    if python != sys.executable:
        environment["PYTHONPATH"] = str(Path(themis.__file__).parents[1])
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_SECONDS if limited else None,
        env=environment,
        check=False,
    )


@dataclass(slots=True)
class Opponent:
    """What another solver took and said, auction by auction."""

    times: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    """By how many nats its values differ from ours."""
    kept: list[float] = field(default_factory=list)
    """How far its kept fractions are from ours, at least, where all win the same rows."""
    clashes: list[str] = field(default_factory=list)
    late: int = 0
    large: int = 0

    @property
    def ratio(self) -> float | None:
        """How many times slower than we: the median of the auctions it took."""
        return round(statistics.median(self.ratios), 1) if self.ratios else None

    @property
    def median_ms(self) -> float | None:
        """Of the auctions it took."""
        return round(statistics.median(self.times), 1) if self.times else None

    def took(self, ms: float, ours: Answer) -> None:
        """Count an auction that it took so long for."""
        self.times.append(ms)
        self.ratios.append(ms / ours.ms)

    def said(self, theirs: Solution, ours: Solution, problem: Problem, where: str) -> None:
        """Compare an answer with ours."""
        self.values.append(abs(theirs.value - ours.value))
        found = compare(problem, ours, theirs)
        if found.contradiction:
            self.clashes.append(f"{where}: {found.contradiction}")
        if not found.winners:
            pairs = [(theirs.kept[app], ours.kept[app]) for app in ours.kept]
            apart = (max(a.low - b.high, b.low - a.high, 0.0) for a, b in pairs)
            self.kept.append(max(apart, default=0.0))


def _compare(
    name: str, python: str, folder: Path, problems: Sequence[Problem], ours: Report
) -> Opponent:
    opponent = Opponent()
    for index, (problem, mine) in enumerate(zip(problems, ours.answers, strict=True)):
        done = _start(python, name, folder, index, limited=True)
        if done.returncode == TOO_LARGE:
            opponent.large += 1
            continue
        if done.returncode == -signal.SIGPROF:
            opponent.late += 1
            opponent.took(1e3 * LIMIT_SECONDS, mine)
            continue
        if done.returncode:
            # Not installed, or no licence: what it would have taken is not shown.
            print(f"{name}: {done.stderr.strip()[-500:]}", file=sys.stderr)
            return Opponent()
        (theirs,) = decode(Report, loads(done.stdout)).answers
        opponent.took(theirs.ms, mine)
        opponent.said(theirs.solution, mine.solution, problem, f"{name}, auction {index}")
    print(
        f"{name}: {len(opponent.times)} auctions, {opponent.late} timed out, "
        f"{opponent.large} too large for its licence",
        file=sys.stderr,
    )
    return opponent


if __name__ == "__main__":
    sys.exit(main())
