"""How fast an app of 100 jobs answers an offer: CPU ms of one thread, one JSON line.

python benchmarks/bids.py --seeds 4

Apps as in the first workload (one phase, jobs of different lengths) and the second (successive
halving), with jobs of 1, 2 and 4 GPUs; they hold nothing, hold 64 GPUs, or are in mid-phase with 60
of their jobs; all of sim256 is offered to them, or a random 40 % of its single GPUs. Every first
bid is made by a new agent with all caches of the package empty, as in a new process. `cached` is
the same question once more, `progressed` the next one, after all running jobs have moved on. Each
bid is made anew `--repeats` times, and every time counts.

The bar is about 100 jobs and 256 offered GPUs: apps whose jobs all have work left, and the whole
cluster. `rest` is about the others. Exits 1 when the median is above 5 ms or the 95th percentile
above 20 ms; on clusters of another size nothing is judged (`met` is null).
"""

import argparse
import json
import math
import random
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product

import themis.core.agent.batched_rates  # noqa: F401 # numpy is loaded at start-up, not in a bid
from themis.core.agent import Agent, bidder, carving, commands, job_assignment, remaining_time
from themis.core.agent import events as ev
from themis.core.fairness.schedules import halving_from_budget
from themis.core.model import (
    AppId,
    AppSpec,
    GpuId,
    JobId,
    JobSpec,
    Lease,
    LeaseSource,
    Offer,
    OwnerId,
    Phase,
    Topology,
)
from themis.core.model.presets import preset
from themis.core.model.zoo import ZOO, slowdown_of
from themis.core.tuners import tuner_for

JOBS = 100
HELD = 64
FRAGMENTED = 0.4
MEDIAN_MS, P95_MS, OFFERED = 5.0, 20.0, 256
"""The bar."""

WORKLOADS = ("w1", "w2")
WIDTHS = (1, 2, 4)
STATES = ("new", "holding", "mid-phase")
OFFERS = ("whole", "fragmented")
Case = tuple[str, int, str, str]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cluster", default="sim256")
    parser.add_argument("--seeds", type=int, default=4, help="apps of each kind")
    parser.add_argument("--repeats", type=int, default=3, help="times each bid is made anew")
    parser.add_argument("--each", action="store_true", help="also a line for each kind")
    args = parser.parse_args()
    topology = preset(args.cluster)
    topology.level([GpuId(0), GpuId(1)])  # Seats are made once for all.
    calib_ms = _calibrate()
    judged: list[dict[str, float]] = []
    rest: list[dict[str, float]] = []
    for case in product(WORKLOADS, WIDTHS, STATES, OFFERS):
        some = [
            _measure(case, seed, topology)
            for seed in range(args.seeds)
            for _ in range(args.repeats)
        ]
        if args.each:
            print(json.dumps({"case": "/".join(map(str, case)), **_summary(some)}))
        (judged if in_bar(case) else rest).extend(some)
    met = meets_bar(judged) if topology.gpus == OFFERED else None
    line = {
        "benchmark": "bids",
        "cluster": args.cluster,
        "jobs": JOBS,
        "seeds": args.seeds,
        "repeats": args.repeats,
        **_summary(judged),
        "met": met,
        "rest": _summary(rest),
        "calib_ms": round(calib_ms, 2),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
    print(json.dumps(line), flush=True)
    return 1 if met is False else 0


def in_bar(case: Case) -> bool:
    """Whether all jobs have work left and the whole cluster is offered."""
    _, _, state, offer = case
    return state != "mid-phase" and offer == "whole"


def meets_bar(answers: Sequence[dict[str, float]]) -> bool:
    """Whether the median and the 95th percentile are within the bar."""
    times = [answer["ms"] for answer in answers]
    return statistics.median(times) <= MEDIAN_MS and _p95(times) <= P95_MS


def _summary(answers: Sequence[dict[str, float]]) -> dict[str, float]:
    times = [answer["ms"] for answer in answers]
    return {
        "bids": len(answers),
        "rows": round(statistics.median(answer["rows"] for answer in answers)),
        "median_ms": round(statistics.median(times), 3),
        "p95_ms": round(_p95(times), 3),
        "progressed_median_ms": round(statistics.median(a["progressed_ms"] for a in answers), 3),
        "cached_median_ms": round(statistics.median(a["cached_ms"] for a in answers), 4),
    }


def _p95(times: Sequence[float]) -> float:
    return sorted(times)[max(0, math.ceil(0.95 * len(times)) - 1)]


def _measure(case: Case, seed: int, topology: Topology) -> dict[str, float]:
    workload, width, state, kind = case
    rng = random.Random(f"{seed}/{case}")
    spec = _app(workload, width, rng)
    agent = Agent(spec, tuner_for(spec))
    for event in _past(agent, spec, state, topology, rng):
        agent.handle(event)
    offer = _offer(agent, kind, topology, rng)
    for module in (job_assignment, bidder, carving, remaining_time):
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
    rows, first = _ask(agent, offer, topology)
    _, cached = _ask(agent, offer, topology)
    agent.handle(_progress(agent, rng, 0.9, 1.0))
    _, progressed = _ask(agent, offer, topology)
    return {"rows": rows, "ms": first, "cached_ms": cached, "progressed_ms": progressed}


def _ask(agent: Agent, offer: Offer, topology: Topology) -> tuple[int, float]:
    started = time.process_time()
    (answer,) = agent.handle(ev.Asked(1000.0, offer, topology))
    ms = 1e3 * (time.process_time() - started)
    if not isinstance(answer, commands.SendBid):
        raise TypeError(answer)
    return len(answer.bid.rows), ms


def _app(workload: str, width: int, rng: random.Random) -> AppSpec:
    slowdown = slowdown_of(rng.choice(ZOO).name)
    jobs = tuple(
        JobSpec(JobId(f"j{number:03d}"), rng.uniform(0.8, 1.2), width, slowdown=slowdown)
        for number in range(JOBS)
    )
    if workload == "w1":
        targets = tuple(round(3000 * math.exp(rng.gauss(0.0, 0.5))) for _ in jobs)
        phases: tuple[Phase, ...] = (Phase(JOBS, max(targets), targets),)
    else:
        phases = halving_from_budget([job.serial_iteration_time for job in jobs], 3600.0 * JOBS)
    return AppSpec(AppId("bench"), OwnerId("bench"), jobs, phases)


def _past(
    agent: Agent, spec: AppSpec, state: str, topology: Topology, rng: random.Random
) -> Iterator[ev.AgentEvent]:
    """What happened to an app before it is asked."""
    if state == "new":
        return
    if state == "mid-phase":
        for job in spec.jobs[: JOBS * 2 // 5]:
            yield ev.JobReached(0.0, job.id, rng.random())
    first = rng.randrange(topology.gpus - HELD)
    leases = tuple(
        Lease(GpuId(gpu), spec.id, 1, 0.0, 600.0, LeaseSource.AUCTION)
        for gpu in range(first, first + HELD)
    )
    yield ev.LeasesChanged(0.0, topology, leases)
    yield _progress(agent, rng, 0.0, 0.9)


def _progress(agent: Agent, rng: random.Random, low: float, high: float) -> ev.Progressed:
    """Every running job has done a part, between these shares, of what it has to do."""
    return ev.Progressed(
        10.0,
        tuple((job, rng.uniform(low, high) * agent.target(job)) for job in agent.placement),
    )


def _offer(agent: Agent, kind: str, topology: Topology, rng: random.Random) -> Offer:
    gpus = [seat.gpu for seat in topology.seats]
    if kind == "fragmented":
        gpus = sorted(rng.sample(gpus, round(FRAGMENTED * len(gpus))))
    held = sorted(agent.gpus)
    offered = frozenset(gpus)
    return Offer(
        1,
        tuple(gpus),
        tuple(gpu for gpu in held if gpu not in offered),
        tuple(gpu for gpu in held if gpu in offered),
    )


def _calibrate() -> float:
    started = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number
    return 1e3 * (time.process_time() - started)


if __name__ == "__main__":
    sys.exit(main())
