"""`themis agents`: the agents of one owner's apps. The service starts it; people need not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer


def agents(
    server: Annotated[str, typer.Option(help="Where the service listens for agents.")],
    folder: Annotated[Path, typer.Option(help="Where tokens and logs of hosts are.")],
    owner: Annotated[
        str, typer.Option(help="Whose apps; without it, told on standard input.")
    ] = "",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Speak for the apps of one owner (internal: the service starts this).

    Ends on SIGTERM, and when its standard input is closed.
    """
    from themis.agent_host.prewarmed_host import token_file, wait_for_owner  # noqa: PLC0415 - see above
    from themis.agent_host.process import run_host  # noqa: PLC0415 - late, so that --help is quick
    from themis.core.model import OwnerId  # noqa: PLC0415 - see above

    whose = OwnerId(owner) if owner else wait_for_owner(folder)
    if whose is not None:
        asyncio.run(run_host(server, token_file(folder, whose), log_level, log_format))
