"""The service's configuration: one tree of keys, the same in YAML, environment and flags.

    http: 0.0.0.0:7421             # THEMIS_HTTP, --http
    tls: {cert: server.pem, key: server.key, ca: ca.pem}        # THEMIS_TLS_CERT, --tls-cert
    set: {lease: 5m, f: 0.8}       # THEMIS_SET_LEASE, --set lease=5m

config = load(Path("themis.yaml")).config        # themis.config.loader reads and checks

Each field says once what its key means, which values it takes and whether it may change while the
service runs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import Field

from themis.config.addresses import Address
from themis.config.secret import STATE
from themis.config.value_types import (
    ACCOUNT,
    ADDRESS,
    ENGINE,
    HOSTS,
    MAX_ENTRIES,
    NAME_OR_EMPTY,
    PATH,
    RAY_LABEL,
    SCALAR,
    SLURM_WORD,
    STORE,
    TEXT,
    Scalar,
    plain,
    size,
)
from themis.core.arbiter import SETTING_NAMES
from themis.recording.validation import (
    FLAG,
    KNOWN_KEYS,
    NAME,
    Checked,
    Help,
    Validator,
    count,
    number,
    period,
)

GRPC = Address("127.0.0.1", 7420)
HTTP = Address("127.0.0.1", 7421)

_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates of the service; `themis cert` makes some."""

    __pydantic_config__ = KNOWN_KEYS

    cert: Annotated[Path | None, PATH, Help("The service's certificate, with the chain (PEM).")] = (
        None
    )
    key: Annotated[Path | None, PATH, Help("Its private key (PEM), mode 0600.")] = None
    ca: Annotated[
        Path | None, PATH, Help("The authority that signs certificates of nodes (PEM).")
    ] = None
    require_client: Annotated[
        bool, FLAG, Help("Refuse nodes and agents that have no certificate.")
    ] = False


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of the past is kept."""

    __pydantic_config__ = KNOWN_KEYS

    age: Annotated[float, period(3600.0, 3660 * _DAY), Help("Delete older events.", live=True)] = (
        30 * _DAY
    )
    bytes: Annotated[
        int, size(10**7, 10**15), Help("The most bytes of events to keep.", live=True)
    ] = 10**10
    snapshot: Annotated[
        float, period(1.0, 7 * _DAY), Help("The time between snapshots.", live=True)
    ] = 3600.0


@dataclass(frozen=True, slots=True)
class CallerLimits:
    """How much one caller may send and open."""

    __pydantic_config__ = KNOWN_KEYS

    message_bytes: Annotated[
        int, size(4096, 64 * 2**20), Help("The longest message.", live=True)
    ] = 256 * 1024
    rows: Annotated[
        int, count(16, 10**6), Help("The rows of one list; a bid has 512 at most.", live=True)
    ] = 4096
    apps: Annotated[int, count(1, 10**6), Help("Unfinished apps of one owner.", live=True)] = 2000
    streams: Annotated[int, count(1, 10**5), Help("Open streams of one caller.", live=True)] = 64
    requests: Annotated[
        float, number(0.1, 1e6), Help("Requests per second of one caller.", live=True)
    ] = 50.0
    burst: Annotated[
        float, number(1.0, 1e6), Help("Requests of one caller at once.", live=True)
    ] = 200.0
    connections: Annotated[int, count(1, 10**5), Help("HTTP connections in all.", live=True)] = 512
    per_address: Annotated[
        int, count(1, 10**5), Help("HTTP connections from one address.", live=True)
    ] = 128
    request_timeout: Annotated[
        float,
        period(0.01, 3600.0),
        Help("How long a client may take to send an HTTP request.", live=True),
    ] = 20.0


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """For `themis node`: which machine it is, and where its service is."""

    __pydantic_config__ = KNOWN_KEYS

    name: Annotated[str, NAME_OR_EMPTY, Help("This machine's name (default: its host name).")] = ""
    server: Annotated[Address, ADDRESS, Help("Where the service listens for nodes.")] = GRPC
    token_file: Annotated[Path | None, PATH, Help("The file with this node's token.")] = None
    ca: Annotated[
        Path | None, PATH, Help("The authority that signed the service's certificate (PEM).")
    ] = None
    cert: Annotated[Path | None, PATH, Help("This node's own certificate (PEM).")] = None
    key: Annotated[Path | None, PATH, Help("Its private key (PEM), mode 0600.")] = None
    owner: Annotated[
        str, NAME_OR_EMPTY, Help("The one owner whose jobs it runs, if the node is not root.")
    ] = ""
    rack: Annotated[str, NAME, Help("The rack of this machine.")] = "r0"
    pretend: Annotated[
        int, count(0, 4096), Help("How many pretend GPUs stand in for real ones.")
    ] = 0
    slot: Annotated[int, count(0, 4096), Help("Pretend GPUs per slot; 0: all in one slot.")] = 0
    model: Annotated[str, NAME, Help("The model of pretend GPUs.")] = "pretend"


_CPUS = Help("CPUs that a job gets for each of its GPUs.")


@dataclass(frozen=True, slots=True)
class Slurm:
    """With `engine: slurm`: the part of the cluster that Themis uses, and its requests."""

    __pydantic_config__ = KNOWN_KEYS

    partition: Annotated[
        str, SLURM_WORD, Help("The partition whose machines it shares (default: Slurm's own).")
    ] = ""
    nodes: Annotated[
        str, SLURM_WORD, Help("Only these machines, as Slurm writes them: gpu[01-16].")
    ] = ""
    account: Annotated[str, SLURM_WORD, Help("The account that pays for its allocations.")] = ""
    qos: Annotated[str, SLURM_WORD, Help("Their quality of service.")] = ""
    reservation: Annotated[str, SLURM_WORD, Help("The reservation that they use.")] = ""
    memory: Annotated[
        str,
        SLURM_WORD,
        Help("Memory for each GPU, as Slurm writes it: 64G (default: Slurm's own)."),
    ] = ""
    cpus: Annotated[int, count(1, 4096), _CPUS] = 1
    pending: Annotated[
        float,
        period(1.0, 3600.0),
        Help("How long Slurm may take to start a job before it is given up."),
    ] = 60.0
    patience: Annotated[
        float,
        period(1.0, 3600.0),
        Help("How long a Slurm command, or the end of a cancelled job, may take."),
    ] = 30.0
    silence: Annotated[
        float,
        period(5.0, 3600.0),
        Help("Stop using a machine whose jobs have not reported for this long."),
    ] = 15.0


@dataclass(frozen=True, slots=True)
class Ray:
    """With `engine: ray`: the part of the cluster that Themis uses, and its requests."""

    __pydantic_config__ = KNOWN_KEYS

    python: Annotated[
        Path | None, PATH, Help("The Python that has Ray (default: Themis's own).")
    ] = None
    only: Annotated[
        str, RAY_LABEL, Help("Only machines with this label: pool=themis (default: all with GPUs).")
    ] = ""
    machine_label: Annotated[
        str, RAY_LABEL, Help("The label that names a machine; without it, its host name does.")
    ] = "machine"
    rack_label: Annotated[str, RAY_LABEL, Help("The label that names a machine's rack.")] = "rack"
    cpus: Annotated[int, count(1, 4096), _CPUS] = 1
    pending: Annotated[
        float,
        period(1.0, 3600.0),
        Help("How long Ray may take to start a job before it is given up."),
    ] = 60.0


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The configuration of `themis serve` and `themis node`. Times are seconds."""

    __pydantic_config__ = KNOWN_KEYS

    grpc: Annotated[Address, ADDRESS, Help("Where the service listens for nodes and agents.")] = (
        GRPC
    )
    http: Annotated[
        Address, ADDRESS, Help("Where the service listens for people and browsers.")
    ] = HTTP
    hosts: Annotated[
        tuple[str, ...],
        HOSTS,
        Help("Other names (with ports) by which browsers reach it.", live=True),
    ] = ()
    state_dir: Annotated[Path, PATH, Help("The folder of the service: store, tokens, locks.")] = (
        STATE
    )
    store: Annotated[
        str, STORE, Help("sqlite:///PATH or postgresql://... (default: in state_dir).")
    ] = field(default="", repr=False)
    shared_dir: Annotated[Path | None, PATH, Help("A folder on storage that all nodes share.")] = (
        None
    )
    policy: Annotated[str, TEXT, Help("A policy by name, or module:Class.")] = "themis"
    solver: Annotated[str, TEXT, Help("The solver of auctions.")] = "default"
    seed: Annotated[int, count(0, 10**18), Help("The seed of everything random.")] = 1
    set: Annotated[
        Mapping[str, Annotated[Scalar, SCALAR]],
        Field(max_length=MAX_ENTRIES),
        Help("Options of the policy and settings of the arbiter.", live=True),
    ] = field(default_factory=dict)
    engine: Annotated[
        str, ENGINE, Help("The engine that starts jobs: local, slurm, ray or ray://HOST:PORT.")
    ] = "local"
    engine_dir: Annotated[
        Path | None,
        PATH,
        Help("Files of the engine that all machines see (default: engine in shared_dir)."),
    ] = None
    local_nodes: Annotated[
        Path | None,
        PATH,
        Help("A cluster file: the service starts its nodes on this host as well."),
    ] = None
    node_ttl: Annotated[
        float,
        period(1.0, 3600.0),
        Help("A node that hears nothing from the service for this long stops jobs."),
    ] = 20.0
    trust_tenants: Annotated[
        bool, FLAG, Help("Run all tenants' jobs under one user: they trust each other.")
    ] = False
    job_account: Annotated[
        str, ACCOUNT, Help("That user, where the node is root: a name, UID or UID:GID.")
    ] = "nobody"
    accounts: Annotated[
        Mapping[Annotated[str, NAME], Annotated[str, ACCOUNT]],
        Field(max_length=MAX_ENTRIES),
        Help("The user that each owner's jobs run as: {vision: ann, ads: 2002:2002}.", live=True),
    ] = field(default_factory=dict)
    session: Annotated[
        float, period(60.0, 30 * _DAY), Help("How long a browser's login lasts.", live=True)
    ] = 12 * 3600.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Help("The least level of log lines.", live=True),
    ] = "info"
    log_format: Annotated[Literal["text", "json"], Help("Log lines for people or programs.")] = (
        "text"
    )
    tls: Tls = field(default=Tls())
    retention: Retention = field(default=Retention())
    limits: CallerLimits = field(default=CallerLimits())
    node: NodeConfig = field(default=NodeConfig())
    slurm: Slurm = field(default=Slurm())
    ray: Ray = field(default=Ray())


VALIDATOR = Validator(ServiceConfig, "the service's configuration")


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration, as its field declares it."""

    name: str
    """With a dot below a section: tls.cert."""
    annotation: Any
    default: Any

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return "THEMIS_" + self.name.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        """Its name on command lines."""
        return "--" + self.name.replace(".", "-").replace("_", "-")

    @property
    def type(self) -> Any:
        """The type of its values, such as `bool` or `Path | None`."""
        return self.annotation.__origin__

    @property
    def help(self) -> str:
        """Its meaning."""
        return next(each.text for each in self.annotation.__metadata__ if isinstance(each, Help))

    @property
    def reload(self) -> bool:
        """Whether it may change while the service runs."""
        return any(isinstance(each, Help) and each.live for each in self.annotation.__metadata__)

    @property
    def metavar(self) -> str:
        """What the help of a command shows for its value."""
        if self.name in MAPPINGS:
            return MAPPINGS[self.name]
        checks = [each for each in self.annotation.__metadata__ if isinstance(each, Checked)]
        return checks[0].metavar if checks else "|".join(get_args(self.type))


def _keys(kind: type, prefix: str = "") -> Iterator[Key]:
    hints = get_type_hints(kind, include_extras=True)
    for item in fields(kind):
        hint = hints[item.name]
        if is_dataclass(hint):
            yield from _keys(hint, f"{item.name}.")  # type: ignore[arg-type]  # it is a class
        else:
            default = {} if item.default is MISSING else item.default
            yield Key(prefix + item.name, hint, default)


KEYS: Mapping[str, Key] = {key.name: key for key in _keys(ServiceConfig)}
"""All keys by name, in the order of the fields."""

SECTIONS = tuple(dict.fromkeys(name.partition(".")[0] for name in KEYS if "." in name))

MAPPINGS = {"set": "KEY=VALUE", "accounts": "OWNER=USER"}
"""Keys whose entries may each come from somewhere else, and what an entry is like in a flag."""


def value_of(config: ServiceConfig, name: str) -> Any:
    """The value under a key such as `tls.cert`."""
    found: Any = config
    for step in name.split("."):
        found = getattr(found, step)
    return found


def values_of(config: ServiceConfig) -> dict[str, Any]:
    """All values by key; entries of mappings by `set.lease`."""
    values: dict[str, Any] = {}
    for name in KEYS:
        value = value_of(config, name)
        if name in MAPPINGS:
            values |= {f"{name}.{entry}": item for entry, item in sorted(value.items())}
        else:
            values[name] = value
    return values


def service_schema() -> dict[str, Any]:
    """The JSON Schema of the configuration, for editors that complete and check it."""
    schema = VALIDATOR.schema(
        "Themis service", "The configuration of `themis serve` and `themis node`."
    )
    for key in KEYS.values():
        section, _, name = key.name.rpartition(".")
        part = schema["$defs"][_SECTION_TYPES[section]] if section else schema
        about = part["properties"][name]
        about["description"] = f"{key.help} {key.variable}, {key.flag}."
        if key.reload:
            about["description"] += " May change while the service runs."
        if "default" in about:
            about["default"] = plain(key.default)
    schema["properties"]["set"]["properties"] = {name: {} for name in SETTING_NAMES}
    return schema


_SECTION_TYPES = {name: type(getattr(ServiceConfig(), name)).__name__ for name in SECTIONS}
