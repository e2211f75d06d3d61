"""One app as a policy sees it: everything computed by the arbiter, on demand, once a round."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.cluster_state import is_newcomer
from themis.core.arbiter.settings import Inputs, Settings
from themis.core.fairness.ideal_time import ideal_time_of_sums
from themis.core.fairness.rho import best_case_of_sums, rho, rho_of_nothing
from themis.core.fairness.valuation import Valuation
from themis.core.model import SLOT, AppId, Bid, GpuId, OwnerId, RhoClaim, Topology

MOST_OF_LEASE = 0.1
"""No start is believed to take more of a lease."""

LEAST_CAPACITY = 1e-6
"""GPUs."""

_Value = TypeVar("_Value")


class _once(Generic[_Value]):  # noqa: N801 # used as a decorator
    """A property computed once: `cached_property` without the lock it has in Python 3.11."""

    def __init__(self, compute: Callable[["ArbiterAppView"], _Value]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, seen: "ArbiterAppView", kind: type["ArbiterAppView"]) -> _Value:
        value = self._compute(seen)
        seen.__dict__[self._name] = value
        return value


@dataclass(frozen=True)
class Surroundings:
    """What an app's view needs from the rest of the arbiter."""

    now: float
    settings: Settings
    topology: Topology
    offered: frozenset[GpuId]
    elapsed: Callable[[AppId], float]
    mean_contention: Callable[[AppId], float]
    mean_capacity: Callable[[AppId], float]
    attained: Callable[[AppId], float]
    weight: Callable[[AppId], float]
    queued_work: Callable[[AppId], float]
    quota_left: Callable[[OwnerId], int | None]


class ArbiterAppView:
    """Satisfies `policies.base.AppView`. Made when a round opens, dropped when it ends."""

    kept: tuple[GpuId, ...]
    """GPUs it keeps past this round."""
    expiring: tuple[GpuId, ...]
    """GPUs it holds that are offered."""

    def __init__(
        self,
        state: AppState,
        held: tuple[GpuId, ...],
        machines: frozenset[int] | None,
        around: Surroundings,
    ) -> None:
        self._state = state
        self._around = around
        self.app: AppId = state.spec.id
        self.held = held
        self.machines = machines
        offered = around.offered
        if offered.isdisjoint(held):
            self.kept, self.expiring = held, ()
        elif offered.issuperset(held):
            self.kept, self.expiring = (), held
        else:
            self.kept = tuple([gpu for gpu in held if gpu not in offered])
            self.expiring = tuple([gpu for gpu in held if gpu in offered])
        self.room = self._room()
        self._settled = False

    def settle(self) -> None:
        """Take what may change while a round waits: the app may end and be forgotten."""
        if self._settled:
            return
        self._settled = True
        _ = (self.weight, self.elapsed, self._contention, self._capacity, self.attained)
        _ = self.queued_work

    @_once
    def weight(self) -> float:
        """Its weight in contention, auction and shares."""
        return self._around.weight(self.app)

    @_once
    def elapsed(self) -> float:
        """Active seconds so far."""
        seconds = self._around.elapsed(self.app)
        claim = self._claim
        return seconds if claim is None else seconds * claim.elapsed

    @property
    def _claim(self) -> RhoClaim | None:
        """The app's claim about its own rho, where claims are believed."""
        if self._around.settings.inputs is Inputs.COMPUTED:
            return None
        return self._state.claim

    @_once
    def _contention(self) -> float:
        return self._around.mean_contention(self.app)

    @_once
    def _capacity(self) -> float:
        return self._around.mean_capacity(self.app)

    @property
    def owner(self) -> OwnerId:
        """Whose it is."""
        return self._state.spec.owner

    @property
    def arrival(self) -> float:
        """When it was submitted."""
        return self._state.arrival

    @property
    def newcomer(self) -> bool:
        """Whether no round at a beat has opened since it arrived."""
        return is_newcomer(self._state, self._around.now, self._around.settings)

    @property
    def waiting_since(self) -> float:
        """Since when it has had no GPU."""
        return self._around.now if self.held else self._state.waiting_since

    @_once
    def ideal_time(self) -> float:
        """T_id under the arbiter's convention, with contention as it chose, capacity up to now."""
        phases, work = self._state.whole_sums()
        computed = ideal_time_of_sums(
            self._around.settings.convention,
            phases,
            work,
            contention=self._contention,
            # An app for which there was no GPU at all must not have a rho of zero: auctions
            # compare logarithms.
            capacity=max(self._capacity, LEAST_CAPACITY),
            budget=self._state.budget,
        )
        claim = self._claim
        return computed if claim is None else computed * claim.ideal_time

    @property
    def demand(self) -> int:
        """GPUs its runnable jobs could use."""
        return self._state.demand

    def _room(self) -> int:
        """GPUs it could still be given, within its owner's quota."""
        room = max(0, self._state.wanted - len(self.kept))
        quota = self._around.quota_left(self.owner)
        return room if quota is None else max(0, min(room, quota))

    @property
    def gang(self) -> int:
        """The most GPUs one of its jobs can use."""
        return self._state.gang

    @property
    def min_gang(self) -> int:
        """The fewest GPUs one of its jobs can use."""
        return self._state.min_gang

    @property
    def runnable_jobs(self) -> int:
        """Jobs with work left in this phase."""
        return self._state.runnable

    @_once
    def attained(self) -> float:
        """GPU-seconds it has held."""
        return self._around.attained(self.app)

    @property
    def hungry_rounds(self) -> int:
        """Beats in a row without a GPU."""
        return self._state.hungry_rounds

    @_once
    def rho_now(self) -> float:
        """Rho with the GPUs it holds taken as binding."""
        seconds = self.seconds_with(self.held)
        return self.rho_after(seconds) if math.isfinite(seconds) else self.rho_nothing

    @_once
    def rho_nothing(self) -> float:
        """Rho if it wins nothing: with what it keeps, else the starved value."""
        if self.kept:
            seconds = self.seconds_with(self.kept)
            if math.isfinite(seconds):
                return self.rho_after(seconds)
        settings = self._around.settings
        rest = self._state.serial_rest()
        return rho_of_nothing(
            self.elapsed, settings.lease, rest, self.ideal_time, settings.starvation
        )

    @_once
    def best_case_seconds(self) -> float:
        """Seconds still needed if it were given all it can use, of all there are, from now on."""
        least = best_case_of_sums(self._state.sums_left(), max(1.0, self._capacity))
        # Gangs wider than a slot are slowed wherever they are.
        return least * self._state.drag

    @property
    def starting_seconds(self) -> float:
        """Seconds that starting takes in all its phases left, by what it declared."""
        # It is the app that says so, and who takes long to start is not to gain by it.
        once = min(self._state.spec.restart_seconds, MOST_OF_LEASE * self._around.settings.lease)
        return once * len(self._state.sums_left())

    @property
    def remaining_work(self) -> float:
        """Serial seconds of declared work left."""
        return self._state.work_left

    @_once
    def queued_work(self) -> float:
        """Serial seconds that it stands in a queue with, where the shortest go first."""
        return self._around.queued_work(self.app)

    @_once
    def progress(self) -> float:
        """The share of its declared work that is done."""
        whole = self._state.whole_sums()[1]
        return min(1.0, max(0.0, 1.0 - self._state.work_left / whole)) if whole > 0.0 else 0.0

    def seconds_with(self, gpus: Sequence[GpuId]) -> float:
        """Seconds still needed with exactly these GPUs, by its cached valuation.

        Without a valuation (the app never answered) the declared work at S = 1 stands in.
        """
        if not gpus:
            return math.inf
        state = self._state
        valuation = state.valuation
        if valuation is None:
            return best_case_of_sums(state.sums_left(), float(len(gpus)))
        gang, gangs = state.gang, state.runnable
        if gang == 1:  # Where they are does not matter.
            return valuation.seconds_at(SLOT, min(len(gpus), gangs), work_left=state.work_left)
        seats = self._around.topology.seats
        return valuation.seconds_on(
            tuple(gpus), seats, gang=gang, gangs=gangs, work_left=state.work_left
        )

    def seconds_at(self, level: int, count: int) -> float:
        """Seconds still needed with this many GPUs in gangs at a level, by the cached valuation."""
        if count < 1:
            return math.inf
        valuation = self._state.valuation
        if valuation is None:
            return best_case_of_sums(self._state.sums_left(), float(count))
        return valuation.seconds_at(level, count, work_left=self._state.work_left)

    def rho_after(self, seconds: float) -> float:
        """Rho if it still needs this many seconds."""
        return rho(self.elapsed + seconds, self.ideal_time)

    def revalued(self, bid: Bid) -> Valuation:
        """The valuation in a fresh answer."""
        heard, left = self._state.valuation, self._state.work_left
        if heard is not None and heard.table is bid.table and heard.work_left == left:
            return heard  # The same, with what was worked out from it.
        return Valuation(bid.table, left)
