"""A node as a process: from its configuration to a running `Node`, signals, and its end.

    await run_node(config, state, announce=print)

SIGTERM and Ctrl-C end the node and leave its jobs running under their supervisors, which end them
with their leases if no node comes back. With `drain_on_exit` they are asked to save first. SIGHUP
reads accounts and token again.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from themis.config.keys import ServiceConfig
from themis.core.model.ids import check_name
from themis.engines.base import Capabilities, Discovered
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import GpuInventory, NvidiaGpus, PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.errors import ConfigError, ThemisError, UnavailableError
from themis.node.disk import NodeDisk, first_closed_folder
from themis.node.node import Node
from themis.node.shared_folder import SharedFolder
from themis.ops.systemd import READY, STOPPING, notify
from themis.rpc.client import Connection, Credentials, NodeClient, refused

_LOG = logging.getLogger(__name__)

DRAIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class NodeGreeting:
    """What a node announces when it starts."""

    name: str
    server: str
    secure: bool
    state: Path
    machine: Discovered
    capabilities: Capabilities
    owners: str
    shared_dir: Path | None = None

    def lines(self) -> tuple[str, ...]:
        """For people."""
        machine, can = self.machine.machine, self.capabilities
        slots = ", ".join(map(str, machine.slots))
        gpus = f"{machine.gpus} GPUs ({machine.gpu_model}) in slots of {slots}"
        sick = [gpu for gpu in self.machine.gpus if gpu.trouble]
        tls = "with TLS" if self.secure else "without TLS, on this machine"
        return (
            f"node {self.name} in rack {machine.rack}: {gpus}",
            f"service: {self.server}, {tls}; state: {self.state}",
            f"processes are held by: {can.control}",
            *(f"  not better because: {reason}" for reason in can.control_reasons),
            f"jobs run as: {self.owners}",
            f"checkpoints: {self.shared_dir or 'on this machine only (no shared_dir)'}",
            *(f"GPU {gpu.index} is not used: {gpu.trouble}" for gpu in sick),
            *(f"note: {note}" for note in self.machine.notes),
        )


def node_name(config: ServiceConfig) -> str:
    """The name in the configuration, else the machine's own.

    Raises:
        ConfigError: The machine's own cannot be used.
    """
    name = config.node.name or socket.gethostname().partition(".")[0].lower()
    return check_name("node.name", name)


def inventory_of(config: ServiceConfig, name: str) -> GpuInventory:
    """The source of GPUs: pretend ones, or those of the NVIDIA driver."""
    if config.node.pretend:
        node = config.node
        whole, rest = divmod(node.pretend, node.slot or node.pretend)
        slots = (node.slot or node.pretend,) * whole + ((rest,) if rest else ())
        return PretendGpus(name, slots, node.rack, node.model)
    return NvidiaGpus(name, config.node.rack)


def owners_of(config: ServiceConfig) -> tuple[Owners, str]:
    """The accounts that jobs run as here, and the same in words.

    Raises:
        ConfigError: None is configured, or it cannot be used.
    """
    root = os.geteuid() == 0
    if config.trust_tenants:
        user = config.job_account if root else "the node's own user"
        return Owners.trusting(config.job_account), f"{user}, all owners alike (trust_tenants)"
    if root:
        if config.node.owner and not config.accounts:
            allowed = "accounts: {OWNER: USER}, or trust_tenants, on a node that is root"
            raise ConfigError("node.owner", config.node.owner, allowed)
        if not config.accounts:
            raise ConfigError(
                "accounts", "none", "OWNER=USER for each owner, or trust_tenants (one user for all)"
            )
        pairs = ", ".join(f"{owner} as {user}" for owner, user in sorted(config.accounts.items()))
        return Owners.mapped(config.accounts), f"their owners' users: {pairs}"
    if not config.node.owner:
        allowed = "--owner NAME (whose jobs alone it runs) or --trust-tenants, without root"
        raise ConfigError("node.owner", "none", allowed)
    return Owners.single(config.node.owner), f"the node's own user, for {config.node.owner} alone"


def check_reachable(state: Path, owners: Owners, key: str = "state") -> None:
    """Let a folder pass if all accounts of jobs can reach their own folders below it.

    Raises:
        ConfigError: An account cannot; says where and what to do.
    """
    accounts = [*owners.accounts.values(), *filter(None, [owners.everybody])]
    for account in accounts:
        closed = first_closed_folder(state, account.uid, {account.gid, *account.groups})
        if closed is not None:
            given = f"{closed}, which {account.name} may not pass through"
            allowed = f"a folder that jobs can reach: chmod o+x {closed}, or another {key}"
            raise ConfigError(key, given, allowed)


def check_shared(folder: Path, owners: Owners) -> None:
    """Let a shared folder pass if it exists and all accounts of jobs can pass through it.

    Raises:
        UnavailableError: It does not exist. If the node made it, it would be on a local disk.
        ConfigError: An account cannot reach it; says where and what to do.
    """
    if not folder.is_dir():
        raise UnavailableError(f"shared_dir {folder} is not there: is it mounted?")
    check_reachable(folder, owners, "shared_dir")


async def run_node(
    config: ServiceConfig,
    state: Path,
    *,
    drain_on_exit: bool = False,
    again: Callable[[], ServiceConfig] | None = None,
    announce: Callable[[NodeGreeting], None] = lambda about: None,
    farewell: Callable[[str], None] = lambda text: None,
) -> None:
    """Be a node until SIGTERM or Ctrl-C.

    Args:
        config: The node's configuration.
        state: Its own folder.
        drain_on_exit: Ask jobs to save and go before the end.
        again: Reads the configuration again, on SIGHUP.
        announce: Called once, when it is known what the node uses.
        farewell: Called at the end.

    Raises:
        ThemisError: It cannot start.
    """
    name = node_name(config)
    given = config.node
    owners, described = owners_of(config)
    credentials = Credentials(given.token_file, given.ca, given.cert, given.key)
    connection = Connection(given.server, credentials)
    connection.check()
    shared = config.shared_dir
    with NodeDisk.open(state, name) as disk:
        check_reachable(state, owners)
        if shared is not None:
            check_shared(shared, owners)
        machine = inventory_of(config, name)
        engine = await LocalEngine.open(disk.engine, machine, owners, checkpoints=shared)
        try:
            (found,) = await engine.discover()
            secure = credentials.secure
            can = engine.capabilities
            greeting = NodeGreeting(
                name, str(given.server), secure, state, found, can, described, shared
            )
            announce(greeting)
            node = Node(
                found.machine,
                engine,
                NodeClient(connection),
                disk,
                storage=SharedFolder(shared, name) if shared is not None else None,
                trust_tenants=not owners.separate,
                refused=partial(refused, given.server),
            )
            reload = partial(_reload, again, engine, connection, state)
            drain = DRAIN_SECONDS if drain_on_exit else None
            await _until_signalled(node, reload, drain=drain)
            farewell(_farewell(node))
        finally:
            await engine.close()
            await connection.close()


def _reload(
    again: Callable[[], ServiceConfig] | None,
    engine: LocalEngine,
    connection: Connection,
    state: Path,
) -> None:
    """Reload what may change while a node runs: accounts, the token and the log level."""
    if again is None:
        return
    try:
        config = again()
        owners, described = owners_of(config)
        check_reachable(state, owners)
        connection.renew_token()
    except ThemisError as error:
        _LOG.error("the configuration was not taken: %s", error)
        return
    engine.change(owners)
    logging.getLogger("themis").setLevel(config.log_level.upper())
    _LOG.info("configuration read again; jobs run as: %s", described)


async def _until_signalled(node: Node, reload: Callable[[], None], *, drain: float | None) -> None:
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, reload)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    running = asyncio.create_task(node.run())
    waiting = asyncio.create_task(signalled.wait())
    notify(READY)
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    notify(STOPPING)
    if not running.done():
        if drain is not None:
            await node.drain(drain)
        node.stop()
    waiting.cancel()
    await running


def _farewell(node: Node) -> str:
    count = len(node.live)
    if not count:
        return "the node has stopped; nothing runs here"
    runs = "1 run goes" if count == 1 else f"{count} runs go"
    return f"the node has stopped; {runs} on, until a node takes over or the leases end"
