"""A node's state on its own disk: tokens, and the orders of its runs.

with NodeDisk.open(folder, "m0") as disk:       # refused while another node has the folder
    disk.memory
    disk.remember(memory)                       # durable when it returns
    disk.put(NodeRunRecord(order, lease_end=..., early=...))

state/            0711  (owners pass through to their jobs' folders below `engine`)
  node.lock       held while the node lives
  node.json       boot, epoch, tokens
  runs/N.json     the order of run N, from before its start until its result is stored
  engine/         what the engine keeps
"""

import fcntl
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from themis.errors import ConfigError, CorruptLogError, RefusedError, UnavailableError
from themis.node.core.commands import NodeMemory
from themis.protocol.node_messages import RunOrder
from themis.recording.codec import decode, dumps, loads


@dataclass(frozen=True, slots=True)
class NodeRunRecord:
    """A run that may have been started here. Times are on the clock of leases."""

    order: RunOrder
    lease_end: float
    """The end of its leases, as last written down; liveness may end before."""
    early: float
    """Seconds before its end when it is asked to save."""
    heard: int = 0
    """How many of its points its agent has acknowledged,"""
    place: int = 0
    """and where in its file the next one begins."""


@dataclass(frozen=True, slots=True)
class _Saved:
    name: str
    memory: NodeMemory


class NodeDisk:
    """The folder of one node. All methods block."""

    def __init__(self, folder: Path, name: str, lock: int) -> None:
        self._folder = folder
        self._name = name
        self._lock = lock
        self._runs = folder / "runs"
        self.memory = self._recall()

    @staticmethod
    def open(folder: Path, name: str) -> "NodeDisk":
        """Lock the folder; it is made if there is none.

        Raises:
            UnavailableError: Another node has it.
            ConfigError: It cannot be used, or belongs to another node.
        """
        try:
            make_passable(folder)
            (folder / "runs").mkdir(mode=0o700, exist_ok=True)
            lock = os.open(folder / "node.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            allowed = "a folder on a local disk that can be written to"
            raise ConfigError("state", error.strerror, allowed, str(folder)) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(lock)
            reason = f"{folder}: another node has this folder (process {holder})"
            raise UnavailableError(reason) from None
        try:
            os.pwrite(lock, b"%-20d\n" % os.getpid(), 0)
            return NodeDisk(folder, name, lock)
        except BaseException:
            os.close(lock)
            raise

    @property
    def engine(self) -> Path:
        """The engine's own folder."""
        return self._folder / "engine"

    def close(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _recall(self) -> NodeMemory:
        path = self._folder / "node.json"
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return NodeMemory()
        try:
            saved = decode(_Saved, loads(text))
        except (RefusedError, UnicodeDecodeError) as error:
            advice = "move it away if this machine was restarted since: no job of before runs then"
            raise CorruptLogError(str(path), 1, f"{error}; {advice}") from None
        if saved.name != self._name:
            allowed = f"{saved.name}, whose folder this is, or another folder"
            raise ConfigError("name", self._name, allowed, str(path))
        return saved.memory

    def remember(self, memory: NodeMemory) -> None:
        """Store the memory that must survive restarts; durable when this returns."""
        replace_file(self._folder / "node.json", dumps(_Saved(self._name, memory)), durable=True)
        self.memory = memory

    # Runs

    def put(self, record: NodeRunRecord, *, durable: bool = True) -> None:
        """Store the order of a run, or its later limits."""
        path = self._runs / f"{record.order.run}.json"
        replace_file(path, dumps(record), durable=durable)

    def drop(self, run: int) -> None:
        """Remove the record of a run whose result the service has stored."""
        (self._runs / f"{run}.json").unlink(missing_ok=True)

    def runs(self) -> tuple[NodeRunRecord, ...]:
        """All records, by run number."""
        found = []
        for path in self._runs.glob("*.json"):
            try:
                found.append(decode(NodeRunRecord, loads(path.read_text(encoding="utf-8"))))
            except (RefusedError, UnicodeDecodeError):
                # Only whole files get this name, so this was a power cut, and no run is alive.
                path.unlink()
        return tuple(sorted(found, key=lambda record: record.order.run))


def make_passable(folder: Path) -> None:
    """Make a folder and its parents so that other users may pass through, despite the umask."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(exist_ok=True)
        place.chmod(0o711)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o111 != 0o111:
        folder.chmod(mode | 0o111)


def first_closed_folder(folder: Path, uid: int, groups: Collection[int]) -> Path | None:
    """The first folder on this path that a user may not pass through, if any."""
    for place in (*reversed(folder.parents), folder):
        about = place.stat()
        shift = 6 if about.st_uid == uid else 3 if about.st_gid in groups else 0
        if not about.st_mode >> shift & 0o1:
            return place
    return None


def is_running(folder: Path) -> bool:
    """Whether a node has this folder now."""
    try:
        lock = os.open(folder / "node.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def replace_file(path: Path, text: str, *, durable: bool) -> None:
    """Replace a file as a whole."""
    draft = path.with_suffix(".new")
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as handle:
        handle.write(text)
        if durable:
            handle.flush()
            os.fsync(number)
    draft.replace(path)
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
