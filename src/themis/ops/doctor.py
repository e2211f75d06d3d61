"""Finds what would go wrong on this machine, before something depends on it.

    for finding in examine_machine(LocalMachine(EngineProbe()), config, now=time.time()):
        print(finding.verdict, finding.check, finding.what, finding.advice)

A check is a function of the machine and the configuration. Tests give it a machine that pretends.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from themis.config.addresses import Address
from themis.config.keys import ServiceConfig
from themis.errors import ConfigError, ThemisError
from themis.node.bridge.child import check_bridge, one_line
from themis.node.local_nodes import local_machines, nodes_folder
from themis.security.tls import WARN_DAYS, check_files, days_left

ENOUGH_BYTES = 5 * 10**9
FEW_BYTES = 5 * 10**8
SHARED_FILESYSTEMS = frozenset(
    {
        *("nfs", "nfs4", "lustre", "ceph", "fuse.ceph", "beegfs", "gpfs", "glusterfs"),
        *("fuse.glusterfs", "cifs", "smb3", "afs", "ocfs2", "gfs2", "fuse.juicefs"),
        *("fuse.weka", "wekafs", "9p", "virtiofs"),
    }
)


class CheckVerdict(StrEnum):
    """How a check went."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and what to do about it."""

    check: str
    verdict: CheckVerdict
    what: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class GpuFound:
    """One GPU of this machine; `trouble` says why it would be quarantined."""

    name: str
    trouble: str = ""


class Probe(Protocol):
    """What engines and stores know of this machine; each method may raise ThemisError."""

    def control(self) -> str:
        """How the node would control processes: cgroup, namespace or tree."""

    def reasons(self) -> Sequence[str]:
        """Why better ways do not work here."""

    def gpus(self) -> Sequence[GpuFound]:
        """The GPUs of this machine."""

    def cluster(self, config: ServiceConfig) -> str:
        """A few words on the cluster of the engine; an error if the engine cannot use it."""

    def store(self, url: str) -> str:
        """A few words on the store, which is not changed."""


class MachineFacts(Protocol):
    """What the operating system knows of this machine."""

    @property
    def probe(self) -> Probe:
        """What engines and stores know of it."""

    def uid(self) -> int:
        """The user of this process."""

    def account_exists(self, account: str) -> bool:
        """Whether jobs can run as this user: a name, UID or UID:GID."""

    def free_bytes(self, folder: Path) -> int:
        """The free space for a folder, which need not exist yet."""

    def writable(self, folder: Path) -> bool:
        """Whether files can be made in a folder, or the folder itself made."""

    def is_folder(self, folder: Path) -> bool:
        """Whether a folder exists."""

    def marked_by(self, folder: Path) -> Sequence[str]:
        """The nodes whose marks a shared folder has."""

    def filesystem(self, folder: Path) -> str:
        """The type of a folder's file system."""

    def clock_synchronised(self) -> bool | None:
        """Whether a time service sets the clock; None if the system cannot tell."""

    def port_free(self, address: Address) -> bool:
        """Whether a server could listen there now."""


LOCAL = "local"
"""The engine that starts jobs on machines with nodes of their own, such as this one."""
_INSTALL_ADVICE = {
    "slurm": "run the service where users of Slurm submit, with its commands on the PATH",
    "ray": "pip install 'themis-scheduler[ray]', or let ray.python name a Python that has Ray",
}
_ANSWER_ADVICE = {
    "slurm": "is slurmctld up, and does this machine have its slurm.conf (SLURM_CONF)?",
    "ray": "is the cluster up, and Ray's port for clients open to this machine?",
}

Found = tuple[CheckVerdict, str, str]
"""Verdict, what was found, and advice."""
Check = Callable[[MachineFacts, ServiceConfig, float], Iterable[Found]]


def _ok(what: str) -> Found:
    return CheckVerdict.OK, what, ""


def _skipped(what: str) -> Found:
    return CheckVerdict.SKIPPED, what, ""


def _warning(what: str, advice: str) -> Found:
    return CheckVerdict.WARNING, what, advice


def _failed(what: str, advice: str = "") -> Found:
    return CheckVerdict.FAILED, what, advice


def check_engine(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Found]:
    """Whether the cluster of another scheduler can be used."""
    scheduler = config.engine.partition(":")[0]
    if scheduler == LOCAL:
        return
    try:
        check_bridge(config)
    except ConfigError as error:
        yield _failed(str(error), "see the guide of this engine")
    try:
        yield _ok(machine.probe.cluster(config))
    except ThemisError as error:
        advice = _INSTALL_ADVICE if isinstance(error, ConfigError) else _ANSWER_ADVICE
        yield _failed(one_line(error), advice[scheduler])


def check_control(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Found]:
    """Whether the node can stop a job that tries to survive."""
    if config.engine != LOCAL:
        yield _skipped("jobs run on the machines of the engine")
        return
    kind = machine.probe.control()
    if kind != "tree":
        yield _ok(kind)
        return
    what = "process trees only: a job that hides may survive, and quarantines its GPU"
    reasons = "; ".join(machine.probe.reasons())
    what = f"{what} ({reasons})" if reasons else what
    yield _warning(what, "run the node as root with cgroup v2, or allow user namespaces")


def check_accounts(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Found]:
    """Whether jobs of different tenants run as different users."""
    root = machine.uid() == 0
    if config.trust_tenants:
        user = config.job_account if root else "this node's own user"
        what = f"trust_tenants: all jobs run as {user} and can read each other's files"
        advice = "name accounts, without trust_tenants"
        yield _warning(what, advice if root else f"run the node as root; {advice}")
        if root and not machine.account_exists(config.job_account):
            what = f"no such user: {config.job_account}"
            yield _failed(what, "set job_account to a user of this machine")
    elif not root and config.node.owner:
        yield _ok(f"not root: this node serves {config.node.owner} only")
    elif not root:
        what = f"not root (uid {machine.uid()}): this node could serve one owner, none is named"
        yield _warning(what, "set node.owner, or run it as root")
    elif not config.accounts:
        advice = "add `accounts: {OWNER: USER}`; jobs of owners without one are refused"
        yield _warning("root, but no owner has an account", advice)
    else:
        yield from _check_each_account(machine, config.accounts)


def _check_each_account(machine: MachineFacts, accounts: Mapping[str, str]) -> Iterable[Found]:
    unknown = [owner for owner in accounts if not machine.account_exists(accounts[owner])]
    if unknown:
        what = f"no such user here: {', '.join(f'{o} ({accounts[o]})' for o in unknown[:5])}"
        yield _warning(what, "make the users the same on all nodes, or write UID:GID")
    users = [account.partition(":")[0] for account in accounts.values()]
    shared = [owner for owner in accounts if users.count(accounts[owner].partition(":")[0]) > 1]
    if shared:
        what = f"owners with the same user, which nodes refuse: {', '.join(shared[:5])}"
        yield _failed(what, "give each owner another one")
    if not unknown and not shared:
        yield _ok(f"{len(accounts)} owners have users of their own")


def check_local_nodes(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Found]:
    """Whether the nodes that the service starts on this host could run."""
    if config.local_nodes is not None:
        machines = local_machines(config)
        gpus = sum(each.gpus for each in machines)
        yield _ok(f"{len(machines)} machines with {gpus} pretend GPUs")


def check_gpus(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Found]:
    """Which GPUs could be leased."""
    if config.engine != LOCAL:
        yield _skipped("those of the machines of the engine are used")
    elif config.node.pretend:
        yield _ok(f"{config.node.pretend} pretend GPUs")
    elif config.local_nodes is not None:
        yield _skipped("local nodes pretend theirs")
    elif gpus := machine.probe.gpus():
        bad = [gpu for gpu in gpus if gpu.trouble]
        for gpu in bad:
            yield _warning(f"{gpu.name}: {gpu.trouble}", "it is quarantined")
        yield _ok(f"{len(gpus) - len(bad)} of {len(gpus)} can be leased")
    else:
        advice = "is the driver loaded (nvidia-smi)? without GPUs: node.pretend"
        yield _warning("none found", advice)


def check_disk(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Found]:
    """Whether there is room for the store, and a folder to put it in."""
    folder = config.state_dir
    if not machine.writable(folder):
        advice = f"make {folder} for the service's user, or set state_dir"
        yield _failed(f"{folder} cannot be written to", advice)
        return
    free = machine.free_bytes(folder)
    what = f"{free / 1e9:.1f} GB free in {folder}"
    if free < FEW_BYTES:
        yield _failed(what, "make room: below this the service soon refuses new apps")
    elif free < min(ENOUGH_BYTES, config.retention.bytes):
        yield _warning(what, "make room, or lower retention.bytes")
    else:
        yield _ok(what)


def check_clock(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Found]:
    """Whether certificates and tokens can be judged. Leases do not depend on this clock."""
    # 2024: no release is older.
    if now < 1_704_067_200.0:
        yield _failed("it is far behind", "set the clock: tokens and certificates look invalid")
        return
    synchronised = machine.clock_synchronised()
    if synchronised is None:
        yield _skipped("this system does not tell whether it is synchronised")
    elif synchronised:
        yield _ok("synchronised")
    else:
        advice = "run chrony or systemd-timesyncd (leases do not depend on it, tokens do)"
        yield _warning("not synchronised", advice)


def check_ports(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Found]:
    """Whether the service could listen."""
    for key, address in (("grpc", config.grpc), ("http", config.http)):
        if address.port == 0 or machine.port_free(address):
            yield _ok(f"{key} {address} is free")
        else:
            advice = f"if that is not the service itself, set {key}"
            yield _warning(f"{key} {address} is taken", advice)


def check_shared_storage(
    machine: MachineFacts, config: ServiceConfig, now: float
) -> Iterable[Found]:
    """Whether a job that moves to another machine finds its checkpoints there."""
    folder = config.shared_dir
    if folder is None and config.local_nodes is not None:
        yield _ok(f"local nodes share {nodes_folder(config)}")
    elif folder is None:
        advice = "set shared_dir; a job that moves finds its checkpoints on shared storage only"
        yield _warning("none is named", advice)
    elif not machine.is_folder(folder):
        advice = "mount it; nodes do not make it, for it would be on their own disks"
        yield _failed(f"{folder} does not exist", advice)
    elif not machine.writable(folder):
        yield _failed(f"{folder} cannot be written to", "mount it, or chmod")
    else:
        yield from _check_shared_folder(machine, folder)


def _check_shared_folder(machine: MachineFacts, folder: Path) -> Iterable[Found]:
    nodes, kind = machine.marked_by(folder), machine.filesystem(folder)
    if nodes:
        more = f", and {len(nodes) - 5} more" if len(nodes) > 5 else ""
        yield _ok(f"it has marks of {', '.join(nodes[:5])}{more}")
    if kind in SHARED_FILESYSTEMS:
        yield _ok(f"{folder} is on {kind}")
    else:
        what = f"{folder} is on {kind}, which other machines do not see"
        yield _warning(what, "fine on one machine; on several use a network file system")


def check_store(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Found]:
    """Whether the store can be read."""
    yield _ok(machine.probe.store(config.store))


def check_certificates(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Found]:
    """Whether TLS would work, and for how long."""
    files = [path for path in (config.tls.cert, config.tls.ca, config.node.cert) if path]
    if not files:
        yield _ok("none: the service listens on loopback only")
        return
    check_files(config.tls, now=now)
    for path in files:
        left = days_left(path, now=now)
        what = f"{path} is valid for {left:.0f} days"
        soon = left < WARN_DAYS
        yield _warning(what, "make another with `themis cert`, then restart") if soon else _ok(what)


CHECKS: Mapping[str, Check] = {
    "engine": check_engine,
    "process control": check_control,
    "accounts": check_accounts,
    "local nodes": check_local_nodes,
    "GPUs": check_gpus,
    "disk": check_disk,
    "clock": check_clock,
    "ports": check_ports,
    "shared storage": check_shared_storage,
    "store": check_store,
    "certificates": check_certificates,
}


def examine_machine(
    machine: MachineFacts, config: ServiceConfig, *, now: float
) -> tuple[Finding, ...]:
    """What all checks found. A check that fails by itself is a finding, and the others go on."""
    found: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            found.extend(Finding(name, *each) for each in check(machine, config, now))
        except ConfigError as error:
            found.append(Finding(name, *_failed(str(error))))
        except (ThemisError, OSError) as error:
            found.append(Finding(name, *_failed(f"could not be checked: {error}")))
    return tuple(found)
