"""`themis results`: what came of each job, and which is the best."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common.app_names import App, on_app
from themis.cli.common.app_view import parameters
from themis.cli.common.options import Json
from themis.cli.common.output import FAILED, USAGE, counted, escape_line, fail, print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say, show
from themis.cli.common.tables import cell
from themis.errors import RefusedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from themis.client import Client

Job = dict[str, Any]


def results(
    app: App,
    best: Annotated[bool, typer.Option("--best", help="Only the best job.")] = False,
    csv_: Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")] = False,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Show each job's parameters, metric and checkpoint, the best first."""
    if csv_ and json:
        fail("--csv and --json: one of them, please", USAGE)
    client = reach(server, ca)
    name, answer = on_app(client, app, client.results)
    jobs = ranked(answer)
    if best:
        jobs = [job for job in jobs if job["job"] == answer.get("best")]
        if not jobs:
            fail(f"{name}: no job is the best yet; `themis results {name}` shows all", FAILED)
    if json:
        print_json({**answer, "jobs": jobs} if best else answer)
    elif csv_:
        sys.stdout.write(as_csv(jobs, _metric(answer)))
    elif best:
        _tell_one(answer, jobs[0])
    else:
        _tell_all(answer, jobs)


def tell_best(client: Client, app: str) -> None:
    """One line about the best job of an app, if there is one."""
    try:
        answer = client.results(app)
    except (RefusedError, UnavailableError):
        return
    for job in answer.get("jobs") or ():
        if job["job"] == answer.get("best"):
            say(_headline(answer, job))


def ranked(answer: Mapping[str, Any]) -> list[Job]:
    """The jobs: the best, then by their metric, those without one last."""
    sign = -1.0 if (answer.get("metric") or {}).get("goal") == "maximize" else 1.0

    def rank(job: Job) -> tuple[bool, float, str]:
        value = job.get("metric")
        known = isinstance(value, int | float) and math.isfinite(value)
        metric = sign * float(value) if known and value is not None else math.inf
        return job["job"] != answer.get("best"), metric, str(job["job"])

    return sorted(answer.get("jobs") or (), key=rank)


def as_csv(jobs: Sequence[Job], metric: str) -> str:
    """The jobs with a column for each parameter."""
    import csv  # noqa: PLC0415 - late, so that --help is quick
    import io  # noqa: PLC0415 - see above

    names: dict[str, None] = {}
    for job in jobs:
        names |= dict.fromkeys(job.get("params") or {})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ["job", "state", "iterations", metric, *names, "checkpoint", "machine", "failed"]
    writer.writerow([_field(name) for name in head])
    for job in jobs:
        params = job.get("params") or {}
        row = [job["job"], job.get("state"), job.get("iterations"), job.get("metric"),
               *(params.get(name) for name in names), job.get("checkpoint"),
               job.get("machine"), job.get("failed")]  # fmt: skip
        writer.writerow([_field(value) for value in row])
    return out.getvalue()


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = escape_line(str(value)).replace("\n", " ")
    # What a program that opens the file would take for a formula.
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _metric(answer: Mapping[str, Any]) -> str:
    return str((answer.get("metric") or {}).get("name") or "metric")


def _headline(answer: Mapping[str, Any], job: Job) -> str:
    params = parameters(job.get("params"))
    tail = f" with {params}" if params not in {"", "-"} else ""
    return f"best: job {job['job']}, {_metric(answer)} {cell(job.get('metric'))}{tail}"


def _tell_one(answer: Mapping[str, Any], job: Job) -> None:
    say(_headline(answer, job))
    say(f"after {cell(job.get('iterations'))} iterations")
    for line in _checkpoint(job):
        say(line)


def _checkpoint(job: Job) -> list[str]:
    """Where the checkpoint of a job is, if known."""
    below, machine, root = (job.get(key) for key in ("checkpoint", "machine", "checkpoint_root"))
    if not below:
        return []
    if root:
        where = f" (on {machine}, and on the machines that share {root})" if machine else ""
        return [f"checkpoint: {str(root).rstrip('/')}/{below}{where}"]
    if machine:
        return [f"checkpoint: {below}, below checkpoints/ in the state folder of node {machine}"]
    return [f"checkpoint: {below}"]


def _tell_all(answer: Mapping[str, Any], jobs: Sequence[Job]) -> None:
    rows = [
        (job["job"], job.get("state"), job.get("iterations"), job.get("metric"),
         parameters(job.get("params")))
        for job in jobs
    ]  # fmt: skip
    goal = (answer.get("metric") or {}).get("goal")
    title = f"{answer['app']}: {answer.get('outcome') or 'not over yet'}"
    say(title + (f"; {goal} {_metric(answer)}" if goal else ""))
    show("", ("job", "=state", "-iterations", f"-{_metric(answer)}", "parameters"), rows)
    failed = [job for job in jobs if job.get("failed")]
    for job in failed[:5]:
        say(f"job {job['job']} failed: {job['failed']}")
    if len(failed) > 5:
        say(f"and {counted(len(failed) - 5, 'other job')} failed; --csv has all")
    for job in jobs:
        if job["job"] == answer.get("best"):
            say(_headline(answer, job))
            for line in _checkpoint(job):
                say(line)
