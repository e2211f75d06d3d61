"""`themis ls`, `status`, `pause`, `resume`, `cancel`, `hold` and `release`: apps on a service."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from themis.cli.options import Json
from themis.cli.output import print_json
from themis.cli.remote import SERVER, Authority, Server, reach, say, show, since

App = Annotated[str, typer.Argument(help="The app's name.")]


def ls(server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """List the apps; those of other owners have no names."""
    answer = reach(server, ca).apps()
    if json:
        print_json(answer)
        return
    now = answer.get("now")
    rows = [
        (line["app"], line["owner"], line["held"], line["demand"],
         since(line.get("submitted"), now), line.get("reason", "-"))
        for line in answer["apps"]
    ]  # fmt: skip
    show("", ("app", "owner", "-GPUs", "-wants", "-since", "=reason"), rows)
    counts = answer["gpus"]
    say("GPUs: " + ", ".join(f"{number} {state}" for state, number in counts.items()))


def status(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Show one app: what it holds, what its jobs do, and why it waits."""
    sheet = reach(server, ca).status(app)
    if json:
        print_json(sheet)
        return
    now = sheet.get("now")
    if "outcome" in sheet:
        say(f"{sheet['app']} of {sheet['owner']}: over ({sheet['outcome']})")
        lasted = since(sheet["submitted"], sheet["ended"])
        say(f"ended {since(sheet['ended'], now)} ago, {lasted} after it was submitted")
        return
    say(f"{sheet['app']} of {sheet['owner']}: {sheet['reason']}")
    held, wants = f"{sheet['held']} GPUs of {sheet['demand']} wanted", sheet["weight"]
    say(f"submitted {since(sheet['submitted'], now)} ago, weight {wants:g}, {held}")
    say(f"phase {sheet['phase'] + 1} of {sheet['phases']}, work left "
        f"{since(0.0, sheet['work_left_seconds'])} on one GPU")  # fmt: skip
    if sheet["suspended"]:
        say(f"held back by {', '.join(map(str, sheet['suspended']))}")
    if sheet["leases"]:
        leases = [
            (item["machine"], item["gpu"], item["token"], since(now, item["end"]))
            for item in sheet["leases"]
        ]
        show("leases", ("machine", "-GPU", "-token", "-ends in"), leases)
    running = {run["job"]: run for run in sheet["runs"]}
    jobs = [_job(job, running.get(job["job"])) for job in sheet["jobs"]]
    if jobs:
        show("jobs", ("job", "-iterations", "-of", "run", "on GPUs"), jobs)


def pause(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Take no new GPUs for an app of yours; leases that are there end by themselves."""
    _tell(reach(server, ca).pause(app), f"{app} is paused; `themis resume` lets it go on", json)


def resume(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Let a paused app go on."""
    _tell(reach(server, ca).resume(app), f"{app} goes on", json)


def cancel(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """End an app: its jobs are stopped and its GPUs given back."""
    _tell(reach(server, ca).cancel(app), f"{app} is cancelled", json)


def hold(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Keep an app from getting GPUs, as an operator."""
    _tell(reach(server, ca).hold(app), f"{app} is held; `themis release` lets it run again", json)


def release(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Let a held app run again."""
    _tell(reach(server, ca).release(app), f"{app} may run again", json)


def _job(job: dict[str, Any], run: dict[str, Any] | None) -> tuple[object, ...]:
    state = run["state"] if run else "-"
    gpus = ", ".join(map(str, run["gpus"])) if run else "-"
    return (job["job"], job["iterations"], job["target"], state, gpus)


def _tell(answer: dict[str, Any], line: str, json: bool) -> None:
    if json:
        print_json(answer)
    else:
        say(line)
