"""The reference run: GPUs divided like a fluid into equal shares, S = 1, no restarts, no beats.

It fixes one mean contention per app, and so one ideal time, for all policies alike: a policy that
keeps apps waiting raises the contention of its own run and would otherwise flatter itself.

    results = fluid_run(apps, capacity=256)
    reference_ideal_time(Convention.FAIR_SHARE, phases, results[app], capacity=256)
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from themis.errors import ConfigError, DuplicateError
from themis.fairness.contention import ContentionClock
from themis.fairness.ideal import Convention, ideal_time
from themis.fairness.loads import PhaseLoad, phase_work, useful_demand
from themis.fairness.water import WaterLevel
from themis.model import AppId


@dataclass(frozen=True, slots=True)
class FluidApp:
    """An app of the reference run, with the work that really runs in each phase."""

    id: AppId
    arrival: float
    weight: float
    phases: tuple[PhaseLoad, ...]


@dataclass(frozen=True, slots=True)
class FluidResult:
    """How an app fared: when it ended, and its mean contention from arrival to then."""

    arrival: float
    end: float
    mean_contention: float

    @property
    def completion(self) -> float:
        """The seconds from arrival to end."""
        return self.end - self.arrival


def fluid_run(apps: Iterable[FluidApp], capacity: float) -> Mapping[AppId, FluidResult]:
    """Run a workload to its end; results are in order of arrival.

    Raises:
        ConfigError: There are no GPUs.
        DuplicateError: Two apps have the same id.
    """
    if not (math.isfinite(capacity) and capacity > 0.0):
        raise ConfigError("capacity", capacity, "a number above 0")
    queue = sorted(apps, key=lambda app: (app.arrival, app.id))
    run = _Run(capacity)
    for app in queue:
        run.advance(app.arrival)
        run.arrive(app)
    run.advance(math.inf)
    return {app.id: run.results[app.id] for app in queue}


def reference_ideal_time(
    convention: Convention,
    phases: Sequence[PhaseLoad],
    result: FluidResult,
    capacity: float,
    budget: float | None = None,
) -> float:
    """T_id with the contention of the reference run instead of the policy's own."""
    return ideal_time(
        convention, phases, contention=result.mean_contention, capacity=capacity, budget=budget
    )


class _Run:
    """The state of a reference run between two events.

    A phase with work W and share a advances at 1 / max(W / a, its longest job's time), and shares
    stop at the useful demand, where the two are equal. So it simply uses up its work at rate a.
    """

    def __init__(self, capacity: float) -> None:
        self.results: dict[AppId, FluidResult] = {}
        self._water = WaterLevel(capacity)
        self._clock = ContentionClock()
        self._apps: dict[AppId, FluidApp] = {}
        self._left: dict[AppId, list[PhaseLoad]] = {}

    def arrive(self, app: FluidApp) -> None:
        """Let an app in at its arrival, which must be the present."""
        if app.id in self._apps:
            raise DuplicateError(app.id, "two apps of the workload have this id")
        self._apps[app.id] = app
        self._left[app.id] = [phase for phase in reversed(app.phases) if phase_work(phase) > 0.0]
        self._clock.join(app.id, app.weight, app.arrival)
        self._next_phase(app, app.arrival)

    def advance(self, until: float) -> None:
        """Let time pass, through every end of a phase on the way."""
        while (ended := self._water.advance(until)) is not None:
            self._next_phase(self._apps[ended], self._water.now)

    def _next_phase(self, app: FluidApp, now: float) -> None:
        left = self._left[app.id]
        if left:
            phase = left.pop()
            self._water.add(app.id, app.weight, phase_work(phase), useful_demand(phase))
            return
        mean = self._clock.mean_contention(app.id, now)
        self._clock.leave(app.id, now)
        self.results[app.id] = FluidResult(app.arrival, now, mean)
