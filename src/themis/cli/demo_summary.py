"""What `themis demo` shows at its end: fairness, winners, a timeline, and who waited why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from themis.cli.common.app_view import parameters
from themis.cli.common.output import STYLE
from themis.cli.common.tables import WIDTH, listing, wide_console
from themis.cli.demo_screen import cells, marks_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.text import Text

    from themis.cli.common.tables import Listing

FAIR = 1.05
"""At most this rho counts as fair: starting costs time."""
_MOST_COLUMNS = 100
_LEAST = 0.05
"""Waits below this share of an app's time are not worth a line."""


def show_summary(made: Mapping[str, Any]) -> None:
    """Print the summary."""
    out = wide_console()
    out.print()
    out.print(fairness_table(made))
    out.print(
        "\nrho: how long it took, divided by how long it would take with its share to itself. "
        f"At most {FAIR} is fair.",
        highlight=False,
    )
    out.print()
    out.print(winners_table(made))
    out.print()
    room = out.width if sys.stdout.isatty() else WIDTH
    for line in timeline_lines(made, min(_MOST_COLUMNS, room - 10)):
        out.print(line)
    out.print()
    for sentence in waiting_lines(made):
        out.print(sentence, markup=False, highlight=False)
    out.print(f"\n{cost(made)}", markup=False, highlight=False)
    if not STYLE.quiet:
        sys.stdout.flush()


def fairness_table(made: Mapping[str, Any]) -> Listing:
    """The fairness of each app."""
    rows = [
        (
            app["app"],
            app["owner"],
            app["outcome"],
            _seconds(app["elapsed"]),
            _seconds(app["ideal_seconds"]),
            f"{made['gpu_seconds'][app['app']]:.0f} s",
            "-" if app["rho"] is None else f"{app['rho']:.2f}",
        )
        for app in made["apps"]
    ]
    columns = ("app", "of", "ended", "-took", "-alone, with its share", "-GPU time", "-rho")
    return listing("Who was treated fairly?", columns, rows)


def winners_table(made: Mapping[str, Any]) -> Listing:
    """The best trial of each sweep."""
    rows = []
    for app in made["apps"]:
        best = app["winner"] or {}
        loss = best.get("metric")
        told = "-" if loss is None else f"{loss:.4f}"
        rows.append((app["app"], app["about"], parameters(best.get("params")), told))
    return listing("What was found?", ("app", "sweep", "best parameters", "-loss"), rows)


def timeline_lines(made: Mapping[str, Any], width: int) -> list[Text]:
    """A line for each GPU with its holders over time."""
    from rich.text import Text  # noqa: PLC0415 - only needed when something is shown

    marks = marks_of([app["app"] for app in made["apps"]])
    head = Text("Who held which GPU?  ")
    for name in marks:
        head.append_text(cells([name], marks)).append(f" {name}  ")
    head.append("· nobody")
    lines, last = [head, Text("")], ""
    for gpu in made["gpus"]:
        name = gpu["node"] if gpu["node"] != last else ""
        last = gpu["node"]
        line = Text(f"{name:<6}{gpu['index']:>2}  ")
        lines.append(line.append_text(cells(_holders(gpu["spans"], made["seconds"], width), marks)))
    lines.append(Text(f"{'':10}0 s{made['seconds']:>{max(1, width - 5)}.0f} s"))
    return lines


def _holders(spans: Sequence[Mapping[str, Any]], seconds: float, width: int) -> list[str]:
    """The holder of a GPU in the middle of each of `parts` parts of the time."""
    found, index = [], 0
    for column in range(width):
        at = (column + 0.5) * seconds / width
        while index < len(spans) - 1 and spans[index]["until"] <= at:
            index += 1
        found.append(str(spans[index]["app"] or "") if spans else "")
    return found


def waiting_lines(made: Mapping[str, Any]) -> list[str]:
    """The waits of each app, with lengths and reasons."""
    from themis.demo.summary import in_words  # noqa: PLC0415 - late, so that --help is quick

    lines = ["Who waited, and why?", ""]
    for app in made["apps"]:
        worth = max(1.0, _LEAST * float(app["elapsed"] or 0.0))
        for key, what in (("waited", "without any GPU"), ("short", "with fewer than it could use")):
            for wait in app[key]:
                if wait["seconds"] >= worth:
                    why = in_words(wait["reason"])
                    lines.append(f"{app['app']}: {wait['seconds']:.0f} s {what}: {why}")
    return lines if len(lines) > 2 else [*lines, "nobody"]


def cost(made: Mapping[str, Any]) -> str:
    """The CPU time that the demo used."""
    seconds, cpu = made["wall_seconds"], made["cpu_seconds"]
    used = (
        f"GPUs were held for {made['used']:.0%} of the time. " if made["used"] is not None else ""
    )
    return (
        f"{used}All processes together used {cpu:.0f} CPU s in {seconds:.0f} s: "
        f"{cpu / max(seconds, 1e-9):.2f} of a core."
    )


def _seconds(value: Any) -> str:
    return f"{value:.0f} s" if isinstance(value, int | float) else "-"
