"""`themis dashboard`: finished runs in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from themis.cli.common.options import Json
from themis.cli.common.output import note, print_json, progress_bar
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say

if TYPE_CHECKING:
    from themis.dashboard.finished_run import FinishedRun

_SQLITE = b"SQLite format 3\0"


def dashboard(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN...]",
            help="Folders of `sim run --out` or `sim compare --out`, event logs, files of "
            "`themis snapshot`, or a service's store or backup; several are compared. Without "
            "any, the pages of the service.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0 for any.")
    ] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Also open a browser.")] = False,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Serve pages of finished runs to a browser on this machine, until interrupted.

    Without a run: print a link to the pages of the service, as `themis login` does.
    """
    if not runs:
        link = reach(server, ca).login_link()
        if open_:
            _visit(link)
        if json:
            print_json({"url": link, "runs": []})
        else:
            note("open this in your browser within five minutes; it works once; keep it secret:")
            say(link)
        return
    import threading  # noqa: PLC0415 - late, so that --help is quick

    from themis.dashboard.local_server import serve  # noqa: PLC0415 - see above

    recordings = _opened(runs)
    with serve(recordings, port) as url:
        if json:
            print_json({"url": url, "runs": [item.origin.title for item in recordings]})
            sys.stdout.flush()
        else:
            note("open this in a browser on this machine; Ctrl-C ends it:")
            say(url)
        if open_:
            _visit(url)
        threading.Event().wait()


def _visit(url: str) -> None:
    import webbrowser  # noqa: PLC0415 - only if asked for

    webbrowser.open(url)


def _opened(paths: list[Path]) -> list[FinishedRun]:
    from themis.dashboard.run_loader import load_runs  # noqa: PLC0415 - late, so that --help is quick

    stores = [path for path in paths if _is_database(path)]
    others = [path for path in paths if path not in stores]
    with progress_bar("reading", 100) as bar:
        found = load_runs(others, lambda done, total: bar.update(100 * done // max(1, total)))
        return [*found, *(_of_store(path) for path in stores)]


def _of_store(path: Path) -> FinishedRun:
    from themis.service.dashboard.stored_model import open_stored_service  # noqa: PLC0415 - late, see above

    return open_stored_service(f"sqlite:///{path.resolve()}")


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False
