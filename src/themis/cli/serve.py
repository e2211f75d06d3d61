"""`themis serve`: the arbiter as a service."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from themis.cli.common.config_flags import (
    ServiceFile,
    examined,
    service_configuration,
    start_logging,
)
from themis.cli.common.output import escape_line

if TYPE_CHECKING:
    from themis.config.loader import Loaded
    from themis.service.process import Listening


def serve(context: typer.Context, config: ServiceFile = None) -> None:
    """Share the cluster: nodes and agents call by gRPC, people by HTTP.

    Stops on SIGTERM or Ctrl-C within seconds; training goes on. Reads its configuration again on
    SIGHUP.
    """
    from themis.service.process import ServiceProcess  # noqa: PLC0415 - slow to import

    loaded = service_configuration(context, config)
    start_logging(loaded.config)

    def again() -> Loaded:
        found = examined(context, config)
        if found.loaded is None:
            raise found.mistakes[0]
        return found.loaded

    async def run() -> None:
        await ServiceProcess(loaded, again=again, announce=lambda where: _say(where, loaded)).run()

    import asyncio  # noqa: PLC0415 - late, so that other commands start quickly

    asyncio.run(run())


def _say(where: Listening, loaded: Loaded) -> None:
    config = loaded.config
    scheme = "https" if config.tls.cert else "http"
    lines = [f"people: {scheme}://{where.http}"]
    if where.grpc is not None:
        lines.append(f"nodes and agents: {where.grpc}")
    if where.admin_token:
        lines.append(f"the first admin token is in {where.admin_token}{_use(where.admin_token)}")
    lines.append(f"store: {where.store}, epoch {where.epoch}, policy {config.policy}")
    sys.stdout.write(escape_line("\n".join(lines)) + "\n")
    sys.stdout.flush()


def _use(file: str) -> str:
    """How commands find the token, if it is not at its default place."""
    from themis.security.token_files import token_places  # noqa: PLC0415 - late, for a quick --help

    places = token_places(os.environ, root=os.geteuid() == 0)
    return "" if Path(file) in places else f" (THEMIS_TOKEN_FILE={file} themis whoami)"
