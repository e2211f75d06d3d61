"""`themis dashboard`: finished runs in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from themis.cli.options import Json
from themis.cli.output import note, print_json, progress_bar
from themis.cli.remote import say

if TYPE_CHECKING:
    from themis.dashboard.recording import Recording


def dashboard(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders of `sim run --out` or `sim compare --out`, or event logs; several are "
            "compared.",
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of 127.0.0.1; 0 for any.")] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open a browser, too.")] = False,
    json: Json = False,
) -> None:
    """Look at finished runs in a browser, on this machine only, until interrupted.

    A running service shows the same pages at its own address: `themis login` lets a browser in.
    """
    import threading  # noqa: PLC0415 - late, so that --help is quick

    from themis.dashboard.serving import serve  # noqa: PLC0415 - see above

    recordings = _opened(runs)
    with serve(recordings, port) as url:
        if json:
            print_json({"url": url, "runs": [item.origin.title for item in recordings]})
            sys.stdout.flush()
        else:
            note("open this in a browser on this machine; Ctrl-C ends it:")
            say(url)
        if open_:
            import webbrowser  # noqa: PLC0415 - only if asked for

            webbrowser.open(url)
        threading.Event().wait()


def _opened(paths: list[Path]) -> list[Recording]:
    from themis.dashboard.opening import open_all  # noqa: PLC0415 - late, so that --help is quick

    with progress_bar("reading", 100) as bar:
        return open_all(paths, lambda done, total: bar.update(100 * done // max(1, total)))
