"""A Ray cluster: its machines, and the way to each.

    cluster = RayCluster(folder, "ray://head:10001", RaySettings())
    for seen in await cluster.look(): ...
    engine = await cluster.open("n0", owners)

A start is one placement group of one bundle, pinned to its machine by the label that Ray gives
every node, and one actor in it that holds the supervisor; both detached, and under the name of the
start: by that it is found again. Machines are named by a label, or by their host names.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from themis.core.model import Machine
from themis.engines.attempt.layout import EngineLimits
from themis.engines.base import Capabilities, Discovered, Sighting
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.ray.driver_client import DriverConnection
from themis.engines.remote.backoff import (
    ForeignGpus,
    MachineBackoff,
    gpus_with_troubles,
    themis_name,
)
from themis.engines.remote.engine import RemoteEngine
from themis.engines.remote.launcher import LaunchStage, RemoteTiming
from themis.errors import UnavailableError

_LOG = logging.getLogger(__name__)
_FRESH = 0.5
"""How long an answer of Ray stays valid, in seconds."""
_ACCELERATOR = "ray.io/accelerator-type"
TRIAL_LABEL = "themis-trial"
"""The label of trial nodes (`integrations.ray_tune`), whose GPUs are those of another node."""
_WAITING, _PLACED = "PENDING", "CREATED"


@dataclass(frozen=True, slots=True)
class RaySettings:
    """The part of the cluster that Themis may use, and the options of its requests."""

    python: str = ""
    """The interpreter that has Ray; empty: this one."""
    only: str = ""
    """label=value of machines that may be used; empty: all with GPUs."""
    machine_label: str = "machine"
    rack_label: str = "rack"
    cpus: int = 1
    """For each GPU."""
    pending: float = 60.0


@dataclass(frozen=True, slots=True)
class RayNode:
    """One node of Ray. A machine that comes back is a new node."""

    id: str
    alive: bool
    why: str
    host: str
    address: str
    gpus: int
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RayView:
    """The state of Ray at one moment."""

    nodes: Mapping[str, RayNode] = field(default_factory=dict)
    """By Themis's names; of several with one name the living one."""
    alive: frozenset[str] = frozenset()
    """Ids of living nodes."""
    groups: Mapping[str, tuple[str, str, int]] = field(default_factory=dict)
    """State, node and GPUs of each start."""
    actors: frozenset[str] = frozenset()
    """Starts whose actor exists, or will."""
    free: Mapping[str, float] = field(default_factory=dict)

    def place(self, name: str, node: str, *, launching: bool) -> LaunchStage | None:
        """The stage of a start that was launched on this node."""
        state, where, _ = self.groups.get(name, ("", "", 0))
        node = where or node
        if node and node not in self.alive:
            return LaunchStage("lost", "Ray: its machine is gone")
        if not state:
            return LaunchStage("waiting") if launching else None
        if state == _WAITING:
            return LaunchStage("waiting", "Ray has no room for it")
        if state != _PLACED:
            return LaunchStage("lost", f"Ray: {state.lower()}")
        return LaunchStage("placed" if launching or name in self.actors else "empty")


class RayCluster:
    """Ray's machines with GPUs that the settings allow."""

    def __init__(
        self,
        folder: Path,
        address: str = "auto",
        settings: RaySettings | None = None,
        *,
        line: DriverConnection | None = None,
        times: RemoteTiming | None = None,
        limits: EngineLimits | None = None,
        checkpoints: Path | None = None,
        now: Callable[[], float] = boottime.now,
    ) -> None:
        """Check the interpreter; Ray is not queried yet.

        Args:
            folder: Where engines keep their files, on storage that all machines share.
            address: `auto` on a machine of the cluster, else ray://HOST:PORT.
            settings: The part of the cluster to use.
            line: The connection to Ray.
            times: Intervals and timeouts of engines.
            limits: Sizes and timeouts of engines.
            checkpoints: Where jobs that name no folder keep theirs.
            now: The clock of leases.

        Raises:
            ConfigError: There is no such Python.
        """
        self.settings = settings or RaySettings()
        self.line = line or DriverConnection(address, self.settings.python)
        self.line.check()
        self.now = now
        self._folder = folder
        self._times = replace(times or RemoteTiming(), pending=self.settings.pending)
        self._limits = limits
        self._checkpoints = checkpoints
        self._seen = RayView()
        self._seen_at = -1e9
        self._asking = asyncio.Lock()
        self._backoff = MachineBackoff(now)
        self._foreign = ForeignGpus("Ray")
        self._known: dict[str, RayNode] = {}
        """Every machine that was ever seen, by name."""
        self._names: dict[str, str] = {}
        """Names of nodes by id: a machine keeps its name whatever nodes join."""
        self._doubles: set[str] = set()
        """Nodes that were warned of, because their name is taken."""

    # Machines

    async def look(self) -> tuple[Sighting, ...]:
        """All machines, with the trouble of those that are dead or whose supervisors are silent."""
        seen = await self._ask()
        return tuple(
            Sighting(self.machine(name), self._trouble(seen, name)) for name in self._known
        )

    async def open(self, machine: str, owners: Owners) -> RemoteEngine:
        """The engine of one machine."""
        from themis.engines.ray.launcher import RayLauncher  # noqa: PLC0415 - it knows us

        folder = self._folder / machine
        engine = await RemoteEngine.open(
            folder,
            RayLauncher(self, machine, folder),
            owners,
            times=self._times,
            limits=self._limits,
            checkpoints=self._checkpoints,
            now=self.now,
        )
        self._backoff.opened(machine, engine)
        return engine

    async def close(self) -> None:
        """End the driver process; jobs in Ray run on."""
        await self.line.close()

    def _trouble(self, seen: RayView, name: str) -> str:
        node = seen.nodes.get(name)
        if node is None or not node.alive:
            self._backoff.is_down(name)
            return "Ray lists it as dead" + (f": {node.why[:200]}" if node and node.why else "")
        if self._backoff.backs_off(name):
            return "its supervisors are silent, and Ray gives no reason"
        return ""

    def machine(self, name: str) -> Machine:
        """A machine in Themis's terms; each GPU is a slot, because Ray chooses them."""
        node = self._known[name]
        rack = themis_name(node.labels.get(self.settings.rack_label, "r0"))
        model = themis_name(node.labels.get(_ACCELERATOR, "gpu"))
        return Machine(name, rack, (1,) * node.gpus, model)

    def node(self, name: str) -> str:
        """Ray's node id of a machine.

        Raises:
            UnavailableError: It has no living node.
        """
        node = self._seen.nodes.get(name)
        if node is None or not node.alive:
            raise UnavailableError(f"Ray has no machine {name} now")
        return node.id

    def address(self, name: str) -> str:
        """The address of a machine."""
        return self._known[name].address if name in self._known else name

    async def discover(self, name: str, busy: Collection[int]) -> Discovered:
        """A machine with its GPUs; other users of Ray may have some of them."""
        seen = await self._ask()
        if name not in self._known:
            raise UnavailableError(f"Ray has no machine {name} with GPUs")
        machine, node, troubles = self.machine(name), seen.nodes.get(name), list[str]()
        if node is not None and node.id in seen.free:
            used = machine.gpus - int(seen.free[node.id])
            ours = sum(gpus for _, where, gpus in seen.groups.values() if where == node.id)
            troubles = self._foreign.troubles(name, used - ours)
        gpus = gpus_with_troubles(machine.gpus, machine.gpu_model, troubles, busy)
        return Discovered(machine, tuple(gpus))

    # Starts

    async def starts(self) -> RayView | None:
        """The present state of Ray; None: it does not answer."""
        try:
            return await self._ask()
        except UnavailableError:
            return None

    def look_again(self) -> None:
        """Query Ray at the next call: the last answer is out of date."""
        self._seen_at = -1e9

    async def _ask(self) -> RayView:
        async with self._asking:
            if self.now() - self._seen_at > _FRESH:
                asked = self.now()
                self._seen = self._read(await self.line.call("look"))
                self._seen_at = asked
            return self._seen

    def _read(self, said: Mapping[str, Any]) -> RayView:
        nodes = [RayNode(**node) for node in said["nodes"]]
        there = [node for node in nodes if TRIAL_LABEL not in node.labels]
        hosts = [node.host for node in there if node.alive]
        named: dict[str, RayNode] = {}
        for node in there:
            if not self._takes(node):
                continue
            name = self._names.get(node.id) or self._name(node, hosts)
            self._names[node.id] = name
            named[name] = self._chosen(name, named[name], node) if name in named else node
        self._known = dict(sorted((self._known | named).items()))
        groups = {name: (state, node, gpus) for name, (state, node, gpus) in said["groups"].items()}
        alive = frozenset(node.id for node in nodes if node.alive)
        self._names = {node.id: self._names[node.id] for node in there if node.id in self._names}
        return RayView(named, alive, groups, frozenset(said["actors"]), said["free"])

    def _name(self, node: RayNode, hosts: list[str]) -> str:
        """The name of a new node."""
        if label := node.labels.get(self.settings.machine_label):
            return themis_name(label)
        by_host, by_address = themis_name(node.host), themis_name(node.address)
        known = self._known.get(by_host)
        if known is not None and known.address == node.address:
            return by_host  # It is back, even if another node has come with its name.
        return by_host if hosts.count(node.host) == 1 else by_address

    def _chosen(self, name: str, one: RayNode, other: RayNode) -> RayNode:
        """The node that is the machine, of two with one name."""
        if one.alive != other.alive:
            return one if one.alive else other
        known = self._known.get(name)
        if known is not None and known.id == other.id:
            one, other = other, one
        if one.alive and other.id not in self._doubles:
            self._doubles.add(other.id)
            _LOG.warning(
                "Ray has two nodes called %s: the one at %s is left out (give it a label %s)",
                name,
                other.address,
                self.settings.machine_label,
            )
        return one

    def _takes(self, node: RayNode) -> bool:
        label, _, value = self.settings.only.partition("=")
        return bool(node.gpus) and (not label or node.labels.get(label) == value)


CAPABILITIES = Capabilities(
    engine="ray",
    chooses_indices=False,
    control="tree",
    control_reasons=("processes that escape the supervisor are ended by the subreaper",),
)
