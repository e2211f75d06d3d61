"""`themis replay`: feed a log's events to a fresh arbiter and compare what it wants done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from themis.cli.output import FAILED, NOT_FOUND, console, fail, print_json

if TYPE_CHECKING:
    from themis.policies import Policy


def replay(
    log: Annotated[Path, typer.Argument(help="An event log (events.jsonl of a run).")],
    policy: Annotated[
        str | None,
        typer.Option(help="The log's policy as module:Class: a log imports no code by itself."),
    ] = None,
    resolve: Annotated[
        bool, typer.Option("--resolve", help="Also solve every auction again.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Re-run a log and name the first difference."""
    from themis.records.replay import replay as run_replay  # noqa: PLC0415 - late: --help is quick

    if log.is_dir():
        log /= "events.jsonl"  # the folder of a run
    if not log.is_file():
        fail(f"{log}: there is no such file (runs write one with --out DIR --events)", NOT_FOUND)
    result = run_replay(log, policy=_policy(policy, log), resolve=resolve)
    difference = result.first_difference
    if json:
        print_json(
            {
                "log": str(log),
                "events": result.events,
                "same": result.same,
                "finished": result.finished,
                "resolved": result.resolved,
                "line": difference.line if difference else None,
                "difference": difference.text if difference else None,
            }
        )
    elif difference is None:
        console().print(
            f"{result.events} events replayed, every command as in the log"
            + (f", {result.resolved} auctions solved again" if resolve else "")
            + ("" if result.finished else " (the log stops before the end of its run)"),
            markup=False,
        )
    else:
        console().print(
            f"{log}:{difference.line}: first difference at {type(difference.event).__name__}: "
            f"{difference.text}",
            markup=False,
            soft_wrap=True,
        )
    if difference is not None:
        raise typer.Exit(FAILED)


def _policy(name: str | None, log: Path) -> Policy | None:
    """The user's policy with the options that the log says it had."""
    if name is None:
        return None
    from themis.policies import policy  # noqa: PLC0415 - late: --help is quick
    from themis.records.log import LogReader  # noqa: PLC0415 - see above

    with LogReader(log) as reader:
        return policy(name, **dict(reader.header.options))
