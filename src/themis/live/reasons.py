"""What keeps an app from training although it has GPUs, as only its runs tell.

    reason_of(steward, state, runs, now)    # STARTING: it holds GPUs, and no process runs yet

The arbiter gives the reasons of rounds and suspensions. Those of runs come on top of them, where
they take precedence in the closed list.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from themis.arbiter.apps import AppState
from themis.fleet import Steward
from themis.fleet.kept import WantedRun
from themis.fleet.messages import RunState
from themis.model import AppId, JobId
from themis.model.reasons import Reason

QUIET = 300.0
"""Seconds without an iteration after which a job counts as one that reports nothing."""

_PRECEDENCE = {reason: rank for rank, reason in enumerate(Reason)}


def runs_by_app(steward: Steward) -> dict[AppId, list[WantedRun]]:
    """The runs of each app that has any."""
    found: dict[AppId, list[WantedRun]] = {}
    for run in steward.runs.values():
        found.setdefault(run.app, []).append(run)
    return found


@dataclass(slots=True)
class Crashes:
    """How often a job has failed since it last ended well, and what was said of it last."""

    times: int = 0
    message: str = ""
    last: bool = False
    """Whether its last run did."""


def crashes_of(steward: Steward, app: AppId) -> dict[JobId, Crashes]:
    """Jobs of an app whose runs failed. Runs that were told to go do not count."""
    found: dict[JobId, Crashes] = {}
    for row in steward.ended_runs(app):
        if row.code == 0:
            found.pop(row.job, None)
        elif not row.failed:
            found.setdefault(row.job, Crashes()).last = False
        else:
            crashes = found.setdefault(row.job, Crashes())
            crashes.times, crashes.last = crashes.times + 1, True
            crashes.message = row.message or f"exited with {row.code}"
    return {job: crashes for job, crashes in found.items() if crashes.times}


def _is_crashing(steward: Steward, state: AppState) -> bool:
    """Whether every job that has something to do has failed, and waits to be tried again."""
    left = [job for job, progress in state.jobs.items() if progress.done < progress.target]
    crashes = crashes_of(steward, state.id) if left else {}
    return bool(left) and all(job in crashes and crashes[job].last for job in left)


def reason_of(steward: Steward, state: AppState, runs: Sequence[WantedRun], now: float) -> Reason:
    """Why an app with these runs does not run, or runs with less than it wants."""
    if state.suspended:
        return state.reason
    found = _of_runs(steward, runs, now)
    if not runs and _is_crashing(steward, state):
        found = Reason.CRASH_LOOP
    if found is None:
        return state.reason
    return min(state.reason, found, key=_PRECEDENCE.__getitem__)


def quiet_for(steward: Steward, run: WantedRun, now: float) -> float | None:
    """For how long a run that trains reported no iteration, if that is too long."""
    watched = steward.watched(run.run)
    # Who has no limit of iterations need not report any.
    if watched is None or not run.limit or not _trains(run):
        return None
    silent = now - watched.since
    return silent if silent >= QUIET else None


def trouble_of(steward: Steward, run: WantedRun, now: float) -> str:
    """What people should know of what a run reports; empty if all is well."""
    watched, silent = steward.watched(run.run), quiet_for(steward, run, now)
    trouble = watched.trouble if watched is not None else ""
    if silent is None:
        return trouble or run.note
    told = trouble or "nothing was found where its metrics should be"
    return f"no iteration for {silent / 60.0:.0f} min: {told}"


def _of_runs(steward: Steward, runs: Sequence[WantedRun], now: float) -> Reason | None:
    if any(quiet_for(steward, run, now) is not None for run in runs):
        return Reason.NO_METRICS
    if not runs or any(map(_trains, runs)):
        return None
    if any(run.stop and run.ordered for run in runs):
        return Reason.CHECKPOINTING
    return Reason.STARTING


def _trains(run: WantedRun) -> bool:
    return run.state is RunState.RUNNING and not run.stop
