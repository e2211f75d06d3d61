"""What may stand in the way on this machine, before something depends on it.

    for finding in examine_machine(LocalMachine(), config, now=time.time()):
        print(finding.verdict, finding.check, finding.what, finding.advice)

A check is a function of the machine and the configuration. The machine is a Protocol: the real one
looks, a test's pretends; what engines know of processes and GPUs comes through `Probe`.
"""

from collections.abc import Callable, Iterable, Sequence
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
    """What engines and stores know; each raises ThemisError where it cannot tell."""

    def control(self) -> str:
        """How processes are controlled here: cgroup, namespace or tree."""

    def reasons(self) -> Sequence[str]:
        """Why better ways do not work here."""

    def gpus(self) -> Sequence[GpuFound]:
        """The GPUs, if there are any."""

    def cluster(self, config: ServiceConfig) -> str:
        """A few words on the cluster that the engine is of; an error if it cannot be used."""

    def store(self, url: str) -> str:
        """A few words on the store, after having looked into it without changing it."""


class MachineFacts(Protocol):
    """What the checks look at."""

    @property
    def probe(self) -> Probe | None:
        """What engines and stores know; None where none is installed."""

    def uid(self) -> int:
        """Who we are."""

    def account_exists(self, account: str) -> bool:
        """Whether jobs can run as this user here: by its name, or UID, or UID:GID."""

    def free_bytes(self, folder: Path) -> int:
        """What is left on the disk of a folder, or of its nearest parent that is there."""

    def writable(self, folder: Path) -> bool:
        """Whether files can be made in a folder, or the folder itself made."""

    def is_folder(self, folder: Path) -> bool:
        """Whether a folder is there."""

    def marked_by(self, folder: Path) -> Sequence[str]:
        """The nodes that have left marks in a shared folder."""

    def filesystem(self, folder: Path) -> str:
        """The type of the file system that a folder is on."""

    def clock_synchronised(self) -> bool | None:
        """Whether somebody sets this machine's clock; None where that cannot be told."""

    def port_free(self, address: Address) -> bool:
        """Whether one could listen there now."""


LOCAL = "local"
"""The engine that starts jobs on machines with nodes of their own, such as this one."""
_INSTALLED = {
    "slurm": "run the service where users of Slurm submit, with its commands on the PATH",
    "ray": "pip install 'themis-scheduler[ray]', or let ray.python name a Python that has Ray",
}
"""What helps where an engine has not what it needs on this machine."""
_ANSWERING = {
    "slurm": "is slurmctld up, and does this machine have its slurm.conf (SLURM_CONF)?",
    "ray": "is the cluster up, and Ray's port for clients open to this machine?",
}
"""What to look at where a cluster does not answer."""

Check = Callable[[MachineFacts, ServiceConfig, float], Iterable[Finding]]


def check_engine(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether the cluster is there that another scheduler rules."""
    name, ruler = "engine", config.engine.partition(":")[0]
    if ruler == LOCAL:
        return
    try:
        check_bridge(config)
    except ConfigError as error:
        yield Finding(name, CheckVerdict.FAILED, str(error), "see the guide of this engine")
    if machine.probe is None:
        yield Finding(name, CheckVerdict.SKIPPED, "no engine is installed here")
        return
    try:
        yield Finding(name, CheckVerdict.OK, machine.probe.cluster(config))
    except ThemisError as error:
        advice = _INSTALLED if isinstance(error, ConfigError) else _ANSWERING
        yield Finding(name, CheckVerdict.FAILED, one_line(error), advice[ruler])


def check_control(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether a job that does not want to go can be made to."""
    name = "process control"
    if config.engine != LOCAL:
        yield Finding(name, CheckVerdict.SKIPPED, "jobs run on the machines of the engine")
        return
    if machine.probe is None:
        yield Finding(name, CheckVerdict.SKIPPED, "no engine is installed here")
        return
    kind = machine.probe.control()
    if kind == "tree":
        advice = "run the node as root with cgroup v2, or allow user namespaces"
        why = "; ".join(machine.probe.reasons())
        what = "process trees only: a job that hides may survive, and quarantines its GPU"
        yield Finding(name, CheckVerdict.WARNING, f"{what} ({why})" if why else what, advice)
    else:
        yield Finding(name, CheckVerdict.OK, kind)


def check_accounts(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether tenants' jobs are kept apart."""
    name = "accounts"
    root = machine.uid() == 0
    if config.trust_tenants:
        who = config.job_account if root else "this node's own user"
        what = f"trust_tenants: all jobs run as {who} and can read each other's files"
        advice = "name accounts, without trust_tenants"
        advice = advice if root else f"run the node as root; {advice}"
        yield Finding(name, CheckVerdict.WARNING, what, advice)
        if root and not machine.account_exists(config.job_account):
            advice = "set job_account to a user that is there"
            yield Finding(name, CheckVerdict.FAILED, f"no such user: {config.job_account}", advice)
    elif not root and config.node.owner:
        yield Finding(name, CheckVerdict.OK, f"not root: this node serves {config.node.owner} only")
    elif not root:
        what = f"not root (uid {machine.uid()}): this node could serve one owner, none is named"
        yield Finding(name, CheckVerdict.WARNING, what, "set node.owner, or run it as root")
    elif not config.accounts:
        advice = "add `accounts: {OWNER: USER}`; jobs of owners without one are refused"
        yield Finding(name, CheckVerdict.WARNING, "root, but no owner has an account", advice)
    else:
        yield from _check_each_account(machine, config)


def _check_each_account(machine: MachineFacts, config: ServiceConfig) -> Iterable[Finding]:
    accounts = config.accounts
    unknown = [owner for owner in accounts if not machine.account_exists(accounts[owner])]
    if unknown:
        what = f"no such user here: {', '.join(f'{o} ({accounts[o]})' for o in unknown[:5])}"
        advice = "make the users the same on all nodes, or write UID:GID"
        yield Finding("accounts", CheckVerdict.WARNING, what, advice)
    users = [account.partition(":")[0] for account in accounts.values()]
    shared = [owner for owner in accounts if users.count(accounts[owner].partition(":")[0]) > 1]
    if shared:
        what = f"owners with the same user, which nodes refuse: {', '.join(shared[:5])}"
        yield Finding("accounts", CheckVerdict.FAILED, what, "give each owner another one")
    if not unknown and not shared:
        yield Finding(
            "accounts", CheckVerdict.OK, f"{len(accounts)} owners have users of their own"
        )


def check_local_nodes(
    machine: MachineFacts, config: ServiceConfig, now: float
) -> Iterable[Finding]:
    """Whether the nodes that the service starts by itself could run."""
    if config.local_nodes is None:
        return
    machines = local_machines(config)
    gpus = sum(each.gpus for each in machines)
    yield Finding(
        "local nodes", CheckVerdict.OK, f"{len(machines)} machines with {gpus} pretend GPUs"
    )


def check_gpus(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Which GPUs could be leased."""
    name = "GPUs"
    if config.engine != LOCAL:
        yield Finding(name, CheckVerdict.SKIPPED, "those of the machines of the engine are used")
        return
    if config.node.pretend:
        yield Finding(name, CheckVerdict.OK, f"{config.node.pretend} pretend GPUs")
        return
    if config.local_nodes is not None:
        yield Finding(name, CheckVerdict.SKIPPED, "local nodes pretend theirs")
        return
    if machine.probe is None:
        yield Finding(name, CheckVerdict.SKIPPED, "no engine is installed here")
        return
    gpus = machine.probe.gpus()
    if not gpus:
        advice = "is the driver loaded (nvidia-smi)? without GPUs: node.pretend"
        yield Finding(name, CheckVerdict.WARNING, "none found", advice)
        return
    bad = [gpu for gpu in gpus if gpu.trouble]
    for gpu in bad:
        yield Finding(name, CheckVerdict.WARNING, f"{gpu.name}: {gpu.trouble}", "it is quarantined")
    yield Finding(name, CheckVerdict.OK, f"{len(gpus) - len(bad)} of {len(gpus)} can be leased")


def check_disk(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether there is room for the store, and a folder to put it in."""
    folder = config.state_dir
    if not machine.writable(folder):
        advice = f"make {folder} for the service's user, or set state_dir"
        yield Finding("disk", CheckVerdict.FAILED, f"{folder} cannot be written to", advice)
        return
    free = machine.free_bytes(folder)
    what = f"{free / 1e9:.1f} GB free in {folder}"
    if free < FEW_BYTES:
        advice = "below this the service takes no new apps soon; make room"
        yield Finding("disk", CheckVerdict.FAILED, what, advice)
    elif free < min(ENOUGH_BYTES, config.retention.bytes):
        advice = "make room, or lower retention.bytes"
        yield Finding("disk", CheckVerdict.WARNING, what, advice)
    else:
        yield Finding("disk", CheckVerdict.OK, what)


def check_clock(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether certificates and tokens can be judged. Leases do not depend on this clock."""
    # 2024: no release is older.
    if now < 1_704_067_200.0:
        advice = "set the clock: tokens and certificates look invalid"
        yield Finding("clock", CheckVerdict.FAILED, "it is far behind", advice)
        return
    synchronised = machine.clock_synchronised()
    if synchronised is None:
        yield Finding("clock", CheckVerdict.SKIPPED, "this system does not tell who sets it")
    elif synchronised:
        yield Finding("clock", CheckVerdict.OK, "synchronised")
    else:
        advice = "run chrony or systemd-timesyncd (leases do not depend on it, tokens do)"
        yield Finding("clock", CheckVerdict.WARNING, "nobody sets it", advice)


def check_ports(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether the service could listen."""
    for key in ("grpc", "http"):
        address = getattr(config, key)
        if address.port == 0 or machine.port_free(address):
            yield Finding("ports", CheckVerdict.OK, f"{key} {address} is free")
        else:
            advice = f"if that is not the service itself, set {key}"
            yield Finding("ports", CheckVerdict.WARNING, f"{key} {address} is taken", advice)


def check_sharing(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether a job can go on on another machine."""
    name = "shared storage"
    folder = config.shared_dir
    if folder is None and config.local_nodes is not None:
        yield Finding(name, CheckVerdict.OK, f"local nodes share {nodes_folder(config)}")
        return
    if folder is None:
        advice = "set shared_dir; a job that moves finds its checkpoints on shared storage only"
        yield Finding(name, CheckVerdict.WARNING, "none is named", advice)
        return
    if not machine.is_folder(folder):
        advice = "mount it; nodes do not make it, for it would be on their own disks"
        yield Finding(name, CheckVerdict.FAILED, f"{folder} is not there", advice)
        return
    if not machine.writable(folder):
        yield Finding(
            name, CheckVerdict.FAILED, f"{folder} cannot be written to", "mount it, or chmod"
        )
        return
    kind, nodes = machine.filesystem(folder), machine.marked_by(folder)
    if nodes:
        many = f", and {len(nodes) - 5} more" if len(nodes) > 5 else ""
        yield Finding(name, CheckVerdict.OK, f"marks there of: {', '.join(nodes[:5])}{many}")
    if kind in SHARED_FILESYSTEMS:
        yield Finding(name, CheckVerdict.OK, f"{folder} is on {kind}")
    else:
        what = f"{folder} is on {kind}, which other machines do not see"
        advice = "fine on one machine; on several use a network file system"
        yield Finding(name, CheckVerdict.WARNING, what, advice)


def check_store(machine: MachineFacts, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether the store can be read."""
    if machine.probe is None:
        yield Finding("store", CheckVerdict.SKIPPED, "no store is installed here")
        return
    yield Finding("store", CheckVerdict.OK, machine.probe.store(config.store))


def check_certificates(
    machine: MachineFacts, config: ServiceConfig, now: float
) -> Iterable[Finding]:
    """Whether TLS would work, and for how long."""
    name = "certificates"
    files = [path for path in (config.tls.cert, config.tls.ca, config.node.cert) if path]
    if not files:
        yield Finding(name, CheckVerdict.OK, "none: the service stays on loopback")
        return
    check_files(config.tls, now=now)
    for path in files:
        left = days_left(path, now=now)
        soon = left < WARN_DAYS
        advice = "make another with `themis cert`, then restart" if soon else ""
        verdict = CheckVerdict.WARNING if soon else CheckVerdict.OK
        yield Finding(name, verdict, f"{path} is valid for {left:.0f} days", advice)


CHECKS: tuple[Check, ...] = (
    check_engine,
    check_control,
    check_accounts,
    check_local_nodes,
    check_gpus,
    check_disk,
    check_clock,
    check_ports,
    check_sharing,
    check_store,
    check_certificates,
)


def examine_machine(
    machine: MachineFacts, config: ServiceConfig, *, now: float, checks: Sequence[Check] = CHECKS
) -> tuple[Finding, ...]:
    """What all checks found. One that fails by itself is a finding and not the end."""
    found: list[Finding] = []
    for check in checks:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        try:
            found.extend(check(machine, config, now))
        except ConfigError as error:
            found.append(Finding(name, CheckVerdict.FAILED, str(error)))
        except (ThemisError, OSError) as error:
            found.append(Finding(name, CheckVerdict.FAILED, f"could not be checked: {error}"))
    return tuple(found)
