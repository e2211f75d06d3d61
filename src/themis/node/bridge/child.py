"""The bridge as a child of the service, which starts it, restarts it and gives it tokens."""

import logging
import os
import subprocess
import sys
from pathlib import Path

from themis.config.addresses import Address
from themis.config.keys import KEYS, ServiceConfig, value_of
from themis.config.value_types import plain
from themis.core.model.ids import check_name
from themis.errors import ConfigError
from themis.node.bridge.bridge import (
    bridge_folder,
    bridge_trouble,
    forget_trouble,
    wanted_machines,
)
from themis.node.bridge.process import engine_folder
from themis.node.disk import is_running, make_passable
from themis.node.local_nodes import ensure_token, nodes_folder, spawn
from themis.node.process import owners_of
from themis.security.redaction import clean
from themis.security.tokens import TokenStore

_LOG = logging.getLogger(__name__)

_PASSED_ON = ("engine", "engine_dir", "shared_dir", "log_level", "log_format")
"""Keys that a bridge shares with the service, besides the engine's own sections."""
_SECTIONS = ("slurm", "ray")
_LAST = 2000
"""Bytes of its log that are read when it has ended."""
_PAUSE = 5.0
"""Seconds between starts of a bridge that ends."""


class BridgeChild:
    """The bridge of a service whose engine is a cluster's."""

    def __init__(self, config: ServiceConfig, grpc: Address) -> None:
        self._config = config
        self._grpc = grpc
        self._folder = nodes_folder(config)
        self._child: subprocess.Popen[bytes] | None = None
        self._started = float("-inf")
        self._refused: dict[str, str] = {}
        """Machines that got no token, and why; logged once."""
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Why there may be no machines, for people; empty if all seems well."""
        return self._trouble

    def tend(self, token_store: TokenStore, *, now: float) -> None:
        """Start the bridge if none is running, and make the tokens that it wants.

        A bridge may run that an earlier service has started: bridges outlive services, as nodes do.
        """
        if self._child is not None and self._child.poll() is not None:
            code, self._child = self._child.returncode, None
            forget_trouble(self._folder)
            self._hear(f"the bridge has ended with {code}: {_last_line(self._log)}", logging.ERROR)
        idle = self._child is None and not is_running(bridge_folder(self._folder))
        if idle and now - self._started > _PAUSE:
            self._started = now
            forget_trouble(self._folder)
            command = bridge_command(self._config, self._grpc)
            self._child = spawn(command, bridge_folder(self._folder))
            # Restarts of a bridge that keeps ending are logged for debugging only.
            level = logging.DEBUG if self._trouble else logging.INFO
            _LOG.log(level, "started the bridge to %s (log: %s)", self._config.engine, self._log)
        # Before its first look the last known trouble stays.
        if (trouble := bridge_trouble(self._folder)) is not None:
            self._hear(trouble)
        for name in wanted_machines(self._folder):
            self._give_token(token_store, name, now)

    @property
    def _log(self) -> Path:
        return bridge_folder(self._folder) / "node.log"

    def _hear(self, trouble: str, level: int = logging.WARNING) -> None:
        """Store the trouble, and log it when it changes."""
        trouble = one_line(trouble)
        if trouble == self._trouble:
            return
        self._trouble = trouble
        engine = self._config.engine
        if trouble:
            _LOG.log(level, "engine %s: %s (log: %s)", engine, trouble, self._log)
        else:
            _LOG.info("engine %s: its machines can be used again", engine)

    def _give_token(self, token_store: TokenStore, name: str, now: float) -> None:
        try:
            check_name("machine", name)
            folder = self._folder / name
            make_passable(folder)
            ensure_token(token_store, folder / "token", name, now, "a machine of the engine")
        except (ConfigError, OSError) as error:
            if self._refused.get(name) != str(error):
                self._refused[name] = str(error)
                _LOG.error("machine %s gets no token: %s", name[:80], error)


def one_line(trouble: object) -> str:
    """A scheduler's message as one harmless line."""
    return clean(" ".join(str(trouble).split()))


def _last_line(log: Path) -> str:
    """The last line of its log, which mostly says why it ended."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError as error:
        return str(error)
    return clean(next((line for line in reversed(lines) if line.strip()), "it said nothing"))


def check_bridge(config: ServiceConfig) -> None:
    """Let a configuration pass with which a bridge can start.

    Raises:
        ConfigError: It cannot start; says why.
    """
    if config.local_nodes is not None:
        raise ConfigError("local_nodes", str(config.local_nodes), f"none with {config.engine}")
    if config.tls.require_client:
        raise ConfigError("engine", config.engine, "local, with tls.require_client")
    mistakes: list[ConfigError] = []
    for check in (owners_of, engine_folder):
        try:
            check(config)
        except ConfigError as error:
            mistakes.append(error)
    if mistakes:
        first, *others = mistakes
        allowed = "; and ".join([first.allowed, *map(str, others)])
        raise ConfigError(first.key, first.given, allowed, first.where)


def bridge_command(config: ServiceConfig, grpc: Address) -> list[str]:
    """The command line of the bridge, with its whole configuration."""
    command = [sys.executable, "-m", "themis", "bridge", "--server", str(grpc)]
    command += ["--state", str(nodes_folder(config))]
    sections = [name for name in KEYS if name.partition(".")[0] in _SECTIONS]
    for name in (*_PASSED_ON, *sections):
        value = value_of(config, name)
        if value is not None and value != KEYS[name].default:
            command += [KEYS[name].flag, str(plain(value))]
    if config.trust_tenants:
        command += ["--trust-tenants", "--job-account", config.job_account]
    elif config.node.owner and os.geteuid() != 0:
        command += ["--owner", config.node.owner]
    if config.tls.ca is not None:
        command += ["--ca", str(config.tls.ca)]
    for owner, account in config.accounts.items():
        command += ["--accounts", f"{owner}={account}"]
    return command
