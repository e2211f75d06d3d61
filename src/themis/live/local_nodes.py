"""Nodes on the service's own host, from a cluster file: for one machine, demos and tests.

They are processes of their own and outlive the service: started again, it finds them running.
"""

import logging
import os
import subprocess
import sys
from pathlib import Path

from themis.errors import ConfigError
from themis.live.config import Address, ServiceConfig
from themis.live.credentials import Role, Vault, create_token
from themis.live.node_disk import is_running, make_way
from themis.live.tokenfile import write_secret
from themis.model import Machine
from themis.records.clusters import read_cluster

_LOG = logging.getLogger(__name__)


def start_nodes(config: ServiceConfig, grpc: Address, vault: Vault, *, now: float) -> list[str]:
    """Start the nodes that are not running; returns their names.

    Raises:
        ConfigError: The cluster file is wrong, or a machine in it cannot be pretended.
    """
    assert config.local_nodes is not None
    started = []
    for machine in read_cluster(config.local_nodes).machines:
        folder = nodes_folder(config) / machine.name
        make_way(folder)
        if is_running(folder):
            continue
        token = folder / "token"
        if not token.exists():
            issued = create_token(vault, Role.NODE, machine.name, now=now, note="a local node")
            write_secret(token, issued.token)
        _start(config, grpc, machine, folder)
        started.append(machine.name)
    _LOG.info("started %d local nodes", len(started))
    return started


def nodes_folder(config: ServiceConfig) -> Path:
    """Where local nodes keep their things: beside the service's, which jobs must not get into."""
    return config.state_dir.with_name(f"{config.state_dir.name}-nodes")


def _start(config: ServiceConfig, grpc: Address, machine: Machine, folder: Path) -> None:
    flags = {
        "--server": str(grpc),
        "--token-file": str(folder / "token"),
        "--name": machine.name,
        "--rack": machine.rack,
        "--pretend": str(machine.gpus),
        "--slot": str(_slot_of(machine)),
        "--model": machine.gpu_model,
        "--state": str(folder),
        "--job-account": config.job_account,
        "--log-level": config.log_level,
    }
    command = [sys.executable, "-m", "themis", "node"]
    command += [word for pair in flags.items() for word in pair]
    if config.trust_tenants:
        command.append("--trust-tenants")
    for owner, account in config.accounts.items():
        command += ["--accounts", f"{owner}={account}"]
    if config.tls.ca is not None:
        command += ["--ca", str(config.tls.ca)]
    log = os.open(folder / "node.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            close_fds=True,
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
