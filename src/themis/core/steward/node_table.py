"""The nodes as the service knows them."""

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from themis.core.model import GpuId, Machine
from themis.protocol.node_messages import LogWanted, NodeReport, SlotState


@dataclass(slots=True)
class NodeEntry:
    """One machine with its last report."""

    name: str
    heard: float
    """When its last report came, or when the service began to listen."""
    gpus: tuple[GpuId, ...] = ()
    """By their number on the machine; none while it has never joined."""
    present: bool = False
    """Whether the arbiter counts on it."""
    machine: Machine | None = None
    informed: bool = False
    """Whether it has taken orders of this service, and goes by its terms."""
    boot: int = 0
    number: int = 0
    revision: int = 1
    """Of what is wanted on it; rises with every change."""
    held: NodeReport | None = None
    """A report that is not answered yet: nothing on the node has changed since by our doing."""
    held_at: float = 0.0
    waits_since: float = 0.0
    """When it was last answered, or began to speak: reports may overtake each other meanwhile."""
    last: NodeReport | None = None
    """Its last report, answered or not."""
    fresh: bool = False
    """Whether the kept report proves anything: its node listens to nobody before this service."""
    due: bool = False
    """Whether the kept report must be answered, news or not."""
    live: set[int] = field(default_factory=set)
    """Runs that the kept report has as alive."""
    forget: tuple[int, ...] = ()
    """Runs that it has as over and that the service needs no more."""
    logs: tuple[LogWanted, ...] = ()
    """Parts of logs that people wait for."""

    def keep(self, report: NodeReport, at: float, epoch: int) -> None:
        """Take in a report."""
        if self.held is None or report.boot != self.boot:
            self.waits_since = at
        self.boot, self.number, self.heard = report.boot, report.number, at
        self.held, self.held_at, self.due = report, at, False
        self.last = report
        self.fresh = report.epoch == epoch
        self.informed |= self.fresh
        self.live = {run.run for run in report.runs if not run.state.over}
        self.forget = ()
        if report.machine is not None:
            self.machine = report.machine

    def is_newer(self, report: NodeReport) -> bool:
        """Whether a report is later than all before it."""
        return (report.boot, report.number) > (self.boot, self.number)

    def empty(self) -> list[GpuId]:
        """GPUs that are proven empty now: until the kept report is answered they stay so."""
        if not self.proves or self.held is None:
            return []
        return [
            gpu
            for gpu, slot in zip(self.gpus, self.held.slots, strict=False)
            if slot.state is SlotState.EMPTY
        ]

    @property
    def proves(self) -> bool:
        """Whether there is a report that says what is on the node now."""
        return self.held is not None and self.fresh

    @property
    def clear(self) -> bool:
        """Whether the kept report has every GPU empty or out of use."""
        if not self.proves or self.held is None or self.live:
            return False
        out = {SlotState.EMPTY, SlotState.QUARANTINED}
        return all(slot.state in out for slot in self.held.slots)

    @property
    def has_news(self) -> bool:
        """Whether the kept report is to be answered now."""
        report = self.held
        if report is None:
            return False
        changed = not self.fresh or report.revision != self.revision
        return changed or self.due or bool(self.forget)


class Roster:
    """All nodes, with what is to be done about them when."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeEntry] = {}
        self.machine_of: dict[GpuId, NodeEntry] = {}
        self._silences: list[tuple[float, str]] = []
        self._holds: list[tuple[float, str, int]] = []

    def seat(self, node: NodeEntry, gpus: tuple[GpuId, ...], machine: Machine) -> None:
        """A machine of the cluster is this node's."""
        node.gpus, node.machine = gpus, machine
        for gpu in gpus:
            self.machine_of[gpu] = node

    def hold(self, node: NodeEntry, until: float) -> None:
        """Answer the kept report of a node at this time, news or not."""
        heapq.heappush(self._holds, (until, node.name, node.number))

    def held_long_enough(self, at: float) -> Iterator[NodeEntry]:
        """Nodes whose kept report must be answered now."""
        while self._holds and self._holds[0][0] <= at:
            _, name, number = heapq.heappop(self._holds)
            node = self.nodes[name]
            if node.held is not None and node.number == number:
                yield node

    def watch(self, node: NodeEntry, until: float) -> None:
        """Look at this time whether a node has been heard since."""
        heapq.heappush(self._silences, (until, node.name))

    def silent(self, at: float, last_word: Callable[[NodeEntry], float]) -> Iterator[NodeEntry]:
        """Nodes that the arbiter counts on and that have been silent for too long."""
        while self._silences and self._silences[0][0] <= at:
            node = self.nodes[heapq.heappop(self._silences)[1]]
            if node.present and last_word(node) > at:
                self.watch(node, last_word(node))
            elif node.present:
                yield node

    @property
    def next_time(self) -> float:
        """When there is next something to look at."""
        hold = self._holds[0][0] if self._holds else math.inf
        return min(hold, self._silences[0][0]) if self._silences else hold
