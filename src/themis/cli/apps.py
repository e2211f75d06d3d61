"""`themis ls`, `status`, `explain`, `pause`, `resume`, `cancel`, `retry`, `hold`, `release`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.naming import App, on_app
from themis.cli.options import Json
from themis.cli.output import print_json
from themis.cli.remote import SERVER, Authority, Server, reach, say, show, since
from themis.cli.sheets import gpus_held, headlines, jobs_table, leases_table, troubles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from themis.client import Answer, Client


def ls(server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """List the apps; those of other owners have no names."""
    answer = reach(server, ca).apps()
    if json:
        print_json(answer)
        return
    now = answer.get("now")
    rows = [
        (line["app"], line["owner"], f"{gpus_held(line)}/{line.get('demand', '?')}", _rho(line),
         since(line.get("submitted"), now), line.get("reason", "-"))
        for line in answer["apps"]
    ]  # fmt: skip
    show("", ("app", "owner", "-GPUs", "-rho", "-since", "=reason"), rows)
    counts = answer["gpus"]
    say("GPUs: " + ", ".join(f"{number} {state}" for state, number in counts.items()))


def status(
    app: App,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it until it is over; exits 1 if it fails.")
    ] = False,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Show one app: what it holds, what its jobs do, and why it waits."""
    client = reach(server, ca)
    name, sheet = on_app(client, app, client.status)
    if watch:
        from themis.cli.submit import see_to_the_end  # noqa: PLC0415 - only for this

        see_to_the_end(client, name, json=json)
    elif json:
        print_json(sheet)
    else:
        _show(sheet)


def _show(sheet: Mapping[str, Any]) -> None:
    for line in headlines(sheet):
        say(line)
    for table in (leases_table(sheet), jobs_table(sheet)):
        if table is not None:
            table.print()
    for line in troubles(sheet):
        say(line)


def explain(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Say why an app waits, and what to do about it or when it changes."""
    client = reach(server, ca)
    _, said = on_app(client, app, client.explain)
    if json:
        print_json(said)
        return
    say(f"{said['reason']}: {said['what']}")
    say(f"  why: {said['why']}")
    say(f"  then: {said['then']}")


def pause(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Let an app of yours save and give its GPUs back, and take no others until it is resumed."""
    _change(server, ca, app, lambda client: client.pause,
            "{} is paused; `themis resume` lets it go on", json=json)  # fmt: skip


def resume(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Let a paused app go on."""
    _change(server, ca, app, lambda client: client.resume, "{} is paused no more", json=json)


def cancel(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """End an app: its jobs are stopped and its GPUs given back."""
    _change(server, ca, app, lambda client: client.cancel, "{} is cancelled", json=json)


def retry(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Submit an app that is over once more, as a new one."""
    client = reach(server, ca)
    name, answer = on_app(client, app, client.retry)
    if json:
        print_json(answer)
    else:
        say(f"{name} is tried again as {answer['app']}")


def hold(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Keep an app from getting GPUs, as an operator."""
    _change(server, ca, app, lambda client: client.hold,
            "{} is held; `themis release` lets it run again", json=json)  # fmt: skip


def release(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Let a held app run again."""
    _change(server, ca, app, lambda client: client.release, "{} may run again", json=json)


def _change(
    server: str,
    ca: Path | None,
    app: str,
    verb: Callable[[Client], Callable[[str], Answer]],
    line: str,
    *,
    json: bool,
) -> None:
    client = reach(server, ca)
    name, answer = on_app(client, app, verb(client))
    if json:
        print_json(answer)
    else:
        say(line.format(name))


def _rho(line: Mapping[str, Any]) -> str:
    rho = line.get("rho")
    guess = "~" if line.get("estimated") else ""
    return f"{guess}{rho:.2f}" if isinstance(rho, int | float) else "-"
