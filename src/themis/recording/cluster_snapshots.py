"""A cluster in the middle of its work, written down: what a forecast begins with.

    write_snapshot(snapshot, Path("monday.json"))
    read_snapshot(Path("monday.json"))          # an equal one
    snapshot_from(loads(dumps_snapshot(snapshot)))

It has the arbiter's whole state as parts, and of each app what its agent and the nodes know: how
far its jobs are, which processes run where. No command, environment or file of anybody is in it.
The names of apps and owners are: it is for operators.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """What a process is doing."""

    WAITING = "waiting"
    """Asked for; its slots are not empty yet, or nobody has begun it."""
    STARTING = "starting"
    RUNNING = "running"
    SAVING = "saving"
    """Told to go."""


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """One process of a job."""

    gpus: tuple[GpuId, ...]
    until: float
    """Iterations of its job at which it ends."""
    stage: ProcessStage
    since: float = 0.0
    """When the stage began; of a running one, when its job was at `done`."""
    sampled: float = 0.0
    """When the arbiter was last told how far it is."""
    number: int = 0
    """In the order in which processes were asked for."""
    begins: float = 0.0
    """It leaves its slots empty until then."""


@dataclass(frozen=True, slots=True)
class JobPicture:
    """How far a job really is."""

    job: JobId
    done: float = 0.0
    """Iterations since its start, when the stage of its process began."""
    starts: int = 0
    limit: float | None = None
    """Iterations that were declared; None for any number."""
    unreported: float = 0.0
    """Seconds that processes now gone trained since the last sample."""
    process: ProcessSnapshot | None = None
    successor: ProcessSnapshot | None = None
    """Asked for while the process before it still saves."""


@dataclass(frozen=True, slots=True)
class AppPicture:
    """An app as its agent and the nodes know it."""

    app: AppId
    tuner: str = ""
    """A name of `themis.core.tuners.TUNERS`; without one its phases tell."""
    targets: tuple[tuple[JobId, float], ...] = ()
    """The jobs of the present phase, and the iterations each trains to."""
    reached: tuple[tuple[JobId, float | None], ...] = ()
    """Those of them that are done with it, and their metrics: lower is better, None for none."""
    gpus: tuple[GpuId, ...] = ()
    """That its agent may use."""
    placement: tuple[tuple[JobId, tuple[GpuId, ...]], ...] = ()
    jobs: tuple[JobPicture, ...] = ()
    waiting: tuple[JobId, ...] | None = None
    """Jobs without GPUs, the longest last; None if only its agent knows."""
    content: bool = False
    """Whether its agent has no use for more GPUs."""


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """Something that is going to happen: the stage of a process ends, or the arbiter is woken."""

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
    apps: tuple[AppPicture, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the policy."""
    agenda: tuple[PendingEvent, ...] | None = None
    """What comes next, in its order; None where only time will tell."""
    wall: float | None = None
    """When it was taken, in seconds of the wall clock."""

    @property
    def specs(self) -> dict[AppId, AppPart]:
        """The apps as the arbiter has them."""
        return {
            AppId(key.partition("/")[2]): part
            for key, part in self.state.items()
            if isinstance(part, AppPart)
        }


@dataclass(frozen=True, slots=True)
class _Frame:
    """The file without the parts, which are read by their keys."""

    kind: str
    version: int
    at: float
    policy: str
    seed: int
    state: Mapping[str, Any]
    apps: tuple[AppPicture, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    agenda: tuple[PendingEvent, ...] | None = None
    wall: float | None = None


def dumps_snapshot(snapshot: Snapshot) -> str:
    """One line of JSON."""
    return dumps(
        _Frame(
            KIND,
            VERSION,
            snapshot.at,
            snapshot.policy,
            snapshot.seed,
            snapshot.state,
            snapshot.apps,
            snapshot.options,
            snapshot.agenda,
            snapshot.wall,
        )
    )


def snapshot_from(data: object) -> Snapshot:
    """The snapshot in plain data.

    Raises:
        RefusedError: There is none, or of a later version; names the field.
    """
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise RefusedError("snapshot", "this is none; `themis snapshot` makes one")
    version = data.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise RefusedError("version", f"got {told(version)}, allowed: 1 to {VERSION}")
    frame = decode(_Frame, data)
    state = {key: part_from(key, part) for key, part in frame.state.items()}
    snapshot = Snapshot(
        frame.at,
        frame.policy,
        frame.seed,
        state,
        frame.apps,
        frame.options,
        frame.agenda,
        frame.wall,
    )
    _check(snapshot)
    return snapshot


def _check(snapshot: Snapshot) -> None:
    """Refuse pictures of apps and jobs that the arbiter's state does not have."""
    specs, seen = snapshot.specs, set()
    for picture in snapshot.apps:
        part = specs.get(picture.app)
        if part is None or picture.app in seen:
            raise RefusedError(picture.app, "a snapshot has one picture of each of its apps")
        seen.add(picture.app)
        known = {job.id for job in part.spec.jobs}
        named = [
            *(job for job, _ in picture.targets),
            *(job for job, _ in picture.reached),
            *(job for job, _ in picture.placement),
            *(job.job for job in picture.jobs),
        ]
        for job in named:
            if job not in known:
                raise RefusedError(picture.app, f"it has no job {told(job)}")
    missing = sorted(set(specs) - seen)
    if missing:
        raise RefusedError(missing[0], "the snapshot has no picture of it")


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
