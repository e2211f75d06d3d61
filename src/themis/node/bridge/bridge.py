"""The bridge to a cluster that another scheduler rules: a node for each machine, in one loop.

    bridge = Bridge(cluster, folder, make_node)
    await bridge.run()              # until `stop`; jobs go on

To the service these are nodes like any other. A machine that the scheduler finds unwell has no node
any longer: it falls silent, and what was leased there is free when its time to live is over. When
the scheduler itself does not answer, nothing changes.
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
"""What the service should know of the bridge itself, in its own folder."""
_SAID = 4000
"""Characters of a trouble that are left for it."""
_SOON = 0.5
"""Seconds between looks while a machine waits for its token."""
_AGAIN = 5.0
"""Seconds before a node that failed is tried again."""


class BridgedNode(Protocol):
    """A node, as `themis.node.node.Node` is one."""

    async def run(self) -> None:
        """Until it is stopped."""

    def stop(self) -> None:
        """Come to an end soon."""

    @property
    def live(self) -> tuple[int, ...]:
        """Runs of which something may be alive."""


MakeNode = Callable[[Machine, Engine, NodeDisk, Path], AbstractAsyncContextManager[BridgedNode]]
"""Opens a node for a machine, with the engine and disk it has and the file with its token."""


class _Driver:
    """The node of one machine, for as long as the machine is well."""

    def __init__(self, task: "asyncio.Task[None]") -> None:
        self.task = task
        self.node: BridgedNode | None = None


class Bridge:
    """Keeps a node for each machine of a cluster. `run` once."""

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
            cluster: The machines.
            folder: Where each node has a folder of its own, on a disk of this machine.
            owners: Whom jobs run as.
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
        self._told: str | None = None
        """What the service was told of the cluster; None: nothing yet."""
        self._stop = asyncio.Event()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Machines that have a node now."""
        return tuple(self._drivers)

    @property
    def live(self) -> int:
        """How many runs go on."""
        nodes = (driver.node for driver in self._drivers.values())
        return sum(len(node.live) for node in nodes if node is not None)

    def stop(self) -> None:
        """Come to an end soon; jobs go on."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until `stop`."""
        try:
            while not self._stop.is_set():
                await self._look()
                # Tokens come soon after they were asked for.
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
            self._tell(f"the cluster cannot be looked at, nothing changes: {error}")
            return
        self._tell(_useless(seen))
        self._want(tuple(item.machine.name for item in seen))
        known = {item.machine.name for item in seen}
        for name in [name for name in self._drivers if name not in known]:
            _LOG.warning("machine %s is not in the cluster any more", name)
            await self._end(name)
        for item in seen:
            await self._compare(item)

    def _tell(self, trouble: str) -> None:
        """Log what is wrong with the cluster as a whole, and leave it for the service; once."""
        if trouble == self._told:
            return
        if trouble:
            _LOG.warning("%s", trouble)
        elif self._told:
            _LOG.info("the cluster can be used again")
        text = json.dumps({"trouble": trouble[:_SAID]})
        try:
            replace_file(bridge_folder(self._folder) / STATUS, text, durable=False)
        except OSError as error:
            _LOG.warning("the service is not told of that, for now: %s", error)
        else:
            self._told = trouble

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
        """Ask the service for tokens; it gives one to each machine that has none."""
        if names == self._wanted:
            return
        draft = self._folder / f"{WANTED}.new"
        draft.write_text(json.dumps(names), encoding="utf-8")
        draft.replace(self._folder / WANTED)
        self._wanted = names

    async def _drive(self, name: str) -> None:
        """Be the node of one machine. What goes wrong there is no other machine's trouble."""
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
            await asyncio.to_thread(forget_old_times, disk, folder / "boot")
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


def forget_old_times(disk: NodeDisk, file: Path) -> None:
    """Forget the times in records of runs that are on a clock of before this machine restarted.

    What runs on other machines goes on when this one restarts; supervisors know their leases.
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


def _useless(seen: Sequence[Sighting]) -> str:
    """Why none of the machines can be used; empty if one can."""
    if not seen:
        return "the cluster has no machine with GPUs that Themis may use"
    if not all(item.trouble for item in seen):
        return ""
    first = seen[0]
    more = f" (and {len(seen) - 1} others)" if len(seen) > 1 else ""
    return f"no machine of the cluster can be used: {first.machine.name}: {first.trouble}{more}"


def bridge_trouble(nodes: Path) -> str | None:
    """What a bridge says is wrong with its cluster; empty: nothing; None: it has not said yet."""
    try:
        with (bridge_folder(nodes) / STATUS).open(encoding="utf-8", errors="replace") as file:
            said = json.loads(file.read(10 * _SAID))
    except (OSError, ValueError):
        return None
    trouble = said.get("trouble") if isinstance(said, dict) else None
    return trouble if isinstance(trouble, str) else None


def forget_trouble(nodes: Path) -> None:
    """A bridge has ended, or another begins: what was said is old."""
    (bridge_folder(nodes) / STATUS).unlink(missing_ok=True)


def bridge_folder(nodes: Path) -> Path:
    """The folder that the process of the bridge itself holds, below that of all its nodes."""
    folder = nodes / ".bridge"
    make_passable(folder)
    return folder
