"""How long the rest of an app takes on a shape of GPUs: the number in every row of a bid.

    clock = Clock((needs_now, needs_of_the_next_phase))
    clock.seconds(((MACHINE, 4), (MACHINE, 4)))   # two gangs of four, each within one machine

The equations are those of `themis.fairness.rho`; here are only the rates to put into them.
"""

import math
from collections.abc import Sequence

from themis.agent.assignment import Need, longest_first, placed_rates
from themis.agent.carving import Shape, shape_rates
from themis.fairness.rho import phase_time, time_from_sums
from themis.model import JobSpec


class Clock:
    """Seconds still needed on a shape of GPUs: the phase under way, then those to come.

    The GPUs are taken as binding until the end, so they are worth a number only when every job
    can run on some of them, now or after the others. Where one cannot the seconds are infinite,
    also when the rest of the jobs could use them.
    """

    def __init__(self, phases: Sequence[Sequence[Need]]) -> None:
        working = ([need for need in phase if need.work > 0.0] for phase in phases)
        self._phases = [_Phase(needs) for needs in working if needs]
        self._known: dict[Shape, float] = {}

    def seconds(self, shape: Shape) -> float:
        """The sum over the phases."""
        known = self._known.get(shape)
        if known is not None:
            return known
        total = 0.0
        for phase in self._phases:
            total += phase.seconds(shape)
        self._known[shape] = total
        return total


class _Phase:
    """One phase. Its jobs are alike as a rule, and then sums over them are enough."""

    __slots__ = ("_jobs", "_kind", "_longest", "_unlike", "_work", "_works")

    def __init__(self, needs: Sequence[Need]) -> None:
        self._jobs = len(needs)
        self._unlike: tuple[JobSpec, ...] = ()
        self._kind = needs[0].spec
        if not all(_alike(need.spec, self._kind) for need in needs):
            needs = longest_first(needs)
            self._unlike = tuple(need.spec for need in needs)
        self._works = [need.work for need in needs]
        self._work = math.fsum(self._works)
        self._longest = max(self._works)

    def seconds(self, shape: Shape) -> float:
        if self._unlike:
            rates, alone = placed_rates(self._unlike, shape)
            return phase_time(self._works, rates, alone)
        kind = self._kind
        speed, best = shape_rates(shape, self._jobs, kind.min_gpus, kind.max_gpus, kind.slowdown)
        return time_from_sums(self._work, speed, self._longest, best)


def _alike(one: JobSpec, other: JobSpec) -> bool:
    return (
        one.min_gpus == other.min_gpus
        and one.max_gpus == other.max_gpus
        # The jobs of an app share one profile as a rule, and comparing values is slow.
        and (one.slowdown is other.slowdown or one.slowdown == other.slowdown)
    )
