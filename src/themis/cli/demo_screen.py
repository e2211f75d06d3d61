"""How `themis demo` looks while it runs: a table on a terminal, lines of what changed elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from themis.cli.common.app_view import gpus_held
from themis.cli.common.app_watch import summary
from themis.cli.common.output import STYLE, console, note
from themis.cli.common.tables import listing

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from themis.demo.observer import DemoObserver, Observation, ObservedGpu

COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red")
FREE = "·"


@contextmanager
def open_screen(watch: DemoObserver) -> Iterator[Callable[[Observation], None]]:
    """Shows each observation; on a terminal always in the same place."""
    out = console(stderr=True)
    if STYLE.quiet:
        yield lambda look: None
        return
    if not out.is_terminal:
        yield _lines(watch)
        return
    from rich.live import Live  # noqa: PLC0415 - only needed when something is shown

    with Live(console=out, auto_refresh=False, transient=True) as live:
        yield lambda look: live.update(picture(look, watch), refresh=True)


def picture(look: Observation, watch: DemoObserver) -> RenderableType:
    """One observation: the apps, then the holder of each GPU."""
    from rich.console import Group  # noqa: PLC0415 - only needed when something is shown
    from rich.text import Text  # noqa: PLC0415 - see above

    marks = marks_of(list(watch.apps))
    rows = [_row(app, sheet, watch) for app, sheet in look.sheets.items()]
    columns = ("app", "of", "state", "-GPUs", "-phase", "-jobs", "-loss", "-rho")
    coming = [tenant for tenant in watch.cast if tenant.name not in watch.apps]
    rows += [(each.name, each.owner, f"comes at {each.after:.0f} s", *"-----") for each in coming]
    machines: dict[str, list[tuple[ObservedGpu, str]]] = {}
    for gpu, app in look.holders.items():
        machines.setdefault(f"{gpu.rack} {gpu.node}", []).append((gpu, app))
    cluster = Text()
    for name, gpus in machines.items():
        cluster.append(f"  {name.partition(' ')[2]} ")
        cluster.append_text(cells([app for _, app in gpus], marks))
    title = Text(f"{look.at:.0f} s", style="bold")
    return Group(title, listing("", columns, rows), Text(""), cluster)


def _row(app: str, sheet: Mapping[str, Any], watch: DemoObserver) -> tuple[object, ...]:
    owner, rho = watch.apps[app].owner, sheet.get("rho")
    shown = f"{rho:.2f}" if isinstance(rho, int | float) else "-"
    if "outcome" in sheet:
        return (app, owner, sheet["outcome"], "-", "-", "-", "-", shown)
    jobs = sheet.get("jobs") or ()
    running = sum(job.get("state") == "running" for job in jobs)
    losses = [job["metric"] for job in jobs if isinstance(job.get("metric"), int | float)]
    return (
        app,
        owner,
        sheet.get("reason") or sheet.get("state"),
        f"{gpus_held(sheet)}/{sheet.get('demand', '?')}",
        f"{int(sheet.get('phase') or 0) + 1}/{sheet.get('phases') or 1}",
        running,
        min(losses, default=None),
        shown,
    )


def marks_of(apps: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A letter and a colour for each app; letters that differ."""
    marks: dict[str, tuple[str, str]] = {}
    for number, app in enumerate(apps):
        taken = {letter for letter, _ in marks.values()}
        letters = [*app.upper(), *map(str, range(10))]
        letter = next((each for each in letters if each.isalnum() and each not in taken), "?")
        marks[app] = (letter, COLORS[number % len(COLORS)])
    return marks


def cells(held: Sequence[str], marks: Mapping[str, tuple[str, str]]) -> Text:
    """One letter for each holder, on its colour where there is colour."""
    from rich.text import Text  # noqa: PLC0415 - only needed when something is shown

    made = Text()
    for app in held:
        letter, color = marks.get(app, (FREE if not app else "?", ""))
        made.append(letter, style=f"black on {color}" if color else "dim")
    return made


def _lines(watch: DemoObserver) -> Callable[[Observation], None]:
    last: dict[str, str] = {}

    def tell(look: Observation) -> None:
        for app, sheet in look.sheets.items():
            if app not in last:
                tenant = watch.apps[app]
                note(f"{look.at:5.1f} s  {app}: {tenant.owner} submits {tenant.about}")
            line = summary(sheet)
            if last.get(app) != line:
                note(f"{look.at:5.1f} s  {app}: {line}")
            last[app] = line

    return tell
