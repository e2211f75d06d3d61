"""`themis wait`: return when an app has ended."""

from __future__ import annotations

from typing import Annotated

import typer

from themis.cli.common.app_names import App, on_app
from themis.cli.common.app_view import length
from themis.cli.common.app_watch import exit_code, summary
from themis.cli.common.options import Json
from themis.cli.common.output import FAILED, note, print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say


def wait(
    app: App,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="Wait no longer than this, as 10m.")
    ] = None,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Wait until an app ends; exits 0 if it finished, 1 if it failed or the time was up."""
    limit = _seconds(timeout)
    client = reach(server, ca)
    name, sheet = on_app(client, app, client.status)
    if "outcome" not in sheet:
        sheet = client.wait(name, limit)
    if json:
        print_json(sheet)
    elif "outcome" in sheet:
        say(f"{name}: {sheet['outcome']}")
    if "outcome" not in sheet:
        note(f"{name} is not over after {length(limit)}: {summary(sheet)}")
        raise typer.Exit(FAILED)
    raise typer.Exit(exit_code(sheet))


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    from themis.recording.written_values import seconds  # noqa: PLC0415 - late, so that --help is quick

    return seconds(text, "--timeout")
