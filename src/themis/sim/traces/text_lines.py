"""Lines of files that nobody checked: any line end, a byte order mark, broken UTF-8, no end.

with opened(path) as source:
    for number, line in numbered_lines(source, tally):
        ...
"""

import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from themis.errors import ConfigError, MissingFileError
from themis.sim.traces.trace import BadRowError, Tally

MAX_LINE = 65_536
"""Characters. A longer line is refused without being held in memory."""

CHUNK = 2**16
"""Characters that are read at once."""

BOM = "\ufeff"
_NOT_TEXT = {
    b"\x1f\x8b": ("compressed by gzip", "text: unpack it with gunzip first"),
    b"BZh": ("compressed by bzip2", "text: unpack it with bunzip2 first"),
    b"\xfd7zXZ\0": ("compressed by xz", "text: unpack it with unxz first"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "text: unpack it with unzstd first"),
    b"PK\x03\x04": ("a zip archive or a spreadsheet", "text: unpack it, or save it as CSV"),
    b"\xff\xfe\0\0": ("UTF-32", "UTF-8 text"),
    b"\xff\xfe": ("UTF-16", "UTF-8 text"),
    b"\xfe\xff": ("UTF-16", "UTF-8 text"),
}
"""How files begin that come here by a slip: what they are, and what to do."""

_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\v\f\r\x1b")
"""Bytes that text has none of."""

Progress = Callable[[int, int], None]
"""Called now and then with bytes read and bytes in all."""


@dataclass(slots=True)
class OpenTextFile:
    """An open file: its text, its first bytes, and how far it has been read."""

    path: Path
    handle: io.BufferedReader
    text: io.TextIOWrapper
    head: bytes
    size: int
    progress: Progress | None = None

    def report(self) -> None:
        """Tell how far the reading is, if anybody asked and the size is known."""
        if self.progress is not None and self.size:
            self.progress(min(self.handle.tell(), self.size), self.size)


@contextmanager
def opened(path: Path, progress: Progress | None = None) -> Iterator[OpenTextFile]:
    """A file to read once from the start; a pipe will do.

    Raises:
        ConfigError: It cannot be read, or is no text.
    """
    try:
        handle = path.open("rb")
    except FileNotFoundError:
        raise MissingFileError("trace", str(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError("trace", reason, "a readable file", str(path)) from None
    with handle:
        head = _peek(handle, path)
        _refuse_no_text(head, path)
        status = os.fstat(handle.fileno())
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        # Bytes that are not UTF-8 become surrogates, which the line they are in is refused for.
        text = io.TextIOWrapper(handle, "utf-8-sig", errors="surrogateescape", newline=None)
        try:
            yield OpenTextFile(path, handle, text, head, size, progress)
        except OSError as error:
            raise ConfigError("trace", error.strerror, "a readable file", str(path)) from None


def _peek(handle: io.BufferedReader, path: Path) -> bytes:
    try:
        return handle.peek(MAX_LINE)
    except OSError as error:
        raise ConfigError("trace", error.strerror, "a readable file", str(path)) from None


def _refuse_no_text(head: bytes, path: Path) -> None:
    for start, (given, allowed) in _NOT_TEXT.items():
        if head.startswith(start):
            raise ConfigError("trace", given, allowed, str(path))
    # Later a zero byte spoils its own row, but no header has one, and a device may never end.
    first = head.replace(b"\r", b"\n").partition(b"\n")[0]
    start = head[:1024]
    if 0.4 < start.count(0) / max(1, len(start)) < 0.6:
        raise ConfigError("trace", "UTF-16", "UTF-8 text: convert it with iconv", str(path))
    if b"\0" in first or sum(map(start.count, _CONTROLS)) > len(start) / 10:
        raise ConfigError("trace", "a binary file", "a text file", str(path))


def numbered_lines(source: OpenTextFile, tally: Tally) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, numbered from 1, without their ends.

    Lines that cannot be read go to the tally.
    """
    number, rest = 0, ""
    for chunk in _chunks(source):
        lines = (rest + chunk).split("\n")
        # One more than allowed is enough to refuse it, however long it gets.
        rest = lines.pop()[: MAX_LINE + 1]
        for line in lines:
            number += 1
            if line.isascii() and len(line) <= MAX_LINE:
                if line and not line.isspace():
                    yield number, line
            elif reason := _unreadable(line):
                tally.refuse(number, BadRowError(reason))
            else:
                # Where files were joined a byte order mark can stand inside.
                bare = line.removeprefix(BOM)
                if bare and not bare.isspace():
                    yield number, bare


def _chunks(source: OpenTextFile) -> Iterator[str]:
    """All of the text, with an end for its last line."""
    while chunk := source.text.read(CHUNK):
        source.report()
        yield chunk
    yield "\n"


def _unreadable(line: str) -> str:
    if len(line) > MAX_LINE:
        return f"the line is longer than {MAX_LINE} characters"
    return "" if is_text(line) else "the line is not UTF-8"


def is_text(line: str) -> bool:
    """Whether it was UTF-8: bytes that were not have become surrogates."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True
