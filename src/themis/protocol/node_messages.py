"""Messages between nodes and the service.

A node sends a `NodeReport`, the service answers it with `Orders`. Both have the whole state of that
node, actual and wanted, never a difference: the next message makes up for one that is lost, late or
sent twice. GPUs are numbered from 0 on their own machine here.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from themis.core.model import AppId, JobId, Machine, OwnerId
from themis.errors import RefusedError

MOST_VALUES = 8
"""Values of one point."""
LONGEST_NAME = 64
MOST_POINTS = 256
"""Points of one run in one report; see `Point.weight`."""
MOST_REPORTED = 8 * MOST_POINTS
"""Points of all runs in one report: to read this many takes the service some 20 ms, in which it
does nothing else."""
MOST_LOG = 64 << 10
"""Bytes of one part of a log."""
MOST_PARTS = 4
"""Parts of logs in one report."""


class SlotState(StrEnum):
    """The state of a GPU, as its node reports it."""

    EMPTY = "empty"
    """Nothing runs there, or will before the next orders."""
    RUNNING = "running"
    STOPPING = "stopping"
    QUARANTINED = "quarantined"


class RunState(StrEnum):
    """The state of a run of a job."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"
    LOST = "lost"
    """It has ended, and its exit code is not known."""

    @property
    def over(self) -> bool:
        """Whether all of its processes have ended."""
        return self in {RunState.EXITED, RunState.LOST}


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The times that both sides keep to, in seconds."""

    heartbeat: float = 2.0
    """How long the service may hold a report before it answers."""
    node_ttl: float = 20.0
    """A node that hears nothing for this long ends its runs."""
    grace: float = 30.0
    """Between telling a process to stop and killing it."""


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """Where a node reads the metrics of a job, and which of them the app is judged by."""

    name: str = "loss"
    kind: str = "jsonl"
    path: str = ""
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a job: an argument list, never a line for a shell."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    grace: float = 0.0
    """Seconds between telling it to save and killing it; 0 for those of the service's terms.

    At the end of a lease it is told this long before, but never longer than the terms say: up to
    then the lease may still be renewed.
    """
    metrics: MetricsSource = MetricsSource()


@dataclass(frozen=True, slots=True)
class SlotReport:
    """One GPU: its state, and the present or last token that it was used under."""

    gpu: int
    token: int
    state: SlotState
    reason: str = ""


NOT_FINITE = 1e15
"""Stands for a metric that is not a finite number: messages have finite numbers only."""


def finite(value: float | None) -> float | None:
    """A value of a metric; None if it is missing or not finite."""
    return None if value is None or value >= NOT_FINITE else value


def early_end(iterations: float, target: float) -> str:
    """Why a job failed that exited with 0 too early, and what its program has to do."""
    return (
        f"it exited with 0 at iteration {iterations:g} of {target:g}; a program that finds nothing "
        "left to do must report its iteration before it exits"
    )


def no_metric(name: str) -> str:
    """Why a trial failed that exited with 0 and never reported its metric."""
    return f"it exited with 0 and never reported its metric {name!r}, by which trials are judged"


@dataclass(frozen=True, slots=True)
class Point:
    """What a job reported at one iteration, counted from its start."""

    iteration: float
    time: float | None = None
    """Seconds on the job's clock, if reported."""
    values: tuple[tuple[str, float], ...] = ()
    """Its loss and other metrics, by name; `NOT_FINITE` if the job has diverged."""

    def __post_init__(self) -> None:
        if len(self.values) == 1:  # Nearly all are like this, and there are very many.
            name, value = self.values[0]
            # A sum with a number that is not finite is not finite.
            if 0 < len(name) <= LONGEST_NAME and math.isfinite(self.iteration + value):
                return
        names = [name for name, _ in self.values]
        if len(names) > MOST_VALUES or len(set(names)) != len(names):
            raise RefusedError("values", f"at most {MOST_VALUES}, each name once")
        if any(not 0 < len(name) <= LONGEST_NAME for name in names):
            raise RefusedError("values", f"names of 1 to {LONGEST_NAME} characters")
        if not all(map(math.isfinite, (self.iteration, *(value for _, value in self.values)))):
            raise RefusedError("values", "finite numbers")

    @property
    def weight(self) -> int:
        """What it counts for where points are limited: the number of its values."""
        return max(1, len(self.values))


def weight_of(points: Iterable[Point]) -> int:
    """The weight of points together."""
    # `Point.weight`, spelled out because there are very many.
    return sum([len(point.values) or 1 for point in points])


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run that the node has a record of, alive or not."""

    run: int
    app: AppId
    job: JobId
    state: RunState
    code: int | None = None
    iterations: float = 0.0
    """Since the job began, in all of its runs."""
    seconds: float = 0.0
    """Of training in this run."""
    message: str = ""
    log: str = ""
    """The last lines of its output, once it has ended."""
    first: int = 1
    """The number of the first of `points`, which count from 1 in every run."""
    points: tuple[Point, ...] = ()
    """Those that its agent has not acknowledged, the oldest first."""
    more: bool = False
    """Whether others follow once these are acknowledged."""
    log_size: int = 0
    """Bytes of its output, once it has ended."""
    trouble: str = ""
    """Why some of its metrics could not be read."""
    interrupted: bool = False
    """Whether its node or its supervisor told it to stop before it ended."""

    def __post_init__(self) -> None:
        if weight_of(self.points) > MOST_POINTS:
            raise RefusedError("points", f"at most {MOST_POINTS} values in one report")

    @property
    def last(self) -> int:
        """The number of the last of `points`, or of the last acknowledged one."""
        return self.first + len(self.points) - 1


@dataclass(frozen=True, slots=True)
class LogPart:
    """A part of the output of a run."""

    run: int
    offset: int
    """The offset that was asked for."""
    next: int
    """The offset of its end, in bytes; it begins after `offset` if that part was deleted."""
    text: str
    """With a replacement sign for bytes that are not UTF-8."""
    size: int
    """Bytes of the output so far."""
    end: bool = False
    """Whether this is the end of the output of a run that has ended."""
    missing: bool = False
    """Whether the node has no such log."""
    number: int = 0
    """Of the `LogWanted` that it answers."""

    def __post_init__(self) -> None:
        if len(self.text) > MOST_LOG:
            raise RefusedError("text", f"at most {MOST_LOG} characters")


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The whole state of a node, with all effects of orders that answered earlier reports."""

    node: str
    boot: int
    """Counts the starts of the node; kept on its disk."""
    number: int
    """Counts the reports of a boot."""
    epoch: int
    """Of the last orders that it obeyed; 0 before the first."""
    revision: int
    """Of the last orders that it obeyed."""
    slots: tuple[SlotReport, ...]
    runs: tuple[RunReport, ...]
    machine: Machine | None = None
    """Its shape, if the service may not know it."""
    control: str = ""
    """How it ends processes: by cgroup, namespace or process tree."""
    version: str = ""
    trust_tenants: bool = False
    """Whether jobs of all owners run as one user."""
    shared_dir: str = ""
    """Where its jobs keep checkpoints, if that is meant to be the same storage on other nodes."""
    mark: str = ""
    """The oldest mark of a node that it sees there."""
    storage_trouble: str = ""
    """Why it cannot use that folder."""
    logs: tuple[LogPart, ...] = ()
    """The parts of logs that the last orders ask for, as far as they exist."""


@dataclass(frozen=True, slots=True)
class LeaseOrder:
    """The lease of a GPU. A GPU without one must be empty."""

    gpu: int
    app: AppId
    owner: OwnerId
    token: int
    remaining: float
    """Seconds, counted from when the service received the report that this answers."""


@dataclass(frozen=True, slots=True)
class RunOrder:
    """A run that is wanted on this node, or that must stop."""

    run: int
    """Never used twice: a run that has ended is not started again."""
    app: AppId
    owner: OwnerId
    job: JobId
    gpus: tuple[int, ...]
    tokens: tuple[int, ...]
    """Of the leases, one for each of `gpus`."""
    program: Program
    limit: float = 0.0
    """Iterations, counted from the job's start, at which it must stop; 0 for no limit."""
    stop: bool = False
    rank: int = 0
    """Of this node among those of the run."""
    world: int = 1
    """The number of nodes of the run."""
    rendezvous: str = ""
    """The machine of rank 0."""
    born: str = ""
    """Tells its app from earlier ones of the same name, whose checkpoints it must not find."""

    @property
    def token(self) -> int:
        """The highest of its leases."""
        return max(self.tokens)


@dataclass(frozen=True, slots=True)
class LogWanted:
    """A part of a run's log that a reader waits for."""

    run: int
    app: AppId
    owner: OwnerId
    job: JobId
    """The log is found by all of these: a node may have logs of an earlier cluster."""
    offset: int
    most: int
    """Bytes, `MOST_LOG` of them or fewer."""
    now: bool = False
    """Whether to answer at once, even if there is nothing to read."""
    number: int = 0
    """Never used twice: the same part asked for again is read again."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The whole wanted state of a node."""

    epoch: int
    """Counts the starts of the service."""
    boot: int
    """The newest boot of the node that has reported."""
    answers: int
    """The number of the report that this answers."""
    revision: int
    leases: tuple[LeaseOrder, ...]
    runs: tuple[RunOrder, ...]
    terms: LeaseTerms
    forget: tuple[int, ...] = ()
    """Runs whose end is stored: their records may be deleted."""
    introduce: bool = False
    """Whether the node must report the shape of its machine."""
    outdated: bool = False
    """There were later reports: a node that sent this one last has lost its disk."""
    heard: tuple[tuple[int, int], ...] = ()
    """Runs with points, and the last one that their agents have acknowledged."""
    nonce: str = ""
    """The beginning of marks in shared folders."""
    logs: tuple[LogWanted, ...] = ()
    """Parts of logs that readers wait for."""
