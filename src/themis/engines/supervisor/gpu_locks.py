"""The fence of each GPU of a machine: a lock, and the highest token that ever started a job on it.

    fence = Fence(folder)
    fence.take(["0", "1"], token=7)     # RefusedStartError: an older token, or a GPU in use
    fence.release()

The lock belongs to the supervisor's process, so it cannot outlive it and is not inherited. It is
the second line: the node has asked its own memory of tokens before.
"""

import errno
import fcntl
import os
from collections.abc import Callable

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
"""Errors of file systems without locks; tokens are compared there too."""


_NO_TOKEN = 2**52
"""Above all tokens ever given: those from the time of day (decision 0038) stay below it until
2106."""


class RefusedStartError(Exception):
    """The job must not start; the message says why."""


class Fence:
    """Holds the GPUs of one supervisor."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._held: list[int] = []

    def take(self, gpus: list[str], token: int, tokens: tuple[int, ...] = ()) -> None:
        """Lock these GPUs and store their tokens, all or none.

        Args:
            gpus: Which.
            token: Of the leases of all of them,
            tokens: unless each has its own: a lease that was there first has a lower one.

        Raises:
            RefusedStartError: Another supervisor holds one, or a higher token has been there.
        """
        taken: list[tuple[int, int]] = []
        for gpu, own in sorted(zip(gpus, tokens or (token,) * len(gpus), strict=True)):
            fd = self._lock(gpu)
            taken.append((fd, own))
            highest = _token_in(fd)
            if own < highest:
                raise RefusedStartError(
                    f"token {own} for GPU {gpu} is stale: it has seen {highest}"
                )
        for fd, own in taken:
            if own > _token_in(fd):
                os.pwrite(fd, b"%-24d\n" % own, 0)
                os.fsync(fd)

    def hold(self, names: list[str]) -> None:
        """Lock these GPUs too, whatever their tokens.

        Raises:
            RefusedStartError: Another supervisor holds one.
        """
        for name in sorted(names):
            self._lock(name)

    def _lock(self, name: str) -> int:
        fd = os.open(f"{self._folder}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._held.append(fd)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise RefusedStartError(f"GPU {name} is held by another supervisor") from None
        return fd

    def release(self) -> None:
        """Release the locks, before the job's end is written: the next owner may start at once."""
        while self._held:
            os.close(self._held.pop())


def highest_token(folder: str, gpu: str) -> int:
    """The highest token that started a job on this GPU; 0 before the first."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(f"{folder}/{gpu}", flags)
    except FileNotFoundError:
        return 0
    try:
        return _token_in(fd)
    finally:
        os.close(fd)


def highest_below(folder: str, unread: Callable[[OSError], None]) -> int:
    """The highest token of all machines whose engines keep their files in this folder.

    Impossible tokens do not count, and neither do files that cannot be read; `unread` gets the
    errors of those.
    """
    found = 0
    for machine in _names(folder, unread):
        gpus = f"{folder}/{machine}/gpus"
        for gpu in _names(gpus, unread):
            try:
                token = highest_token(gpus, gpu)
            except OSError as error:
                unread(error)
            else:
                found = max(found, token if token < _NO_TOKEN else 0)
    return found


def _names(folder: str, unread: Callable[[OSError], None]) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        unread(error)
        return []


def _token_in(fd: int) -> int:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else 0
