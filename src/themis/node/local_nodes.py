"""Nodes on the service's own host, from a cluster file: for one machine, demos and tests.

They are processes of their own and outlive the service, which finds them running at its next start.
"""

import logging
import os
import subprocess
import sys
from pathlib import Path

from themis.config.addresses import Address
from themis.config.keys import ServiceConfig
from themis.core.model import Machine
from themis.errors import ConfigError
from themis.node.disk import is_running, make_passable
from themis.node.process import owners_of
from themis.recording.cluster_files import read_cluster
from themis.security.token_files import read_token, write_secret
from themis.security.tokens import Role, TokenStore, create_token, find_credential

_LOG = logging.getLogger(__name__)


class LocalNodes:
    """Starts local nodes as children of the service."""

    def __init__(self, config: ServiceConfig, grpc: Address) -> None:
        self._config = config
        self._grpc = grpc
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, token_store: TokenStore, *, now: float) -> list[str]:
        """Start the nodes that are not running; returns their names.

        Raises:
            ConfigError: The cluster file is wrong, a machine in it cannot be pretended, or no
                account for jobs is configured.
        """
        config = self._config
        machines = local_machines(config)
        commands = {machine.name: node_command(config, self._grpc, machine) for machine in machines}
        if config.shared_dir is None:
            make_passable(nodes_folder(config) / "checkpoints")
        started = []
        for name, command in commands.items():
            folder = nodes_folder(config) / name
            make_passable(folder)
            # Also for one that runs: it reads the file again when the service refuses its token.
            ensure_token(token_store, folder / "token", name, now, "a local node")
            if is_running(folder):
                continue
            self._children[name] = spawn(command, folder)
            started.append(name)
        _LOG.info("started %d local nodes", len(started))
        return started

    def reap(self) -> list[str]:
        """Reap nodes that have ended; returns their names."""
        ended = [name for name, child in self._children.items() if child.poll() is not None]
        for name in ended:
            code = self._children.pop(name).returncode
            log = nodes_folder(self._config) / name / "node.log"
            _LOG.warning("local node %s has ended with %d; its log is %s", name, code, log)
        return ended


def local_machines(config: ServiceConfig) -> tuple[Machine, ...]:
    """The machines that local nodes pretend, checked before anything is made.

    Raises:
        ConfigError: The cluster file is wrong, a machine in it cannot be pretended, or no account
            for jobs is configured.
    """
    assert config.local_nodes is not None
    if config.tls.require_client:
        allowed = "none with tls.require_client: a `themis node` with a certificate of its own"
        raise ConfigError("local_nodes", str(config.local_nodes), allowed)
    machines = read_cluster(config.local_nodes).machines
    # Else each node would find out by itself and only log it.
    owners_of(config)
    for machine in machines:
        _slot_of(machine)
    return machines


def ensure_token(token_store: TokenStore, path: Path, name: str, now: float, note: str) -> None:
    """Give a node a token unless it has one that the store knows, or knows to be revoked.

    A store restored from an older backup does not know the token, and neither does one whose
    service was killed before the token was stored.

    Raises:
        ConfigError: The file holds no token, or other users can read it.
    """
    if path.exists():
        number = read_token(path).reveal().split("_")[1]
        if find_credential(token_store, number) is not None:
            return
        path.unlink()
    issued = create_token(token_store, Role.NODE, name, now=now, note=note)
    write_secret(path, issued.token)


def nodes_folder(config: ServiceConfig) -> Path:
    """The folder of local nodes: beside the service's, which jobs must not reach."""
    return config.state_dir.with_name(f"{config.state_dir.name}-nodes")


def node_command(config: ServiceConfig, grpc: Address, machine: Machine) -> list[str]:
    """The command line of a local node, with its whole configuration.

    Raises:
        ConfigError: The machine cannot be pretended.
    """
    folder = nodes_folder(config) / machine.name
    flags = {
        "--server": str(grpc),
        "--token-file": str(folder / "token"),
        "--name": machine.name,
        "--rack": machine.rack,
        "--pretend": str(machine.gpus),
        "--slot": str(_slot_of(machine)),
        "--model": machine.gpu_model,
        "--state": str(folder),
        # Nodes on one machine share a folder in any case.
        "--shared-dir": str(config.shared_dir or nodes_folder(config) / "checkpoints"),
        "--log-level": config.log_level,
        "--log-format": config.log_format,
    }
    if config.trust_tenants:
        flags["--job-account"] = config.job_account
    elif config.node.owner and os.geteuid() != 0:
        flags["--owner"] = config.node.owner
    if config.tls.ca is not None:
        flags["--ca"] = str(config.tls.ca)
    command = [sys.executable, "-m", "themis", "node"]
    command += [word for pair in flags.items() for word in pair]
    if config.trust_tenants:
        command.append("--trust-tenants")
    for owner, account in config.accounts.items():
        command += ["--accounts", f"{owner}={account}"]
    return command


def spawn(command: list[str], folder: Path) -> "subprocess.Popen[bytes]":
    """Start a node, or a bridge to many, in a session of its own, with its log in the folder."""
    # The command line has all settings of the service's environment that concern a node, and
    # systemd waits for the service's notification only.
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("THEMIS_") and name != "NOTIFY_SOCKET"
    }
    log = os.open(folder / "node.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            close_fds=True,
            env=env,
        )
    finally:
        os.close(log)


def _slot_of(machine: Machine) -> int:
    size = machine.slots[0]
    full, last = machine.slots[:-1], machine.slots[-1]
    if any(slot != size for slot in full) or last > size:
        allowed = "slots of one size, but for a smaller last one"
        raise ConfigError(f"slots of {machine.name}", list(machine.slots), allowed)
    return size
