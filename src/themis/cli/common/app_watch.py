"""Watching an app: a table that is redrawn on a terminal, lines of what changed elsewhere.

sheet = watch(client, "resnet-lr-2", json=False)
raise typer.Exit(exit_code(sheet))
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn

from themis.cli.common.app_view import Failures, gpus_held, headlines, jobs_table, troubles
from themis.cli.common.output import FAILED, INTERRUPTED, OK, escape_line, note, print_json
from themis.cli.common.service_calls import say, since
from themis.cli.common.tables import wide_console

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import RenderableType

    from themis.client import Answer, Client

INTERVAL = 2.0
"""Seconds between two looks."""
_ROOM = 12
"""Lines of a terminal that are not for jobs."""


def watch(client: Client, app: str, *, json: bool) -> Answer:
    """Show an app until it ends; its last status.

    Raises:
        SystemExit: The user pressed Ctrl-C; the app continues.
    """
    try:
        with ExitStack() as stack:
            each = _lines(json=json)
            if not json and sys.stdout.isatty():
                each = _live(stack)
            return client.wait(app, each=each, interval=INTERVAL)
    except KeyboardInterrupt:
        detach(app)


def detach(app: str, again: str = "status {} --watch") -> NoReturn:
    """Leave an app alone, and say how to come back to it.

    Raises:
        SystemExit: Always.
    """
    back = again.format(app)
    note(f"\n{app} goes on; `themis {back}` comes back to it, `themis cancel {app}` ends it")
    raise SystemExit(INTERRUPTED)


def exit_code(sheet: Mapping[str, Any]) -> int:
    """The exit code that goes with how an app ended."""
    return OK if sheet.get("outcome") == "finished" else FAILED


def _live(stack: ExitStack) -> Callable[[Answer], None]:
    from rich.live import Live  # noqa: PLC0415 - only needed when something is shown

    console = wide_console()
    live = stack.enter_context(Live(console=console, auto_refresh=False))

    def draw(sheet: Answer) -> None:
        live.update(picture(sheet, max(3, console.height - _ROOM)), refresh=True)

    return draw


def picture(sheet: Mapping[str, Any], most: int) -> RenderableType:
    """An app and at most `most` of its jobs."""
    from rich.console import Group  # noqa: PLC0415 - only needed when something is shown
    from rich.text import Text  # noqa: PLC0415 - see above

    parts: list[RenderableType] = [Text(_clean(line)) for line in headlines(sheet)]
    table = jobs_table(sheet, most)
    if table is not None:
        parts += [Text(""), table]
    parts += [Text(_clean(line)) for line in troubles(sheet, 2)]
    return Group(*parts)


def _clean(line: str) -> str:
    return escape_line(line.replace("\n", " "))


def _lines(*, json: bool) -> Callable[[Answer], None]:
    """Prints a line about an app whenever it changes."""
    last, failures = [""], Failures()

    def tell(sheet: Answer) -> None:
        if not json:
            for wrong in failures.news(sheet):
                say(f"{_age(sheet):>7}  {wrong}")
        line = summary(sheet)
        if line == last[0]:
            return
        last[0] = line
        if json:
            print_json(sheet)
        else:
            say(f"{_age(sheet):>7}  {line}")
        sys.stdout.flush()

    return tell


def _age(sheet: Mapping[str, Any]) -> str:
    return since(sheet.get("submitted"), sheet.get("now"))


def summary(sheet: Mapping[str, Any]) -> str:
    """An app in one line, without values that change with time alone."""
    if "outcome" in sheet:
        return f"over: {sheet['outcome']}"
    states: dict[str, int] = {}
    for job in sheet.get("jobs") or ():
        state = str(job.get("state") or "")
        if state:
            states[state] = states.get(state, 0) + 1
    parts = [
        str(sheet.get("reason") or sheet.get("state") or "-"),
        f"{gpus_held(sheet)} of {sheet.get('demand', '?')} GPUs",
        f"phase {int(sheet.get('phase') or 0) + 1} of {sheet.get('phases') or 1}",
        *(f"{number} {state}" for state, number in sorted(states.items())),
    ]
    return ", ".join(parts)
