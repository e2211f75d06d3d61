"""What the payment rule lottery-pf costs beside a plain auction, and what a liar gains by it.

    python benchmarks/lottery.py --gpus 64 --bidders 20 --seeds 5     one JSON line
    python benchmarks/lottery.py --markets 60 --lies 20               the same for random lies

CPU milliseconds of one full auction with all payments, and the winner determinations in it.
"""

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from tests.support.auction_lies import probe, small_market
from themis.core.auction import (
    Bidder,
    Candidate,
    Problem,
    Solution,
    check_solution,
    offered_machines,
    payment,
    solver,
)
from themis.core.auction.lottery.lottery import solve_lottery
from themis.core.auction.problem import Objective
from themis.core.auction.solvers.prepared import PreparedProblem, prepare
from themis.core.auction.solvers.registry import (
    Determination,
    Find,
    Left,
    StartSolve,
    restarted,
    start_of,
)
from themis.core.model import CLUSTER, MACHINE, RACK, AppId, Chunk, Machine, Topology

NOTICEABLE = 1e-3
"""A lie that gains less than this part is put down to arithmetic."""


def auction(gpus: int, bidders: int, seed: int) -> Problem:
    """All GPUs of machines with four, to apps that want 1 to 32; half of them are starved."""
    rng = random.Random(f"lottery/{gpus}/{bidders}/{seed}")
    machines = tuple(Machine(f"m{n}", f"r{n // 8}", (2, 2)) for n in range(gpus // 4))
    topology = Topology(machines)
    offered = offered_machines(range(gpus), topology)  # type: ignore[arg-type]  # ids are dense
    apps = [AppId(f"app-{number:04d}") for number in range(bidders)]
    made = tuple(
        _bidder(app, gpus, bidders, starved=n % 2 == 0, rng=rng) for n, app in enumerate(apps)
    )
    return Problem(offered, made)


def _bidder(app: AppId, gpus: int, contention: int, *, starved: bool, rng: random.Random) -> Bidder:
    demand = min(rng.randint(1, 32), gpus)
    work = demand * rng.lognormvariate(math.log(5400.0), 1.0)
    ideal = contention / 2 * work / demand * rng.uniform(0.3, 1.0)
    elapsed = rng.uniform(0.0, 1.5) * ideal
    slower = (1.0, 1.0 + 0.3 * rng.random(), 1.0 + rng.random())
    rows = []
    for count in sorted({demand, *(2**k for k in range(6) if 2**k < demand)}):
        for level, factor in zip((MACHINE, RACK, CLUSTER), slower, strict=True):
            if level != MACHINE or count <= 4:
                rho = (elapsed + 40.0 + work * (factor if count > 1 else 1.0) / count) / ideal
                rows.append(Candidate((Chunk(level, count),), rho))
    nothing = (2.0 if starved else 1.1) * (elapsed + 600.0 + work) / ideal
    return Bidder(app, 1.0, nothing, tuple(rows))


def cpu_ms(work: Callable[[], Solution]) -> tuple[float, Solution]:
    """CPU milliseconds of this process, and what came of them."""
    before = time.process_time()
    result = work()
    return 1000.0 * (time.process_time() - before), result


@dataclass(slots=True)
class Counted:
    """A finder that counts what it is asked, and starts again where the counted one can."""

    start: StartSolve
    find: Find | None = None
    count: int = 0

    def __call__(self, prepared: PreparedProblem, left: Left | None = None) -> Find:
        """Begin on one more problem."""
        self.find = restarted(self.find, self.start, prepared, left)
        return self._determine

    def _determine(self, bidders: tuple[int, ...], budget: int | None) -> Determination:
        self.count += 1
        assert self.find is not None
        return self.find(bidders, budget)


def cost(gpus: int, bidders: int, seeds: int, name: str) -> dict[str, object]:
    """Plain auctions and lotteries on the same instances."""
    plain: list[float] = []
    lottery: list[float] = []
    calls: list[int] = []
    tickets: list[int] = []
    kept: list[float] = []
    exact = 0
    for seed in range(seeds):
        problem = auction(gpus, bidders, seed)
        plain.append(cpu_ms(partial(solver(name).solve, problem))[0])
        asked = replace(problem, objective=Objective.LOTTERY)
        counted = Counted(start_of(name))
        spent, answer = cpu_ms(partial(solve_lottery, prepare(asked), counted, name, None))
        check_solution(asked, answer)
        lottery.append(spent)
        calls.append(counted.count)
        tickets.append(len(answer.lottery))
        exact += answer.exact
        kept += [interval.high for interval in answer.kept.values()]
    return {
        "benchmark": "lottery",
        "gpus": gpus,
        "bidders": bidders,
        "seeds": seeds,
        "solver": name,
        "plain_ms": round(statistics.median(plain), 1),
        "lottery_ms": round(statistics.median(lottery), 1),
        "ratio": round(statistics.median(map(float.__truediv__, lottery, plain)), 1),
        "determinations": statistics.median(calls),
        "tickets": statistics.median(tickets),
        "exact_share": exact / seeds,
        "kept_least": round(min(kept), 4),
        "kept_median": round(statistics.median(kept), 4),
    }


def lying(markets: int, lies: int, name: str) -> dict[str, object]:
    """How many bidders of small exact auctions find a lie that pays, and the largest gain."""
    result: dict[str, object] = {"benchmark": "lies", "markets": markets, "lies": lies}
    for rule in ("lottery", "lottery-pf"):
        gains = [
            gain.factor
            for seed in range(markets)
            for gain in probe(small_market(seed), payment(rule), solver(name), lies, seed)
        ]
        paying = sum(gain > 1.0 + NOTICEABLE for gain in gains)
        result["bidders"] = len(gains)
        result[f"{rule}_liars_percent"] = round(100.0 * paying / len(gains), 1)
        result[f"{rule}_largest_gain"] = round(max(gains), 6)
    return result


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--bidders", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--solver", default="default")
    parser.add_argument("--markets", type=int, default=0, help="probe lies in so many auctions")
    parser.add_argument("--lies", type=int, default=20, help="lies tried for each bidder")
    given = parser.parse_args()
    if given.markets:
        print(json.dumps(lying(given.markets, given.lies, given.solver)))
    else:
        print(json.dumps(cost(given.gpus, given.bidders, given.seeds, given.solver)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
