"""The live state as a snapshot: the beginning of a forecast.

    snapshot_of(service, wall=time.time())

The arbiter's own state is exact. Of processes the service knows what nodes reported: where each
runs, and how far its job was at its last report. When they finish what they are doing is not known.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from themis.apps.app_file import StopRule
from themis.core.arbiter.app_state import SLACK, AppState
from themis.core.arbiter.saved_state import parts
from themis.core.model import AppId, GpuId, JobId
from themis.core.steward.rows import ActiveRun, Release
from themis.core.steward.steward import Steward
from themis.core.tuners import CURVES
from themis.protocol.agent_messages import Reached
from themis.protocol.node_messages import RunState
from themis.recording.cluster_snapshots import (
    AppSnapshot,
    JobSnapshot,
    ProcessSnapshot,
    ProcessStage,
    Snapshot,
)
from themis.service.run_diagnostics import runs_by_app
from themis.service.service import Service


def snapshot_of(service: Service, wall: float | None = None) -> Snapshot:
    """The state of a cluster as it is now."""
    present = service.parameters
    steward, now = service.steward, service.now()
    arbiter, runs = steward.arbiter, runs_by_app(steward)
    given = {(row.app, row.gpu) for row in steward.rows.values() if isinstance(row, Release)}
    pictures = tuple(
        _picture(steward, state, runs.get(app, ()), given, _tuner(service, app), now)
        for app, state in sorted(arbiter.world.apps.items())
    )
    # The arbiter's time may be slightly ahead.
    at = max(now, arbiter.now)
    # Without the seed of its lotteries: a forecast does not need it.
    return Snapshot(at, present.policy, 0, parts(arbiter), pictures, present.options, None, wall)


def _tuner(service: Service, app: AppId) -> str:
    """Whether trials of an app may end at any time; its phases have the rest."""
    return CURVES if service.files.stop_rule(app) == StopRule.CURVE else ""


def _picture(
    steward: Steward,
    state: AppState,
    runs: Sequence[ActiveRun],
    given_back: set[tuple[AppId, GpuId]],
    tuner: str,
    now: float,
) -> AppSnapshot:
    app = state.id
    held = steward.arbiter.ledger.holdings(app)
    said = {each.job: each for each in steward.trials.reached(app)}
    by_job: dict[JobId, list[ActiveRun]] = {}
    for run in sorted(runs, key=lambda run: run.run):
        if run.dispatched or not run.stop:  # Otherwise it will never begin.
            by_job.setdefault(run.job, []).append(run)
    ended = Counter(row.job for row in steward.ended_runs(app))
    jobs = tuple(
        _job(steward, state, job.id, by_job.get(job.id, ()), ended[job.id], now)
        for job in state.spec.jobs
    )
    return AppSnapshot(
        app,
        tuner,
        tuple((job, progress.target) for job, progress in state.jobs.items()),
        tuple(_reached(state, said)),
        tuple(sorted(gpu for gpu in held if (app, gpu) not in given_back)),
        tuple((job, mine[-1].gpus) for job, mine in sorted(by_job.items()) if not mine[-1].stop),
        jobs,
    )


def _reached(state: AppState, said: Mapping[JobId, Reached]) -> list[tuple[JobId, float | None]]:
    """Jobs of the present phase that are done with it."""
    found: list[tuple[JobId, float | None]] = []
    for job, progress in state.jobs.items():
        last = said.get(job)
        if last is not None and last.failed:
            found.append((job, None))
        elif last is not None and last.iterations >= progress.target - SLACK:
            found.append((job, last.metric or 0.0))
        elif last is None and progress.done >= progress.target - SLACK:
            found.append((job, 0.0))
    return found


def _job(
    steward: Steward,
    state: AppState,
    job: JobId,
    runs: Sequence[ActiveRun],
    ended: int,
    now: float,
) -> JobSnapshot:
    progress = state.jobs.get(job)
    done = progress.done if progress is not None else 0.0
    target = progress.target if progress is not None else 0.0
    if not runs:
        return JobSnapshot(job, done, ended)
    first = runs[0]
    counted = first.limit > 0.0
    if counted and first.dispatched:
        done = max(done, steward.progress(first.run)[0])
    elif first.dispatched:
        done = 0.0  # The progress of a job that counts no iterations follows from time only.
    stage = _stage(steward, first)
    watched = steward.health(first.run)
    started = stage in {ProcessStage.STARTING, ProcessStage.RUNNING}
    since = first.dispatched_at if started else now
    if stage is ProcessStage.RUNNING and counted:
        since = watched.since if watched is not None else now
    process = _process(first, stage, min(since, now), target, now)
    later = runs[-1] if len(runs) > 1 and stage is ProcessStage.SAVING else None
    successor = None if later is None else _process(later, ProcessStage.WAITING, now, target, now)
    starts = ended + (stage is not ProcessStage.WAITING)
    return JobSnapshot(job, min(done, process.until), starts, None, 0.0, process, successor)


def _stage(steward: Steward, run: ActiveRun) -> ProcessStage:
    if not run.dispatched:
        return ProcessStage.WAITING
    if run.stop or run.state is RunState.STOPPING:
        return ProcessStage.SAVING
    trains = not run.limit or steward.progress(run.run)[1] > 0.0
    return (
        ProcessStage.RUNNING if run.state is RunState.RUNNING and trains else ProcessStage.STARTING
    )


def _process(
    run: ActiveRun, stage: ProcessStage, since: float, target: float, now: float
) -> ProcessSnapshot:
    return ProcessSnapshot(run.gpus, run.limit or target, stage, since, now, run.run)
