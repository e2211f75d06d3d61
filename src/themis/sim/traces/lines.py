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

from themis.errors import ConfigError
from themis.sim.traces.trace import BadRowError, Tally

MAX_LINE = 65_536
"""Characters. A longer line is refused without being held in memory."""

REPORT_EVERY = 16_384

BOM = "\ufeff"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")

Progress = Callable[[int, int], None]
"""Called now and then with bytes read and bytes in all."""


@dataclass(slots=True)
class Source:
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
def opened(path: Path, progress: Progress | None = None) -> Iterator[Source]:
    """A file to read once from the start; a pipe will do.

    Raises:
        ConfigError: It cannot be read, or is no text.
    """
    try:
        handle = path.open("rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError("trace", reason, "a readable file", str(path)) from None
    with handle:
        head = _peek(handle, path)
        if head.startswith(_UTF_16):
            raise ConfigError("trace", "UTF-16", "UTF-8 text", str(path))
        status = os.fstat(handle.fileno())
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        # Bytes that are not UTF-8 become surrogates, which the line they are in is refused for.
        text = io.TextIOWrapper(handle, "utf-8-sig", errors="surrogateescape", newline=None)
        try:
            yield Source(path, handle, text, head, size, progress)
        except OSError as error:
            raise ConfigError("trace", error.strerror, "a readable file", str(path)) from None


def _peek(handle: io.BufferedReader, path: Path) -> bytes:
    try:
        return handle.peek(MAX_LINE)
    except OSError as error:
        raise ConfigError("trace", error.strerror, "a readable file", str(path)) from None


def numbered_lines(source: Source, tally: Tally) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, numbered from 1, without their ends.

    Lines that cannot be read go to the tally.
    """
    text, number = source.text, 0
    while line := text.readline(MAX_LINE):
        number += 1
        if number % REPORT_EVERY == 0:
            source.report()
        if len(line) == MAX_LINE and not line.endswith("\n"):
            _skip_rest(text)
            tally.refuse(number, BadRowError(f"the line is longer than {MAX_LINE} characters"))
        elif not line.isascii() and not is_text(line):
            tally.refuse(number, BadRowError("the line is not UTF-8"))
        elif not line.isspace():
            # Where files were joined a byte order mark can stand inside.
            yield number, line.rstrip("\n").removeprefix(BOM)


def _skip_rest(text: io.TextIOWrapper) -> None:
    while rest := text.readline(MAX_LINE):
        if rest.endswith("\n"):
            return


def is_text(line: str) -> bool:
    """Whether it was UTF-8: bytes that were not have become surrogates."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True
