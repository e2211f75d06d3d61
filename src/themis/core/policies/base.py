"""What a policy sees, asks and answers.

A policy is a conversation: it yields questions, receives the answers that came in time, and
returns a plan. It never waits, reads a clock or keeps state between rounds. A policy that asks
nothing subclasses `DirectPolicy` and writes one function.

    class Generous(DirectPolicy):
        name = "generous"

        def plan(self, view: View, rng: random.Random) -> Plan:
            pool = Pool(view.topology, view.offer)
            allotments = [give(pool, app, app.room) for app in view.apps]
            return Plan(tuple(a for a in allotments if a.gpus))
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from themis.core.auction.problem import Problem
from themis.core.auction.solution import Solution
from themis.core.fairness.valuation import Valuation
from themis.core.model import AppId, Bid, GpuId, LeaseSource, OwnerId, Topology
from themis.core.model.reasons import Reason
from themis.core.model.values import value


class AppView(Protocol):
    """One active app as the arbiter sees it when a round opens. Read only, computed on demand."""

    @property
    def app(self) -> AppId:
        """Its name."""

    @property
    def owner(self) -> OwnerId:
        """Whose it is."""

    @property
    def weight(self) -> float:
        """Its weight in contention, auction and shares (an owner's split among its apps)."""

    @property
    def arrival(self) -> float:
        """When it was submitted."""

    @property
    def newcomer(self) -> bool:
        """Whether no round at a beat has opened since it arrived."""

    @property
    def waiting_since(self) -> float:
        """Since when it has had no GPU; its arrival if it never had one; now if it has some."""

    @property
    def elapsed(self) -> float:
        """Active seconds so far."""

    @property
    def ideal_time(self) -> float:
        """T_id under the arbiter's convention."""

    @property
    def held(self) -> tuple[GpuId, ...]:
        """GPUs it holds now, sorted."""

    @property
    def kept(self) -> tuple[GpuId, ...]:
        """GPUs it keeps past this round, sorted: held and not offered."""

    @property
    def expiring(self) -> tuple[GpuId, ...]:
        """GPUs it holds that are offered in this round, sorted."""

    @property
    def demand(self) -> int:
        """GPUs its runnable jobs could use."""

    @property
    def room(self) -> int:
        """GPUs it could still be given: demand above what it keeps, within quota."""

    @property
    def gang(self) -> int:
        """The most GPUs one of its jobs can use."""

    @property
    def min_gang(self) -> int:
        """The fewest GPUs one of its jobs can use."""

    @property
    def runnable_jobs(self) -> int:
        """Jobs with work left in this phase."""

    @property
    def attained(self) -> float:
        """GPU-seconds it has held so far."""

    @property
    def hungry_rounds(self) -> int:
        """Beats in a row at whose end it had demand and no GPU."""

    @property
    def rho_now(self) -> float:
        """Rho with the GPUs it holds taken as binding, from its cached valuation."""

    @property
    def rho_nothing(self) -> float:
        """Rho if it wins nothing in this round: finite, and never a claim of the app's."""

    @property
    def best_case_seconds(self) -> float:
        """Seconds still needed if it were given all it can use, of all there are, from now on."""

    @property
    def starting_seconds(self) -> float:
        """Seconds that starting takes in all its phases left, by what it declared."""

    @property
    def remaining_work(self) -> float:
        """Serial seconds of declared work left."""

    @property
    def queued_work(self) -> float:
        """Serial seconds that it stands in a queue with, where the shortest go first.

        Those of all apps of its owner where owners are the bidders: parts of a split app are no
        shorter than the whole. What was added to its declared work counts once more.
        """

    @property
    def progress(self) -> float:
        """The share of its declared work, all phases together, that is done."""

    @property
    def machines(self) -> frozenset[int] | None:
        """Machines it may use; None for all."""

    def seconds_with(self, gpus: Sequence[GpuId]) -> float:
        """Seconds still needed with exactly these GPUs, by its cached valuation."""

    def seconds_at(self, level: int, count: int) -> float:
        """Seconds still needed with this many GPUs, its gangs no further apart than this level."""

    def rho_after(self, seconds: float) -> float:
        """Rho if it still needs this many seconds."""

    def revalued(self, bid: Bid) -> Valuation:
        """The valuation in a fresh answer."""


@dataclass(frozen=True, slots=True)
class View:
    """The world when a round opens."""

    now: float
    round: int
    at_beat: bool
    """Whether leases end in this round, rather than what is free or called in being dealt."""
    topology: Topology
    offer: tuple[GpuId, ...]
    """Every available GPU, sorted; no GPU is in two open offers."""
    holders: Mapping[GpuId, AppId]
    """Who holds an offered GPU: until the beat, or if it does not win back what was called in."""
    apps: tuple[AppView, ...]
    """Every active app, sorted by name."""
    lease: float
    end: float
    """When full leases given in this round end."""
    quotas: Mapping[OwnerId, int]
    """GPUs an owner may still be given in this round, where it has a quota."""
    by_owner: bool
    """Whether owners rather than apps are the bidders."""
    seed: int = 0

    def rng(self, purpose: str) -> random.Random:
        """Chance for one purpose of this round, independent of all others."""
        return random.Random(f"{self.seed}/{self.round}/{purpose}")

    def find(self, app: AppId) -> AppView:
        """The view of one active app."""
        for candidate in self.apps:
            if candidate.app == app:
                return candidate
        raise KeyError(app)


@dataclass(frozen=True, slots=True)
class AskBids:
    """Show these apps the offer; the answer maps those that answered in time to their bids."""

    apps: tuple[AppId, ...]
    tables_only: bool = False
    """Ask what GPUs are worth to them without showing any."""


@dataclass(frozen=True, slots=True)
class AskSolve:
    """Have an auction solved; the answer is a `Solution`."""

    problem: Problem


Question = AskBids | AskSolve
Answer = Mapping[AppId, Bid] | Solution


@value
class Allotment:
    """GPUs for one app. `until` ends the lease early (a share of time); None is the full lease."""

    app: AppId
    gpus: tuple[GpuId, ...]
    source: LeaseSource
    until: float | None = None


@dataclass(frozen=True, slots=True)
class AppStanding:
    """How one app stood in a round."""

    app: AppId
    rho: float
    rank: int
    invited: bool
    why_not: Reason | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the solver vouches for."""

    solver: str
    value: float
    bound: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Notes:
    """What happened inside a round, for its record."""

    standings: tuple[AppStanding, ...] = ()
    bids: tuple[Bid, ...] = ()
    won: Mapping[AppId, tuple[GpuId, ...]] = field(default_factory=dict)
    kept_fractions: Mapping[AppId, float] = field(default_factory=dict)
    paid: Mapping[AppId, tuple[GpuId, ...]] = field(default_factory=dict)
    declined: tuple[AppId, ...] = ()
    """Offered leftovers that would not have made them faster."""
    certificate: Certificate | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Who gets which offered GPU. `followups` are second owners of GPUs given for part of a lease.

    A GPU of the offer that is in no allotment stays idle.
    """

    allotments: tuple[Allotment, ...]
    followups: tuple[Allotment, ...] = ()
    notes: Notes = Notes()


Round = Generator[Question, Any, Plan]
"""A conversation. Answers are `Answer`; which one a question gets is given by its type."""


class Policy(ABC):
    """Decides one round. Options are keyword arguments of the constructor."""

    name: ClassVar[str]
    asks_tables: ClassVar[bool] = False
    """Whether apps must be asked for a valuation when they arrive."""
    asks_tables_each_phase: ClassVar[bool] = False
    """Whether they are asked again at every phase (policies without an auction)."""
    looks_at_progress: ClassVar[bool] = True
    """Whether it matters to the policy how far jobs are when a round opens."""
    pools: ClassVar[bool] = True
    """Whether GPUs that come free wait a little for others to be dealt with them."""
    sticky_agents: ClassVar[bool] = True
    """Whether agents keep jobs where they run and say so in their bids."""
    restart_in_bids: ClassVar[bool] = True
    """Whether bids count the cost of moving jobs."""
    settings: ClassVar[Mapping[str, object]] = {}
    """Arbiter settings that go with this policy, unless the user says otherwise."""
    keeps_to_beats: ClassVar[bool] = True
    """Whether leases end together on a beat (else each ends on its own)."""
    calls_in: bool = False
    """Whether leases may end early for an app that has just come: see `call_in`."""

    def call_in(self, view: View, lent: Mapping[GpuId, AppId]) -> Collection[GpuId]:
        """Choose leased GPUs to offer beside those that are free, in a round between beats.

        Asked only if `calls_in`, when an app has come that wants more than is free. What its holder
        does not win back in the round it loses.

        Args:
            view: The round without them.
            lent: Who holds or is promised each GPU that can be called in.
        """
        return ()

    @abstractmethod
    def hold_round(self, view: View, rng: random.Random) -> Round:
        """Hold one round: yield questions, return the plan."""


class DirectPolicy(Policy):
    """A policy that asks nothing."""

    @abstractmethod
    def plan(self, view: View, rng: random.Random) -> Plan:
        """Decide from the view alone."""

    def hold_round(self, view: View, rng: random.Random) -> Round:
        """Hold a round without a question."""
        yield from ()
        return self.plan(view, rng)
