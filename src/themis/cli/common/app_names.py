"""Apps as people name them: by their name, or by a beginning of it that fits only one.

    name, answer = on_app(client, "resnet", client.status)

Shells complete names by asking the service; where that fails they complete nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common.output import NOT_FOUND, USAGE, fail
from themis.cli.common.service_calls import SERVER, token
from themis.errors import DeniedError, RefusedError, ThemisError, UnknownAppError

if TYPE_CHECKING:
    from collections.abc import Callable

    from themis.client import Answer, Client

PATIENCE = 1.0
"""Seconds that a user who pressed TAB waits."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_TOLD = 5


def on_app(client: Client, app: str, call: Callable[[str], Answer]) -> tuple[str, Answer]:
    """Call with the name of an app; if there is none, with the only one that begins like this.

    Returns:
        The whole name, and the answer.

    Raises:
        UnknownAppError: No app is called that, or begins so.
    """
    try:
        return app, call(app)
    except (UnknownAppError, DeniedError) as error:
        # Who may see only their own is told the same of other people's apps and of none at all.
        name = _only_one(client, app, error)
    return name, call(name)


def _only_one(client: Client, app: str, error: UnknownAppError | DeniedError) -> str:
    try:
        client.status(app)
    except (UnknownAppError, DeniedError):
        pass
    else:
        # An ended app has this name: never act on another app in its place.
        raise error
    try:
        found = [name for name in _names(client.apps()) if name.startswith(app)]
    except ThemisError:
        raise error from None
    if len(found) > 1:
        told = ", ".join(found[:_TOLD]) + (", ..." if len(found) > _TOLD else "")
        fail(f"{app}: {len(found)} apps begin like this ({told}); write more of the name", USAGE)
    if not found:
        raise _missing(client, app, error)
    return found[0]


def _missing(client: Client, app: str, error: RefusedError) -> RefusedError:
    """The error for an app that does not exist, or that the caller may not see."""
    try:
        own = isinstance(error, DeniedError) and client.whoami().get("role") == "tenant"
    except ThemisError:
        own = False
    return (
        UnknownAppError(
            app,
            "you have no app of this name, nor one that begins so; `themis ls --all` shows yours",
        )
        if own
        else error
    )


def _names(answer: Answer) -> list[str]:
    """Names of apps that one may see; those of others have none."""
    named = (str(line.get("app", "")) for line in answer["apps"])
    return sorted(name for name in named if _NAME.match(name))


def job_of(jobs: list[str], wanted: str) -> str:
    """The job that 3 or 03 stands for.

    Raises:
        typer.Exit: There is none.
    """
    same = [job for job in jobs if job == wanted]
    if not same and wanted.isdecimal():
        same = [job for job in jobs if job.isdecimal() and int(job) == int(wanted)]
    if jobs and not same:
        fail(f"job: got {wanted!r}, allowed: {_listed(jobs)}", NOT_FOUND)
    return same[0] if same else wanted


def _listed(jobs: list[str]) -> str:
    return ", ".join(jobs) if len(jobs) <= 20 else f"{jobs[0]} to {jobs[-1]}"


# Completion


def complete_app(context: typer.Context, incomplete: str) -> list[str]:
    """Names of apps that begin so, for a shell."""
    answer = _quietly(context, lambda client: client.apps())
    return [name for name in _names(answer or {"apps": []}) if name.startswith(incomplete)]


def complete_job(context: typer.Context, incomplete: str) -> list[str]:
    """Names of an app's jobs that begin so, for a shell."""
    app = str(context.params.get("app") or "")
    answer = _quietly(context, lambda client: client.status(app)) if app else None
    names = [str(job.get("job", "")) for job in (answer or {}).get("jobs", ())]
    return [name for name in names if _NAME.match(name) and name.startswith(incomplete)]


def _quietly(context: typer.Context, ask: Callable[[Client], Answer]) -> Answer | None:
    try:
        from themis.client import Client  # noqa: PLC0415 - late, so that --help is quick

        server = context.params.get("server") or os.environ.get("THEMIS_SERVER") or SERVER
        ca: Any = context.params.get("ca") or os.environ.get("THEMIS_CA") or None
        return ask(Client(str(server), token(), ca and Path(ca), timeout=PATIENCE, tries=1))
    except Exception:  # the user is typing: never print an error here
        return None


App = Annotated[
    str,
    typer.Argument(
        help="The app, or a beginning of its name that fits only one.",
        autocompletion=complete_app,
    ),
]
