"""The bridge as a process: `themis bridge`, which `themis serve --engine ...` starts.

SIGTERM and Ctrl-C end it and leave the jobs running under their supervisors, on their machines; the
next one takes them over. It outlives the service, as nodes do.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path

from themis.config.keys import Ray, ServiceConfig, Slurm
from themis.core.model import Machine
from themis.engines.base import Cluster, Engine
from themis.engines.ray.cluster import RayCluster, RaySettings
from themis.engines.slurm.cluster import SlurmCluster, SlurmSettings
from themis.errors import ConfigError
from themis.node.bridge.bridge import Bridge, BridgedNode, bridge_folder
from themis.node.disk import NodeDisk
from themis.node.node import Node
from themis.node.process import check_reachable, check_shared, owners_of
from themis.node.shared_folder import SharedFolder
from themis.rpc.client import Connection, Credentials, NodeClient, refused

_LOG = logging.getLogger(__name__)


def engine_folder(config: ServiceConfig) -> Path:
    """The engines' folder, which all machines must see.

    Raises:
        ConfigError: None is configured.
    """
    if config.engine_dir is not None:
        return config.engine_dir
    if config.shared_dir is None:
        allowed = "a folder that all machines see: the engine's files and checkpoints go there"
        raise ConfigError("shared_dir", "none", allowed)
    return config.shared_dir / "engine"


def open_cluster(config: ServiceConfig) -> Cluster:
    """The cluster that the key `engine` names. It is not queried yet.

    Raises:
        ConfigError: There is no such engine, or its software is not installed.
    """
    folder = engine_folder(config)
    if config.engine == "slurm":
        return SlurmCluster(folder, slurm_settings(config), checkpoints=config.shared_dir)
    if config.engine == "ray" or config.engine.startswith("ray://"):
        address = "auto" if config.engine == "ray" else config.engine
        return RayCluster(folder, address, ray_settings(config), checkpoints=config.shared_dir)
    raise ConfigError("engine", config.engine, "an engine of clusters: slurm or ray")


def slurm_settings(config: ServiceConfig) -> SlurmSettings:
    """The settings in the section `slurm`."""
    return SlurmSettings(**{item.name: getattr(config.slurm, item.name) for item in fields(Slurm)})


def ray_settings(config: ServiceConfig) -> RaySettings:
    """The settings in the section `ray`."""
    given = {item.name: getattr(config.ray, item.name) for item in fields(Ray)}
    return RaySettings(**given | {"python": str(config.ray.python or "")})


async def run_bridge(
    config: ServiceConfig,
    folder: Path,
    *,
    announce: Callable[[str], None] = lambda text: None,
) -> None:
    """Be the bridge until SIGTERM or Ctrl-C.

    Args:
        config: The configuration.
        folder: The parent of its nodes' folders, on a local disk.
        announce: Called with messages for people.

    Raises:
        ThemisError: It cannot start.
    """
    owners, told = owners_of(config)
    if config.shared_dir is not None:
        check_shared(config.shared_dir, owners)
    shared = engine_folder(config)
    shared.mkdir(parents=True, exist_ok=True)
    check_reachable(shared, owners, "engine_dir")
    with NodeDisk.open(bridge_folder(folder), "bridge"):
        cluster = open_cluster(config)
        bridge = Bridge(cluster, folder, owners, partial(_open_node, config, not owners.separate))
        announce(f"bridge to {config.engine}; files: {shared}; jobs run as: {told}")
        try:
            await _until_signalled(bridge)
        finally:
            await cluster.close()
        announce(f"the bridge has stopped; {bridge.live} runs go on")


@asynccontextmanager
async def _open_node(
    config: ServiceConfig,
    trust: bool,
    machine: Machine,
    engine: Engine,
    disk: NodeDisk,
    token: Path,
) -> AsyncIterator[BridgedNode]:
    given, shared = config.node, config.shared_dir
    connection = Connection(given.server, Credentials(token, given.ca, given.cert, given.key))
    connection.check()
    try:
        yield Node(
            machine,
            engine,
            NodeClient(connection),
            disk,
            storage=SharedFolder(shared, machine.name) if shared is not None else None,
            trust_tenants=trust,
            refused=partial(refused, given.server),
        )
    finally:
        await connection.close()


async def _until_signalled(bridge: Bridge) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, bridge.stop)
    await bridge.run()
