"""Files that a job writes to, limited in size.

    log = BoundedFile(path, limit=32 << 20, uid=1001, gid=1001)
    log.trim()              # from time to time
    tail(path, 4096)
    piece_of(path, offset=0, most=65536)    # text, and where the next piece begins

The job has the file itself, opened for appending, and never a pipe: it does not block without a
reader, and an escaped child cannot keep a reader waiting. When the file passes its limit the first
part is kept once in `.head`, the latest part in `.old`, and the file is emptied in place; what the
job writes between the copy and that is lost. `.cut` has the number of dropped bytes, so that
offsets go on counting.
"""

import codecs
import contextlib
import os

HEAD, OLD, CUT = ".head", ".old", ".cut"
_HEAD_PART, _OLD_PART = 16, 4
_CATCH_UP = 8
"""How often new output is copied before a file that still grows is cut."""
_CHUNK = 1 << 20


class BoundedFile:
    """A file in one of our folders that a job writes to; emptied when it is too long."""

    def __init__(
        self, path: str, limit: int, uid: int = -1, gid: int = -1, *, keep: bool = True
    ) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.path = path
        self.limit = limit
        self.keep = keep
        # All later work uses this descriptor: the job may rename or replace the file.
        self._fd = os.open(path, flags, 0o600)
        os.fchown(self._fd, uid, gid)
        self._seen = 0
        self._cut = 0

    def writer(self) -> int:
        """Another descriptor for the job, which appends."""
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)

    def trim(self) -> bool:
        """Cut the file if it is too long. True if it grows fast and needs another look soon."""
        try:
            return self._trim(os.fstat(self._fd).st_size)
        except OSError:  # a disk that fails; the next look tries again
            return False

    def _trim(self, size: int) -> bool:
        fast = size - self._seen > self.limit // 16
        self._seen = size
        if size <= self.limit:
            return fast
        if self.keep:
            # On a full disk this output is lost: emptying the file comes first.
            with contextlib.suppress(OSError):
                self._keep_parts(size)
        before, self._cut = self._cut, self._cut + os.fstat(self._fd).st_size
        self._note_cut(before)
        os.ftruncate(self._fd, 0)
        self._note_cut(self._cut)
        self._seen = 0
        return True

    def _note_cut(self, before: int) -> None:
        """Record the number of dropped bytes before and after cutting; readers compare lengths."""
        if self.keep:
            with contextlib.suppress(OSError), open(self.path + CUT, "wb", opener=_private) as file:
                file.write(b"%d %d %d" % (before, self._cut, self.limit))

    def _keep_parts(self, size: int) -> None:
        if not os.path.exists(self.path + HEAD):
            self._copy(0, self.limit // _HEAD_PART, self.path + HEAD)
        part = self.limit // _OLD_PART
        self._copy(max(0, size - part), part, self.path + OLD)
        # Output that came meanwhile: often the last lines of a job.
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


class LogChunk:
    """A part of a log."""

    __slots__ = ("next", "offset", "size", "text")

    def __init__(self, offset: int, text: str, following: int, size: int) -> None:
        self.offset = offset
        """Its offset in all output."""
        self.text = text
        self.next = following
        """The offset of the next piece."""
        self.size = size
        """Of all output so far."""


def size_of(path: str) -> int:
    """Bytes that were ever printed to a log."""
    return _shape(path)[1]


def piece_of(path: str, offset: int, most: int, *, final: bool = False) -> LogChunk:
    """A piece of a log from an offset on; from a later one if those bytes were dropped.

    Args:
        path: Of the log; it may be cut at any time.
        offset: In bytes of all that was ever printed.
        most: Bytes.
        final: Nothing is written to it any more: half a character at its end is no longer waited
            for.
    """
    while True:
        cut, size = _shape(path)
        begin, data = _read(path, cut, size, min(offset, size), most)
        if _shape(path)[0] == cut:
            break
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    at_end = begin + len(data) == size
    text = decoder.decode(data, final=final and at_end)
    half = len(decoder.getstate()[0])
    if half and half == len(data) and not at_end:  # Its other half was cut off.
        text, half = decoder.decode(b"", final=True), 0
    return LogChunk(begin, text, begin + len(data) - half, size)


def _shape(path: str) -> tuple[int, int]:
    """How much was cut off a log, and how much was ever printed."""
    try:
        length = os.stat(path).st_size
    except FileNotFoundError:
        return 0, 0
    try:
        with open(path + CUT, "rb") as file:
            before, after, limit = map(int, file.read(100).split())
    except (FileNotFoundError, ValueError):
        return 0, length
    # A file is cut only when it is longer than its limit.
    cut = before if length > limit else after
    return cut, cut + length


def _read(path: str, cut: int, size: int, offset: int, most: int) -> tuple[int, bytes]:
    """Bytes from the first kept offset on, and that offset."""
    if offset < cut:
        head = _part(path + HEAD, offset, most)
        if head:
            return offset, head
        kept = _length(path + OLD)
        begin = max(offset, cut - kept)
        old = _part(path + OLD, begin - (cut - kept), min(most, cut - begin))
        if old:
            return begin, old
        offset = cut
    return offset, _part(path, offset - cut, min(most, size - offset))


def _part(path: str, offset: int, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return os.pread(file.fileno(), most, offset)
    except FileNotFoundError:
        return b""


def _length(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _last(path: str, count: int) -> bytes:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return os.pread(file.fileno(), count, max(0, size - count))
    except FileNotFoundError:
        return b""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
