"""Leases and runs as a node knows them, and what it reports of its runs."""

import math
from dataclasses import dataclass

from themis.core.model import AppId
from themis.node.core.events import RunLimits
from themis.protocol.node_messages import Point, RunOrder, RunReport, RunState


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease of one GPU, by the machine's clock."""

    app: AppId
    token: int
    end: float


@dataclass(slots=True)
class NodeRun:
    """One run that a node has a record of, alive or not."""

    order: RunOrder
    state: RunState
    limits: RunLimits
    kill_at: float = math.inf
    """When its grace is over, once it was told to stop."""
    killed_at: float = math.inf
    stuck: str = ""
    """Why it is believed not to die."""
    code: int | None = None
    iterations: float = 0.0
    seconds: float = 0.0
    message: str = ""
    log: str = ""
    heard: int = 0
    points: tuple[Point, ...] = ()
    """Those after `heard`, the number of the last acknowledged one."""
    more: bool = False
    log_size: int = 0
    trouble: str = ""
    interrupted: bool = False
    """Whether it was told to stop before it ended."""

    @property
    def told_to_stop(self) -> bool:
        """Whether it was told to save and exit."""
        return self.kill_at < math.inf

    def next_step(self, patience: float) -> float:
        """When one of its limits must be enforced."""
        if self.killed_at < math.inf:
            return math.inf if self.stuck else self.killed_at + patience
        if self.told_to_stop:
            return min(self.kill_at, self.limits.until)
        return min(self.limits.checkpoint_at, self.limits.until)

    def report(self, count: int) -> RunReport:
        """Its report, with this many of its points."""
        order = self.order
        return RunReport(
            order.run,
            order.app,
            order.job,
            self.state,
            self.code,
            self.iterations,
            self.seconds,
            self.message,
            self.log,
            self.heard + 1,
            self.points[:count],
            self.more or count < len(self.points),
            self.log_size,
            self.trouble,
            self.interrupted,
        )
