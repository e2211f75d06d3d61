"""Auctions of any size to test and measure solvers with, from a seed.

    problem = generated_problem(gpus=256, bidders=30, seed=1, fragmented=True)
    problems = recorded_problems("testbed64", count=10)

Generated apps want 1 to 32 GPUs, as one gang or several; half of them are starved, the others hold
some of the offered GPUs and would like to stay. Recorded ones are what a simulated cluster really
had to settle.
"""

import contextlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.auction import Bidder, Candidate, OfferedMachine, Problem, offered_machines
from themis.core.model import (
    LEVELS,
    MACHINE,
    SLOT,
    AppId,
    Chunk,
    GpuId,
    Machine,
    Topology,
    level_of,
)
from themis.core.model.presets import preset
from themis.sim.config import RunConfig
from themis.sim.config import prepare as prepare_run
from themis.sim.driver import Simulation

OFFERED_WHEN_FRAGMENTED = 0.4
CONTENTION = 4
LOAD = 0.91
"""The load of workload w2 without contention."""


def cluster_of(gpus: int) -> Topology:
    """The cluster of this size: the paper's two, and from there machines of 4 slots x 2 GPUs."""
    if gpus in {64, 256}:
        return preset("testbed64" if gpus == 64 else "sim256")
    count, rest = divmod(gpus, 8)
    if rest or not count:
        raise ValueError(f"{gpus} GPUs are no machines of 8")
    machines = (Machine(f"r{n // 8}m{n % 8}", f"r{n // 8}", (2, 2, 2, 2)) for n in range(count))
    return Topology(tuple(machines), f"eights{gpus}")


def generated_problem(
    gpus: int, bidders: int, seed: int, *, fragmented: bool = False, every_count: bool = False
) -> Problem:
    """An auction among made-up apps; `every_count` has rows for every number of GPUs."""
    rng = random.Random(f"auction/{gpus}/{bidders}/{seed}/{fragmented}")
    topology = cluster_of(gpus)
    offered = [seat.gpu for seat in topology.seats]
    if fragmented:
        offered = sorted(rng.sample(offered, round(OFFERED_WHEN_FRAGMENTED * gpus)))
    machines = offered_machines(offered, topology)
    made = _made_bidders(topology, offered, machines, range(bidders), rng, every_count)
    return Problem(machines, made)


def recorded_problems(
    cluster: str,
    count: int,
    *,
    apps: int = 85,
    seed: int = 1,
    skip: int = 20,
    horizon: str = "lease",
) -> list[Problem]:
    """Auctions of a simulated run of w2 at four times its load, with everybody invited.

    Every third auction of at least half the cluster, once the run has got going. With a horizon of
    one lease, the policy's own, rows differ by little, which makes proofs long.
    """
    options = {"f": 0.0, "horizon": horizon}
    config = RunConfig(
        cluster=cluster, apps=apps, seed=seed, load=CONTENTION * LOAD, options=options
    )
    made = prepare_run(config)
    recorder = _Recorder(made.topology.gpus // 2, skip, 3, count)
    simulation = Simulation(
        made.topology,
        made.workload,
        made.policy,
        made.settings,
        seed=seed,
        costs=made.costs,
        solver_name="greedy",  # the questions matter here, and it is quick
        observers=(recorder,),
    )
    with contextlib.suppress(_EnoughError):
        simulation.run()
    return recorder.problems


def resized(problem: Problem, gpus: int, bidders: int, seed: int, *, fragmented: bool) -> Problem:
    """A recorded auction cut or topped up to so many bidders, and fragmented if need be."""
    rng = random.Random(f"resized/{gpus}/{bidders}/{seed}/{fragmented}")
    topology = cluster_of(gpus)
    free = {
        (m.machine, slot): count for m in problem.machines for slot, count in enumerate(m.slots)
    }
    offered: list[GpuId] = []
    for seat in topology.seats:
        key = (seat.machine, topology.slots_of[seat.machine].index(seat.slot))
        if free.get(key, 0):
            free[key] -= 1
            offered.append(seat.gpu)
    if fragmented:
        offered = sorted(rng.sample(offered, round(OFFERED_WHEN_FRAGMENTED * len(offered))))
    machines = offered_machines(offered, topology)
    chosen = list(problem.bidders)
    if len(chosen) > bidders:
        chosen = rng.sample(chosen, bidders)
    room = {offered.machine: offered.gpus for offered in machines}
    chosen = [
        replace(
            bidder,
            rows=tuple(r for r in bidder.rows if _pins_fit(r.chunks, room)),
            machines=None,
        )
        for bidder in chosen
    ]
    numbers = range(len(chosen), bidders)
    more = _made_bidders(topology, offered, machines, numbers, rng, every_count=False)
    return Problem(machines, (*chosen, *more))


def _pins_fit(chunks: Sequence[Chunk], room: dict[int, int]) -> bool:
    return all(c.machine is None or c.count <= room.get(c.machine, 0) for c in chunks)


class _EnoughError(Exception):
    """The recorder has what it wants."""


@dataclass(slots=True)
class _Recorder:
    """Keeps some of the auctions that a simulation solves."""

    smallest: int
    skip: int
    every: int
    count: int
    seen: int = 0
    problems: list[Problem] = field(default_factory=list)

    def handled(self, _: ev.Event, commands: Sequence[cmd.Command]) -> None:
        for command in commands:
            if isinstance(command, cmd.Solve):
                self._see(command.problem)

    def _see(self, problem: Problem) -> None:
        if sum(m.gpus for m in problem.machines) < self.smallest or len(problem.bidders) < 5:
            return
        self.seen += 1
        if self.seen > self.skip and self.seen % self.every == 0:
            self.problems.append(problem)
        if len(self.problems) >= self.count:
            raise _EnoughError


@dataclass(frozen=True, slots=True)
class _App:
    """A made-up app: what it can use, what it needs, and how it takes to distance."""

    demand: int
    gang: int
    smallest: int
    slowdowns: tuple[float, float, float, float]
    work: float
    elapsed: float
    ideal: float
    restart: float = 40.0
    lease: float = 600.0

    def rate(self, shape: Sequence[tuple[int, int]]) -> float:
        """GPUs that count, over gangs of (level, GPUs)."""
        return math.fsum(n / (self.slowdowns[level] if n > 1 else 1.0) for level, n in shape)

    def rho(self, shape: Sequence[tuple[int, int]], moved: int) -> float:
        total = sum(n for _, n in shape)
        return (
            self.elapsed + self.work / self.rate(shape) + self.restart * moved / total
        ) / self.ideal


def _app(rng: random.Random, contention: int) -> _App:
    demand = rng.randint(1, 32)
    gang = demand if rng.random() < 0.5 else min(demand, rng.choice((1, 2, 4, 8)))
    smallest = rng.choice((1, 1, 1, 2, 4)) if gang >= 4 else 1
    near = 1.0 + rng.choice((0.0, 0.02, 0.1, 0.3)) * rng.random()
    far = near * (1.0 + rng.choice((0.0, 0.1, 0.5, 1.0)) * rng.random())
    slowdowns = (1.0, near, far, far * (1.0 + rng.choice((0.0, 0.1, 0.5)) * rng.random()))
    work = demand * rng.lognormvariate(math.log(5400.0), 1.0)
    ideal = contention * work / demand * rng.uniform(0.3, 1.0)
    return _App(demand, gang, smallest, slowdowns, work, rng.uniform(0.0, 1.5) * ideal, ideal)


def _made_bidders(
    topology: Topology,
    offered: Sequence[GpuId],
    machines: Sequence[OfferedMachine],
    numbers: range,
    rng: random.Random,
    every_count: bool,
) -> tuple[Bidder, ...]:
    widths = (
        max((size for m in machines for size in m.slots), default=1),
        max((m.gpus for m in machines), default=1),
        max(_rack_sizes(machines).values(), default=1),
        max(1, len(offered)),
    )
    held = _Held(topology, list(offered))
    contention = max(2, len(numbers) // 2)
    bidders = []
    for number in numbers:
        app = _app(rng, contention)
        starved = number % 2 == 0
        pins = () if starved else held.take(rng.randint(1, app.demand), app, rng)
        keeps = bool(pins) and rng.random() < 0.5
        bidders.append(_bidder(AppId(f"made-{number:04d}"), app, pins, keeps, widths, every_count))
    return tuple(bidders)


def _rack_sizes(machines: Sequence[OfferedMachine]) -> dict[int, int]:
    racks: dict[int, int] = {}
    for offered in machines:
        racks[offered.rack] = racks.get(offered.rack, 0) + offered.gpus
    return racks


@dataclass(slots=True)
class _Held:
    """Offered GPUs that nobody holds yet, in locality order."""

    topology: Topology
    free: list[GpuId]

    def take(self, wanted: int, app: _App, rng: random.Random) -> tuple[Chunk, ...]:
        """GPUs that stand together, as chunks pinned to their machines."""
        count = min(wanted, app.gang, len(self.free) // 4)
        if count < app.smallest:
            return ()
        first = rng.randrange(len(self.free) - count + 1)
        mine = self.free[first : first + count]
        del self.free[first : first + count]
        seats: dict[int, list[GpuId]] = {}
        for gpu in mine:
            seats.setdefault(self.topology.seats[gpu].machine, []).append(gpu)
        return tuple(
            Chunk(
                min(level_of([self.topology.seats[g] for g in group]), MACHINE), len(group), machine
            )
            for machine, group in sorted(seats.items())
        )


def _bidder(
    name: AppId,
    app: _App,
    pins: tuple[Chunk, ...],
    keeps: bool,
    widths: tuple[int, int, int, int],
    every_count: bool,
) -> Bidder:
    """Rows at every level and count, with and without the GPUs held now."""
    kept = ((SLOT, app.smallest),) if keeps else ()
    rows: list[Candidate] = []
    pinned = sum(chunk.count for chunk in pins)
    spread = MACHINE if len(pins) <= 1 else LEVELS[2]
    for own in ((), pins) if pins else ((),):
        base = [*kept, *([(spread, pinned)] if own else [])]
        more = app.demand - sum(n for _, n in base)
        if own:
            rows.append(Candidate(own, app.rho(base, 0)))
        for level in LEVELS:
            gang = min(app.gang, widths[level])
            for count in _counts(app.smallest, min(more, widths[3]), every_count):
                chunks = _chunks(level, gang, count, app.smallest)
                if chunks is None:
                    continue
                shape = [*base, *((c.level, c.count) for c in chunks)]
                rows.append(Candidate((*own, *chunks), app.rho(shape, count)))
    if keeps:
        nothing = app.rho(kept, 0)
    else:
        rest = app.work / app.rate([(SLOT, app.smallest)])
        nothing = 2.0 * (app.elapsed + app.lease + rest) / app.ideal
    return Bidder(name, 1.0, nothing, tuple(_not_beaten(rows)))


def _counts(low: int, most: int, every: bool) -> list[int]:
    if most < low:
        return []
    if every:
        return list(range(low, most + 1))
    counts = {most}
    while low < most:
        counts.add(low)
        low *= 2
    return sorted(counts)


def _chunks(level: int, gang: int, count: int, smallest: int) -> tuple[Chunk, ...] | None:
    whole, rest = divmod(count, gang)
    if gang < smallest or (rest and rest < smallest):
        return None
    chunks = [Chunk(level if gang > 1 else SLOT, gang)] * whole
    if rest:
        chunks.append(Chunk(level if rest > 1 else SLOT, rest))
    return tuple(chunks)


def _not_beaten(rows: Sequence[Candidate]) -> list[Candidate]:
    """Without rows that are no faster than others of the same pins, GPUs and a looser level."""
    best: dict[tuple[tuple[Chunk, ...], int], float] = {}
    kept = []
    for row in reversed(rows):
        pins = tuple(chunk for chunk in row.chunks if chunk.machine is not None)
        key = (pins, row.gpus)
        if row.rho < best.get(key, math.inf):
            best[key] = row.rho
            kept.append(row)
    return kept[::-1]
