"""Rounds without an arbiter: apps and views made by hand, and a driver for the conversation.

view = fake_view(topology, [FakeApp("a", work=3600.0, gang=4), FakeApp("b", work=600.0)])
plan = drive(policy("themis"), view)
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from themis.core.auction import Solver, check_bid, check_solution, offered_machines, solver
from themis.core.fairness.valuation import Valuation
from themis.core.model import (
    LEVELS,
    NO_SLOWDOWN,
    SLOT,
    AppId,
    Bid,
    Chunk,
    GpuId,
    OwnerId,
    Row,
    Slowdown,
    TableRow,
    Topology,
)
from themis.core.policies import AskBids, AskSolve, Plan, Policy, View

_NOWHERE = Topology(())


@dataclass(frozen=True)
class FakeApp:
    """An app of equal jobs that share its work, as a policy sees it; satisfies `AppView`.

    Only the name is needed. `fake_view` puts it into a cluster.
    """

    name: str
    work: float = 3600.0
    """Serial seconds left, over all jobs."""
    jobs: int = 1
    gang: int = 1
    min_gang: int = 1
    slowdown: Slowdown = NO_SLOWDOWN
    held: tuple[GpuId, ...] = ()
    of: str = ""
    """Its owner; by default itself."""
    weight: float = 1.0
    arrival: float = 0.0
    waiting_since: float = 0.0
    elapsed: float = 0.0
    ideal_time: float = 3600.0
    attained: float = 0.0
    hungry_rounds: int = 0
    machines: frozenset[int] | None = None
    starvation: float = 2.0
    topology: Topology = field(default=_NOWHERE, repr=False)
    offered: frozenset[GpuId] = frozenset()
    quota_left: int | None = None
    lease: float = 600.0
    done: float = 0.0
    """Serial seconds of work behind it."""
    newcomer: bool = False
    starting_seconds: float = 0.0

    @property
    def app(self) -> AppId:
        """Its name."""
        return AppId(self.name)

    @property
    def owner(self) -> OwnerId:
        """Whose it is."""
        return OwnerId(self.of or self.name)

    @cached_property
    def kept(self) -> tuple[GpuId, ...]:
        """GPUs it keeps past the round."""
        return tuple(gpu for gpu in self.held if gpu not in self.offered)

    @cached_property
    def expiring(self) -> tuple[GpuId, ...]:
        """GPUs it holds that are offered."""
        return tuple(gpu for gpu in self.held if gpu in self.offered)

    @property
    def demand(self) -> int:
        """GPUs its jobs could use."""
        return self.jobs * self.gang

    @property
    def room(self) -> int:
        """GPUs it could still be given."""
        room = max(0, self.demand - len(self.kept))
        return room if self.quota_left is None else max(0, min(room, self.quota_left))

    @property
    def runnable_jobs(self) -> int:
        """Jobs with work left."""
        return self.jobs

    @property
    def remaining_work(self) -> float:
        """Serial seconds left."""
        return self.work

    @property
    def queued_work(self) -> float:
        """Serial seconds left."""
        return self.work

    @property
    def progress(self) -> float:
        """The share of its work that is done."""
        return self.done / (self.done + self.work)

    @property
    def rho_now(self) -> float:
        """Rho with the GPUs it holds."""
        seconds = self.seconds_with(self.held)
        return self.rho_after(seconds) if math.isfinite(seconds) else self.rho_nothing

    @property
    def rho_nothing(self) -> float:
        """Rho if it wins nothing: with what it keeps, else the starved value."""
        seconds = self.seconds_with(self.kept)
        if math.isfinite(seconds):
            return self.rho_after(seconds)
        rest = self.work / self.min_gang
        return self.starvation * (self.elapsed + self.lease + rest) / self.ideal_time

    @property
    def best_case_seconds(self) -> float:
        """Seconds still needed if it were given all it can use from now on."""
        return self.work / max(1, self.demand)

    @cached_property
    def table(self) -> tuple[TableRow, ...]:
        """Every count of GPUs it could use, in gangs at every level."""
        rows = []
        for level in LEVELS:
            best = math.inf
            for count in range(1, self.demand + 1):
                # More GPUs are never worse: it may leave some unused.
                best = min(best, self._seconds(level, count))
                if math.isfinite(best):
                    rows.append(TableRow(level, count, best))
        return tuple(rows)

    @cached_property
    def _valuation(self) -> Valuation:
        return Valuation(self.table, self.work)

    def seconds_with(self, gpus: Sequence[GpuId]) -> float:
        """Seconds still needed with exactly these GPUs."""
        seats = self.topology.seats
        return self._valuation.seconds(
            [seats[gpu] for gpu in gpus],
            gang=self.gang,
            gangs=self.jobs,
            work_left=self.work,
        )

    def seconds_at(self, level: int, count: int) -> float:
        """Seconds still needed with so many GPUs in gangs at a level."""
        return self._valuation.seconds_at(level, count, work_left=self.work)

    def rho_after(self, seconds: float) -> float:
        """Rho if it still needs so many seconds."""
        return (self.elapsed + seconds) / self.ideal_time

    def revalued(self, bid: Bid) -> Valuation:
        """The valuation in a fresh answer."""
        return Valuation(bid.table, self.work)

    def bid(self, offered: int) -> Bid:
        """An honest bid: for every level and count, gangs of their own beside what it keeps."""
        jobs = self.jobs - -(-len(self.kept) // self.gang)
        most = min(offered, self.room, jobs * self.gang)
        kept = self.seconds_with(self.kept)
        rows = []
        for entry in self.table:
            if entry.count <= most:
                together = 1.0 / (1.0 / kept + 1.0 / entry.seconds)
                alone = self.work / self.jobs / self.gang
                row = _chunks(entry.level, self.gang, entry.count)
                rows.append(Row(row, max(together, alone) if self.kept else entry.seconds))
        return Bid(self.app, tuple(rows), self.table)

    def _seconds(self, level: int, count: int) -> float:
        """All gangs at one level: their work together, and the longest job alone."""
        whole, rest = divmod(count, self.gang)
        sizes = [*[self.gang] * whole, rest]
        rates = [self.slowdown.rate(level, size) for size in sizes if size >= self.min_gang]
        if not rates or max(rates) <= 0.0:
            return math.inf
        return max(self.work / sum(rates), self.work / self.jobs / max(rates))


def _chunks(level: int, gang: int, count: int) -> tuple[Chunk, ...]:
    whole, rest = divmod(count, gang)
    sizes = [gang] * whole + ([rest] if rest else [])
    return tuple(Chunk(level if size > 1 else SLOT, size) for size in sizes)


def fake_view(
    topology: Topology,
    apps: Iterable[FakeApp],
    *,
    offer: Iterable[int] | None = None,
    quotas: Mapping[str, int] | None = None,
    at_beat: bool = True,
    by_owner: bool = False,
    round_number: int = 1,
    seed: int = 0,
    now: float = 562.0,
    lease: float = 600.0,
) -> View:
    """A round that opens on these apps; everything nobody keeps is offered unless said otherwise.

    At a beat it opens before the leases end, else at once; leases given in it end at 1200 s.
    """
    offered = frozenset(GpuId(gpu) for gpu in (range(topology.gpus) if offer is None else offer))
    left = {OwnerId(owner): limit for owner, limit in (quotas or {}).items()}
    placed = tuple(
        replace(
            app,
            topology=topology,
            offered=offered,
            quota_left=left.get(app.owner),
            lease=lease,
            held=tuple(sorted(app.held)),
        )
        for app in sorted(apps, key=lambda app: app.name)
    )
    return View(
        now=now,
        round=round_number,
        at_beat=at_beat,
        topology=topology,
        offer=tuple(sorted(offered)),
        holders={gpu: app.app for app in placed for gpu in app.expiring},
        apps=placed,
        lease=lease,
        end=2 * lease,
        quotas=left,
        by_owner=by_owner,
        seed=seed,
    )


BidsFor = Callable[[View, AppId], Bid | None]
"""What an app answers; None when it does not."""


def honest(view: View, app: AppId) -> Bid | None:
    """The bid of a `FakeApp`."""
    found = view.find(app)
    return found.bid(len(view.offer)) if isinstance(found, FakeApp) else None


def drive(
    policy: Policy,
    view: View,
    bids_for: BidsFor = honest,
    solve_with: Solver | None = None,
    shuffle: random.Random | None = None,
) -> Plan:
    """Hold one round to its end. Answers come by name, or in an order that `shuffle` draws.

    Raises:
        InvalidBidError: An answer cannot be taken.
        InvariantError: The solver's answer is wrong.
    """
    conversation = policy.hold_round(view, random.Random(f"{view.seed}/{view.round}"))
    answer: object = None
    while True:
        try:
            question = conversation.send(answer)
        except StopIteration as stop:
            plan: Plan = stop.value
            return plan
        match question:
            case AskBids(apps=apps):
                answer = _answers(view, apps, bids_for, shuffle)
            case AskSolve(problem=problem):
                solution = (solve_with or solver("default")).solve(problem)
                check_solution(problem, solution)
                answer = solution


def _answers(
    view: View, apps: Sequence[AppId], bids_for: BidsFor, shuffle: random.Random | None
) -> dict[AppId, Bid]:
    order = sorted(set(apps))
    if shuffle is not None:
        shuffle.shuffle(order)
    answers = {}
    for app in order:
        bid = bids_for(view, app)
        if bid is not None:
            check_bid(bid, offered_machines(view.offer, view.topology))
            answers[app] = bid
    return answers
