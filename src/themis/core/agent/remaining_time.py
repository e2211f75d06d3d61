"""How long the rest of an app takes on a shape of GPUs: the number in every row of a bid.

    clock = Clock((needs_now, needs_of_the_next_phase))
    clock.seconds(((MACHINE, 4), (MACHINE, 4)))   # two gangs of four, each within one machine

The equations are those of `themis.core.fairness.rho`; here are only the rates to put into them.
"""

import math
from collections.abc import Sequence
from operator import add

from themis.core.agent.carving import Shape
from themis.core.agent.job_assignment import JobNeed, longest_first, placed_rates
from themis.core.agent.training_rates import (
    ByJobs,
    JobRates,
    Reached,
    Runs,
    Shapes,
    in_runs,
    rates_of,
    spelled_out,
)
from themis.core.fairness.rho import phase_time
from themis.core.model import JobSpec

MOST_REMEMBERED = 1 << 12
"""Shapes, of each app: several offers' worth."""
_CROWDED = 4
"""With more jobs than this for each GPU the mean is all that matters."""


class Outlook:
    """Phases to come. Nothing about them changes before the first of them begins."""

    def __init__(self, phases: Sequence[Sequence[JobNeed]] = ()) -> None:
        self.phases = _with_work(phases)
        self._known: dict[Runs, tuple[float, ...]] = {}
        self._columns: dict[Shapes, list[list[float]]] = {}

    def columns(self, shapes: Shapes) -> list[list[float]]:
        """Of each phase, for all of some shapes that are asked about again and again."""
        found = self._columns.get(shapes)
        if found is None:
            found = [phase.column(shapes) for phase in self.phases]
            self._columns = {shapes: found}  # Others were those of more or other jobs.
        return found

    def seconds(self, shapes: Sequence[Runs]) -> list[tuple[float, ...]]:
        """Of each phase, for every shape."""
        known = self._known
        new = [runs for runs in shapes if runs not in known]
        if new and self.phases:
            known_to = {phase.rates: phase.rates.known(new) for phase in self.phases}
            columns = [phase.seconds(new, known_to[phase.rates]) for phase in self.phases]
            known.update(zip(new, zip(*columns, strict=True), strict=True))
        found = [known.get(runs, ()) for runs in shapes]
        if len(known) > MOST_REMEMBERED:
            known.clear()
        return found


class Clock:
    """Seconds still needed on a shape of GPUs: the phase under way, then those to come.

    The GPUs are taken as binding until the end, so they are worth a number only when every job
    can run on some of them, now or after the others. Where one cannot the seconds are infinite,
    also when the rest of the jobs could use them.

    Args:
        phases: All of them, or those not in the outlook.
        outlook: Phases that follow, if what is known about them is to be kept for other clocks.
        alike: What `are_alike` says of the jobs of the phases given, if that is known already.
    """

    def __init__(
        self,
        phases: Sequence[Sequence[JobNeed]],
        outlook: Outlook | None = None,
        *,
        alike: bool | None = None,
    ) -> None:
        self._phases = _with_work(phases, alike)
        self._outlook = outlook or Outlook()
        self._known: dict[Runs, float] = {}

    def seconds(self, shape: Shape) -> float:
        """The sum over the phases."""
        return self.seconds_on([in_runs(shape)])[0]

    def seconds_on(self, shapes: Sequence[Runs]) -> list[float]:
        """The same for many shapes: together is sooner than one by one."""
        known = self._known
        new = list(dict.fromkeys([runs for runs in shapes if runs not in known]))
        if new:
            self._prepare(new)
            totals = [0.0] * len(new)
            for phase in self._phases:
                totals = list(map(add, totals, phase.seconds(new)))
            for index, later in enumerate(self._outlook.seconds(new)):
                for more in later:
                    totals[index] += more
            known.update(zip(new, totals, strict=True))
        found = [known[runs] for runs in shapes]
        if len(known) > MOST_REMEMBERED:
            known.clear()
        return found

    def column(self, shapes: Shapes) -> list[float]:
        """The same for shapes that are asked about again and again."""
        columns = [phase.column(shapes) for phase in self._phases]
        columns += self._outlook.columns(shapes)
        if not columns:
            return [0.0] * len(shapes.runs)
        totals = columns[0]
        for column in columns[1:]:
            totals = list(map(add, totals, column))
        return totals

    def prepare_column(self, shapes: Shapes, also: Sequence[Runs]) -> None:
        """Have rates found for these and other shapes at once, if they are new."""
        first = self._phases[0] if self._phases else None
        if first is None or first.unlike or not first.rates.has_column(shapes, first.jobs):
            self._prepare([*also, *shapes.runs])

    def _prepare(self, shapes: Sequence[Runs]) -> None:
        """Have rates found for all phases at once."""
        numbers: dict[JobRates, list[int]] = {}
        for phase in (*self._phases, *self._outlook.phases):
            if not phase.unlike:
                numbers.setdefault(phase.rates, []).append(phase.jobs)
        for rates, jobs in numbers.items():
            rates.prepare(shapes, jobs)


def _with_work(phases: Sequence[Sequence[JobNeed]], alike: bool | None = None) -> list["_Phase"]:
    working = ([need for need in phase if need.work > 0.0] for phase in phases)
    return [_Phase(needs, alike) for needs in working if needs]


class _Phase:
    """One phase. Its jobs are alike as a rule, and then sums over them are enough."""

    __slots__ = ("_longest", "_single", "_work", "_works", "jobs", "rates", "unlike")

    def __init__(self, needs: Sequence[JobNeed], alike: bool | None = None) -> None:
        self.jobs = len(needs)
        self.unlike: tuple[JobSpec, ...] = ()
        kind = needs[0].spec
        if alike is None:
            alike = are_alike([need.spec for need in needs])
        if not alike:
            needs = longest_first(needs)
            self.unlike = tuple(need.spec for need in needs)
        self._works = [need.work for need in needs]
        self._work = math.fsum(self._works)
        self._longest = max(self._works)
        self._single = _Singles(self._works) if kind.max_gpus == 1 and not self.unlike else None
        self.rates = rates_of(kind.min_gpus, kind.max_gpus, kind.slowdown)

    def column(self, shapes: Shapes) -> list[float]:
        """Of this phase, for shapes that are asked about again and again."""
        if self.unlike:
            return self.seconds(shapes.runs)
        return self._times(self.rates.column(shapes, self.jobs))

    def _times(self, reached: Sequence[Reached]) -> list[float]:
        if self._single is not None:
            return self._single.seconds_on([round(speed) for speed, _ in reached])
        work, longest = self._work, self._longest
        # `time_from_sums`, spelled out here because there are this many.
        return [
            max(work / speed, longest / best) if speed > 0.0 and best > 0.0 else math.inf
            for speed, best in reached
        ]

    def seconds(self, shapes: Sequence[Runs], known: Sequence[ByJobs] | None = None) -> list[float]:
        """Of this phase, for every shape; `known` is what its rates know of them, if looked up."""
        if self.unlike:
            return [
                phase_time(self._works, *placed_rates(self.unlike, spelled_out(runs)))
                for runs in shapes
            ]
        rates = self.rates
        reached = rates.reach_on(shapes, rates.known(shapes) if known is None else known, self.jobs)
        return self._times(reached)


class _Singles:
    """Jobs of one GPU each, of which none can help another: how long this many GPUs take."""

    __slots__ = ("_known", "_total", "_works")

    def __init__(self, works: Sequence[float]) -> None:
        self._works = sorted(works, reverse=True)
        self._total = math.fsum(works)
        self._known: dict[int, float] = {}

    def seconds_on(self, counts: Sequence[int]) -> list[float]:
        """For every number of GPUs a bound that the longest first comes close to.

        Of the k * gpus + 1 longest jobs k + 1 must share a GPU, whichever they are.
        """
        known, works, total = self._known, self._works, self._total
        longest, rest = works[0], len(works) - 1
        for gpus in counts:
            if gpus in known:
                continue
            if gpus < 1:
                known[gpus] = math.inf
                continue
            least = total / gpus
            least = max(least, longest)
            last = 0
            for more in range(2, min(_CROWDED, rest // gpus) + 2):
                last += gpus
                first = last - more + 1
                # All as long as the first of them would be no longer, as a rule.
                if more * works[first] > least:
                    least = max(least, math.fsum(works[first : last + 1]))
            known[gpus] = least
        return [known[gpus] for gpus in counts]


def are_alike(specs: Sequence[JobSpec]) -> bool:
    """Whether jobs differ in nothing that a rate depends on."""
    # The jobs of an app share one profile as a rule, and comparing values is slow.
    if len({(spec.min_gpus, spec.max_gpus, id(spec.slowdown)) for spec in specs}) == 1:
        return True
    return len({(spec.min_gpus, spec.max_gpus, spec.slowdown) for spec in specs}) == 1
