"""Per GPU of this machine: the highest token that ever started something on it, and who has it now.

    fence = Fence(folder)
    fence.take(["0", "1"], token=7)     # RefusedStartError: an older token, or somebody is there
    fence.release()

The lock belongs to the supervisor's process, so it cannot outlive it and is not inherited. It is
the second line: the node has asked its own memory of tokens before.
"""

import errno
import fcntl
import os
from collections.abc import Callable

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
"""A file system without locks. Tokens are compared there all the same."""


_NO_TOKEN = 2**52
"""Nobody has given so many: those from the time of day (decision 0038) are below it until 2106."""


class RefusedStartError(Exception):
    """Why a job is not started."""


class Fence:
    """The GPUs that one supervisor holds."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._held: list[int] = []

    def take(self, gpus: list[str], token: int, tokens: tuple[int, ...] = ()) -> None:
        """Hold these GPUs and remember their tokens, all or none.

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
        """Hold these too, whatever tokens have been there.

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
        """Let go, before the job's end is told: the next owner may start at once."""
        while self._held:
            os.close(self._held.pop())


def highest_token(folder: str, gpu: str) -> int:
    """The highest token that started something on this GPU; 0 before the first."""
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
    """The highest token that any machine has seen whose engine keeps its files in this folder.

    What is no token that anybody could have given does not count, nor what cannot be read, of
    which `unread` is told.
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
