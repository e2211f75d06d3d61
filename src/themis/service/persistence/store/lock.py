"""One service per store file: a lock that ends with the process that holds it.

The lock is on a file beside the store, because closing any handle of the store itself would drop
SQLite's own locks. Its text is only for the error message.
"""

import fcntl
import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Self

from themis.errors import ConfigError, StoreLockedError

_held: weakref.WeakSet["FileLock"] = weakref.WeakSet()


class FileLock:
    """Held from the moment it is made until `release`, or until the process is gone."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        _held.add(self)

    @classmethod
    def take(cls, path: Path, store: str) -> Self:
        """Take the lock, and write down which process has it.

        Raises:
            StoreLockedError: Another process has it; the error names it.
            ConfigError: The file cannot be written.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError("store", str(path), f"a writable file ({error.strerror})") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise StoreLockedError(store, holder or "another process") from None
        with suppress(OSError):  # a full disk; the lock counts, not what it says
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        return cls(descriptor, path)

    def release(self) -> None:
        """Release the lock. The file stays: without it two processes could lock two files."""
        self._close(unlock=True)

    def _close(self, *, unlock: bool) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if unlock:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _forget_after_fork() -> None:
    # A forked child shares the lock and would hold it for as long as it lives. Closing its handle
    # leaves the parent's alone.
    for lock in list(_held):
        lock._close(unlock=False)


os.register_at_fork(after_in_child=_forget_after_fork)
