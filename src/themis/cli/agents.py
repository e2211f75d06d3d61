"""`themis agents`: the agents of one owner's apps. The service starts it; people need not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer


def agents(
    server: Annotated[str, typer.Option(help="Where the service listens for agents.")],
    token_file: Annotated[Path, typer.Option(help="The file with the owner's token.")],
    ca: Annotated[Path | None, typer.Option(help="Who signed the service's certificate.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Speak for the apps of one owner (internal: the service starts this).

    Ends on SIGTERM, and when its standard input is closed.
    """
    from themis.live.host_process import run_host  # noqa: PLC0415 - late, so that --help is quick

    asyncio.run(run_host(server, token_file, ca, log_level))
