"""`themis serve`: the arbiter as a service."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import typer

from themis.cli.output import console, escape_line
from themis.cli.service import (
    ServiceFile,
    examined,
    service_configuration,
    start_logging,
)

if TYPE_CHECKING:
    from themis.live.loading import Loaded
    from themis.live.serving import Listening


def serve(context: typer.Context, config: ServiceFile = None) -> None:
    """Share the cluster: nodes and agents call by gRPC, people by HTTP.

    Stops on SIGTERM or Ctrl-C within seconds; training goes on. Reads its configuration again on
    SIGHUP.
    """
    from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick

    loaded = service_configuration(context, config)
    start_logging(loaded.config)
    try:
        from themis.live.grpc_server import GrpcDoor  # noqa: PLC0415 - see above
        from themis.live.serving import Serving  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        raise ConfigError("serve", error.name, "pip install 'themis-scheduler[server]'") from None

    def again() -> Loaded:
        found = examined(context, config)
        if found.loaded is None:
            raise found.mistakes[0]
        return found.loaded

    async def run() -> None:
        serving = Serving(
            loaded, again=again, door=GrpcDoor, announce=lambda where: _say(where, loaded)
        )
        await serving.run()

    asyncio.run(run())


def _say(where: Listening, loaded: Loaded) -> None:
    out = console()
    scheme = "https" if loaded.config.tls.cert else "http"
    out.print(f"people: {scheme}://{where.http}", markup=False)
    if where.grpc is not None:
        out.print(f"nodes and agents: {where.grpc}", markup=False)
    if where.admin_token:
        line = f"the first admin token is in {where.admin_token}"
        out.print(escape_line(line), markup=False, soft_wrap=True)
    sys.stdout.flush()
