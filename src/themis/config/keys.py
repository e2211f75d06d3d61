"""The service's configuration: one tree of keys, the same in YAML, environment and flags.

    http: 0.0.0.0:7421             # THEMIS_HTTP, --http
    tls: {cert: server.pem, key: server.key, ca: ca.pem}        # THEMIS_TLS_CERT, --tls-cert
    set: {lease: 5m, f: 0.8}       # THEMIS_SET_LEASE, --set lease=5m

config = load(Path("themis.yaml")).config        # themis.config.loader reads and checks

What a key is, what it means and whether it may change while the service runs stands with its field
here, once. Nothing heavy is imported: the command line makes its flags from this.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from themis.config.secret import STATE

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class ValueKind:
    """What values a key takes: a name that `themis.config.parsing` knows, and bounds."""

    name: str
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration."""

    name: str
    """With a dot below a section: tls.cert."""
    kind: ValueKind
    default: Any
    help: str
    reload: bool
    """Whether it may change while the service runs."""

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return "THEMIS_" + self.name.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        """Its name on command lines."""
        return "--" + self.name.replace(".", "-").replace("_", "-")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Port 0 takes any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class KeyHelp:
    """What stands beside a field: its kind, what it means, whether it may change."""

    kind: ValueKind
    help: str
    reload: bool = False


GRPC = Address("127.0.0.1", 7420)
HTTP = Address("127.0.0.1", 7421)

_PATH = ValueKind("path")
_FLAG = ValueKind("flag")
_PLAIN = ValueKind("plain or empty")
_LABEL = ValueKind("label or empty")
_ADDRESS = ValueKind("address")
_DAY = 86400.0
_LIVE = True
"""For keys that may change while the service runs."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates of the service; `themis cert` makes some."""

    cert: Annotated[Path | None, KeyHelp(_PATH, "Its certificate, with the chain (PEM).")] = None
    key: Annotated[Path | None, KeyHelp(_PATH, "Its private key (PEM), mode 0600.")] = None
    ca: Annotated[Path | None, KeyHelp(_PATH, "Who signs certificates of nodes (PEM).")] = None
    require_client: Annotated[
        bool, KeyHelp(_FLAG, "Refuse nodes and agents that have no certificate.")
    ] = False


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept of the past."""

    age: Annotated[
        float, KeyHelp(ValueKind("seconds", 3600.0, 3660 * _DAY), "Older events go.", _LIVE)
    ] = 30 * _DAY
    bytes: Annotated[
        int, KeyHelp(ValueKind("bytes", 10**7, 10**15), "So much is kept at most.", _LIVE)
    ] = 10**10
    snapshot: Annotated[
        float, KeyHelp(ValueKind("seconds", 1.0, 7 * _DAY), "A snapshot so often.", _LIVE)
    ] = 3600.0


@dataclass(frozen=True, slots=True)
class CallerLimits:
    """What is taken from one caller."""

    message_bytes: Annotated[
        int, KeyHelp(ValueKind("bytes", 4096, 64 * 2**20), "The longest message.", _LIVE)
    ] = 256 * 1024
    rows: Annotated[
        int,
        KeyHelp(
            ValueKind("count", 16, 10**6), "The rows of one list; a bid has 512 at most.", _LIVE
        ),
    ] = 4096
    apps: Annotated[
        int, KeyHelp(ValueKind("count", 1, 10**6), "Apps of one owner that are not over.", _LIVE)
    ] = 2000
    streams: Annotated[
        int, KeyHelp(ValueKind("count", 1, 10**5), "Open streams of one caller.", _LIVE)
    ] = 64
    requests: Annotated[
        float, KeyHelp(ValueKind("number", 0.1, 1e6), "Calls a second of one caller.", _LIVE)
    ] = 50.0
    burst: Annotated[
        float, KeyHelp(ValueKind("number", 1.0, 1e6), "Calls of one caller at once.", _LIVE)
    ] = 200.0
    connections: Annotated[
        int, KeyHelp(ValueKind("count", 1, 10**5), "Connections over HTTP, in all.", _LIVE)
    ] = 512
    per_address: Annotated[
        int, KeyHelp(ValueKind("count", 1, 10**5), "Connections over HTTP from one address.", _LIVE)
    ] = 128
    patience: Annotated[
        float,
        KeyHelp(
            ValueKind("seconds", 0.01, 3600.0), "A request over HTTP is sent within so long.", _LIVE
        ),
    ] = 20.0


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """For `themis node`: which machine it is, and where its service is."""

    name: Annotated[
        str, KeyHelp(ValueKind("name or empty"), "This machine's name (default: its host name).")
    ] = ""
    server: Annotated[Address, KeyHelp(_ADDRESS, "Where the service listens for nodes.")] = GRPC
    token_file: Annotated[Path | None, KeyHelp(_PATH, "The file with this node's token.")] = None
    ca: Annotated[Path | None, KeyHelp(_PATH, "Who signed the service's certificate (PEM).")] = None
    cert: Annotated[Path | None, KeyHelp(_PATH, "This node's own certificate (PEM).")] = None
    key: Annotated[Path | None, KeyHelp(_PATH, "Its private key (PEM), mode 0600.")] = None
    owner: Annotated[
        str, KeyHelp(ValueKind("name or empty"), "Whose jobs it runs, where it is not root.")
    ] = ""
    rack: Annotated[str, KeyHelp(ValueKind("name"), "The rack that it stands in.")] = "r0"
    pretend: Annotated[
        int, KeyHelp(ValueKind("count", 0, 4096), "So many pretend GPUs instead of real ones.")
    ] = 0
    slot: Annotated[
        int,
        KeyHelp(ValueKind("count", 0, 4096), "Pretend GPUs in slots of so many; 0: all in one."),
    ] = 0
    model: Annotated[str, KeyHelp(ValueKind("name"), "What pretend GPUs are called.")] = "pretend"


@dataclass(frozen=True, slots=True)
class Slurm:
    """With `engine: slurm`: what Themis may use of the cluster, and how it asks for it."""

    partition: Annotated[
        str,
        KeyHelp(_PLAIN, "The partition whose machines it shares (default: Slurm's own)."),
    ] = ""
    nodes: Annotated[
        str, KeyHelp(_PLAIN, "Only these machines, as Slurm writes them: gpu[01-16].")
    ] = ""
    account: Annotated[str, KeyHelp(_PLAIN, "Whom its allocations are charged to.")] = ""
    qos: Annotated[str, KeyHelp(_PLAIN, "Their quality of service.")] = ""
    reservation: Annotated[str, KeyHelp(_PLAIN, "The reservation that they use.")] = ""
    memory: Annotated[
        str, KeyHelp(_PLAIN, "Memory for each GPU, as Slurm writes it: 64G (default: Slurm's own).")
    ] = ""
    cpus: Annotated[
        int, KeyHelp(ValueKind("count", 1, 4096), "CPUs that a job gets for each of its GPUs.")
    ] = 1
    pending: Annotated[
        float,
        KeyHelp(ValueKind("seconds", 1.0, 3600.0), "A job that Slurm does not start for so long."),
    ] = 60.0
    patience: Annotated[
        float,
        KeyHelp(
            ValueKind("seconds", 1.0, 3600.0),
            "What a command of Slurm's may take, and the end of a job that was called off.",
        ),
    ] = 30.0
    silence: Annotated[
        float,
        KeyHelp(
            ValueKind("seconds", 5.0, 3600.0),
            "A machine of whose jobs nothing is heard for so long is not used.",
        ),
    ] = 15.0


@dataclass(frozen=True, slots=True)
class Ray:
    """With `engine: ray`: what Themis may use of the cluster, and how it asks for it."""

    python: Annotated[
        Path | None, KeyHelp(_PATH, "The Python that has Ray (default: Themis's own).")
    ] = None
    only: Annotated[
        str, KeyHelp(_LABEL, "Only machines with this label: pool=themis (default: all with GPUs).")
    ] = ""
    machine_label: Annotated[
        str, KeyHelp(_LABEL, "The label that names a machine; without it, its host name does.")
    ] = "machine"
    rack_label: Annotated[str, KeyHelp(_LABEL, "The label that names a machine's rack.")] = "rack"
    cpus: Annotated[
        int, KeyHelp(ValueKind("count", 1, 4096), "CPUs that a job gets for each of its GPUs.")
    ] = 1
    pending: Annotated[
        float,
        KeyHelp(ValueKind("seconds", 1.0, 3600.0), "A job that Ray does not start for so long."),
    ] = 60.0


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """Everything that `themis serve` and `themis node` are told. Times are seconds."""

    grpc: Annotated[Address, KeyHelp(_ADDRESS, "Where nodes and agents call.")] = GRPC
    http: Annotated[Address, KeyHelp(_ADDRESS, "Where people and their browsers call.")] = HTTP
    hosts: Annotated[
        tuple[str, ...],
        KeyHelp(
            ValueKind("hosts"), "Other names (with ports) that browsers reach it under.", _LIVE
        ),
    ] = ()
    state_dir: Annotated[Path, KeyHelp(_PATH, "What the service keeps: store, tokens, locks.")] = (
        STATE
    )
    store: Annotated[
        str,
        KeyHelp(ValueKind("store"), "sqlite:///PATH or postgresql://... (default: in state_dir)."),
    ] = field(default="", repr=False)
    shared_dir: Annotated[
        Path | None, KeyHelp(_PATH, "A folder on storage that all nodes share.")
    ] = None
    policy: Annotated[str, KeyHelp(ValueKind("text"), "A policy by name, or module:Class.")] = (
        "themis"
    )
    solver: Annotated[str, KeyHelp(ValueKind("text"), "What settles auctions.")] = "default"
    seed: Annotated[
        int, KeyHelp(ValueKind("count", 0, 10**18), "The seed of everything random.")
    ] = 1
    set: Annotated[
        Mapping[str, Scalar],
        KeyHelp(ValueKind("scalars"), "Options of the policy and settings of the arbiter.", _LIVE),
    ] = field(default_factory=dict)
    engine: Annotated[
        str,
        KeyHelp(
            ValueKind("engine"),
            "What starts jobs on machines: local, slurm, ray or ray://HOST:PORT.",
        ),
    ] = "local"
    engine_dir: Annotated[
        Path | None,
        KeyHelp(
            _PATH, "Files of the engine that all machines see (default: engine in shared_dir)."
        ),
    ] = None
    local_nodes: Annotated[
        Path | None, KeyHelp(_PATH, "A cluster file: nodes to start on this host as well.")
    ] = None
    node_ttl: Annotated[
        float,
        KeyHelp(
            ValueKind("seconds", 1.0, 3600.0), "A node that hears nothing for so long stops jobs."
        ),
    ] = 20.0
    trust_tenants: Annotated[
        bool, KeyHelp(_FLAG, "Run all tenants' jobs under one user: they trust each other.")
    ] = False
    job_account: Annotated[
        str,
        KeyHelp(ValueKind("account"), "That user, where the node is root: a name, UID or UID:GID."),
    ] = "nobody"
    accounts: Annotated[
        Mapping[str, str],
        KeyHelp(
            ValueKind("accounts"),
            "Whom each owner's jobs run as: {vision: ann, ads: 2002:2002}.",
            _LIVE,
        ),
    ] = field(default_factory=dict)
    session: Annotated[
        float,
        KeyHelp(ValueKind("seconds", 60.0, 30 * _DAY), "A browser's login lasts so long.", _LIVE),
    ] = 12 * 3600.0
    log_level: Annotated[
        str,
        KeyHelp(
            ValueKind("choice", choices=("debug", "info", "warning", "error")),
            "What is logged.",
            _LIVE,
        ),
    ] = "info"
    log_format: Annotated[
        str,
        KeyHelp(ValueKind("choice", choices=("text", "json")), "Log lines for people or programs."),
    ] = "text"
    tls: Tls = field(default=Tls())
    retention: Retention = field(default=Retention())
    limits: CallerLimits = field(default=CallerLimits())
    node: NodeConfig = field(default=NodeConfig())
    slurm: Slurm = field(default=Slurm())
    ray: Ray = field(default=Ray())


def _keys(kind: type, prefix: str = "") -> Iterator[Key]:
    hints = get_type_hints(kind, include_extras=True)
    for item in fields(kind):
        inner = hints[item.name]
        if isinstance(inner, type) and is_dataclass(inner):
            yield from _keys(inner, f"{item.name}.")
            continue
        about = inner.__metadata__[0]
        default = {} if item.default is MISSING else item.default
        yield Key(prefix + item.name, about.kind, default, about.help, about.reload)


KEYS: Mapping[str, Key] = {key.name: key for key in _keys(ServiceConfig)}
"""All keys by name, in the order of the fields."""

SECTIONS = tuple(dict.fromkeys(name.partition(".")[0] for name in KEYS if "." in name))


def value_of(config: ServiceConfig, name: str) -> Any:
    """The value under a key such as `tls.cert`."""
    found: Any = config
    for step in name.split("."):
        found = getattr(found, step)
    return found


def config_from(values: Mapping[str, Any]) -> ServiceConfig:
    """The configuration with these checked values, by the names of their keys."""
    made: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    hints = get_type_hints(ServiceConfig)
    for section in SECTIONS:
        inner = {
            name.partition(".")[2]: value
            for name, value in values.items()
            if name.startswith(f"{section}.")
        }
        made[section] = hints[section](**inner)
    return ServiceConfig(**made)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. Names other than localhost may move."""
    from ipaddress import ip_address  # noqa: PLC0415 - not needed to show flags

    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
