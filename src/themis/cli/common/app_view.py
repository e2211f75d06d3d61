"""What the service says of one app, for people: a few lines, then tables.

for line in headlines(sheet):
    say(line)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from themis.cli.common.output import counted
from themis.cli.common.service_calls import since
from themis.cli.common.tables import cell, listing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from themis.cli.common.tables import Listing

_ORDER = ("running", "starting", "stopping", "waiting", "failed", "finished", "stopped")
_DONE = frozenset({"finished", "stopped", "failed"})
_MOST_FAILURES = 5


def headlines(sheet: Mapping[str, Any]) -> list[str]:
    """What an app does, in a few lines."""
    who = f"{sheet['app']} of {sheet['owner']}"
    now = sheet.get("now")
    if "outcome" in sheet:
        lasted = since(sheet.get("submitted"), sheet.get("ended"))
        ended = since(sheet.get("ended"), now)
        told = [f"{who}: over ({sheet['outcome']})",
                f"ended {ended} ago, {lasted} after it was submitted"]  # fmt: skip
    else:
        told = [f"{who}: {_standing(sheet)}", _share(sheet, now), _progress(sheet)]
    if isinstance(sheet.get("rho"), int | float):
        ideal = sheet.get("ideal_seconds")
        alone = f" (ideally done in {length(ideal)})" if ideal is not None else ""
        guess = ", a guess until some iterations were measured" if sheet.get("estimated") else ""
        told.append(f"rho {sheet['rho']:.2f}{alone}{guess}")
    if sheet.get("suspended"):
        told.append(f"held back by {', '.join(map(str, sheet['suspended']))}")
    if sheet.get("message"):
        told.append(str(sheet["message"]))
    return told


def _standing(sheet: Mapping[str, Any]) -> str:
    words = [sheet.get("state"), sheet.get("reason")]
    return ", ".join(str(word) for word in words if word) or "nothing is known yet"


def _share(sheet: Mapping[str, Any], now: Any) -> str:
    told = f"submitted {since(sheet.get('submitted'), now)} ago"
    if isinstance(sheet.get("weight"), int | float):
        told += f", weight {sheet['weight']:g}"
    return f"{told}, {gpus_held(sheet)} GPUs of {sheet.get('demand', '?')} wanted"


def _progress(sheet: Mapping[str, Any]) -> str:
    jobs = sheet.get("jobs") or ()
    done = sum(job.get("state") in _DONE for job in jobs)
    told = f"phase {int(sheet.get('phase') or 0) + 1} of {sheet.get('phases') or 1}"
    if jobs:
        told += f", {done} of {counted(len(jobs), 'job')} done"
    if isinstance(sheet.get("work_left_seconds"), int | float):
        told += f", work left {length(sheet['work_left_seconds'])} on one GPU"
    return told


def gpus_held(line: Mapping[str, Any]) -> object:
    """How many GPUs an app has."""
    return line.get("held", line.get("gpus", "?"))


def length(seconds: Any) -> str:
    """How long something takes: 40 s, 12 min, 3.5 h."""
    return since(0.0, seconds)


def leases_table(sheet: Mapping[str, Any]) -> Listing | None:
    """What an app holds."""
    rows = [
        (item["machine"], item["gpu"], item["token"], since(sheet.get("now"), item["end"]))
        for item in sheet.get("leases") or ()
    ]
    return listing("leases", ("machine", "-GPU", "-token", "-ends in"), rows) if rows else None


def jobs_table(sheet: Mapping[str, Any], most: int | None = None) -> Listing | None:
    """What an app's jobs do: all of them, or those that matter most."""
    jobs = list(sheet.get("jobs") or ())
    runs = {run["job"]: run for run in sheet.get("runs") or ()}
    states = {id(job): _state(job, runs.get(job["job"])) for job in jobs}
    title = "jobs"
    if most is not None and len(jobs) > most:
        ranks = {state: rank for rank, state in enumerate(_ORDER)}
        jobs.sort(key=lambda job: ranks.get(states[id(job)], len(ranks)))
        title = f"jobs ({most} of {len(jobs)})"
        jobs = sorted(jobs[:most], key=lambda job: str(job["job"]))
    if not jobs:
        return None
    columns = ["job", "=state", "-GPUs", "-iterations"]
    rows = [
        [job["job"], states[id(job)], _gpus(job, runs.get(job["job"])), _iterations(job)]
        for job in jobs
    ]
    for column, key, write in (
        ("-metric", "metric", cell),
        ("parameters", "params", parameters),
    ):
        if any(job.get(key) not in (None, {}) for job in jobs):
            columns.append(column)
            for row, job in zip(rows, jobs, strict=True):
                row.append(write(job.get(key)))
    return listing(title, columns, rows)


def troubles(sheet: Mapping[str, Any], most: int = 5) -> list[str]:
    """What went wrong with jobs."""
    told = []
    for job in sheet.get("jobs") or ():
        failures, message = job.get("failures") or 0, job.get("message") or ""
        if failures or message:
            often = f" failed {counted(int(failures), 'time')}" if failures else ""
            told.append(f"job {job['job']}{often}{': ' if message else ''}{message}")
        if job.get("trouble"):
            told.append(f"job {job['job']}: {job['trouble']}")
    more = len(told) - most
    return [*told[:most], f"and {more} more; --json has all"] if more > 0 else told


class Failures:
    """The problems of an app, each told once, for a user who watches it."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def news(self, sheet: Mapping[str, Any]) -> list[str]:
        """What has gone wrong since the last look; not everything where it is much."""
        told = []
        for job in sheet.get("jobs") or ():
            message = str(job.get("message") or "")
            if not message or message in self._told or len(self._told) > _MOST_FAILURES:
                continue
            self._told.add(message)
            told.append(f"job {job['job']} failed: {message}")
            if len(self._told) > _MOST_FAILURES:
                told[-1] = f"jobs failed for other reasons, too: `themis status {sheet['app']}`"
        return told


def parameters(params: Mapping[str, Any] | None) -> str:
    """The parameters of a trial: lr=0.00213 batch=64."""
    if params is None:
        return "-"
    return " ".join(f"{cell(name)}={cell(value)}" for name, value in params.items())


def _state(job: Mapping[str, Any], run: Mapping[str, Any] | None) -> str:
    return str(job.get("state") or (run["state"] if run else "-"))


def _gpus(job: Mapping[str, Any], run: Mapping[str, Any] | None) -> int:
    held = job.get("gpus", run["gpus"] if run else 0)
    return len(held) if isinstance(held, list) else int(held or 0)


def _iterations(job: Mapping[str, Any]) -> str:
    done, target = job.get("iterations"), job.get("target")
    return _whole(done) if target is None else f"{_whole(done)}/{_whole(target)}"


def _whole(value: Any) -> str:
    if not isinstance(value, int | float):
        return "-"
    return f"{value:.0f}" if value == int(value) or value >= 100 else f"{value:.1f}"
