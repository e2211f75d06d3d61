"""The reference run: GPUs divided like a fluid into equal shares, S = 1, no restarts, no beats.

It fixes one mean contention per app, and so one ideal time, for all policies alike: a policy that
keeps apps waiting raises the contention of its own run and would otherwise flatter itself.

    results = fluid_run(apps, capacity=256)
    reference_ideal_time(Convention.FAIR_SHARE, phases, results[app], capacity=256)
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from themis.core.fairness.fluid_shares import EqualShares
from themis.core.fairness.ideal_time import Convention, ideal_time
from themis.core.fairness.loads import PhaseLoad, PhaseSums
from themis.core.model import AppId
from themis.errors import ConfigError, DuplicateError


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
    shares = EqualShares(capacity)
    results: dict[AppId, FluidResult] = {}
    arrivals: dict[AppId, float] = {}

    def advance(until: float) -> None:
        for app, end in shares.advance(until):
            results[app] = FluidResult(arrivals[app], end, shares.mean_contention(app))

    for app in queue:
        if app.id in arrivals:
            raise DuplicateError(app.id, "two apps of the workload have this id")
        advance(app.arrival)
        arrivals[app.id] = app.arrival
        shares.join(app.id, app.weight, tuple(map(PhaseSums.of, app.phases)), app.arrival)
        if shares.is_done(app.id):
            contention = shares.mean_contention(app.id)
            results[app.id] = FluidResult(app.arrival, app.arrival, contention)
    advance(math.inf)
    return {app.id: results[app.id] for app in queue}


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
