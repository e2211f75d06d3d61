"""What engines and stores know of this machine, for the doctor (`themis.ops.doctor.Probe`)."""

import asyncio
import socket
from collections.abc import Sequence

from themis.config.keys import ServiceConfig
from themis.engines.host.gpu_inventory import GpuInventory, NvidiaGpus
from themis.engines.ray.driver_client import ray_version
from themis.engines.slurm.commands import Commands
from themis.engines.supervisor.control_probe import ChosenControl, choose
from themis.errors import MissingFileError, UnavailableError
from themis.ops.doctor import GpuFound
from themis.service.persistence.store import open_store
from themis.service.persistence.store.urls import sqlite_path

_PATIENCE = 10.0
"""How long a cluster may take to answer, in seconds."""


class EngineProbe:
    """Asks the engines, the driver and the store of this machine; kills a process of its own."""

    def __init__(self, inventory: GpuInventory | None = None) -> None:
        self._inventory = inventory or NvidiaGpus(socket.gethostname())
        self._choice: ChosenControl | None = None

    def control(self) -> str:
        """How the node would control processes: the best way that works here."""
        if self._choice is None:
            try:
                self._choice = choose()
            except (RuntimeError, OSError) as error:
                raise UnavailableError(f"no way to hold processes works: {error}") from None
        return self._choice.name

    def reasons(self) -> Sequence[str]:
        """Why better ways do not work here."""
        self.control()
        return self._choice.reasons if self._choice else ()

    def gpus(self) -> Sequence[GpuFound]:
        """The GPUs that the driver knows; none without a driver."""
        try:
            found = self._inventory.discover(lambda _: False)
        except UnavailableError:
            return ()
        return tuple(
            GpuFound(f"GPU {gpu.index} ({gpu.model or 'unknown'})", gpu.trouble)
            for gpu in found.gpus
        )

    def cluster(self, config: ServiceConfig) -> str:
        """A few words on the cluster of the engine, as far as it answers."""
        if config.engine == "slurm":
            commands = Commands(limit=_PATIENCE)
            commands.check()
            return asyncio.run(commands.ping())
        version = ray_version(str(config.ray.python or ""))
        if not config.engine.startswith("ray://"):
            return f"Ray {version}; whether a cluster runs here was not checked"
        host, _, port = config.engine.removeprefix("ray://").rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
        except (OSError, OverflowError) as error:
            raise UnavailableError(f"{config.engine} does not answer: {error}") from None
        return f"Ray {version}; a server listens at {config.engine}"

    def store(self, url: str) -> str:
        """A few words on the store, which is not changed."""
        path = sqlite_path(url)
        if path is not None and not path.exists():
            return f"none yet; the first start makes {path}"
        try:
            with open_store(url, read_only=True) as store:
                usage, epochs = store.usage(), store.epochs()
                place = store.url
        except MissingFileError:
            return "none yet; the first start makes one"
        entries = usage.next_entry - usage.first_entry
        epoch = epochs[-1].number if epochs else 0
        return f"{place}: {usage.bytes / 1e6:.1f} MB, entries in its log: {entries}, epoch {epoch}"
