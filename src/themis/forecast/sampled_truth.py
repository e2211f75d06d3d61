"""What nobody knows of the apps of a snapshot, drawn from a seed.

- Which trials are good: so who goes on after a rung of halving.
- Where performance curves stop a trial: anywhere between where no trial is judged before and its
  maximum, or between where it is now and that.

How long starting and saving takes is drawn by the simulator itself.
"""

from dataclasses import dataclass, replace

from themis.core.arbiter.state_parts import AppPart, WorkPart
from themis.core.model import AppId, AppSpec, JobId, Phase
from themis.core.tuners import CURVES, CurveRule
from themis.recording.cluster_snapshots import AppSnapshot, Snapshot
from themis.recording.forecast_questions import ForecastCase
from themis.sim.modelled_jobs import chance
from themis.sim.workloads import SimApp


@dataclass(frozen=True, slots=True)
class Drawn:
    """A snapshot with nothing left open."""

    snapshot: Snapshot
    truths: dict[AppId, SimApp]


def draw(snapshot: Snapshot, seed: int) -> Drawn:
    """Draw what is open of every app that is not over."""
    specs = snapshot.specs
    pictures = []
    truths = {}
    for picture in snapshot.apps:
        work = snapshot.state[f"work/{picture.app}"]
        assert isinstance(work, WorkPart)
        drawn = _drawn(picture, work, seed)
        pictures.append(drawn)
        truths[picture.app] = _truth(specs[picture.app], drawn, seed)
    return Drawn(replace(snapshot, apps=tuple(pictures)), truths)


def arriving(case: ForecastCase, at: float, seed: int) -> SimApp:
    """The app of a case, with what is open of it drawn."""
    spec, qualities = case.spec, _qualities(case.spec, seed)
    arrival = at + case.delay
    if case.tuner != CURVES:
        return SimApp(spec, arrival, "", qualities, case.tuner)
    first = spec.phases[0]
    most = first.targets or (first.iterations,) * first.jobs
    stops = tuple(
        max(1, round(_stop(spec.id, job.id, float(limit), 0.0, seed)))
        for job, limit in zip(spec.jobs, most, strict=False)
    )
    truth = replace(spec, phases=(_phase(first, stops),))
    declared = replace(spec, phases=(_phase(first, most),))
    return SimApp(truth, arrival, "", qualities, declared=declared)


def _phase(phase: Phase, targets: tuple[int, ...]) -> Phase:
    return replace(phase, iterations=max(targets), targets=targets)


def _qualities(spec: AppSpec, seed: int) -> tuple[float, ...]:
    return tuple(chance(seed, "quality", spec.id, job.id, 0) for job in spec.jobs)


def _truth(part: AppPart, picture: AppSnapshot, seed: int) -> SimApp:
    """An app as its agent will go on with it; the arbiter has it already."""
    spec = part.spec
    if part.times is not None:
        jobs = tuple(
            replace(job, serial_iteration_time=time)
            for job, time in zip(spec.jobs, part.times, strict=True)
        )
        spec = replace(spec, jobs=jobs)
    # Declared, so that the arbiter hears where each trial has really ended.
    declared = spec if picture.tuner == CURVES else None
    return SimApp(spec, part.submitted, "", _qualities(spec, seed), declared=declared)


def _drawn(picture: AppSnapshot, work: WorkPart, seed: int) -> AppSnapshot:
    app = picture.app
    # Metrics of trials that are done are of another scale than what is drawn for the others.
    reached = tuple(
        (job, None if metric is None else chance(seed, "quality", app, job, 0))
        for job, metric in picture.reached
    )
    picture = replace(picture, reached=reached)
    if picture.tuner != CURVES:
        return picture
    done = {job.job: job.done for job in work.jobs}
    done |= {job.job: max(job.done, done.get(job.job, 0.0)) for job in picture.jobs}
    over = {job for job, _ in reached}
    stops = {
        job: target if job in over else _stop(app, job, target, done.get(job, 0.0), seed)
        for job, target in picture.targets
    }
    jobs = tuple(
        replace(
            job,
            process=job.process
            and replace(job.process, until=min(job.process.until, stops[job.job])),
            successor=job.successor
            and replace(job.successor, until=min(job.successor.until, stops[job.job])),
        )
        if job.job in stops
        else job
        for job in picture.jobs
    )
    return replace(picture, targets=tuple(stops.items()), jobs=jobs)


def _stop(app: AppId, job: JobId, most: float, done: float, seed: int) -> float:
    """Where a trial is stopped."""
    least = min(most, max(done, CurveRule().grace * most))
    return least + chance(seed, "stop", app, job, 0) * (most - least)
