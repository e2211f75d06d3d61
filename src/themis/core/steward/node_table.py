"""The nodes as the service knows them, and what their reports prove.

A report says what is on a node until it is answered: only orders can put anything there. So a
report is held for up to a heartbeat, and as long as it is held its empty slots stay empty.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from themis.core.arbiter import events as ev
from themis.core.model import GpuId, Machine, Topology
from themis.core.steward.rows import LongestTtl, RowChanges, stored
from themis.errors import ConfigError
from themis.protocol.node_messages import LogWanted, NodeReport, SlotState

NODE_TTL = 20.0
HEARTBEATS = 5
"""The least `node_ttl` in heartbeats: a node that is answered late once or twice stays up."""
FROM_NODE = "node: "
"""How the reason of a quarantine begins that a node asked for, and that it may lift."""


@dataclass(slots=True)
class NodeEntry:
    """One machine and its last report."""

    name: str
    heard: float
    """When its last report arrived, or when the service began to listen."""
    gpus: tuple[GpuId, ...] = ()
    """By their number on the machine; none if it has never joined."""
    present: bool = False
    """Whether the arbiter counts on it."""
    machine: Machine | None = None
    informed: bool = False
    """Whether it has taken orders of this service, and goes by its terms."""
    boot: int = 0
    number: int = 0
    revision: int = 1
    """Of its orders; rises with every change of them."""
    held: NodeReport | None = None
    """A report that is not answered yet."""
    held_at: float = 0.0
    waits_since: float = 0.0
    """When it was last answered, or began to report: reports may overtake each other meanwhile."""
    last: NodeReport | None = None
    """Its last report, answered or not."""
    fresh: bool = False
    """Whether the last report proves anything: its node obeys no earlier service any more."""
    due: bool = False
    """Whether the held report must be answered even if its orders have not changed."""
    live: set[int] = field(default_factory=set)
    """Runs that are alive in the held report."""
    forget: tuple[int, ...] = ()
    """Runs that have ended in the held report, and that the service needs no more."""
    logs: tuple[LogWanted, ...] = ()
    """Parts of logs that readers wait for."""

    @property
    def proof(self) -> NodeReport | None:
        """The held report, if it proves what is on the node now."""
        return self.held if self.fresh else None

    @property
    def clear(self) -> bool:
        """Whether nothing runs on the node: every GPU is empty or out of use."""
        if self.proof is None or self.live:
            return False
        out = {SlotState.EMPTY, SlotState.QUARANTINED}
        return all(slot.state in out for slot in self.proof.slots)

    @property
    def has_news(self) -> bool:
        """Whether the held report is to be answered now."""
        if self.held is None:
            return False
        changed = not self.fresh or self.held.revision != self.revision
        return changed or self.due or bool(self.forget)

    def reports_run(self, run: int) -> bool:
        """Whether a run is in the held report."""
        return self.held is not None and any(each.run == run for each in self.held.runs)


class NodeTable:
    """All nodes, and when each must be answered or given up."""

    def __init__(
        self, rows: Iterable[LongestTtl] = (), *, epoch: int, node_ttl: float = NODE_TTL
    ) -> None:
        self._nodes: dict[str, NodeEntry] = {}
        self._by_gpu: dict[GpuId, NodeEntry] = {}
        self._epoch = epoch
        self._node_ttl = node_ttl
        known = max((row.seconds for row in rows), default=0.0)
        self._longest_ttl = max(known, node_ttl)
        self.changes_at_start = stored(LongestTtl(node_ttl)) if node_ttl > known else {}
        """To be stored before any node is told this time to live."""
        self._silences: list[tuple[float, str]] = []
        self._holds: list[tuple[float, str, int]] = []
        self._touched: dict[str, None] = {}
        self._answerable: dict[str, None] = {}

    @property
    def by_name(self) -> Mapping[str, NodeEntry]:
        """The nodes; read only."""
        return self._nodes

    @property
    def node_ttl(self) -> float:
        """Seconds after which a node that hears nothing ends its runs."""
        return self._node_ttl

    @property
    def machine_of(self) -> Mapping[GpuId, NodeEntry]:
        """The node of every GPU; read only."""
        return self._by_gpu

    def leader(self, gpus: tuple[GpuId, ...]) -> NodeEntry:
        """The node that has rank 0 of a run on these GPUs."""
        return self._by_gpu[gpus[0]]

    def name_of_leader(self, gpus: tuple[GpuId, ...]) -> str:
        """Its name; empty for a run that was never placed."""
        return self.leader(gpus).name if gpus else ""

    def names_of(self, gpus: Iterable[GpuId]) -> list[str]:
        """The nodes of these GPUs, each once, in order."""
        return list(dict.fromkeys(self._by_gpu[gpu].name for gpu in gpus))

    # Members

    def add(self, name: str, heard: float) -> NodeEntry:
        """A node that is new to this service."""
        node = self._nodes[name] = NodeEntry(name, heard)
        return node

    def join(self, node: NodeEntry, topology: Topology, guard: float) -> None:
        """The arbiter counts on a node from now on."""
        self.seat(node, topology)
        node.present = True
        heapq.heappush(self._silences, (self.silent_at(node, guard), node.name))

    def seat(self, node: NodeEntry, topology: Topology) -> None:
        """A node is a machine of the cluster, present or not."""
        number = topology.number_of[node.name]
        node.gpus, node.machine = topology.gpus_of[number], topology.machines[number]
        for gpu in node.gpus:
            self._by_gpu[gpu] = node

    def give_up(self, node: NodeEntry) -> None:
        """A node has left, or has been silent for too long."""
        node.present = False
        node.held = None

    def may_join(self, node: NodeEntry, topology: Topology) -> bool:
        """Whether an absent machine reports that it is as the cluster knows it, and clear."""
        if node.present or not node.clear or node.machine is None or node.held is None:
            return False
        known = topology.number_of.get(node.name)
        if known is not None and topology.machines[known] != node.machine:
            return False  # `themis nodes` says so; its operator must give it another name.
        return node.machine.gpus == len(node.held.slots)

    # Reports

    def is_newer(self, node: NodeEntry, report: NodeReport) -> bool:
        """Whether a report is later than all before it."""
        return (report.boot, report.number) > (node.boot, node.number)

    def take(self, node: NodeEntry, report: NodeReport, at: float, heartbeat: float) -> RowChanges:
        """Hold a report, until it is answered or its node sends a newer one."""
        if node.held is None or report.boot != node.boot:
            node.waits_since = at
        node.boot, node.number, node.heard = report.boot, report.number, at
        node.held, node.held_at, node.due = report, at, False
        node.last = report
        node.fresh = report.epoch == self._epoch
        node.informed |= node.fresh
        node.live = {run.run for run in report.runs if not run.state.over}
        node.forget = ()
        if report.machine is not None:
            node.machine = report.machine
        self._answerable[node.name] = None
        # Counted from the oldest report that waits: a node whose reports overtake each other would
        # never be answered, and would end its runs.
        heapq.heappush(self._holds, (node.waits_since + heartbeat, node.name, node.number))
        # Once all nodes go by this service's time to live; a node that left runs nothing.
        informed = all(each.informed or not each.present for each in self._nodes.values())
        if not informed or self._longest_ttl == self._node_ttl:
            return {}
        self._longest_ttl = self._node_ttl
        return stored(LongestTtl(self._node_ttl))

    def empty(self, node: NodeEntry) -> list[GpuId]:
        """GPUs that are proven empty now."""
        slots = node.proof.slots if node.proof is not None else ()
        pairs = zip(node.gpus, slots, strict=False)
        return [gpu for gpu, slot in pairs if slot.state is SlotState.EMPTY]

    def quarantine_changes(
        self, node: NodeEntry, reason_of: Callable[[GpuId], str | None], at: float
    ) -> Iterator[ev.GpuQuarantined | ev.GpuRestored]:
        """What the held report changes about the GPUs that are out of use."""
        report = node.held
        if report is None or (node.gpus and len(report.slots) != len(node.gpus)):
            return
        for gpu, slot in zip(node.gpus, report.slots, strict=False):
            reason = reason_of(gpu)
            if slot.state is SlotState.QUARANTINED:
                if reason is None or (not node.present and not reason.startswith(FROM_NODE)):
                    yield ev.GpuQuarantined(at, gpu, FROM_NODE + slot.reason)
            elif slot.state is SlotState.EMPTY and reason and reason.startswith(FROM_NODE):
                yield ev.GpuRestored(at, gpu)

    # Answers

    def touch(self, gpu: GpuId) -> None:
        """The orders that concern a GPU have changed."""
        node = self._by_gpu.get(gpu)
        if node is not None:
            node.revision += 1
            self._touched[node.name] = None

    def reconsider(self, node: NodeEntry) -> None:
        """Draw conclusions from the held report of a node."""
        self._touched[node.name] = None

    def take_touched(self) -> list[NodeEntry]:
        """Nodes whose orders or reports have changed since this was last asked."""
        names, self._touched = sorted(self._touched), {}
        self._answerable |= dict.fromkeys(names)
        return [self._nodes[name] for name in names]

    def answer_soon(self, node: NodeEntry) -> None:
        """Answer the held report though its orders have not changed."""
        node.due = True
        self._answerable[node.name] = None

    def let_forget(self, node: NodeEntry, run: int) -> None:
        """The service needs a run in the held report no more."""
        if node.proof is not None:
            node.forget = (*node.forget, run)
            self._answerable[node.name] = None

    def want_logs(self, name: str, wanted: tuple[LogWanted, ...]) -> None:
        """Readers wait for these parts of logs on a node, and for no others."""
        node = self._nodes.get(name)
        if node is None or wanted == node.logs:
            return
        before, node.logs = node.logs, wanted
        if any(want not in before for want in wanted):
            node.revision += 1
            self._answerable[name] = None

    def take_answerable(self) -> Iterator[NodeEntry]:
        """Nodes whose held report is to be answered now."""
        names, self._answerable = sorted(self._answerable), {}
        return (node for name in names if (node := self._nodes[name]).has_news)

    def answered(self, node: NodeEntry) -> None:
        """A held report was answered, and proves nothing any more."""
        node.held = None

    # Time

    @property
    def next_time(self) -> float:
        """When a node must next be answered or may have to be given up."""
        hold = self._holds[0][0] if self._holds else math.inf
        return min(hold, self._silences[0][0]) if self._silences else hold

    def end_holds(self, at: float) -> None:
        """Answer the reports that were held for a heartbeat."""
        while self._holds and self._holds[0][0] <= at:
            _, name, number = heapq.heappop(self._holds)
            node = self._nodes[name]
            if node.held is not None and node.number == number:
                self.answer_soon(node)

    def silent_at(self, node: NodeEntry, guard: float) -> float:
        """When a node is given up unless it reports: it has ended all of its runs by then."""
        ttl = self._node_ttl if node.informed else self._longest_ttl
        return node.heard + ttl + guard

    def silent(self, at: float, guard: float) -> Iterator[NodeEntry]:
        """Nodes that the arbiter counts on and that have been silent for too long."""
        while self._silences and self._silences[0][0] <= at:
            node = self._nodes[heapq.heappop(self._silences)[1]]
            if node.present and (until := self.silent_at(node, guard)) > at:
                heapq.heappush(self._silences, (until, node.name))
            elif node.present:
                yield node

    def excuse_silence(self, at: float) -> None:
        """The service could not hear its nodes before this time."""
        for node in self._nodes.values():
            node.heard = max(node.heard, at)


def check_ttl(node_ttl: float, heartbeat: float) -> None:
    """See that nodes live for several heartbeats.

    Raises:
        ConfigError: They do not.
    """
    if node_ttl < HEARTBEATS * heartbeat:
        allowed = f"{HEARTBEATS} heartbeats ({HEARTBEATS * heartbeat:g} s) or more"
        raise ConfigError("node_ttl", node_ttl, allowed)
