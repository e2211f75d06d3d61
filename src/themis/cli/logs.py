"""`themis logs`: what jobs print.

Logs hold whatever programs of other users wrote: nothing in them may steer the terminal. Colours
go, and of a progress bar that is drawn over and over only the last state is shown.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common.app_names import App, complete_job, job_of, on_app
from themis.cli.common.options import Json
from themis.cli.common.output import INTERRUPTED, escape_line, note, print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, reach
from themis.errors import LimitError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from themis.client import Answer, Client

TAIL = 10
"""Lines of each job where several are shown."""
PAUSE = 2.0
"""Seconds between two looks at the logs of several jobs."""
MOST_BACK = 64 * 2**20
_LINE_BYTES = 160
"""How long a line is, at a guess."""
_LONGEST = 65536
"""Characters of a line that is not over after which it is shown anyway."""
_STEERING = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)


def logs(
    app: App,
    job: Annotated[
        str | None,
        typer.Argument(
            help="The job; by default all jobs.", autocompletion=complete_job, show_default=False
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow until the job ends, or Ctrl-C.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Only the last n lines.")
    ] = None,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Show the output of an app's jobs."""
    client = reach(server, ca)
    if job is None and "/" in app:
        app, _, job = app.partition("/")
    name, jobs = _jobs(client, app)
    names = [str(item["job"]) for item in jobs]
    if job is None and len(names) == 1:
        job = names[0]
    try:
        if job is not None:
            out = printer(json=json)
            _show_one(client, name, job_of(names, job), tail, follow=follow, out=out)
        else:
            # A job that has not begun has printed nothing, and there may be hundreds.
            begun = [str(item["job"]) for item in jobs if _began(item)]
            most = TAIL if tail is None else tail
            _show_many(client, name, begun, most, follow=follow, json=json)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _began(job: Mapping[str, Any]) -> bool:
    told = (job.get("iterations"), job.get("failures"), job.get("failed"))
    return job.get("state") != "waiting" or any(told)


def _jobs(client: Client, app: str) -> tuple[str, list[dict[str, Any]]]:
    """The app's whole name, and its jobs."""
    name, sheet = on_app(client, app, client.status)
    return name, list(sheet.get("jobs") or client.results(name).get("jobs") or ())


def _show_one(
    client: Client, app: str, job: str, tail: int | None, *, follow: bool, out: Printer
) -> None:
    offset = 0
    if tail is not None:
        piece = last_lines(client, app, job, tail)
        out(piece)
        offset = int(piece["next"])
    for piece in (
        client.follow(app, job, offset=offset) if follow else rest(client, app, job, offset)
    ):
        out(piece)
    out(None)


def rest(client: Client, app: str, job: str, offset: int = 0) -> Iterator[Answer]:
    """Pieces of a log from an offset to its present end."""
    while True:
        piece = client.logs(app, job, offset=offset)
        if int(piece["next"]) == int(piece["offset"]):
            return
        yield piece
        offset = int(piece["next"])


def last_lines(client: Client, app: str, job: str, number: int) -> Answer:
    """The last lines of a log, as one text."""
    back = max(4096, (number + 1) * _LINE_BYTES)
    while True:
        first = client.logs(app, job, offset=-back)
        pieces = [first, *rest(client, app, job, int(first["next"]))]
        text = "".join(str(piece["text"]) for piece in pieces)
        lines = text.splitlines(keepends=True)
        if len(lines) > number or int(first["offset"]) <= 0 or back >= MOST_BACK:
            kept = "".join(lines[len(lines) - number :]) if number < len(lines) else text
            return {**pieces[-1], "offset": first["offset"], "text": kept}
        back *= 4


# Several jobs


def _show_many(
    client: Client, app: str, jobs: list[str], tail: int, *, follow: bool, json: bool
) -> None:
    if not jobs:
        note(f"no job of {app} has begun yet")
        if not follow:
            return
    outs: dict[str, Printer] = defaultdict(lambda: printer(json=json))
    ends = {}
    heading = _Heading(silent=json)
    for job in jobs:
        piece = last_lines(client, app, job, tail)
        ends[job] = int(piece["next"])
        if piece["text"]:
            heading(job)
            outs[job](piece)
            outs[job](None)
    if follow:
        _follow_many(client, app, ends, heading, outs)


def _follow_many(
    client: Client,
    app: str,
    ends: dict[str, int],
    heading: _Heading,
    outs: Mapping[str, Printer],
) -> None:
    ran = set(ends)

    def look(sheet: Answer) -> None:
        jobs = list(sheet.get("jobs") or ())
        if not jobs and "outcome" in sheet:
            with suppress(UnavailableError, LimitError):
                jobs = list(client.results(app).get("jobs") or ())
        running = {str(job["job"]) for job in jobs if job.get("state") == "running"}
        # Those that ran a moment ago may have had a last word, others may have come and gone.
        unseen = {str(job["job"]) for job in jobs if _began(job)} - ends.keys()
        for job in sorted(running | ran | unseen):
            # What is not heard now is heard next time.
            with suppress(UnavailableError, LimitError):
                for piece in rest(client, app, job, ends.get(job, 0)):
                    heading(job)
                    outs[job](piece)
                    ends[job] = int(piece["next"])
                ends.setdefault(job, 0)
        ran.clear()
        ran.update(running)

    client.wait(app, each=look, interval=PAUSE)
    for out in outs.values():
        out(None)


class _Heading:
    """Prints a heading when the lines of another job begin."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._last = ""

    def __call__(self, job: str) -> None:
        if self._silent or job == self._last:
            return
        gap = "\n" if self._last else ""
        self._last = job
        sys.stdout.write(f"{gap}==> job {escape_line(job)} <==\n")


# Showing


class Printer:
    """Prints pieces of one log, whole lines only; None for its end."""

    def __init__(self) -> None:
        self._open = ""

    def __call__(self, piece: Answer | None) -> None:
        """Print a piece."""
        text = "" if piece is None else str(piece["text"])
        self._open += text
        lines = self._open.split("\n")
        self._open = lines.pop()
        # What is not a line yet is shown when nothing comes any more, or too much.
        if self._open and (not text or len(self._open) > _LONGEST):
            lines.append(self._open)
            self._open = ""
        for line in lines:
            sys.stdout.write(plain_line(line) + "\n")
        if lines:
            sys.stdout.flush()


class _JsonPrinter(Printer):
    def __call__(self, piece: Answer | None) -> None:
        if piece is not None and piece["text"]:
            print_json(piece)
            sys.stdout.flush()


def printer(*, json: bool) -> Printer:
    """A printer of logs, for people or for programs."""
    return _JsonPrinter() if json else Printer()


def plain_line(line: str) -> str:
    """A line of a log without terminal control sequences."""
    line = _STEERING.sub("", line)
    drawn = [part for part in line.split("\r") if part]
    return escape_line(drawn[-1].expandtabs() if drawn else "")
