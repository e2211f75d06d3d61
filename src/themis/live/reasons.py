"""What keeps an app from training although it has GPUs, as only its runs tell.

    reason_of(steward, state, runs, now)    # STARTING: it holds GPUs, and no process runs yet

The arbiter gives the reasons of rounds and suspensions. Those of runs come on top of them, where
they take precedence in the closed list.
"""

from collections.abc import Sequence

from themis.arbiter.apps import AppState
from themis.fleet import Steward
from themis.fleet.kept import WantedRun
from themis.fleet.messages import RunState
from themis.model import AppId
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


def reason_of(steward: Steward, state: AppState, runs: Sequence[WantedRun], now: float) -> Reason:
    """Why an app with these runs does not run, or runs with less than it wants."""
    found = _of_runs(steward, runs, now)
    if found is None or state.suspended:
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
