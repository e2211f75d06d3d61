"""What the steward keeps beside the arbiter's own state: rows by key, durable before told."""

from dataclasses import dataclass

from themis.core.model import AppId, GpuId, JobId, OwnerId
from themis.core.steward.log_index import LogsRow
from themis.core.steward.log_index import key_of as logs_key
from themis.core.steward.trials import Row as TrialsRow
from themis.core.steward.trials import key_of as trials_key
from themis.protocol.node_messages import Program, RunState

COUNT = "runs"
"""The key of the one `RunCount`."""
TTL = "ttl"
"""The key of the one `LongestTtl`."""
DONE, SAVED = 0, 75
"""Exit codes of runs that ended well, and that have saved and can go on. Nodes say the latter of
all that were told to go, also of those that were ended when they did not."""


@dataclass(frozen=True, slots=True)
class WantedRun:
    """A run that an agent asked for and that is not over."""

    run: int
    app: AppId
    owner: OwnerId
    job: JobId
    key: str
    gpus: tuple[GpuId, ...]
    tokens: tuple[int, ...]
    program: Program
    limit: float = 0.0
    ordered: bool = False
    """Whether its nodes may have been told to start it."""
    stop: bool = False
    over: tuple[str, ...] = ()
    """Nodes on which nothing of it is alive any more."""
    state: RunState = RunState.STARTING
    code: int | None = None
    message: str = ""
    log: str = ""
    iterations: float = 0.0
    seconds: float = 0.0
    """Of training, as last told to the arbiter."""
    born: str = ""
    """Which app of its name its app is, as `birth_of` says."""
    note: str = ""
    """What people should know of it."""
    since: float = 0.0
    """When its nodes were told to start it."""
    told: bool = False
    """Whether it was told to go, and did not end by itself before."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended; kept as long as its app is there."""

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
    """The node that has points of it which its agent has not heard; empty once it has all."""
    metric: str = "loss"
    """Which of its values the app is judged by."""
    log_size: int = 0
    """Bytes that it has printed, as far as known."""
    seconds: float = 0.0
    """From when its nodes were told to start it."""
    told: bool = False
    """Whether it was told to go."""
    early: bool = False
    """Whether it exited with 0 though its job is not where it had to be."""
    limit: float = 0.0
    """The iterations that it was to come to; 0 for as many as it likes."""

    @property
    def failed(self) -> bool:
        """Whether it ended badly by its own doing: what its agent takes for a failure too.

        Those that are told to go may say so with any code: some launchers call it a failure.
        """
        if self.told or self.code is None:
            return False
        if self.code == DONE:
            return self.early
        return self.code != SAVED or not self.iterations


@dataclass(frozen=True, slots=True)
class RunCount:
    """How many runs there have ever been: numbers are not used again."""

    count: int


@dataclass(frozen=True, slots=True)
class Release:
    """An app gave a GPU back under this token; it is free once it is known to be empty."""

    app: AppId
    gpu: GpuId
    token: int


@dataclass(frozen=True, slots=True)
class LongestTtl:
    """The longest time to live that a node may still go by: a service must wait so long for it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class AgentSession:
    """Who speaks for an app; kept as long as the app is there."""

    app: AppId
    fence: int
    """Higher than that of every session of any app before it."""
    session: str
    before: tuple[str, ...] = ()
    """The last ones before it, which must not begin again."""


Kept = WantedRun | RunEnd | RunCount | Release | LongestTtl | AgentSession | LogsRow | TrialsRow


def key_of(row: Kept) -> str:
    """Under which key a row is stored."""
    match row:
        case WantedRun(run=run):
            return f"run/{run}"
        case RunEnd(run=run):
            return f"result/{run}"
        case Release(gpu=gpu):
            return f"release/{gpu}"
        case AgentSession(app=app):
            return f"session/{app}"
        case RunCount():
            return COUNT
        case LongestTtl():
            return TTL
        case LogsRow():
            return logs_key(row)
        case _:
            return trials_key(row)
