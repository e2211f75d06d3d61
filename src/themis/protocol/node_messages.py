"""What nodes and the service say to each other.

A node sends a `NodeReport`, the service answers it with `Orders`. Both are always the whole state
of that node, what is and what is wanted, never a difference: a message that is lost, doubled or
late is made good by the next one. GPUs are numbered from 0 on their own machine here.
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
"""Points of all runs in one report: to read so many takes the service some 20 ms, in which it does
nothing else."""
MOST_LOG = 64 << 10
"""Bytes of one part of a log."""
MOST_PARTS = 4
"""Parts of logs in one report."""


class SlotState(StrEnum):
    """What is on a GPU, as its node sees it."""

    EMPTY = "empty"
    """Nothing, and nothing will be before the next orders."""
    RUNNING = "running"
    STOPPING = "stopping"
    QUARANTINED = "quarantined"


class RunState(StrEnum):
    """Where a run of a job is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"
    LOST = "lost"
    """It is gone, and nobody saw how."""

    @property
    def over(self) -> bool:
        """Whether nothing of it is alive."""
        return self in {RunState.EXITED, RunState.LOST}


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The times both sides go by, in seconds."""

    heartbeat: float = 2.0
    """How long the service may keep a report before it answers."""
    node_ttl: float = 20.0
    """A node that has heard nothing for so long ends what runs there by itself."""
    grace: float = 30.0
    """What a process gets between being told to go and being killed."""


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """Where a node reads what a job reports, and which of its values the app is judged by."""

    name: str = "loss"
    kind: str = "jsonl"
    path: str = ""
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """What a job runs. An argument list, never a line for a shell."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    grace: float = 0.0
    """Seconds between being told to save and being killed; 0 for what the service's terms say.

    At the end of a lease that nobody renews it is told so long before, but no longer than the terms
    say: before that the lease may still be renewed.
    """
    metrics: MetricsSource = MetricsSource()


@dataclass(frozen=True, slots=True)
class SlotReport:
    """One GPU: what is on it, under which token, or the last token that was."""

    gpu: int
    token: int
    state: SlotState
    reason: str = ""


NOT_FINITE = 1e15
"""The value of a metric that is no finite number: messages have none that are not."""


def finite(value: float | None) -> float | None:
    """A value of a metric; None if there is none."""
    return None if value is None or value >= NOT_FINITE else value


def early_end(iterations: float, target: float) -> str:
    """What is wrong with a job that exited with 0 there, and what its program has to do."""
    return (
        f"it exited with 0 at iteration {iterations:g} of {target:g}; a program that finds nothing "
        "left to do must report its iteration before it exits"
    )


def no_metric(name: str) -> str:
    """What is wrong with a trial that exited with 0 and never said how good it is."""
    return f"it exited with 0 and never reported its metric {name!r}, by which trials are judged"


@dataclass(frozen=True, slots=True)
class Point:
    """What a job said of itself at one iteration, counted from its start."""

    iteration: float
    time: float | None = None
    """Seconds on the job's clock, if it said so."""
    values: tuple[tuple[str, float], ...] = ()
    """Its loss and whatever else it measures, by name; `NOT_FINITE` of a job that has diverged."""

    def __post_init__(self) -> None:
        if len(self.values) == 1:  # Nearly all are like this, and there are so many.
            name, value = self.values[0]
            # A sum with a number that is none is none.
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
        """What it counts for where points are limited: with many values it is a long one."""
        return max(1, len(self.values))


def weight_of(points: Iterable[Point]) -> int:
    """What points count for together."""
    # `Point.weight`, spelled out because there are so many.
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
    """Done since the job began, in all its processes."""
    seconds: float = 0.0
    """Of training in this run."""
    message: str = ""
    log: str = ""
    """The last lines of its output, once it is over."""
    first: int = 1
    """The number of the first of `points`: a run's are numbered from 1."""
    points: tuple[Point, ...] = ()
    """What its agent has not said it heard, the oldest first."""
    more: bool = False
    """Whether others follow when these have been heard."""
    log_size: int = 0
    """Bytes that it has printed, once it is over."""
    trouble: str = ""
    """What of its metrics could not be read, and why."""
    interrupted: bool = False
    """Whether its node or its supervisor told it to stop before it ended."""

    def __post_init__(self) -> None:
        if weight_of(self.points) > MOST_POINTS:
            raise RefusedError("points", f"at most {MOST_POINTS} values in one report")

    @property
    def last(self) -> int:
        """The number of the last of `points`, or of the last one heard."""
        return self.first + len(self.points) - 1


@dataclass(frozen=True, slots=True)
class LogPart:
    """What a run has printed from one byte to another."""

    run: int
    offset: int
    """Where it was wanted from."""
    next: int
    """Where it ends, in bytes; it may begin behind `offset`, if what was there is gone."""
    text: str
    """With a sign in place of what is no UTF-8."""
    size: int
    """Of all that it has printed so far."""
    end: bool = False
    """Whether nothing follows, ever."""
    missing: bool = False
    """Whether the node has no such log."""
    number: int = 0
    """Of the `LogWanted` that it answers."""

    def __post_init__(self) -> None:
        if len(self.text) > MOST_LOG:
            raise RefusedError("text", f"at most {MOST_LOG} characters")


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The whole of a node. Everything it did on orders that answered earlier reports is in it."""

    node: str
    boot: int
    """Rises with every start of the node; kept on its disk."""
    number: int
    """Rises with every report of a boot."""
    epoch: int
    """Of the last orders it took; 0 before the first."""
    revision: int
    """Of the last orders it took."""
    slots: tuple[SlotReport, ...]
    runs: tuple[RunReport, ...]
    machine: Machine | None = None
    """Its shape, when the service may not know it."""
    control: str = ""
    """How it ends processes: by cgroup, namespace or process tree."""
    version: str = ""
    trust_tenants: bool = False
    """Whether jobs of all owners run as one user."""
    shared_dir: str = ""
    """Where its jobs keep their checkpoints, if that is meant to be the same on other nodes."""
    mark: str = ""
    """The oldest mark of a node that it finds there."""
    storage_trouble: str = ""
    """Why it cannot use that folder."""
    logs: tuple[LogPart, ...] = ()
    """What the last orders want of logs, as far as it is there."""


@dataclass(frozen=True, slots=True)
class LeaseOrder:
    """Who may use a GPU. A GPU without one must be empty."""

    gpu: int
    app: AppId
    owner: OwnerId
    token: int
    remaining: float
    """Seconds from when the service received the report that this answers."""


@dataclass(frozen=True, slots=True)
class RunOrder:
    """A run that is wanted on this node, or is to stop."""

    run: int
    """Never used twice: a run that is over is not started again."""
    app: AppId
    owner: OwnerId
    job: JobId
    gpus: tuple[int, ...]
    tokens: tuple[int, ...]
    """Of the leases, one for each of `gpus`."""
    program: Program
    limit: float = 0.0
    """Iterations, counted from the job's start, at which it must stop."""
    stop: bool = False
    rank: int = 0
    """Which of the nodes of this run it is."""
    world: int = 1
    """How many nodes the run has."""
    rendezvous: str = ""
    """The machine of rank 0."""
    born: str = ""
    """Which app of its name its app is: the checkpoints of a namesake before it are not its."""

    @property
    def token(self) -> int:
        """The highest of its leases."""
        return max(self.tokens)


@dataclass(frozen=True, slots=True)
class LogWanted:
    """A part of a run's log that somebody waits for, as soon as there is something of it."""

    run: int
    app: AppId
    owner: OwnerId
    job: JobId
    """All of these, because a node may have logs of a cluster before this one."""
    offset: int
    most: int
    """Bytes, `MOST_LOG` of them or fewer."""
    now: bool = False
    """Whether it is to be answered at once, also with nothing."""
    number: int = 0
    """Never used twice: who asks for the same again wants it as it is then."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The whole of what is wanted on a node."""

    epoch: int
    """Rises with every start of the service."""
    boot: int
    """The newest boot of the node that the service has heard of."""
    answers: int
    """The number of the report that this answers."""
    revision: int
    leases: tuple[LeaseOrder, ...]
    runs: tuple[RunOrder, ...]
    terms: LeaseTerms
    forget: tuple[int, ...] = ()
    """Runs that are over, with their result stored."""
    introduce: bool = False
    """Whether the service wants to know the shape of the machine."""
    outdated: bool = False
    """The service has heard later reports: a node to which this is an answer has lost its disk."""
    heard: tuple[tuple[int, int], ...] = ()
    """Runs that have points, with the number of the last one that their agents have heard."""
    nonce: str = ""
    """What marks in shared folders begin with."""
    logs: tuple[LogWanted, ...] = ()
    """Parts of logs that people wait for."""
