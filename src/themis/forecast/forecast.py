"""The answer to a question, better and better: runs ahead, one seed after the other.

    for answer in foresee(snapshot, question, clock=time.monotonic):
        show(answer)

The first answer needs no run: all apps on equal shares of a fluid. Where an app takes days, a run
with longer leases, and so with fewer rounds, gives an outline. Then every seed is run with the app
in each case until it ends there, and once without it, so that what becomes of others can be told.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from themis.core.arbiter.saved_state import arbiter_from
from themis.core.arbiter.state_parts import SettingsPart
from themis.core.fairness.fluid import FluidApp, fluid_run, reference_ideal_time
from themis.core.fairness.loads import declared_phases
from themis.core.model import AppId, OwnerId
from themis.core.policies import policy
from themis.forecast.answers import CaseAnswer, Forecast, ForecastRange, delays
from themis.forecast.run_ahead import Ahead, delays_in
from themis.recording.cluster_snapshots import Snapshot
from themis.recording.forecast_questions import ForecastCase, ForecastQuestion

OUTLINED = 200
"""Beats to an app's end from which on an outline comes first; up to there a run is as quick."""
OUTLINE = 60
"""Beats to its end in an outline."""
EVERY = 0.5
"""Seconds between two answers while nothing has come to an end."""


@dataclass(slots=True)
class _Tally:
    """What the runs of one case came to."""

    case: ForecastCase
    rough: CaseAnswer
    starts: list[float] = field(default_factory=list)
    finishes: list[float] = field(default_factory=list)
    rhos: list[float] = field(default_factory=list)
    delays: list[dict[AppId, float]] = field(default_factory=list)
    unfinished: int = 0
    simulated: float = 0.0
    begun: float | None = None
    """When it began in a run that goes on."""

    def outline(self, ahead: Ahead) -> None:
        """An outline has come to its end. When the app starts in it means nothing: leases do."""
        record, rho = ahead.record, ahead.rho()
        if record is not None and rho is not None:
            finish, rhos = ForecastRange.of([record.end - ahead.at]), ForecastRange.of([rho])
            self.rough = replace(self.rough, finish=finish, rho=rhos, outlined=True)

    def note(self, ahead: Ahead) -> None:
        """A run goes on."""
        self.simulated = max(self.simulated, ahead.now - ahead.at)
        self.begun = None if ahead.start is None else ahead.start - ahead.at

    def close(self, ahead: Ahead) -> None:
        """A run is over."""
        self.note(ahead)
        if self.begun is not None:
            self.starts.append(self.begun)
        self.begun = None
        record, rho = ahead.record, ahead.rho()
        if record is None:
            self.unfinished += 1
            return
        self.finishes.append(record.end - ahead.at)
        if rho is not None:
            self.rhos.append(rho)

    def answer(self, owners: dict[AppId, OwnerId]) -> CaseAnswer:
        """What is known."""
        begun = [] if self.begun is None else [self.begun]
        start = ForecastRange.of([*self.starts, *begun])
        known = replace(
            self.rough,
            seeds=len(self.finishes),
            start=start,
            unfinished=self.unfinished,
            simulated=self.simulated,
        )
        if not self.finishes:
            if self.unfinished:
                return replace(known, finish=None, rho=None, rough=False, outlined=False)
            return known
        return replace(
            known,
            finish=ForecastRange.of(self.finishes),
            rho=ForecastRange.of(self.rhos),
            rough=False,
            outlined=False,
            others=delays(self.delays, owners),
        )


def foresee(
    snapshot: Snapshot, question: ForecastQuestion, clock: Callable[[], float]
) -> Iterator[Forecast]:
    """Answers, the last of them final; the first one comes at once.

    Args:
        snapshot: The cluster.
        question: What is asked.
        clock: Seconds that pass, for the time that an answer may take.

    Raises:
        RefusedError: The app could never run there, or the snapshot contradicts itself.
        ConfigError: There is no such policy.
    """
    began = clock()
    owners = {app: part.spec.owner for app, part in snapshot.specs.items()}
    tallies = [_Tally(case, _rough(snapshot, case)) for case in question.cases]
    total = question.seeds * (len(tallies) + 1)
    done, told, final = 0, began, False

    def answer() -> Forecast:
        cases = tuple(tally.answer(owners) for tally in tallies)
        return Forecast(cases, done, total, final, clock() - began)

    yield answer()
    for news in _work(snapshot, question, tallies):
        done += news or 0
        now = clock()
        if now - began >= question.seconds:
            break
        if news is not None or now - told >= EVERY:
            told = now
            yield answer()
    final = True
    yield answer()


def _work(
    snapshot: Snapshot, question: ForecastQuestion, tallies: list[_Tally]
) -> Iterator[int | None]:
    """Run and run; yields how many runs have just come to their end, None on the way there."""
    yield from _outline(snapshot, tallies)
    for seed in range(1, question.seeds + 1):
        ended = []
        for tally in tallies:
            ahead = Ahead(snapshot, tally.case, seed)
            for _ in ahead.steps():
                tally.note(ahead)
                yield None
            tally.close(ahead)
            ended.append((ahead.now, tally, ahead))
            yield 1
        without = Ahead(snapshot, None, seed)
        for at, tally, ahead in sorted(ended, key=lambda each: each[0]):
            for _ in without.go_on(at):
                yield None
            if ahead.record is not None:
                tally.delays.append(delays_in(ahead, without, at))
        yield 1


def _outline(snapshot: Snapshot, tallies: list[_Tally]) -> Iterator[int | None]:
    """Run every case that takes long with longer leases, which counts as no run."""
    part = snapshot.state["settings"]
    assert isinstance(part, SettingsPart)
    for tally in tallies:
        rough = tally.rough.finish
        beats = 0.0 if rough is None else rough.mid / part.present.lease
        if beats < OUTLINED:
            continue
        ahead = Ahead(snapshot, tally.case, 1, beats / OUTLINE)
        for _ in ahead.steps():
            yield None
        tally.outline(ahead)
        yield 0


def _rough(snapshot: Snapshot, case: ForecastCase) -> CaseAnswer:
    """What can be said without a run: GPUs divided like a fluid among all who are there."""
    rule = policy(snapshot.policy, **dict(snapshot.options))
    world = arbiter_from(snapshot.state, rule, seed=snapshot.seed).world
    spec, phases = case.spec, declared_phases(case.spec)
    if not case.machines:
        world.check_fits(spec)  # Before anything is said of when it would be done.
    usable = world.usable_gpus(spec.constraint)
    usable += sum(each.gpus for each in case.machines if spec.constraint.allows(each))
    capacity = max(1.0, float(usable))
    apps = [
        FluidApp(app, snapshot.at, world.weight(app), state.loads_left())
        for app, state in sorted(world.apps.items())
        if state.active
    ]
    new = FluidApp(spec.id, snapshot.at + case.delay, spec.weight, phases)
    result = fluid_run([*apps, new], capacity)[spec.id]
    budget = spec.budget or None
    ideal = reference_ideal_time(world.settings.convention, phases, result, capacity, budget)
    rho = result.completion / ideal if 0.0 < ideal < math.inf else None
    finish = ForecastRange.of([result.end - snapshot.at])
    share = None if rho is None else ForecastRange.of([rho])
    return CaseAnswer(case.label, case.delay, 0, None, finish, share, rough=True)
