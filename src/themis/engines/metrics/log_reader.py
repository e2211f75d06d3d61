"""Follows a job's log and finds samples in its lines.

    reader = LogReader(log, matcher("tensorflow"))
    reader.read()           # the samples since the last time

A log may be emptied or replaced at any time: a place in it says how the text before it looked, and
where that is no longer so it is read from its beginning.
"""

import os
import re
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace

from themis.engines.metrics.log_patterns import Matcher
from themis.engines.metrics.points import MetricSample, SampleBatch
from themis.engines.metrics.safe_open import opened

MOST_LINE = 4096
MOST_READ = 1 << 20
"""Bytes taken at a time; a job that writes more is read over several times."""
MOST_SECONDS = 0.25
"""Of computing at a time: RE2 needs time for each byte that depends on the pattern."""
_SEAM = 64
"""Bytes before a place by which it is known again."""
_OFFSET_BITS = 48
_LINE_END = re.compile(rb"[\r\n]")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*+[A-Za-z]")


class JobLogReader:
    """Reads one job's log as it grows."""

    def __init__(self, path: str, matcher: Matcher) -> None:
        self._path = path
        self._matcher = matcher
        self._place = 0
        self._fresh = True
        """Whether the matcher has not seen the lines before the place."""
        self._behind = False
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Nothing is left out of a log but lines that are too long."""
        return self._trouble

    @property
    def place(self) -> int:
        """Where to go on."""
        return self._place

    def seek(self, place: int) -> None:
        """Go on from a place."""
        self._fresh = self._fresh or place != self._place
        self._place = place

    def batch(self, since: int, most: int) -> SampleBatch:
        """Samples from a place on."""
        self.seek(since)
        samples = self.read(most)
        return SampleBatch(samples, self._place, self._behind, self._trouble)

    def read(self, most: int | None = None) -> tuple[MetricSample, ...]:
        """New samples, oldest first, at most `most`; none if the log cannot be read."""
        self._behind = False
        with opened(self._path, None) as fd:
            if fd is None:
                return ()
            try:
                return tuple(self._samples(fd, most))
            except OSError:
                return ()

    def _samples(self, fd: int, most: int | None) -> Iterator[MetricSample]:
        seam, offset = self._found_again(fd)
        if self._fresh:
            self._recall(seam, whole=offset == len(seam))
        text = os.pread(fd, MOST_READ, offset)
        known = seam + text
        until = time.thread_time() + MOST_SECONDS
        # Only a line that is too long is ever left before its end.
        skipping = seam[-1:] not in {b"", b"\n", b"\r"}
        at, count = 0, 0
        for end in _LINE_END.finditer(text):
            if count == most or (at and time.thread_time() > until):
                self._behind = True
                return
            line, at = text[at : end.start()], end.end()
            self._place = _place(known, len(seam) + at, offset + at)
            long = skipping or len(line) > MOST_LINE
            if long:
                self._trouble = f"a line of the log is longer than {MOST_LINE} bytes"
            found = None if long else self._matcher.match(_plain(line))
            skipping = False
            if found is not None:
                count += 1
                yield replace(found, end=self._place)
        self._behind = len(text) == MOST_READ
        # Half a line waits for its other half, unless it is too long already.
        if len(text) - at > MOST_LINE or (skipping and len(text) > at):
            self._place = _place(known, len(known), offset + len(text))

    def _found_again(self, fd: int) -> tuple[bytes, int]:
        """The text before the place, and the place as an offset; the beginning if it is not so."""
        offset = self._place & (1 << _OFFSET_BITS) - 1
        start = max(0, offset - MOST_LINE)
        seam = os.pread(fd, offset - start, start)
        if len(seam) == offset - start and _place(seam, len(seam), offset) == self._place:
            return seam, offset
        self._place, self._fresh = 0, True
        return b"", 0

    def _recall(self, seam: bytes, *, whole: bool) -> None:
        """Show a new matcher the lines that it would know."""
        self._fresh = False
        lines = _LINE_END.split(seam)[0 if whole else 1 : -1]
        self._matcher.recall([_plain(line) for line in lines])


def _plain(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return _COLOUR.sub("", text) if "\x1b" in text else text


def _place(text: bytes, at: int, offset: int) -> int:
    """A place by its offset and what stands before it; `text` up to `at` is at least the seam."""
    seam = text[max(0, at - min(_SEAM, offset)) : at]
    return zlib.crc32(seam) << _OFFSET_BITS | offset
