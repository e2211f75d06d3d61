"""Files that a job writes to, kept to a size.

    log = BoundedFile(path, limit=32 << 20, uid=1001, gid=1001)
    log.trim()              # from time to time
    tail(path, 4096)

The job has the file itself, opened for appending, and never a pipe: it does not block when nobody
reads, and an escaped child cannot keep a reader waiting. When the file passes its limit the first
part is kept once in `.head`, the latest part in `.old`, and the file is emptied in place; what the
job writes between the copy and that is lost.
"""

import contextlib
import os

HEAD, OLD = ".head", ".old"
_HEAD_PART, _OLD_PART = 16, 4
_CATCH_UP = 8
"""Times that what came meanwhile is fetched, before a file that still grows is cut."""
_CHUNK = 1 << 20


class BoundedFile:
    """One file in a folder of ours, written by a job, emptied when it grows too long."""

    def __init__(
        self, path: str, limit: int, uid: int = -1, gid: int = -1, *, keep: bool = True
    ) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.path = path
        self.limit = limit
        self.keep = keep
        # All later work goes through this descriptor: the job may do to the name what it likes.
        self._fd = os.open(path, flags, 0o600)
        os.fchown(self._fd, uid, gid)
        self._seen = 0

    def writer(self) -> int:
        """Another descriptor for the job, which appends."""
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)

    def trim(self) -> bool:
        """Cut the file if it is too long. True if it grows so fast that one should look again."""
        try:
            return self._trim(os.fstat(self._fd).st_size)
        except OSError:  # a disk that fails: the next look may do better
            return False

    def _trim(self, size: int) -> bool:
        fast = size - self._seen > self.limit // 16
        self._seen = size
        if size <= self.limit:
            return fast
        if self.keep:
            # What cannot be kept, on a full disk, is lost: emptying comes first.
            with contextlib.suppress(OSError):
                self._keep_parts(size)
        os.ftruncate(self._fd, 0)
        self._seen = 0
        return True

    def _keep_parts(self, size: int) -> None:
        if not os.path.exists(self.path + HEAD):
            self._copy(0, self.limit // _HEAD_PART, self.path + HEAD)
        part = self.limit // _OLD_PART
        self._copy(max(0, size - part), part, self.path + OLD)
        # What came while that was written: often the last words of a job.
        for _ in range(_CATCH_UP):
            more = os.fstat(self._fd).st_size - size
            if more <= 0:
                break
            self._copy(size, min(more, part), self.path + OLD, "ab")
            size += more

    def _copy(self, offset: int, count: int, path: str, mode: str = "wb") -> None:
        with open(path, mode, opener=_private) as file:
            while count > 0 and (chunk := os.pread(self._fd, min(count, _CHUNK), offset)):
                file.write(chunk)
                offset += len(chunk)
                count -= len(chunk)


def tail(path: str, count: int) -> bytes:
    """The last bytes of a log, across the place where it was cut."""
    last = _last(path, count)
    if len(last) < count:
        last = _last(path + OLD, count - len(last)) + last
    return last


def _last(path: str, count: int) -> bytes:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return os.pread(file.fileno(), count, max(0, size - count))
    except FileNotFoundError:
        return b""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
