"""Forecasts for people: a table of cases, better and better, and who else is affected."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from themis.cli.common.app_view import length
from themis.cli.common.output import STYLE, counted, note
from themis.cli.common.service_calls import say
from themis.cli.common.tables import Listing, listing, wide_console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Answer = Mapping[str, Any]

_MOST_NAMED = 10
_UNITS = (
    ("s", 1.0, 0, 100.0),
    ("min", 60.0, 0, 100.0),
    ("h", 3600.0, 1, 96.0),
    ("d", 86400.0, 1, float("inf")),
)
"""Names of units, their seconds, digits behind the point, and up to how many each is used."""
ASSUMED = "no other app is submitted, and paused, held or agentless apps stay so"


def table(answer: Answer) -> Listing:
    """All cases side by side."""
    rows = [
        (
            case.get("label"),
            _span(case.get("start"), unknown="not yet" if not answer.get("final") else "-"),
            _finish(case),
            _rho(case),
            *_others(case),
        )
        for case in answer.get("cases") or ()
    ]
    columns = ("if submitted", "=starts in", "=finishes in", "=rho", "-later", "-sooner")
    return listing("", columns, rows)


def progress(answer: Answer) -> str:
    """How far the work is, in a line."""
    done, total = int(answer.get("done") or 0), int(answer.get("total") or 0)
    ahead = max((case.get("simulated") or 0.0 for case in answer.get("cases") or ()), default=0.0)
    looked = f", looked {length(ahead)} ahead" if ahead else ""
    return f"{done} of {counted(total, 'run')}{looked}"


@contextmanager
def narrowing(*, json: bool) -> Iterator[Callable[[Answer], None]]:
    """Shows answers as they get better: redrawn on a terminal, a line for each change elsewhere."""
    if json or STYLE.quiet:
        yield lambda _: None
    elif sys.stdout.isatty():
        from rich.console import Group  # noqa: PLC0415 - only needed when something is shown
        from rich.live import Live  # noqa: PLC0415 - see above

        with Live(console=wide_console(), auto_refresh=False, transient=True) as live:
            yield lambda answer: live.update(Group(table(answer), progress(answer)), refresh=True)
    else:
        told: list[str] = []

        def tell(answer: Answer) -> None:
            cases = answer.get("cases") or ()
            first = cases[0] if cases else {}
            line = f"starts in {_span(first.get('start'))}, finishes in {_finish(first)}"
            if told[-1:] != [line]:
                told.append(line)
                note(f"{progress(answer)}: {line}")

        yield tell


def tell(app: str, answer: Answer) -> None:
    """The answer that is final."""
    from themis.recording.forecast_questions import NOTICED  # noqa: PLC0415 - late, so that --help is quick

    table(answer).print()
    cases = answer.get("cases") or ()
    for case in cases:
        label, never = case.get("label"), int(case.get("unfinished") or 0)
        if never:
            say(f"{label}: in {counted(never, 'run')} it did not finish within what was looked at")
        elif case.get("rough"):
            basis = "with longer leases" if case.get("outlined") else "on an equal share"
            say(f"~ {label}: an estimate, {basis}; no run ended in time")
    named = [(case, other) for case in cases for other in case.get("named") or ()]
    moved = [(case, other) for case, other in named if abs(_mid(other)) > NOTICED]
    moved.sort(key=lambda each: -abs(_mid(each[1])))
    if moved:
        rows = [
            (case.get("label"), other.get("app"), other.get("owner"), _later(other.get("later")))
            for case, other in moved[:_MOST_NAMED]
        ]
        listing("", ("if submitted", "app", "owner", "finishes"), rows).print()
        if len(moved) > _MOST_NAMED:
            note(f"{len(moved) - _MOST_NAMED} more are left out; --json has all")
    seeds = max((int(case.get("seeds") or 0) for case in cases), default=0)
    note(f"{app} was not submitted. Over {counted(seeds, 'draw')} of what is not known; {ASSUMED}")


def _mid(other: Mapping[str, Any]) -> float:
    later = other.get("later") or {}
    return float(later.get("mid") or 0.0)


def _span(interval: Any, unknown: str = "-") -> str:
    """An interval of time in the unit that suits it: 2.0 h (1.7-2.5)."""
    if not isinstance(interval, dict):
        return unknown
    values = [float(interval.get(key) or 0.0) for key in ("low", "mid", "high")]
    name, unit, digits = next(each for each in _UNITS if values[2] < each[3] * each[1])[:3]
    low, mid, high = (f"{value / unit:.{digits}f}" for value in values)
    return f"{mid} {name}" if low == high else f"{mid} {name} ({low}-{high})"


def _finish(case: Mapping[str, Any]) -> str:
    guess = "~" if case.get("rough") else ""
    return guess + _span(case.get("finish"))


def _rho(case: Mapping[str, Any]) -> str:
    rho = case.get("rho")
    if not isinstance(rho, dict):
        return "-"
    low, mid, high = (f"{rho[key]:.2f}" for key in ("low", "mid", "high"))
    guess = "~" if case.get("rough") else ""
    return guess + (mid if low == high else f"{mid} ({low}-{high})")


def _others(case: Mapping[str, Any]) -> tuple[object, object]:
    """How many others finish later, and how many sooner."""
    counts = case.get("others")
    if not isinstance(counts, dict):
        return "-", "-"
    return counts.get("later"), counts.get("sooner")


def _later(interval: Any) -> str:
    if not isinstance(interval, dict):
        return "-"
    mid = float(interval.get("mid") or 0.0)
    return f"{length(abs(mid))} {'later' if mid > 0 else 'sooner'}"
