"""`themis replay`: feed a log's events to a fresh arbiter and compare what it wants done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from themis.cli.common.output import FAILED, NOT_FOUND, console, escape_line, fail, print_json

if TYPE_CHECKING:
    from themis.core.policies import Policy
    from themis.recording.replay import ReplayResult

_SQLITE = b"SQLite format 3\0"


def replay(
    source: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="An event log (events.jsonl of a run), or a service's store: URL, file, or a "
            "backup of it.",
        ),
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            help="The log's policy as module:Class: replay never imports code that a log names."
        ),
    ] = None,
    resolve: Annotated[
        bool, typer.Option("--resolve", help="Also solve every auction again.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Re-run a log and name the first difference."""
    result, where = _replayed(source, policy, resolve=resolve)
    difference = result.first_difference
    if json:
        print_json(
            {
                "log": where,
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
        from themis.recording.tags import TAG_OF  # noqa: PLC0415 - late, so that --help is quick

        console().print(
            escape_line(
                f"{where}:{difference.line}: first difference at "
                f"{TAG_OF[type(difference.event)]}: {difference.text}"
            ),
            markup=False,
            soft_wrap=True,
        )
    if difference is not None:
        raise typer.Exit(FAILED)


def _replayed(source: str, policy: str | None, *, resolve: bool) -> tuple[ReplayResult, str]:
    """The result of the replay, and the log's name."""
    log = Path(source)
    if "://" in source or _is_database(log):
        return _of_store(source, policy, resolve=resolve)
    from themis.recording.replay import replay as run_replay  # noqa: PLC0415 - late: --help is quick

    if log.is_dir():
        log /= "events.jsonl"  # the folder of a run
    if not log.is_file():
        fail(f"{log}: there is no such file (runs write one with --out DIR --events)", NOT_FOUND)
    return run_replay(log, policy=_policy(policy, log), resolve=resolve), str(log)


def _of_store(source: str, policy: str | None, *, resolve: bool) -> tuple[ReplayResult, str]:
    from themis.service.persistence.log_replay import replay_store  # noqa: PLC0415 - late: --help is quick
    from themis.service.persistence.store import open_store  # noqa: PLC0415 - see above

    url = source if "://" in source else f"sqlite:///{source}"
    with open_store(url, read_only=True) as store:
        return replay_store(store, policy=policy, resolve=resolve), store.url


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _policy(name: str | None, log: Path) -> Policy | None:
    """The user's policy with the options that the log names."""
    if name is None:
        return None
    from themis.core.policies import policy  # noqa: PLC0415 - late: --help is quick
    from themis.recording.event_log import EventLogReader  # noqa: PLC0415 - see above

    with EventLogReader(log) as reader:
        return policy(name, **dict(reader.header.options))
