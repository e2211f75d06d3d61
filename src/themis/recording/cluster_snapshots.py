"""Snapshots: the state of a cluster at one time, with which a forecast begins.

    write_snapshot(snapshot, Path("monday.json"))
    read_snapshot(Path("monday.json"))          # an equal one
    snapshot_from(loads(dumps_snapshot(snapshot)))

A snapshot holds all parts of the arbiter's state, and for each app what its agent and the nodes
know: the progress of its jobs, and where their processes run. It has no command, environment or
file of an app. It has the names of apps and owners, and so it is for operators.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from themis.core.arbiter.state_parts import AppPart, Part
from themis.core.model import AppId, GpuId, JobId
from themis.errors import ConfigError, RefusedError
from themis.recording.atomic_files import write_whole
from themis.recording.codec import decode, dumps, loads, part_from
from themis.recording.yaml_documents import read_text, told

KIND = "themis snapshot"
VERSION = 1
MOST_BYTES = 512 << 20
"""A cluster of thousands of GPUs and apps takes some tens of megabytes."""


class ProcessStage(StrEnum):
    """The stage of a process."""

    WAITING = "waiting"
    """Requested; its slots are not empty yet, or its node has not started it."""
    STARTING = "starting"
    RUNNING = "running"
    SAVING = "saving"
    """Told to save and exit."""


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """One process of a job."""

    gpus: tuple[GpuId, ...]
    until: float
    """The iteration of its job at which it ends."""
    stage: ProcessStage
    since: float = 0.0
    """When the stage began; for a running process, when its job was at `done`."""
    sampled: float = 0.0
    """When the arbiter last heard of its progress."""
    number: int = 0
    """Rises in the order in which processes were requested."""
    begins: float = 0.0
    """Its slots stay empty until then."""


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The true progress of a job."""

    job: JobId
    done: float = 0.0
    """Iterations since its start, when the stage of its process began."""
    starts: int = 0
    limit: float | None = None
    """Declared iterations; None for any number."""
    unreported: float = 0.0
    """Seconds of training since the last sample, in processes that are gone."""
    process: ProcessSnapshot | None = None
    successor: ProcessSnapshot | None = None
    """Requested while the process before it still saves."""


@dataclass(frozen=True, slots=True)
class AppSnapshot:
    """An app as its agent and the nodes know it."""

    app: AppId
    tuner: str = ""
    """A name of `themis.core.tuners.TUNERS`; empty for the tuner that its phases imply."""
    targets: tuple[tuple[JobId, float], ...] = ()
    """The jobs of the present phase, and the iterations each trains to."""
    reached: tuple[tuple[JobId, float | None], ...] = ()
    """Those that finished it, with their metrics: lower is better, None if there is none."""
    gpus: tuple[GpuId, ...] = ()
    """GPUs that its agent may use."""
    placement: tuple[tuple[JobId, tuple[GpuId, ...]], ...] = ()
    jobs: tuple[JobSnapshot, ...] = ()
    waiting: tuple[JobId, ...] | None = None
    """Jobs without GPUs, the longest last; None if only its agent knows."""
    content: bool = False
    """Whether its agent wants no more GPUs."""


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """A coming event: the stage of a process ends, or the arbiter is woken."""

    at: float
    app: AppId | None = None
    job: JobId | None = None
    successor: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a cluster at one time."""

    at: float
    policy: str
    seed: int
    state: Mapping[str, Part]
    """All parts of the arbiter."""
    apps: tuple[AppSnapshot, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the policy."""
    agenda: tuple[PendingEvent, ...] | None = None
    """The coming events, in their order; None for a live cluster, where they are not known."""
    wall: float | None = None
    """When it was taken, in seconds of the wall clock."""

    @property
    def specs(self) -> dict[AppId, AppPart]:
        """The arbiter's part of each app."""
        return {
            AppId(key.partition("/")[2]): part
            for key, part in self.state.items()
            if isinstance(part, AppPart)
        }


@dataclass(frozen=True, slots=True)
class _StoredSnapshot:
    """A snapshot whose parts are still plain data: their keys say what they are."""

    at: float
    policy: str
    seed: int
    state: Mapping[str, Any]
    apps: tuple[AppSnapshot, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    agenda: tuple[PendingEvent, ...] | None = None
    wall: float | None = None


def dumps_snapshot(snapshot: Snapshot) -> str:
    """One line of JSON."""
    return dumps({"kind": KIND, "version": VERSION} | _fields_of(snapshot))


def snapshot_from(data: object) -> Snapshot:
    """The snapshot in plain data.

    Raises:
        RefusedError: It is no snapshot, or of a later version; names the field.
    """
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise RefusedError("snapshot", "this is no snapshot; `themis snapshot` makes one")
    version = data.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise RefusedError("version", f"got {told(version)}, allowed: 1 to {VERSION}")
    rest = {key: value for key, value in data.items() if key not in {"kind", "version"}}
    stored = decode(_StoredSnapshot, rest)
    state = {key: part_from(key, part) for key, part in stored.state.items()}
    snapshot = Snapshot(**_fields_of(stored) | {"state": state})
    _check(snapshot)
    return snapshot


def _fields_of(snapshot: Snapshot | _StoredSnapshot) -> dict[str, Any]:
    return {each.name: getattr(snapshot, each.name) for each in fields(snapshot)}


def _check(snapshot: Snapshot) -> None:
    """Refuse apps and jobs that the arbiter's state does not have."""
    specs, seen = snapshot.specs, set()
    for app in snapshot.apps:
        part = specs.get(app.app)
        if part is None or app.app in seen:
            raise RefusedError(app.app, "a snapshot has each of its apps once")
        seen.add(app.app)
        known = {job.id for job in part.spec.jobs}
        named = [
            *(job for job, _ in app.targets),
            *(job for job, _ in app.reached),
            *(job for job, _ in app.placement),
            *(job.job for job in app.jobs),
        ]
        for job in named:
            if job not in known:
                raise RefusedError(app.app, f"it has no job {told(job)}")
    missing = sorted(set(specs) - seen)
    if missing:
        raise RefusedError(missing[0], "the snapshot says nothing of its jobs")


def write_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot to a file that only its owner can read.

    Raises:
        ConfigError: It cannot be written.
    """
    write_whole(path, (dumps_snapshot(snapshot) + "\n").encode("ascii"), secret=True)


def read_snapshot(path: Path) -> Snapshot:
    """The snapshot in a file.

    Raises:
        MissingFileError: There is no such file.
        ConfigError: It cannot be read, or is no snapshot.
    """
    text = read_text(path, MOST_BYTES)
    try:
        return snapshot_from(loads(text))
    except RefusedError as error:
        problem = f"{error.who}: {error.reason.removeprefix(f'{error.who}: ')}"
        raise ConfigError("snapshot", problem, "a file of `themis snapshot`", str(path)) from None
