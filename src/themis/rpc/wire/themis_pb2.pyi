from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Variable(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class JobIterations(_message.Message):
    __slots__ = ("job", "iterations")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    job: str
    iterations: float
    def __init__(self, job: _Optional[str] = ..., iterations: _Optional[float] = ...) -> None: ...

class SlotReport(_message.Message):
    __slots__ = ("gpu", "token", "state", "reason")
    GPU_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    gpu: int
    token: int
    state: str
    reason: str
    def __init__(self, gpu: _Optional[int] = ..., token: _Optional[int] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class Point(_message.Message):
    __slots__ = ("iteration", "time", "values")
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    iteration: float
    time: float
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, iteration: _Optional[float] = ..., time: _Optional[float] = ..., values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class RunReport(_message.Message):
    __slots__ = ("run", "app", "job", "state", "code", "iterations", "seconds", "message", "log", "first", "points", "more", "log_size", "trouble", "interrupted")
    RUN_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    LOG_SIZE_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTED_FIELD_NUMBER: _ClassVar[int]
    run: int
    app: str
    job: str
    state: str
    code: int
    iterations: float
    seconds: float
    message: str
    log: str
    first: int
    points: _containers.RepeatedCompositeFieldContainer[Point]
    more: bool
    log_size: int
    trouble: str
    interrupted: bool
    def __init__(self, run: _Optional[int] = ..., app: _Optional[str] = ..., job: _Optional[str] = ..., state: _Optional[str] = ..., code: _Optional[int] = ..., iterations: _Optional[float] = ..., seconds: _Optional[float] = ..., message: _Optional[str] = ..., log: _Optional[str] = ..., first: _Optional[int] = ..., points: _Optional[_Iterable[_Union[Point, _Mapping]]] = ..., more: bool = ..., log_size: _Optional[int] = ..., trouble: _Optional[str] = ..., interrupted: bool = ...) -> None: ...

class LogPart(_message.Message):
    __slots__ = ("run", "offset", "next", "text", "size", "end", "missing", "number")
    RUN_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    run: int
    offset: int
    next: int
    text: str
    size: int
    end: bool
    missing: bool
    number: int
    def __init__(self, run: _Optional[int] = ..., offset: _Optional[int] = ..., next: _Optional[int] = ..., text: _Optional[str] = ..., size: _Optional[int] = ..., end: bool = ..., missing: bool = ..., number: _Optional[int] = ...) -> None: ...

class RunHeard(_message.Message):
    __slots__ = ("run", "number")
    RUN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    run: int
    number: int
    def __init__(self, run: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class Machine(_message.Message):
    __slots__ = ("name", "rack", "slots", "gpu_model", "gpu_memory")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    GPU_MODEL_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_FIELD_NUMBER: _ClassVar[int]
    name: str
    rack: str
    slots: _containers.RepeatedScalarFieldContainer[int]
    gpu_model: str
    gpu_memory: float
    def __init__(self, name: _Optional[str] = ..., rack: _Optional[str] = ..., slots: _Optional[_Iterable[int]] = ..., gpu_model: _Optional[str] = ..., gpu_memory: _Optional[float] = ...) -> None: ...

class NodeReport(_message.Message):
    __slots__ = ("node", "boot", "number", "epoch", "revision", "slots", "runs", "machine", "control", "version", "trust_tenants", "shared_dir", "mark", "storage_trouble", "logs")
    NODE_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TRUST_TENANTS_FIELD_NUMBER: _ClassVar[int]
    SHARED_DIR_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    STORAGE_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    node: str
    boot: int
    number: int
    epoch: int
    revision: int
    slots: _containers.RepeatedCompositeFieldContainer[SlotReport]
    runs: _containers.RepeatedCompositeFieldContainer[RunReport]
    machine: Machine
    control: str
    version: str
    trust_tenants: bool
    shared_dir: str
    mark: str
    storage_trouble: str
    logs: _containers.RepeatedCompositeFieldContainer[LogPart]
    def __init__(self, node: _Optional[str] = ..., boot: _Optional[int] = ..., number: _Optional[int] = ..., epoch: _Optional[int] = ..., revision: _Optional[int] = ..., slots: _Optional[_Iterable[_Union[SlotReport, _Mapping]]] = ..., runs: _Optional[_Iterable[_Union[RunReport, _Mapping]]] = ..., machine: _Optional[_Union[Machine, _Mapping]] = ..., control: _Optional[str] = ..., version: _Optional[str] = ..., trust_tenants: bool = ..., shared_dir: _Optional[str] = ..., mark: _Optional[str] = ..., storage_trouble: _Optional[str] = ..., logs: _Optional[_Iterable[_Union[LogPart, _Mapping]]] = ...) -> None: ...

class LeaseOrder(_message.Message):
    __slots__ = ("gpu", "app", "owner", "token", "remaining")
    GPU_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    gpu: int
    app: str
    owner: str
    token: int
    remaining: float
    def __init__(self, gpu: _Optional[int] = ..., app: _Optional[str] = ..., owner: _Optional[str] = ..., token: _Optional[int] = ..., remaining: _Optional[float] = ...) -> None: ...

class MetricsSource(_message.Message):
    __slots__ = ("name", "kind", "path", "pattern")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    path: str
    pattern: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., path: _Optional[str] = ..., pattern: _Optional[str] = ...) -> None: ...

class Program(_message.Message):
    __slots__ = ("argv", "env", "workdir", "grace", "metrics")
    ARGV_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    WORKDIR_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.RepeatedCompositeFieldContainer[Variable]
    workdir: str
    grace: float
    metrics: MetricsSource
    def __init__(self, argv: _Optional[_Iterable[str]] = ..., env: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ..., workdir: _Optional[str] = ..., grace: _Optional[float] = ..., metrics: _Optional[_Union[MetricsSource, _Mapping]] = ...) -> None: ...

class RunOrder(_message.Message):
    __slots__ = ("run", "app", "owner", "job", "gpus", "tokens", "program", "limit", "stop", "rank", "world", "rendezvous", "born")
    RUN_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_FIELD_NUMBER: _ClassVar[int]
    BORN_FIELD_NUMBER: _ClassVar[int]
    run: int
    app: str
    owner: str
    job: str
    gpus: _containers.RepeatedScalarFieldContainer[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    program: Program
    limit: float
    stop: bool
    rank: int
    world: int
    rendezvous: str
    born: str
    def __init__(self, run: _Optional[int] = ..., app: _Optional[str] = ..., owner: _Optional[str] = ..., job: _Optional[str] = ..., gpus: _Optional[_Iterable[int]] = ..., tokens: _Optional[_Iterable[int]] = ..., program: _Optional[_Union[Program, _Mapping]] = ..., limit: _Optional[float] = ..., stop: bool = ..., rank: _Optional[int] = ..., world: _Optional[int] = ..., rendezvous: _Optional[str] = ..., born: _Optional[str] = ...) -> None: ...

class LeaseTerms(_message.Message):
    __slots__ = ("heartbeat", "node_ttl", "grace")
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    NODE_TTL_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    heartbeat: float
    node_ttl: float
    grace: float
    def __init__(self, heartbeat: _Optional[float] = ..., node_ttl: _Optional[float] = ..., grace: _Optional[float] = ...) -> None: ...

class LogWanted(_message.Message):
    __slots__ = ("run", "app", "owner", "job", "offset", "most", "now", "number")
    RUN_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    run: int
    app: str
    owner: str
    job: str
    offset: int
    most: int
    now: bool
    number: int
    def __init__(self, run: _Optional[int] = ..., app: _Optional[str] = ..., owner: _Optional[str] = ..., job: _Optional[str] = ..., offset: _Optional[int] = ..., most: _Optional[int] = ..., now: bool = ..., number: _Optional[int] = ...) -> None: ...

class Orders(_message.Message):
    __slots__ = ("epoch", "boot", "answers", "revision", "leases", "runs", "terms", "forget", "introduce", "outdated", "heard", "nonce", "logs")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    INTRODUCE_FIELD_NUMBER: _ClassVar[int]
    OUTDATED_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    boot: int
    answers: int
    revision: int
    leases: _containers.RepeatedCompositeFieldContainer[LeaseOrder]
    runs: _containers.RepeatedCompositeFieldContainer[RunOrder]
    terms: LeaseTerms
    forget: _containers.RepeatedScalarFieldContainer[int]
    introduce: bool
    outdated: bool
    heard: _containers.RepeatedCompositeFieldContainer[RunHeard]
    nonce: str
    logs: _containers.RepeatedCompositeFieldContainer[LogWanted]
    def __init__(self, epoch: _Optional[int] = ..., boot: _Optional[int] = ..., answers: _Optional[int] = ..., revision: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[LeaseOrder, _Mapping]]] = ..., runs: _Optional[_Iterable[_Union[RunOrder, _Mapping]]] = ..., terms: _Optional[_Union[LeaseTerms, _Mapping]] = ..., forget: _Optional[_Iterable[int]] = ..., introduce: bool = ..., outdated: bool = ..., heard: _Optional[_Iterable[_Union[RunHeard, _Mapping]]] = ..., nonce: _Optional[str] = ..., logs: _Optional[_Iterable[_Union[LogWanted, _Mapping]]] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("level", "count", "machine")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    level: int
    count: int
    machine: int
    def __init__(self, level: _Optional[int] = ..., count: _Optional[int] = ..., machine: _Optional[int] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("chunks", "seconds")
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    chunks: _containers.RepeatedCompositeFieldContainer[Chunk]
    seconds: float
    def __init__(self, chunks: _Optional[_Iterable[_Union[Chunk, _Mapping]]] = ..., seconds: _Optional[float] = ...) -> None: ...

class TableRow(_message.Message):
    __slots__ = ("level", "count", "seconds")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    level: int
    count: int
    seconds: float
    def __init__(self, level: _Optional[int] = ..., count: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class MeasuredSlowdown(_message.Message):
    __slots__ = ("level", "count", "value")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    level: int
    count: int
    value: float
    def __init__(self, level: _Optional[int] = ..., count: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...

class Slowdown(_message.Message):
    __slots__ = ("levels", "measured")
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    levels: _containers.RepeatedScalarFieldContainer[float]
    measured: _containers.RepeatedCompositeFieldContainer[MeasuredSlowdown]
    def __init__(self, levels: _Optional[_Iterable[float]] = ..., measured: _Optional[_Iterable[_Union[MeasuredSlowdown, _Mapping]]] = ...) -> None: ...

class RhoClaim(_message.Message):
    __slots__ = ("elapsed", "ideal_time")
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    IDEAL_TIME_FIELD_NUMBER: _ClassVar[int]
    elapsed: float
    ideal_time: float
    def __init__(self, elapsed: _Optional[float] = ..., ideal_time: _Optional[float] = ...) -> None: ...

class Bid(_message.Message):
    __slots__ = ("app", "rows", "table", "profile", "claim")
    APP_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    app: str
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    table: _containers.RepeatedCompositeFieldContainer[TableRow]
    profile: Slowdown
    claim: RhoClaim
    def __init__(self, app: _Optional[str] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., table: _Optional[_Iterable[_Union[TableRow, _Mapping]]] = ..., profile: _Optional[_Union[Slowdown, _Mapping]] = ..., claim: _Optional[_Union[RhoClaim, _Mapping]] = ...) -> None: ...

class BidReply(_message.Message):
    __slots__ = ("round", "bid")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BID_FIELD_NUMBER: _ClassVar[int]
    round: int
    bid: Bid
    def __init__(self, round: _Optional[int] = ..., bid: _Optional[_Union[Bid, _Mapping]] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("job", "gpus", "program", "key", "limit")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    job: str
    gpus: _containers.RepeatedScalarFieldContainer[int]
    program: Program
    key: str
    limit: float
    def __init__(self, job: _Optional[str] = ..., gpus: _Optional[_Iterable[int]] = ..., program: _Optional[_Union[Program, _Mapping]] = ..., key: _Optional[str] = ..., limit: _Optional[float] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("run", "key")
    RUN_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    run: int
    key: str
    def __init__(self, run: _Optional[int] = ..., key: _Optional[str] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("gpus", "tokens")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    gpus: _containers.RepeatedScalarFieldContainer[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, gpus: _Optional[_Iterable[int]] = ..., tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class PhaseStart(_message.Message):
    __slots__ = ("phase", "targets")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    phase: int
    targets: _containers.RepeatedCompositeFieldContainer[JobIterations]
    def __init__(self, phase: _Optional[int] = ..., targets: _Optional[_Iterable[_Union[JobIterations, _Mapping]]] = ...) -> None: ...

class TargetChange(_message.Message):
    __slots__ = ("targets", "added")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[JobIterations]
    added: bool
    def __init__(self, targets: _Optional[_Iterable[_Union[JobIterations, _Mapping]]] = ..., added: bool = ...) -> None: ...

class EndApp(_message.Message):
    __slots__ = ("outcome", "best")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    outcome: str
    best: str
    def __init__(self, outcome: _Optional[str] = ..., best: _Optional[str] = ...) -> None: ...

class TrialParams(_message.Message):
    __slots__ = ("job", "params")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    job: str
    params: str
    def __init__(self, job: _Optional[str] = ..., params: _Optional[str] = ...) -> None: ...

class Reached(_message.Message):
    __slots__ = ("job", "iterations", "metric", "failed")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    job: str
    iterations: float
    metric: float
    failed: str
    def __init__(self, job: _Optional[str] = ..., iterations: _Optional[float] = ..., metric: _Optional[float] = ..., failed: _Optional[str] = ...) -> None: ...

class AgentRequest(_message.Message):
    __slots__ = ("bid", "run", "stop", "release", "phase", "targets", "end", "trial", "reached")
    BID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    bid: BidReply
    run: RunRequest
    stop: StopRequest
    release: ReleaseRequest
    phase: PhaseStart
    targets: TargetChange
    end: EndApp
    trial: TrialParams
    reached: Reached
    def __init__(self, bid: _Optional[_Union[BidReply, _Mapping]] = ..., run: _Optional[_Union[RunRequest, _Mapping]] = ..., stop: _Optional[_Union[StopRequest, _Mapping]] = ..., release: _Optional[_Union[ReleaseRequest, _Mapping]] = ..., phase: _Optional[_Union[PhaseStart, _Mapping]] = ..., targets: _Optional[_Union[TargetChange, _Mapping]] = ..., end: _Optional[_Union[EndApp, _Mapping]] = ..., trial: _Optional[_Union[TrialParams, _Mapping]] = ..., reached: _Optional[_Union[Reached, _Mapping]] = ...) -> None: ...

class AgentReport(_message.Message):
    __slots__ = ("app", "session", "number", "epoch", "heard", "requests", "fence")
    APP_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    app: str
    session: str
    number: int
    epoch: int
    heard: int
    requests: _containers.RepeatedCompositeFieldContainer[AgentRequest]
    fence: int
    def __init__(self, app: _Optional[str] = ..., session: _Optional[str] = ..., number: _Optional[int] = ..., epoch: _Optional[int] = ..., heard: _Optional[int] = ..., requests: _Optional[_Iterable[_Union[AgentRequest, _Mapping]]] = ..., fence: _Optional[int] = ...) -> None: ...

class JobSpec(_message.Message):
    __slots__ = ("id", "serial_iteration_time", "max_gpus", "min_gpus", "slowdown")
    ID_FIELD_NUMBER: _ClassVar[int]
    SERIAL_ITERATION_TIME_FIELD_NUMBER: _ClassVar[int]
    MAX_GPUS_FIELD_NUMBER: _ClassVar[int]
    MIN_GPUS_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    id: str
    serial_iteration_time: float
    max_gpus: int
    min_gpus: int
    slowdown: Slowdown
    def __init__(self, id: _Optional[str] = ..., serial_iteration_time: _Optional[float] = ..., max_gpus: _Optional[int] = ..., min_gpus: _Optional[int] = ..., slowdown: _Optional[_Union[Slowdown, _Mapping]] = ...) -> None: ...

class Phase(_message.Message):
    __slots__ = ("jobs", "iterations", "targets", "gpu_factor")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    GPU_FACTOR_FIELD_NUMBER: _ClassVar[int]
    jobs: int
    iterations: int
    targets: _containers.RepeatedScalarFieldContainer[int]
    gpu_factor: int
    def __init__(self, jobs: _Optional[int] = ..., iterations: _Optional[int] = ..., targets: _Optional[_Iterable[int]] = ..., gpu_factor: _Optional[int] = ...) -> None: ...

class Constraint(_message.Message):
    __slots__ = ("gpu_model", "gpu_memory")
    GPU_MODEL_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_FIELD_NUMBER: _ClassVar[int]
    gpu_model: str
    gpu_memory: float
    def __init__(self, gpu_model: _Optional[str] = ..., gpu_memory: _Optional[float] = ...) -> None: ...

class AppSpec(_message.Message):
    __slots__ = ("id", "owner", "jobs", "phases", "weight", "constraint", "budget", "checkpoint_seconds", "restart_seconds", "estimated")
    ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESTART_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    owner: str
    jobs: _containers.RepeatedCompositeFieldContainer[JobSpec]
    phases: _containers.RepeatedCompositeFieldContainer[Phase]
    weight: float
    constraint: Constraint
    budget: float
    checkpoint_seconds: float
    restart_seconds: float
    estimated: bool
    def __init__(self, id: _Optional[str] = ..., owner: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[JobSpec, _Mapping]]] = ..., phases: _Optional[_Iterable[_Union[Phase, _Mapping]]] = ..., weight: _Optional[float] = ..., constraint: _Optional[_Union[Constraint, _Mapping]] = ..., budget: _Optional[float] = ..., checkpoint_seconds: _Optional[float] = ..., restart_seconds: _Optional[float] = ..., estimated: bool = ...) -> None: ...

class Topology(_message.Message):
    __slots__ = ("machines", "name")
    MACHINES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    machines: _containers.RepeatedCompositeFieldContainer[Machine]
    name: str
    def __init__(self, machines: _Optional[_Iterable[_Union[Machine, _Mapping]]] = ..., name: _Optional[str] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("gpu", "app", "token", "start", "end", "source")
    GPU_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    gpu: int
    app: str
    token: int
    start: float
    end: float
    source: str
    def __init__(self, gpu: _Optional[int] = ..., app: _Optional[str] = ..., token: _Optional[int] = ..., start: _Optional[float] = ..., end: _Optional[float] = ..., source: _Optional[str] = ...) -> None: ...

class RunNews(_message.Message):
    __slots__ = ("run", "job", "gpus", "key", "state", "code", "iterations", "message", "log", "interrupted")
    RUN_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTED_FIELD_NUMBER: _ClassVar[int]
    run: int
    job: str
    gpus: _containers.RepeatedScalarFieldContainer[int]
    key: str
    state: str
    code: int
    iterations: float
    message: str
    log: str
    interrupted: bool
    def __init__(self, run: _Optional[int] = ..., job: _Optional[str] = ..., gpus: _Optional[_Iterable[int]] = ..., key: _Optional[str] = ..., state: _Optional[str] = ..., code: _Optional[int] = ..., iterations: _Optional[float] = ..., message: _Optional[str] = ..., log: _Optional[str] = ..., interrupted: bool = ...) -> None: ...

class AgentStart(_message.Message):
    __slots__ = ("spec", "topology", "leases", "runs", "phase", "iterations", "trials", "reached", "curves", "targets", "past")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    CURVES_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    PAST_FIELD_NUMBER: _ClassVar[int]
    spec: AppSpec
    topology: Topology
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    runs: _containers.RepeatedCompositeFieldContainer[RunNews]
    phase: int
    iterations: _containers.RepeatedCompositeFieldContainer[JobIterations]
    trials: _containers.RepeatedCompositeFieldContainer[TrialParams]
    reached: _containers.RepeatedCompositeFieldContainer[Reached]
    curves: _containers.RepeatedCompositeFieldContainer[Curve]
    targets: _containers.RepeatedCompositeFieldContainer[JobIterations]
    past: _containers.RepeatedCompositeFieldContainer[JobPast]
    def __init__(self, spec: _Optional[_Union[AppSpec, _Mapping]] = ..., topology: _Optional[_Union[Topology, _Mapping]] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., runs: _Optional[_Iterable[_Union[RunNews, _Mapping]]] = ..., phase: _Optional[int] = ..., iterations: _Optional[_Iterable[_Union[JobIterations, _Mapping]]] = ..., trials: _Optional[_Iterable[_Union[TrialParams, _Mapping]]] = ..., reached: _Optional[_Iterable[_Union[Reached, _Mapping]]] = ..., curves: _Optional[_Iterable[_Union[Curve, _Mapping]]] = ..., targets: _Optional[_Iterable[_Union[JobIterations, _Mapping]]] = ..., past: _Optional[_Iterable[_Union[JobPast, _Mapping]]] = ...) -> None: ...

class JobPast(_message.Message):
    __slots__ = ("job", "seconds", "failures")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    job: str
    seconds: float
    failures: int
    def __init__(self, job: _Optional[str] = ..., seconds: _Optional[float] = ..., failures: _Optional[int] = ...) -> None: ...

class CurvePoint(_message.Message):
    __slots__ = ("iteration", "value")
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    iteration: float
    value: float
    def __init__(self, iteration: _Optional[float] = ..., value: _Optional[float] = ...) -> None: ...

class Curve(_message.Message):
    __slots__ = ("job", "points")
    JOB_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    job: str
    points: _containers.RepeatedCompositeFieldContainer[CurvePoint]
    def __init__(self, job: _Optional[str] = ..., points: _Optional[_Iterable[_Union[CurvePoint, _Mapping]]] = ...) -> None: ...

class HostedAppsRequest(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class HostedApps(_message.Message):
    __slots__ = ("revision", "apps")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    APPS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    apps: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., apps: _Optional[_Iterable[str]] = ...) -> None: ...

class SubmittedAppRequest(_message.Message):
    __slots__ = ("app",)
    APP_FIELD_NUMBER: _ClassVar[int]
    app: str
    def __init__(self, app: _Optional[str] = ...) -> None: ...

class SubmittedApp(_message.Message):
    __slots__ = ("app", "owner", "body", "seed")
    APP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    app: str
    owner: str
    body: str
    seed: int
    def __init__(self, app: _Optional[str] = ..., owner: _Optional[str] = ..., body: _Optional[str] = ..., seed: _Optional[int] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("round", "gpus", "kept", "expiring")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    EXPIRING_FIELD_NUMBER: _ClassVar[int]
    round: int
    gpus: _containers.RepeatedScalarFieldContainer[int]
    kept: _containers.RepeatedScalarFieldContainer[int]
    expiring: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, round: _Optional[int] = ..., gpus: _Optional[_Iterable[int]] = ..., kept: _Optional[_Iterable[int]] = ..., expiring: _Optional[_Iterable[int]] = ...) -> None: ...

class OfferNews(_message.Message):
    __slots__ = ("offer", "deadline")
    OFFER_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    offer: Offer
    deadline: float
    def __init__(self, offer: _Optional[_Union[Offer, _Mapping]] = ..., deadline: _Optional[float] = ...) -> None: ...

class LeaseNews(_message.Message):
    __slots__ = ("granted", "renewed", "revoked", "reason")
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    granted: _containers.RepeatedCompositeFieldContainer[Lease]
    renewed: _containers.RepeatedCompositeFieldContainer[Lease]
    revoked: _containers.RepeatedCompositeFieldContainer[Lease]
    reason: str
    def __init__(self, granted: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., renewed: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., revoked: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class TopologyNews(_message.Message):
    __slots__ = ("topology",)
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    topology: Topology
    def __init__(self, topology: _Optional[_Union[Topology, _Mapping]] = ...) -> None: ...

class ProgressNews(_message.Message):
    __slots__ = ("iterations",)
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    iterations: _containers.RepeatedCompositeFieldContainer[JobIterations]
    def __init__(self, iterations: _Optional[_Iterable[_Union[JobIterations, _Mapping]]] = ...) -> None: ...

class PointsNews(_message.Message):
    __slots__ = ("run", "job", "first", "points")
    RUN_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    run: int
    job: str
    first: int
    points: _containers.RepeatedCompositeFieldContainer[Point]
    def __init__(self, run: _Optional[int] = ..., job: _Optional[str] = ..., first: _Optional[int] = ..., points: _Optional[_Iterable[_Union[Point, _Mapping]]] = ...) -> None: ...

class RefusalNews(_message.Message):
    __slots__ = ("what", "reason", "final", "home")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    what: str
    reason: str
    final: bool
    home: str
    def __init__(self, what: _Optional[str] = ..., reason: _Optional[str] = ..., final: bool = ..., home: _Optional[str] = ...) -> None: ...

class AppEndNews(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: str
    def __init__(self, outcome: _Optional[str] = ...) -> None: ...

class NewsItem(_message.Message):
    __slots__ = ("start", "offer", "lease", "topology", "run", "progress", "refusal", "over", "points")
    START_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    start: AgentStart
    offer: OfferNews
    lease: LeaseNews
    topology: TopologyNews
    run: RunNews
    progress: ProgressNews
    refusal: RefusalNews
    over: AppEndNews
    points: PointsNews
    def __init__(self, start: _Optional[_Union[AgentStart, _Mapping]] = ..., offer: _Optional[_Union[OfferNews, _Mapping]] = ..., lease: _Optional[_Union[LeaseNews, _Mapping]] = ..., topology: _Optional[_Union[TopologyNews, _Mapping]] = ..., run: _Optional[_Union[RunNews, _Mapping]] = ..., progress: _Optional[_Union[ProgressNews, _Mapping]] = ..., refusal: _Optional[_Union[RefusalNews, _Mapping]] = ..., over: _Optional[_Union[AppEndNews, _Mapping]] = ..., points: _Optional[_Union[PointsNews, _Mapping]] = ...) -> None: ...

class News(_message.Message):
    __slots__ = ("epoch", "answers", "at", "first", "items", "fence")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    answers: int
    at: float
    first: int
    items: _containers.RepeatedCompositeFieldContainer[NewsItem]
    fence: int
    def __init__(self, epoch: _Optional[int] = ..., answers: _Optional[int] = ..., at: _Optional[float] = ..., first: _Optional[int] = ..., items: _Optional[_Iterable[_Union[NewsItem, _Mapping]]] = ..., fence: _Optional[int] = ...) -> None: ...
