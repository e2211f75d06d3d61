"""`themis bridge`: the nodes of a cluster that Slurm, Ray or another scheduler rules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from themis.cli.common.config_flags import (
    ServiceFile,
    key_options,
    service_configuration,
    start_logging,
)
from themis.cli.common.output import console, escape_line

_FLAGS = {
    "node.server": "--server",
    "node.ca": "--ca",
    "node.cert": "--cert",
    "node.key": "--key",
    "node.owner": "--owner",
    "shared_dir": "--shared-dir",
    "accounts": "--accounts",
    "trust_tenants": "--trust-tenants",
    "job_account": "--job-account",
    "engine": "--engine",
    "engine_dir": "--engine-dir",
    "log_level": "--log-level",
    "log_format": "--log-format",
}
"""Keys of the configuration that a bridge goes by, and their flags here."""


class BridgeCommand(TyperCommand):
    """A command whose flags are the keys of bridges and engines."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its own parameters, then one for every key."""
        from themis.config.keys import KEYS  # noqa: PLC0415 - slow to import

        mine = [key for key in KEYS.values() if key.name.startswith(("slurm.", "ray."))]
        engines = {key.name: key.flag for key in mine}
        return [*super().get_params(ctx), *key_options(_FLAGS | engines)]


def bridge(
    context: typer.Context,
    config: ServiceFile = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="A persistent folder on a local disk, with a folder for each machine "
            "(default: nodes in the configured state_dir)."
        ),
    ] = None,
) -> None:
    """Run the nodes of a Slurm or Ray cluster; `themis serve --engine ...` starts it for you.

    Stops on SIGTERM or Ctrl-C; jobs go on, and the next one takes them over.
    """
    from themis.node.bridge.process import run_bridge  # noqa: PLC0415 - late, so that --help is quick

    loaded = service_configuration(context, config)
    start_logging(loaded.config)

    folder = state or loaded.config.state_dir / "nodes"
    import asyncio  # noqa: PLC0415 - late, so that other commands start quickly

    asyncio.run(run_bridge(loaded.config, folder.absolute(), announce=_say))


def _say(line: str) -> None:
    console().print(escape_line(line), markup=False, soft_wrap=True, highlight=False)
    sys.stdout.flush()
