"""How commands talk to people and to programs: tables, JSON, progress, errors and exit codes."""

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

OK, FAILED, USAGE, NOT_FOUND, UNREACHABLE, DENIED = range(6)
"""Exit codes, the same for every command."""
INTERRUPTED = 130
MISSING_FIGURES = "figures need matplotlib: pip install 'themis-scheduler[figures]'"

MistypedError: type[Exception] = typer.BadParameter.__bases__[0]
"""What typer raises for a command line that it cannot take. It gives that no public name."""

_KINDS = {"int_parsing": "a whole number", "float_parsing": "a number"}
"""What typer calls its reasons, and what we say."""

LONG = 5.0
"""Seconds from which on it is worth saying how long something still takes."""
FIRST, PATIENCE = 0.02, 60.0
"""The part of the way, or the seconds, before which what was done tells little of the rest."""
NEWS = 0.01
"""The part of the way after which it is worth judging anew how long the rest takes."""
SILENCE = 1.5
"""Seconds without a word after which to say something: two make people wonder."""


@dataclass(slots=True)
class Style:
    """What the user asked for, for the whole command."""

    quiet: bool = False
    color: bool = True


STYLE = Style()


def console(*, stderr: bool = False) -> "Console":
    """Where to write; rich is imported when something is shown."""
    from rich.console import Console  # noqa: PLC0415 - only needed when something is shown

    # Without a terminal never narrower than the tables need.
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 110
    return Console(stderr=stderr, no_color=not STYLE.color, width=width, highlight=False)


def table(title: str, *columns: str) -> "Table":
    """An empty table; the first column is text, the others are numbers."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - only needed when something is shown
    from rich.table import Table  # noqa: PLC0415 - only needed when something is shown

    result = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        result.add_column(column, justify="left" if index == 0 else "right")
    return result


def print_json(data: Any) -> None:
    """One object on one line; numbers that are not finite become null."""
    sys.stdout.write(json.dumps(_plain(data), allow_nan=False) + "\n")


def _plain(data: Any) -> Any:
    if isinstance(data, float) and data - data != 0.0:
        return None
    if isinstance(data, dict):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return data


def fail(message: str, code: int = FAILED) -> NoReturn:
    """End the command with one clear line."""
    sys.stderr.write(f"error: {escape_line(message)}\n")
    raise typer.Exit(code)


def mistyped(error: Any) -> int:
    """Print a usage error like any other error; returns the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return USAGE
    sys.stderr.write(f"error: {escape_line(_mistake(error))}\n")
    return USAGE


def _mistake(error: Any) -> str:
    flag = getattr(error, "param", None)
    if flag is None or not isinstance(error, typer.BadParameter) or not error.message:
        context = getattr(error, "ctx", None)
        hint = "" if context is None else f" (see {context.command_path} --help)"
        # Choices come one to a line, with tabs.
        return f"{' '.join(error.format_message().split())}{hint}"
    name = max(flag.opts, key=len)
    # Not every version of typer tells what was given.
    for told in getattr(error.__cause__, "errors", list)():
        allowed = _KINDS.get(told["type"]) or _range(**told.get("ctx", {}))
        if allowed:
            return f"{name}: got {told['input']!r}, allowed: {allowed}"
    return f"{name}: {error.message}"


def _range(ge: object = None, le: object = None, **_: object) -> str:
    """What numbers may be, in the words that typer has for their ends."""
    ends = [f"at least {ge}"] if ge is not None else []
    return " and ".join([*ends, f"at most {le}"] if le is not None else ends)


def note(message: str) -> None:
    """Say something that is not the result."""
    if not STYLE.quiet:
        sys.stderr.write(f"{escape_line(message)}\n")


def warn(message: str) -> None:
    """Say something that the result suffers from, also to those who want no other words."""
    sys.stderr.write(f"warning: {escape_line(message)}\n")


def escape_line(text: str) -> str:
    """Text that may come from files or users: nothing in it may steer the terminal."""
    if text.isprintable():  # Nearly always, and there may be thousands of them.
        return text
    return "".join(ch if ch.isprintable() or ch == "\n" else "\ufffd" for ch in text)


def counted(number: int, word: str) -> str:
    """1 app, 2 apps."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def amount(value: float) -> str:
    """A number for people: whole when it is large, two digits when it is small, never 2e+06."""
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def period(seconds: float) -> str:
    """A length of time in the unit that suits it: 14 days, 1 hour, 90 seconds."""
    unit, length = next(
        (pair for pair in (("day", 86400.0), ("hour", 3600.0)) if seconds >= pair[1]),
        ("second", 1.0),
    )
    text = f"{seconds / length:.3g}"
    return f"{text} {unit}" if text == "1" else f"{text} {unit}s"


@contextmanager
def progress_bar(
    description: str, total: int, *, numbers: bool = True, even: bool = True
) -> Iterator["Bar"]:
    """A bar with the time left on a terminal; otherwise a line now and then.

    Args:
        description: What is done.
        total: How much of it there is.
        numbers: Whether to show both; else the description says it better.
        even: Whether what is done tells how long the rest takes.
    """
    out = console(stderr=True)
    if STYLE.quiet:
        yield Bar()
        return
    if not out.is_terminal:
        yield _Lines(description, TimeLeft(total, even=even), numbers=numbers)
        return
    from rich.progress import (  # noqa: PLC0415 - only needed when something is shown
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        *((MofNCompleteColumn(),) if numbers else ()),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task(description, total=total, left="")
        yield _Rich(progress, task, TimeLeft(total, even=even))


class Bar:
    """A progress bar that shows nothing."""

    def update(self, done: int, description: str | None = None, total: int | None = None) -> None:
        """So much is done, of a total that may have become known just now."""

    def begin(self, done: int, description: str) -> None:
        """Something begins that may take a while without a word: say at once what it is."""
        self.update(done, description)


class TimeLeft:
    """How long something still takes, from all that was done of it; it falls between two news."""

    def __init__(self, total: int, *, even: bool = True) -> None:
        self.total = max(1, total)
        self._even = even
        self._done = self._judged = 0
        self._started = self._news = time.monotonic()

    def hear(self, done: int, total: int | None, now: float) -> bool:
        """So much is done; whether something else has begun."""
        total = max(1, total or self.total)
        # What came before does not tell how quick this is.
        other = total != self.total or done < self._done
        self._done, self.total = done, total
        if other:
            self._started = now
        # Of small runs beside a large one there is always some news, which say nothing of that one.
        if other or done - self._judged >= NEWS * total:
            self._judged, self._news = done, now
        return other

    def left(self, now: float) -> str:
        """In words; nothing when it was quick."""
        taken = now - self._started
        if taken < LONG or self._done >= self.total or not self._even:
            return ""
        done = self._judged
        if done <= 0 or (done < FIRST * self.total and taken < PATIENCE):
            return f"{span(taken)} so far"
        told = (self._news - self._started) * (self.total - done) / done
        left = told - (now - self._news)
        return f"about {span(left)} left" if left > 0 else "longer than expected"


class _Rich(Bar):
    def __init__(self, progress: Any, task: Any, pace: "TimeLeft") -> None:
        self._progress = progress
        self._task = task
        self._pace = pace

    def update(self, done: int, description: str | None = None, total: int | None = None) -> None:
        now = time.monotonic()
        self._pace.hear(done, total, now)
        told = {"description": description, "total": total}
        extra = {key: value for key, value in told.items() if value is not None}
        left = self._pace.left(now)
        self._progress.update(self._task, completed=done, left=left, **extra)


class _Lines(Bar):
    """Without a terminal: a line for every tenth of the way, and when it gets long."""

    def __init__(self, description: str, pace: "TimeLeft", *, numbers: bool) -> None:
        self._description = description
        self._numbers = numbers
        self._shown = 0
        self._pace = pace
        self._spoke = time.monotonic()

    def begin(self, done: int, description: str) -> None:
        if description != self._description:
            self._spoke = -math.inf
        self.update(done, description)

    def update(self, done: int, description: str | None = None, total: int | None = None) -> None:
        self._description = description or self._description
        now = time.monotonic()
        if self._pace.hear(done, total, now):
            self._shown = 0
        tenth = 10 * done // self._pace.total
        if tenth > self._shown or now - self._spoke >= SILENCE:
            self._shown, self._spoke = tenth, now
            far = f": {done} of {self._pace.total}" if self._numbers else ""
            left = self._pace.left(now)
            sys.stderr.write(f"{self._description}{far}{left and f', {left}'}\n")
            sys.stderr.flush()


def span(seconds: float) -> str:
    """A time for people: 40 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
