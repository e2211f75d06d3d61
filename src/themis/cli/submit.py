"""`themis submit`: an app file becomes an app."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common.app_view import length
from themis.cli.common.app_watch import exit_code, watch
from themis.cli.common.options import Json
from themis.cli.common.output import FAILED, STYLE, USAGE, counted, fail, note, print_json, warn
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say, show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from themis.client import Client

Name = Annotated[
    str | None, typer.Option("--name", help="The app's name; a number is added if it is taken.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the app file, such as search.n=8; may be repeated.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, max=2**63 - 1, help="The seed of a random search."),
]


def submit(
    file: Annotated[Path, typer.Argument(help="The app file (YAML); - for standard input.")],
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only show phases, budget and ideal time; exits 1 if it never runs."
        ),
    ] = False,
    watch_: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it until it ends; exits 1 if it fails.")
    ] = False,
    name: Name = None,
    set_: Set = None,
    seed: Seed = None,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Submit the sweep or job that an app file describes."""
    from themis.apps import plain_app  # noqa: PLC0415 - late, so that --help is quick
    from themis.cli.common.app_files import read_written  # noqa: PLC0415 - see above

    if dry_run and watch_:
        fail("--dry-run and --watch: nothing is submitted that could be watched", USAGE)
    written = read_written(file, set_ or (), name=name, seed=seed)
    client = reach(server, ca)
    answer = client.submit(plain_app(written), seed=seed, dry_run=dry_run)
    if dry_run:
        _lay_out(written.name, answer, json=json)
        if any(line.get("reason") for line in answer.get("warnings") or ()):
            raise typer.Exit(FAILED)
        return
    tell_submitted(answer, json=json)
    if watch_:
        see_to_the_end(client, str(answer["app"]), json=json)
    elif not json:
        note(f"`themis status {answer['app']} --watch` shows it")


def tell_submitted(answer: Mapping[str, Any], *, json: bool) -> None:
    """Say that an app was submitted; with --quiet its name alone, for scripts."""
    if json:
        print_json(answer)
    elif STYLE.quiet:
        say(str(answer["app"]))
    else:
        plan = answer.get("plan") or {}
        jobs = f": {counted(int(plan['jobs']), 'job')}" if plan.get("jobs") else ""
        say(f"{answer['app']} is submitted{jobs}{_ideally(plan, ', ')}")
    if not json:
        tell_warnings(answer)


def tell_warnings(answer: Mapping[str, Any]) -> None:
    """Print warnings about a submission."""
    for line in answer.get("warnings") or ():
        parts = [str(line[key]) for key in ("what", "why", "then") if line.get(key)]
        reason = line.get("reason")
        told = "; ".join(parts)
        if reason:
            warn(f"as it is it never runs: {reason}: {told}")
        else:
            note(told)


def see_to_the_end(client: Client, app: str, *, json: bool) -> None:
    """Watch an app, tell its best job, and exit as it ended.

    Raises:
        typer.Exit: Always.
    """
    from themis.cli.results import tell_best  # noqa: PLC0415 - only needed at the end

    sheet = watch(client, app, json=json)
    if not json:
        tell_best(client, app)
    raise typer.Exit(exit_code(sheet))


def _lay_out(name: str, answer: Mapping[str, Any], *, json: bool) -> None:
    if json:
        print_json(answer)
        return
    plan = answer["plan"]
    phases = plan["phases"]
    say(f"{name}: {counted(int(plan['jobs']), 'job')} in {counted(len(phases), 'phase')}, "
        f"tuner {plan.get('tuner', '-')}")  # fmt: skip
    rows = [(at, phase["jobs"], phase["iterations"]) for at, phase in enumerate(phases, start=1)]
    show("", ("-phase", "-jobs", "-iterations each"), rows)
    guess = (
        " (a guess: the app file does not say how long an iteration takes)"
        if plan.get("estimated")
        else ""
    )
    say(f"budget: {length(plan['gpu_seconds'])} of GPU time{guess}")
    ideal = _ideally(plan, "")
    if ideal:
        say(f"{ideal}, on a share of {_gpus(plan.get('share_gpus'))} of "
            f"{_gpus(plan.get('cluster_gpus'))} GPUs")  # fmt: skip
    tell_warnings(answer)
    note("nothing was submitted")


def _ideally(plan: Mapping[str, Any], before: str) -> str:
    seconds = plan.get("ideal_seconds")
    if not isinstance(seconds, int | float):
        return ""
    return f"{before}ideally done in {length(seconds)}"


def _gpus(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else "?"
