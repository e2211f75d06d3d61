"""`themis run`: one job, without a file."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common.app_view import Failures
from themis.cli.common.app_watch import detach, exit_code
from themis.cli.common.options import Json
from themis.cli.common.output import USAGE, fail, note, print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say
from themis.cli.submit import Name, Set, tell_submitted
from themis.errors import LimitError, ThemisError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from themis.client import Answer, Client

NEWS = 5.0
"""Seconds without a line of output after which the user is told why."""


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The program, after --: python train.py")
    ],
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="The GPUs that it gets at most.")] = 1,
    min_gpus: Annotated[
        int | None,
        typer.Option(
            "--min-gpus", min=1, help="The GPUs that it needs at least.  [default: as --gpus]"
        ),
    ] = None,
    name: Name = None,
    duration: Annotated[
        str | None, typer.Option("--duration", help="Its duration on one GPU, such as 1h.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="K[=V]",
            help="A variable; K alone copies it from this environment.",
        ),
    ] = None,
    workdir: Annotated[
        str | None, typer.Option("--workdir", help="Its working directory.  [default: this folder]")
    ] = None,
    set_: Set = None,
    watch: Annotated[
        bool, typer.Option("--watch/--detach", help="Show its log, or return at once.")
    ] = True,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Run one job: `themis run --gpus 2 -- python train.py`. Exits 0 if it finishes."""
    from themis.apps import plain_app  # noqa: PLC0415 - late, so that --help is quick
    from themis.cli.common.app_files import check_app  # noqa: PLC0415 - see above
    from themis.client import job_app  # noqa: PLC0415 - see above
    from themis.recording.yaml_documents import FilePosition  # noqa: PLC0415 - see above

    data = job_app(
        command, name=name, gpus=gpus, min_gpus=min_gpus, duration=duration,
        env=variables(env or ()), workdir=workdir,
    )  # fmt: skip
    written = check_app(data, FilePosition(), set_ or ())
    client = reach(server, ca)
    answer = client.submit(plain_app(written))
    tell_submitted(answer, json=json)
    app = str(answer["app"])
    if not watch:
        if not json:
            note(f"`themis logs {app} -f` shows its log")
        return
    try:
        sheet = follow(client, app, json=json)
    except KeyboardInterrupt:
        detach(app, "logs {} -f")
    if json:
        print_json(sheet)
    else:
        say(f"{app}: {sheet.get('outcome')}{_why(sheet)}")
    raise typer.Exit(exit_code(sheet))


def variables(given: Sequence[str]) -> dict[str, str]:
    """The variables of --env: K=V, or K to copy it from this environment.

    Raises:
        typer.Exit: It says something else.
    """
    made = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            if key not in os.environ:
                fail(f"--env {key}: it is not in this environment; write {key}=VALUE", USAGE)
            value = os.environ[key]
        made[key] = value
    return made


def follow(client: Client, app: str, *, json: bool) -> Answer:
    """Show the log of an app's only job until the app ends; its last status."""
    from themis.cli.logs import printer, rest  # noqa: PLC0415 - only needed when watched

    sheet = client.status(app)
    job = str((sheet.get("jobs") or [{"job": "0"}])[0]["job"])
    out = printer(json=json)
    told, failures = "", Failures()
    for piece in client.follow(app, job, wait=NEWS):
        out(piece)
        if piece["text"]:
            continue
        with suppress(UnavailableError, LimitError):  # the log waits for it, and so does this
            sheet = client.status(app)
        if "outcome" in sheet:
            # It may have printed since the log was asked for.
            with suppress(UnavailableError, LimitError):
                for last in rest(client, app, job, int(piece["next"])):
                    out(last)
            break
        for line in failures.news(sheet):
            note(line)
        if piece.get("run") is None:
            told = _tell_waiting(client, sheet, told)
    out(None)
    sys.stdout.flush()
    return sheet if "outcome" in sheet else client.wait(app)


def _tell_waiting(client: Client, sheet: Answer, told: str) -> str:
    """Print the reason why it waits, whenever it changes."""
    reason = str(sheet.get("reason") or sheet.get("state") or "")
    if reason and reason != told:
        said: Answer = {}
        with suppress(ThemisError):  # the reason alone says much
            said = client.explain(str(sheet["app"]))
        lines = [str(said[key]) for key in ("why", "then") if said.get(key)]
        note("; ".join([f"waiting: {reason}", *lines]))
    return reason


def _why(sheet: dict[str, Any]) -> str:
    """Why it failed, if known."""
    messages = [sheet.get("message")] + [job.get("message") for job in sheet.get("jobs") or ()]
    found = next((message for message in messages if message), None)
    return f": {found}" if found and exit_code(sheet) else ""
