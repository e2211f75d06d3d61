"""The rows that the steward stores beside the arbiter's state, each under its own key.

A row is durable before anything that follows from it leaves the service. Components return what
changed as `RowChanges`; a key with no row is to be deleted.
"""

from dataclasses import dataclass

from themis.core.model import AppId, GpuId, JobId, OwnerId
from themis.protocol.agent_messages import Reached
from themis.protocol.node_messages import Program, RunState

COUNT = "runs"
"""The key of the one `RunCount`."""
TTL = "ttl"
"""The key of the one `LongestTtl`."""
DONE, SAVED = 0, 75
"""Exit codes of runs that finished, and of runs that saved a checkpoint and can be resumed. A node
reports the latter for every run that it stopped, also for those that it had to kill."""

# Runs


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run that an agent requested and that has not ended."""

    run: int
    app: AppId
    owner: OwnerId
    job: JobId
    key: str
    """Of the agent's request."""
    gpus: tuple[GpuId, ...]
    tokens: tuple[int, ...]
    program: Program
    limit: float = 0.0
    dispatched: bool = False
    """Whether its nodes may have received the order to start it."""
    stop: bool = False
    ended_on: tuple[str, ...] = ()
    """Nodes on which none of its processes is left."""
    state: RunState = RunState.STARTING
    code: int | None = None
    message: str = ""
    log: str = ""
    iterations: float = 0.0
    seconds: float = 0.0
    """Of training, as last told to the arbiter."""
    born: str = ""
    """Tells its app from earlier apps of the same name; see `birth_of`."""
    note: str = ""
    """A remark for its owner."""
    dispatched_at: float = 0.0
    interrupted: bool = False
    """Whether it was told to stop before it ended."""

    @property
    def metric(self) -> str:
        """The value that the app is judged by."""
        return self.program.metrics.name


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended; stored for as long as its app is active."""

    run: int
    app: AppId
    job: JobId
    key: str
    state: RunState
    code: int | None
    iterations: float
    message: str = ""
    log: str = ""
    gpus: tuple[GpuId, ...] = ()
    points_on: str = ""
    """The node that has points which the agent has not acknowledged; empty once it has all."""
    metric: str = "loss"
    """The value that the app is judged by."""
    log_size: int = 0
    """Bytes of its log, as far as known."""
    seconds: float = 0.0
    """Since its nodes were told to start it."""
    interrupted: bool = False
    early: bool = False
    """Whether it exited with 0 before its job reached the iterations that were asked for."""
    limit: float = 0.0
    """The iterations that it was asked for; 0 for no limit."""

    @property
    def failed(self) -> bool:
        """Whether it failed by itself, as its agent counts failures.

        An interrupted run may exit with any code: some launchers report that as a failure.
        """
        if self.interrupted or self.code is None:
            return False
        if self.code == DONE:
            return self.early
        return self.code != SAVED or not self.iterations


@dataclass(frozen=True, slots=True)
class RunCount:
    """How many runs there have ever been; their numbers are never used again."""

    count: int


@dataclass(frozen=True, slots=True)
class Release:
    """An app gave this lease back; the GPU is freed once its node reports it empty."""

    app: AppId
    gpu: GpuId
    token: int


# Nodes and agents


@dataclass(frozen=True, slots=True)
class LongestTtl:
    """The longest time to live that a node may still go by: the service must wait that long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SessionRow:
    """The session that may speak for an app; stored for as long as the app is active."""

    app: AppId
    fence: int
    """Higher than that of every earlier session of any app."""
    session: str
    before: tuple[str, ...] = ()
    """The last sessions that it replaced; these cannot be opened again."""


# Logs and trials, which outlast their app


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """Where the log of one run is, and how long."""

    run: int
    node: str
    """The node of rank 0; empty if the run was never placed."""
    size: int
    """Bytes, as far as known: a run that goes on may have more."""
    over: bool = True
    tail: str = ""
    """Its last lines."""


@dataclass(frozen=True, slots=True)
class LogsRow:
    """The log of a job: the logs of its runs, one after the other."""

    app: AppId
    job: JobId
    runs: tuple[LoggedRun, ...]
    """The oldest first."""
    base: int = 0
    """Bytes of older runs that are no longer listed."""

    @property
    def size(self) -> int:
        """Bytes of all runs, as far as known."""
        return self.base + sum(run.size for run in self.runs)

    def begins(self) -> list[int]:
        """The offset in the job's log at which the log of each run begins."""
        starts = [self.base]
        for run in self.runs:
            starts.append(starts[-1] + run.size)
        return starts[:-1]


@dataclass(frozen=True, slots=True)
class TrialRow:
    """The parameters of a job, as JSON."""

    app: AppId
    job: JobId
    params: str
    number: int = 0
    """In the order in which the tuner chose them."""


@dataclass(frozen=True, slots=True)
class ReachedRow:
    """What an agent reported of a job, numbered in the order of the reports."""

    app: AppId
    number: int
    reached: Reached


@dataclass(frozen=True, slots=True)
class CurveRow:
    """The metric of a job over its iterations."""

    app: AppId
    job: JobId
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class BestRow:
    """The job that won."""

    app: AppId
    job: JobId


TrialsRow = TrialRow | ReachedRow | CurveRow | BestRow
StewardRow = ActiveRun | RunEnd | RunCount | Release | LongestTtl | SessionRow | LogsRow | TrialsRow
RowChanges = dict[str, StewardRow | None]


def key_of(row: StewardRow) -> str:
    """The key that a row is stored under."""
    match row:
        case ActiveRun(run=run):
            return f"run/{run}"
        case RunEnd(run=run):
            return f"result/{run}"
        case Release(gpu=gpu):
            return f"release/{gpu}"
        case SessionRow(app=app):
            return f"session/{app}"
        case RunCount():
            return COUNT
        case LongestTtl():
            return TTL
        case LogsRow(app=app, job=job):
            return f"logs/{app}/{job}"
        case TrialRow(app=app, job=job):
            return f"trial/{app}/{job}"
        case ReachedRow(app=app, number=number):
            return f"reached/{app}/{number}"
        case CurveRow(app=app, job=job):
            return f"curve/{app}/{job}"
        case BestRow(app=app):
            return f"best/{app}"


def stored(*rows: StewardRow) -> RowChanges:
    """These rows are new or changed."""
    return {key_of(row): row for row in rows}


def deleted(*rows: StewardRow) -> RowChanges:
    """These rows are to be deleted."""
    return dict.fromkeys(map(key_of, rows))
