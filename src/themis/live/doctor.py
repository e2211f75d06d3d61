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

from themis.errors import ConfigError, ThemisError
from themis.live.config import Address, ServiceConfig
from themis.live.tls import WARN_DAYS, check_files, days_left

ENOUGH_BYTES = 5 * 10**9
FEW_BYTES = 5 * 10**8
SHARED_FILESYSTEMS = frozenset(
    {
        *("nfs", "nfs4", "lustre", "ceph", "fuse.ceph", "beegfs", "gpfs", "glusterfs"),
        *("fuse.glusterfs", "cifs", "smb3", "afs", "ocfs2", "gfs2", "fuse.juicefs"),
        *("fuse.weka", "wekafs", "9p", "virtiofs"),
    }
)


class Verdict(StrEnum):
    """How a check went."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and what to do about it."""

    check: str
    verdict: Verdict
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

    def gpus(self) -> Sequence[GpuFound]:
        """The GPUs, if there are any."""

    def store(self, url: str) -> str:
        """A few words on the store, after having looked into it without changing it."""


class Machine(Protocol):
    """What the checks look at."""

    @property
    def probe(self) -> Probe | None:
        """What engines and stores know; None where none is installed."""

    def uid(self) -> int:
        """Who we are."""

    def user_exists(self, uid: int) -> bool:
        """Whether the machine knows this user."""

    def free_bytes(self, folder: Path) -> int:
        """What is left on the disk of a folder, or of its nearest parent that is there."""

    def writable(self, folder: Path) -> bool:
        """Whether files can be made in a folder, or the folder itself made."""

    def filesystem(self, folder: Path) -> str:
        """The type of the file system that a folder is on."""

    def clock_synchronised(self) -> bool | None:
        """Whether somebody sets this machine's clock; None where that cannot be told."""

    def port_free(self, address: Address) -> bool:
        """Whether one could listen there now."""


Check = Callable[[Machine, ServiceConfig, float], Iterable[Finding]]


def check_control(machine: Machine, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether a job that does not want to go can be made to."""
    name = "process control"
    if machine.probe is None:
        yield Finding(name, Verdict.SKIPPED, "no engine is installed here")
        return
    kind = machine.probe.control()
    if kind == "tree":
        advice = "run the node as root with cgroup v2, or allow user namespaces"
        what = "process trees only: a job that hides may survive, and quarantines its GPU"
        yield Finding(name, Verdict.WARNING, what, advice)
    else:
        yield Finding(name, Verdict.OK, kind)


def check_uid(machine: Machine, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether tenants' jobs are kept apart."""
    name = "users"
    if machine.uid() != 0:
        if config.trust_tenants:
            what = "trust_tenants: all jobs run as this user and can read each other's files"
            yield Finding(name, Verdict.WARNING, what, "run the node as root, with uids")
        else:
            what = f"not root (uid {machine.uid()}): this node serves one owner"
            yield Finding(name, Verdict.OK, what)
        return
    if config.trust_tenants:
        if config.job_user is None:
            advice = "set job_user to an unprivileged user"
            yield Finding(name, Verdict.FAILED, "root with trust_tenants, but no job_user", advice)
        else:
            what = f"trust_tenants: all jobs run as {config.job_user}"
            yield Finding(name, Verdict.WARNING, what, "give owners users of their own in uids")
        return
    if not config.uids:
        advice = "add `uids: {OWNER: UID}`, or jobs of all owners are refused"
        yield Finding(name, Verdict.WARNING, "root, but no owner has a user", advice)
        return
    unknown = [owner for owner, user in config.uids.items() if not machine.user_exists(user.uid)]
    if unknown:
        what = f"no such user here: {', '.join(f'{o} ({config.uids[o]})' for o in unknown[:5])}"
        yield Finding(name, Verdict.WARNING, what, "make the users the same on all nodes")
    shared = _shared_uids(config)
    if shared:
        what = f"owners with the same user can read each other's files: {', '.join(shared)}"
        yield Finding(name, Verdict.WARNING, what, "give each owner another uid")
    if not unknown and not shared:
        yield Finding(name, Verdict.OK, f"{len(config.uids)} owners have users of their own")


def check_gpus(machine: Machine, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Which GPUs could be leased."""
    name = "GPUs"
    if config.node.pretend:
        yield Finding(name, Verdict.OK, f"{config.node.pretend} pretend GPUs")
        return
    if machine.probe is None:
        yield Finding(name, Verdict.SKIPPED, "no engine is installed here")
        return
    gpus = machine.probe.gpus()
    if not gpus:
        advice = "is the driver loaded (nvidia-smi)? without GPUs: node.pretend"
        yield Finding(name, Verdict.WARNING, "none found", advice)
        return
    bad = [gpu for gpu in gpus if gpu.trouble]
    for gpu in bad:
        yield Finding(name, Verdict.WARNING, f"{gpu.name}: {gpu.trouble}", "it is quarantined")
    yield Finding(name, Verdict.OK, f"{len(gpus) - len(bad)} of {len(gpus)} can be leased")


def check_disk(machine: Machine, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether there is room for the store, and a folder to put it in."""
    folder = config.state_dir
    if not machine.writable(folder):
        advice = f"make {folder} for the service's user, or set state_dir"
        yield Finding("disk", Verdict.FAILED, f"{folder} cannot be written to", advice)
        return
    free = machine.free_bytes(folder)
    what = f"{free / 1e9:.1f} GB free in {folder}"
    if free < FEW_BYTES:
        advice = "below this the service takes no new apps soon; make room"
        yield Finding("disk", Verdict.FAILED, what, advice)
    elif free < min(ENOUGH_BYTES, config.retention.bytes):
        advice = "make room, or lower retention.bytes"
        yield Finding("disk", Verdict.WARNING, what, advice)
    else:
        yield Finding("disk", Verdict.OK, what)


def check_clock(machine: Machine, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether certificates and tokens can be judged. Leases do not depend on this clock."""
    # 2024: no release is older.
    if now < 1_704_067_200.0:
        advice = "set the clock: tokens and certificates look invalid"
        yield Finding("clock", Verdict.FAILED, "it is far behind", advice)
        return
    synchronised = machine.clock_synchronised()
    if synchronised is None:
        yield Finding("clock", Verdict.SKIPPED, "this system does not tell who sets it")
    elif synchronised:
        yield Finding("clock", Verdict.OK, "synchronised")
    else:
        advice = "run chrony or systemd-timesyncd (leases do not depend on it, tokens do)"
        yield Finding("clock", Verdict.WARNING, "nobody sets it", advice)


def check_ports(machine: Machine, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether the service could listen."""
    for key in ("grpc", "http"):
        address = getattr(config, key)
        if address.port == 0 or machine.port_free(address):
            yield Finding("ports", Verdict.OK, f"{key} {address} is free")
        else:
            advice = f"if that is not the service itself, set {key}"
            yield Finding("ports", Verdict.WARNING, f"{key} {address} is taken", advice)


def check_sharing(machine: Machine, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether a job can go on on another machine."""
    name = "shared storage"
    folder = config.shared_dir
    if folder is None:
        advice = "set shared_dir; without it jobs stay on the machine where they began"
        yield Finding(name, Verdict.WARNING, "none is named", advice)
        return
    if not machine.writable(folder):
        yield Finding(name, Verdict.FAILED, f"{folder} cannot be written to", "mount it, or chmod")
        return
    kind = machine.filesystem(folder)
    if kind in SHARED_FILESYSTEMS:
        yield Finding(name, Verdict.OK, f"{folder} is on {kind}")
    else:
        what = f"{folder} is on {kind}, which other machines do not see"
        advice = "fine on one machine; on several use a network file system"
        yield Finding(name, Verdict.WARNING, what, advice)


def check_store(machine: Machine, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether the store can be read."""
    if machine.probe is None:
        yield Finding("store", Verdict.SKIPPED, "no store is installed here")
        return
    yield Finding("store", Verdict.OK, machine.probe.store(config.store))


def check_certificates(machine: Machine, config: ServiceConfig, now: float) -> Iterable[Finding]:
    """Whether TLS would work, and for how long."""
    name = "certificates"
    files = [path for path in (config.tls.cert, config.tls.ca, config.node.cert) if path]
    if not files:
        yield Finding(name, Verdict.OK, "none: the service stays on loopback")
        return
    check_files(config.tls, now=now)
    for path in files:
        left = days_left(path, now=now)
        soon = left < WARN_DAYS
        advice = "make another with `themis cert`, then restart" if soon else ""
        verdict = Verdict.WARNING if soon else Verdict.OK
        yield Finding(name, verdict, f"{path} is valid for {left:.0f} days", advice)


CHECKS: tuple[Check, ...] = (
    check_control,
    check_uid,
    check_gpus,
    check_disk,
    check_clock,
    check_ports,
    check_sharing,
    check_store,
    check_certificates,
)


def examine_machine(
    machine: Machine, config: ServiceConfig, *, now: float, checks: Sequence[Check] = CHECKS
) -> tuple[Finding, ...]:
    """What all checks found. One that fails by itself is a finding and not the end."""
    found: list[Finding] = []
    for check in checks:
        name = check.__name__.removeprefix("check_")
        try:
            found.extend(check(machine, config, now))
        except ConfigError as error:
            found.append(Finding(name, Verdict.FAILED, str(error)))
        except (ThemisError, OSError) as error:
            found.append(Finding(name, Verdict.FAILED, f"could not be checked: {error}"))
    return tuple(found)


def _shared_uids(config: ServiceConfig) -> list[str]:
    uids = [user.uid for user in config.uids.values()]
    return [owner for owner, user in config.uids.items() if uids.count(user.uid) > 1][:5]
