"""`themis demo`: a real service with pretend GPUs, three tenants who train, and what came of it."""

from __future__ import annotations

import json as json_module
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common.output import FAILED, note, print_json

if TYPE_CHECKING:
    from themis.demo.demo_cluster import DemoCluster


def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="Train less: half a minute instead of two.")
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(help="Keep store, logs and checkpoints in this new folder.", metavar="DIR"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
) -> None:
    """Share 16 pretend GPUs among three teams that train small, real models.

    A service, six nodes and all jobs run on this machine, for about two minutes; nothing of it is
    left afterwards, also after Ctrl-C.
    """
    from themis.demo.demo_cluster import ending_on_signals  # noqa: PLC0415 - late, so that --help is quick

    with ending_on_signals():
        made = _play(keep, quick=quick)
    if keep is not None:
        text = json_module.dumps(made, indent=2)
        (keep / "summary.json").write_text(text + "\n", encoding="utf-8")
    if json:
        print_json(made)
    else:
        from themis.cli.demo_summary import show_summary  # noqa: PLC0415 - see above

        show_summary(made)
        if keep is not None:
            note(f"kept: {keep}")
    if any(app["outcome"] != "finished" for app in made["apps"]):
        raise typer.Exit(FAILED)


def _play(keep: Path | None, *, quick: bool) -> dict[str, Any]:
    """From the first process to the last; returns the summary."""
    from themis.cli.demo_screen import open_screen  # noqa: PLC0415 - late, so that --help is quick
    from themis.demo.demo_cluster import DemoCluster  # noqa: PLC0415 - see above
    from themis.demo.observer import DemoObserver  # noqa: PLC0415 - see above
    from themis.demo.summary import summarize  # noqa: PLC0415 - see above
    from themis.demo.tenants import tenants  # noqa: PLC0415 - see above

    began = time.monotonic()
    note("starting a service and six nodes with 16 pretend GPUs in 3 racks")
    with DemoCluster.open(keep, quick=quick) as session:
        try:
            _introduce(session)
            watch = DemoObserver(session, tenants(session.place, quick=quick))
            with open_screen(watch) as show:
                watch.run(show)
            made = summarize(watch.looks, watch.apps, watch.results())
        except BaseException:
            note("ending everything that was started")
            raise
        note("ending service and nodes")
    return {
        "quick": quick,
        **made,
        "wall_seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(session.ending.cpu_seconds + time.process_time(), 1),
    }


def _introduce(session: DemoCluster) -> None:
    note(f"dashboard (this link works once): {session.admin.login_link()}")
    note(f"look around: THEMIS_SERVER={session.address} \\")
    note(f"             THEMIS_TOKEN_FILE={shlex.quote(str(session.token_file))} themis ls")
    if session.place.borrowed:
        note(
            "jobs run as nobody, who cannot run this Python: "
            f"they are run by {session.place.python}"
        )
