"""`themis agents`: the agent host of one owner. The service starts it; people need not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer


def agents(
    server: Annotated[str, typer.Option(help="Where the service listens for agents.")],
    token_file: Annotated[Path, typer.Option(help="The file with the owner's token.")],
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Run the agents of one owner's apps (internal: the service starts this).

    Ends on SIGTERM, and when its standard input is closed.
    """
    from themis.agent_host.process import run_host  # noqa: PLC0415 - late, so that --help is quick

    asyncio.run(run_host(server, token_file, log_level, log_format))
