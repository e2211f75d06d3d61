"""Why an app that has GPUs does not train, from the state of its runs.

    reason_of(steward, state, runs, now)    # STARTING: it holds GPUs, and no process runs yet

The arbiter gives the reasons of rounds and suspensions. Reasons of runs are added to them; the
first in the order of `Reason` counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from themis.core.arbiter.app_reasons import never_served
from themis.core.arbiter.app_state import AppState
from themis.core.model import AppId, JobId
from themis.core.model.reasons import Reason
from themis.core.steward.rows import ActiveRun, RunEnd
from themis.core.steward.steward import Steward
from themis.protocol.node_messages import RunState, early_end

QUIET = 300.0
"""Seconds without an iteration after which a job counts as silent."""

CANNOT_BEGIN = frozenset({78, 126, 127})
"""Exit codes of runs whose program could not be started: there is no such file or folder on the
node, or it cannot be executed (nodes use 78, shells the others)."""

_WITH_GPUS = (Reason.SERVED, Reason.PARTLY_SERVED)
_PRECEDENCE = {reason: rank for rank, reason in enumerate(Reason)}


def runs_by_app(steward: Steward) -> dict[AppId, list[ActiveRun]]:
    """The runs of each app that has any."""
    found: dict[AppId, list[ActiveRun]] = {}
    for run in steward.runs.values():
        found.setdefault(run.app, []).append(run)
    return found


@dataclass(slots=True)
class Crashes:
    """How often a job has failed since it last ended well, and its last error."""

    times: int = 0
    message: str = ""
    last: bool = False
    """Whether its last run failed."""
    code: int | None = None
    """The exit code of that run."""


def crashes_of(steward: Steward, app: AppId) -> dict[JobId, Crashes]:
    """Jobs of an app whose runs failed. Runs that were told to stop do not count."""
    found: dict[JobId, Crashes] = {}
    for row in steward.ended_runs(app):
        if row.code == 0 and not row.failed:
            found.pop(row.job, None)
        elif not row.failed:
            found.setdefault(row.job, Crashes()).last = False
        else:
            crashes = found.setdefault(row.job, Crashes())
            crashes.times, crashes.last, crashes.code = crashes.times + 1, True, row.code
            crashes.message = _early(steward, row) or row.message or f"exited with {row.code}"
    return {job: crashes for job, crashes in found.items() if crashes.times}


def _early(steward: Steward, row: RunEnd) -> str:
    """The error of a run that exited with 0 before its job was done; empty for others."""
    if not row.early:
        return ""
    curve = steward.trials.curve(row.app, row.job)
    return early_end(max(row.iterations, curve[-1][0] if curve else 0.0), row.limit)


def _crashing(steward: Steward, state: AppState) -> Reason | None:
    """The reason if every unfinished job has failed and waits for its next run.

    If no job could even begin, the app file is wrong.
    """
    left = [job for job, progress in state.jobs.items() if progress.done < progress.target]
    crashes = crashes_of(steward, state.id) if left else {}
    if not left or not all(job in crashes and crashes[job].last for job in left):
        return None
    never = all(crashes[job].code in CANNOT_BEGIN for job in left)
    return Reason.INVALID_SPEC if never else Reason.CRASH_LOOP


def reason_of(steward: Steward, state: AppState, runs: Sequence[ActiveRun], now: float) -> Reason:
    """Why an app with these runs does not run, or runs with less than it wants."""
    if state.suspended:
        return state.reason
    found: list[Reason | None] = [_standing(steward, state)]
    if not steward.arbiter.ledger.holdings(state.id) and state.demand:
        # There may have been no round since, and there may never be one.
        spec, world = state.spec, steward.arbiter.world
        found.append(never_served(world, spec.owner, spec.constraint, state.min_gang))
    found.append(_of_runs(steward, runs, now) if runs else _crashing(steward, state))
    return min(filter(None, found), key=_PRECEDENCE.__getitem__)


def _standing(steward: Steward, state: AppState) -> Reason:
    """The reason of the last round, as far as it still holds."""
    held = len(steward.arbiter.ledger.holdings(state.id))
    if not state.demand:
        return Reason.WAITING_PHASE
    if state.reason not in _WITH_GPUS:
        return state.reason
    if not held:
        return Reason.PENDING_EVALUATION  # It has released them since.
    # A phase may have begun since that wants more, or fewer.
    return Reason.SERVED if held >= state.demand else Reason.PARTLY_SERVED


def quiet_for(steward: Steward, run: ActiveRun, now: float) -> float | None:
    """How long a training run has reported no iteration, if that is too long."""
    watched = steward.health(run.run)
    # A run without a limit of iterations need not report any.
    if watched is None or not run.limit or not _trains(run):
        return None
    silent = watched.before + now - watched.since
    return silent if silent >= QUIET else None


def trouble_of(steward: Steward, run: ActiveRun, now: float) -> str:
    """What is wrong with a run, for people; empty if all is well."""
    silent = quiet_for(steward, run, now)
    told = trouble_in_reports(steward, run, now)
    return told if silent is None else f"no iteration for {silent / 60.0:.0f} min: {told}"


def trouble_in_reports(steward: Steward, run: ActiveRun, now: float) -> str:
    """What is wrong with the reports of a run, without for how long."""
    watched, silent = steward.health(run.run), quiet_for(steward, run, now)
    trouble = watched.trouble if watched is not None else ""
    if silent is None:
        return trouble or run.note
    return trouble or "nothing was found where its metrics should be"


def _of_runs(steward: Steward, runs: Sequence[ActiveRun], now: float) -> Reason | None:
    if any(quiet_for(steward, run, now) is not None for run in runs):
        return Reason.NO_METRICS
    if any(map(_trains, runs)):
        return None
    if any(run.stop and run.dispatched for run in runs):
        return Reason.CHECKPOINTING
    return Reason.STARTING


def _trains(run: ActiveRun) -> bool:
    return run.state is RunState.RUNNING and not run.stop
