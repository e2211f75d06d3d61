"""`themis ls`, `status`, `explain`, `pause`, `resume`, `cancel`, `retry`, `hold`, `release`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common.app_names import App, on_app
from themis.cli.common.app_view import gpus_held, headlines, jobs_table, leases_table, troubles
from themis.cli.common.options import Json
from themis.cli.common.output import FAILED, note, print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say, show, since

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from themis.client import Answer, Client


def ls(
    ended: Annotated[
        bool, typer.Option("--all", "-a", help="Also those that ended within the last week.")
    ] = False,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """List apps; those of other owners appear without names."""
    client = reach(server, ca)
    answer = client.apps(ended=True) if ended else client.apps()
    if json:
        print_json(answer)
        return
    now = answer.get("now")
    rows = [
        (line["app"], line["owner"], f"{gpus_held(line)}/{line.get('demand', '?')}", _rho(line),
         since(line.get("submitted"), now), line.get("reason", "-"))
        for line in answer["apps"]
    ]  # fmt: skip
    rows += [
        (line["app"], line["owner"], "-", _rho(line), since(line.get("submitted"), now),
         f"{since(line.get('ended'), now)} ago: {line['outcome']}")
        for line in answer.get("ended") or ()
    ]  # fmt: skip
    show("", ("app", "owner", "-GPUs", "-rho", "-since", "~reason"), rows)
    counts = answer["gpus"]
    if answer.get("left_out"):
        note(f"{answer['left_out']} that ended earlier are left out")
    say("GPUs: " + ", ".join(f"{number} {state}" for state, number in counts.items()))


def status(
    app: App,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it until it ends; exits 1 if it fails.")
    ] = False,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Show one app: its GPUs, its jobs, and why it waits."""
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
    """Explain why an app waits, and what to do or when that changes."""
    client = reach(server, ca)
    _, said = on_app(client, app, client.explain)
    if json:
        print_json(said)
        return
    say(f"{said['reason']}: {said['what']}")
    say(f"  why: {said['why']}")
    say(f"  then: {said['then']}")


def pause(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Pause your app: its jobs save, and it gets no GPUs until you resume it."""
    _change(server, ca, app, lambda client: client.pause,
            "{} is paused; `themis resume` lets it go on", json=json)  # fmt: skip


def resume(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Resume a paused app; exits 1 if it is still held for another reason."""
    _let_go(server, ca, app, lambda client: client.resume, "paused", json=json)


def cancel(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Cancel an app: stop its jobs and free its GPUs."""
    _change(server, ca, app, lambda client: client.cancel, "{} is cancelled", json=json)


def retry(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Submit an ended app again, as a new one."""
    client = reach(server, ca)
    name, answer = on_app(client, app, client.retry)
    if json:
        print_json(answer)
    else:
        say(f"{name} is tried again as {answer['app']}")


def hold(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Hold an app (operators): it gets no GPUs until it is released."""
    _change(server, ca, app, lambda client: client.hold,
            "{} is held; `themis release` lets it run again", json=json)  # fmt: skip


def release(app: App, server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Release a held app; exits 1 if it is still held for another reason."""
    _let_go(server, ca, app, lambda client: client.release, "held", json=json)


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


def _let_go(
    server: str,
    ca: Path | None,
    app: str,
    verb: Callable[[Client], Callable[[str], Answer]],
    state: str,
    *,
    json: bool,
) -> None:
    client = reach(server, ca)
    name, answer = on_app(client, app, verb(client))
    left = [str(reason) for reason in answer.get("suspended") or ()]
    if json:
        print_json(answer)
    else:
        was = answer.get("changed", True)
        first = f"{name} is {state} no more" if was else f"{name} was not {state}"
        say("; ".join([first, *_held_back(left)]))
    if left:
        raise typer.Exit(FAILED)


def _held_back(reasons: Sequence[str]) -> list[str]:
    """Why an app does not run, as `explain` says it, and which command says more."""
    if not reasons:
        return []
    from themis.core.explain import WORDS  # noqa: PLC0415 - needed for this answer alone

    words = {reason.value: said for reason, said in WORDS.items()}
    return [*(words.get(each, each) for each in reasons), "`themis explain` says what to do"]


def _rho(line: Mapping[str, Any]) -> str:
    rho = line.get("rho")
    guess = "~" if line.get("estimated") else ""
    return f"{guess}{rho:.2f}" if isinstance(rho, int | float) else "-"
