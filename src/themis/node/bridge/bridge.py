"""The bridge to a cluster of another scheduler: a node for each machine, in one event loop.

    bridge = Bridge(cluster, folder, make_node)
    await bridge.run()              # until `stop`; jobs go on

To the service these are ordinary nodes. The bridge stops the node of a machine that the scheduler
finds unhealthy; the node falls silent, and its leases expire. When the scheduler itself does not
answer, nothing changes.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from themis.core.model import Machine
from themis.engines.base import Cluster, Engine, Sighting
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.errors import ThemisError, UnavailableError
from themis.node.disk import NodeDisk, make_passable, replace_file

_LOG = logging.getLogger(__name__)

WANTED = "wanted.json"
"""The machines that need tokens, for the service to read."""
TOKEN = "token"
STATUS = "status.json"
"""The state of the bridge itself, for the service to read."""
_SAID = 4000
"""Most characters of a trouble in that file."""
_SOON = 0.5
"""Seconds between looks while a machine waits for its token."""
_AGAIN = 5.0
"""Seconds before a node that failed is tried again."""


class BridgedNode(Protocol):
    """The part of `themis.node.node.Node` that a bridge uses."""

    async def run(self) -> None:
        """Run until it is stopped."""

    def stop(self) -> None:
        """End soon."""

    @property
    def live(self) -> tuple[int, ...]:
        """Runs that may have living processes."""


MakeNode = Callable[[Machine, Engine, NodeDisk, Path], AbstractAsyncContextManager[BridgedNode]]
"""Opens a node from a machine, its engine, its disk and the file with its token."""


class _Driver:
    """The node of one healthy machine."""

    def __init__(self, task: "asyncio.Task[None]") -> None:
        self.task = task
        self.node: BridgedNode | None = None


class Bridge:
    """Keeps a node for each healthy machine of a cluster. Call `run` once."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        owners: Owners,
        make_node: MakeNode,
        *,
        every: float = 5.0,
    ) -> None:
        """Bring the parts together.

        Args:
            cluster: Lists and opens the machines.
            folder: The parent of all nodes' folders, on a local disk.
            owners: The accounts that jobs run as.
            make_node: Makes nodes.
            every: Seconds between looks at the cluster.
        """
        self._cluster = cluster
        self._folder = folder
        self._owners = owners
        self._make = make_node
        self._every = every
        self._drivers: dict[str, _Driver] = {}
        self._wanted: tuple[str, ...] | None = None
        self._trouble: dict[str, str] = {}
        self._reported: str | None = None
        """The trouble in the status file; None before the first look."""
        self._stop = asyncio.Event()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Machines that have a node now."""
        return tuple(self._drivers)

    @property
    def live(self) -> int:
        """How many runs are alive."""
        nodes = (driver.node for driver in self._drivers.values())
        return sum(len(node.live) for node in nodes if node is not None)

    def stop(self) -> None:
        """End soon; jobs go on."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until `stop`."""
        try:
            while not self._stop.is_set():
                await self._look()
                # Tokens come soon after the request.
                every = min(self._every, _SOON) if self._tokenless() else self._every
                with suppress(TimeoutError):
                    async with asyncio.timeout(every):
                        await self._stop.wait()
        finally:
            await asyncio.gather(*(self._end(name) for name in list(self._drivers)))

    async def _look(self) -> None:
        try:
            seen = await self._cluster.look()
        except UnavailableError as error:
            self._report(f"the cluster cannot be looked at, nothing changes: {error}")
            return
        self._report(_why_unusable(seen))
        self._want(tuple(item.machine.name for item in seen))
        known = {item.machine.name for item in seen}
        for name in [name for name in self._drivers if name not in known]:
            _LOG.warning("machine %s is not in the cluster any more", name)
            await self._end(name)
        for item in seen:
            await self._compare(item)

    def _report(self, trouble: str) -> None:
        """Log a trouble of the whole cluster and write it for the service, once."""
        if trouble == self._reported:
            return
        if trouble:
            _LOG.warning("%s", trouble)
        elif self._reported:
            _LOG.info("the cluster can be used again")
        text = json.dumps({"trouble": trouble[:_SAID]})
        try:
            replace_file(bridge_folder(self._folder) / STATUS, text, durable=False)
        except OSError as error:
            _LOG.warning("the status for the service cannot be written: %s", error)
        else:
            self._reported = trouble

    async def _compare(self, seen: Sighting) -> None:
        name = seen.machine.name
        if seen.trouble != self._trouble.get(name, ""):
            self._trouble[name] = seen.trouble
            _LOG.info("machine %s: %s", name, seen.trouble or "can be used")
        driver = self._drivers.get(name)
        if driver is not None and driver.task.done():
            del self._drivers[name]
            driver = None
        if seen.trouble and driver is not None:
            await self._end(name)
        elif not seen.trouble and driver is None and (self._folder / name / TOKEN).exists():
            self._drivers[name] = _Driver(asyncio.create_task(self._drive(name)))

    def _tokenless(self) -> bool:
        return any(not (self._folder / name / TOKEN).exists() for name in self._wanted or ())

    def _want(self, names: tuple[str, ...]) -> None:
        """Ask the service for tokens; it makes one for each machine that has none."""
        if names == self._wanted:
            return
        draft = self._folder / f"{WANTED}.new"
        draft.write_text(json.dumps(names), encoding="utf-8")
        draft.replace(self._folder / WANTED)
        self._wanted = names

    async def _drive(self, name: str) -> None:
        """Run the node of one machine; its errors end no other node."""
        try:
            await self._be_node(name)
        except (ThemisError, OSError) as error:
            _LOG.error("the node of machine %s has ended: %s", name, error)
            await asyncio.sleep(_AGAIN)
        except Exception:
            _LOG.exception("the node of machine %s has failed", name)
            await asyncio.sleep(_AGAIN)

    async def _be_node(self, name: str) -> None:
        folder = self._folder / name
        with NodeDisk.open(folder, name) as disk:
            await asyncio.to_thread(reset_old_times, disk, folder / "boot")
            engine = await self._cluster.open(name, self._owners)
            try:
                (found,) = await engine.discover()
                async with self._make(found.machine, engine, disk, folder / TOKEN) as node:
                    self._drivers[name].node = node
                    _LOG.info("machine %s has a node, with %d GPUs", name, found.machine.gpus)
                    await node.run()
            finally:
                await engine.close()

    async def _end(self, name: str) -> None:
        driver = self._drivers.pop(name)
        if driver.node is not None:
            driver.node.stop()
        else:
            driver.task.cancel()
        await asyncio.gather(driver.task, return_exceptions=True)


def reset_old_times(disk: NodeDisk, file: Path) -> None:
    """Reset times in records of runs that are on the clock of an earlier boot.

    Jobs on other machines go on when this one restarts; supervisors know their leases.
    """
    boot = boottime.boot_id()
    with suppress(FileNotFoundError):
        if file.read_text(encoding="utf-8") == boot:
            return
        for record in disk.runs():
            disk.put(replace(record, lease_end=0.0))
    file.write_text(boot, encoding="utf-8")


def wanted_machines(folder: Path) -> tuple[str, ...]:
    """The machines that a bridge wants tokens for."""
    try:
        names = json.loads((folder / WANTED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _why_unusable(seen: Sequence[Sighting]) -> str:
    """Why no machine can be used; empty if one can."""
    if not seen:
        return "the cluster has no machine with GPUs that Themis may use"
    if not all(item.trouble for item in seen):
        return ""
    first = seen[0]
    more = f" (and {len(seen) - 1} others)" if len(seen) > 1 else ""
    return f"no machine of the cluster can be used: {first.machine.name}: {first.trouble}{more}"


def bridge_trouble(nodes: Path) -> str | None:
    """The trouble in a bridge's status file; empty: none; None: not written yet."""
    try:
        with (bridge_folder(nodes) / STATUS).open(encoding="utf-8", errors="replace") as file:
            said = json.loads(file.read(10 * _SAID))
    except (OSError, ValueError):
        return None
    trouble = said.get("trouble") if isinstance(said, dict) else None
    return trouble if isinstance(trouble, str) else None


def forget_trouble(nodes: Path) -> None:
    """Remove the status file of a bridge that has ended."""
    (bridge_folder(nodes) / STATUS).unlink(missing_ok=True)


def bridge_folder(nodes: Path) -> Path:
    """The folder of the bridge process itself, beside those of its nodes."""
    folder = nodes / ".bridge"
    make_passable(folder)
    return folder
