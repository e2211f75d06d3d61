"""`themis node`: a machine's executor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from themis.cli.common.config_flags import (
    ServiceFile,
    examined,
    key_options,
    service_configuration,
    start_logging,
)
from themis.cli.common.output import console, escape_line

if TYPE_CHECKING:
    from themis.config.keys import ServiceConfig
    from themis.node.process import NodeGreeting

_FLAGS = {
    "node.server": "--server",
    "node.token_file": "--token-file",
    "node.name": "--name",
    "node.rack": "--rack",
    "node.pretend": "--pretend",
    "node.slot": "--slot",
    "node.model": "--model",
    "node.ca": "--ca",
    "node.cert": "--cert",
    "node.key": "--key",
    "node.owner": "--owner",
    "shared_dir": "--shared-dir",
    "accounts": "--accounts",
    "trust_tenants": "--trust-tenants",
    "job_account": "--job-account",
    "engine": "--engine",
    "log_level": "--log-level",
    "log_format": "--log-format",
}
"""Keys of the configuration that a node goes by, and their flags here."""


class NodeCommand(TyperCommand):
    """A command with its own flags and those of a node's keys."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its own parameters, then one for every key."""
        return [*super().get_params(ctx), *key_options(_FLAGS)]


def node(
    context: typer.Context,
    config: ServiceFile = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="A persistent folder on a local disk; one node each "
            "(default: nodes/NAME in the configured state_dir)."
        ),
    ] = None,
    drain_on_exit: Annotated[
        bool,
        typer.Option("--drain-on-exit", help="When stopped, first ask jobs to save and leave."),
    ] = False,
) -> None:
    """Run jobs on this machine's GPUs for the service.

    Stops on SIGTERM or Ctrl-C; SIGHUP reads accounts and token again. Jobs go on: a node that is
    started again adopts them; a job that no node adopts ends with its lease.
    """
    from themis.node.process import node_name, run_node  # noqa: PLC0415 - slow to import

    loaded = service_configuration(context, config)
    start_logging(loaded.config)

    def again() -> ServiceConfig:
        found = examined(context, config)
        if found.loaded is None:
            raise found.mistakes[0]
        return found.loaded.config

    folder = state or loaded.config.state_dir / "nodes" / node_name(loaded.config)
    import asyncio  # noqa: PLC0415 - late, so that other commands start quickly

    asyncio.run(
        run_node(
            loaded.config,
            folder.absolute(),
            drain_on_exit=drain_on_exit,
            again=again,
            announce=_announce,
            farewell=_say,
        )
    )


def _announce(about: NodeGreeting) -> None:
    for line in about.lines():
        _say(line)


def _say(line: str) -> None:
    console().print(escape_line(line), markup=False, soft_wrap=True, highlight=False)
    sys.stdout.flush()
