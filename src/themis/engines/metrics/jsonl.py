"""What jobs report: one JSON object a line, `{"it": 12, "loss": 0.31, "t": 1699.2}`.

Other keys with numbers are values by their names, as the loss is.

    reader = MetricsReader(path, (1001, 1001))
    reader.read()           # the samples since the last time

The owner can put anything into the file, so the reader trusts nothing: it is opened as the
owner, only if it is a plain file of the owner's, never through a link and never waiting; lines and
reads have a length. Lines that are no sample are skipped.
"""

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from themis.engines.metrics.points import MetricSample, SampleBatch, number, sample
from themis.engines.metrics.safe_open import Owner
from themis.engines.supervisor import libc

MOST_LINE = 4096
MOST_READ = 1 << 20
"""Bytes taken at a time; a job that writes more is read over several times."""
_OWN = ("it", "t", "loss")
_SHOWN = 60
"""Bytes of a line that people are shown."""
_TOO_LONG = f"a line of THEMIS_METRICS is longer than {MOST_LINE} bytes"


# A job's lines are read for its progress, and right afterwards for its agent.
@lru_cache(maxsize=256)
def parse_sample(line: bytes, metric: str = "loss") -> MetricSample | None:
    """The sample that a line tells, if it tells one.

    Args:
        line: As it was written.
        metric: The name of the value that is never among those left out for being too many.
    """
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    others = [(name, value) for name, value in body.items() if name not in _OWN]
    values = [(name, _numeric(value)) for name, value in (("loss", body.get("loss")), *others)]
    return sample(number(body.get("it")), number(body.get("t")), values, metric)


def _numeric(value: object) -> float | None:
    """The number in a JSON value, of any size; None for anything else."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class MetricsReader:
    """Reads one job's file as it grows. Blocking, so not for the event loop."""

    def __init__(
        self,
        path: str,
        owner: Owner | None = None,
        *,
        metric: str = "loss",
    ) -> None:
        self._path = path
        self._metric = metric
        self._owner = owner
        self._file: tuple[int, int] | None = None
        """The file that the offset is in; None for whichever is there."""
        self._offset = 0
        self._skipping: bool | None = False
        """Inside a line that is too long; None if that is to be found out."""
        self._behind = False
        """Whether the last read did not come to the end."""
        self._trouble = ""
        self._closed = ""
        """Why the file could not be read when this was last tried."""

    @property
    def trouble(self) -> str:
        """Why there is nothing to read, or the last line that is no sample."""
        return self._closed or self._trouble

    def seek(self, offset: int) -> None:
        """Resume at a `MetricSample.end` or `SampleBatch.end`, if the file is that long."""
        self._file, self._offset, self._skipping = None, offset, None

    def batch(self, since: int, most: int) -> SampleBatch:
        """Samples from a place on."""
        self.seek(since)
        samples = self.read(most)
        return SampleBatch(samples, self._offset, self._behind, self.trouble)

    def read(self, most: int | None = None) -> tuple[MetricSample, ...]:
        """New samples, oldest first, at most `most`; none without a readable file."""
        self._behind = False
        self._closed = ""
        try:
            with libc.files_as(self._owner):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                fd = os.open(self._path, flags)
        except FileNotFoundError:
            return ()  # Nothing was reported yet.
        except OSError as error:
            if not self._is_too_early():
                self._closed = f"THEMIS_METRICS cannot be read: {error.strerror}"
            return ()
        try:
            if self._is_ours(fd):
                return tuple(self._samples(fd, most))
            self._closed = "THEMIS_METRICS is no plain file of the job's user"
            return ()
        except OSError as error:
            self._closed = f"THEMIS_METRICS cannot be read: {error.strerror}"
            return ()
        finally:
            os.close(fd)

    def _is_too_early(self) -> bool:
        """Whether the folder is not the owner's yet: its job is about to begin."""
        if self._owner is None:
            return False
        try:
            return os.stat(os.path.dirname(self._path)).st_uid != self._owner[0]
        except OSError:
            return False

    def _is_ours(self, fd: int) -> bool:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            return False
        if self._owner is not None and about.st_uid != self._owner[0]:
            return False
        # Another file under the name, or the same one emptied: from the beginning.
        known, self._file = self._file, (about.st_dev, about.st_ino)
        if known not in {None, self._file} or about.st_size < self._offset:
            self._offset, self._skipping = 0, False
        return True

    def _samples(self, fd: int, most: int | None) -> Iterator[MetricSample]:
        if self._skipping is None:
            # No place is within a line but one at which a line had become too long.
            before = os.pread(fd, 1, self._offset - 1) if self._offset else b"\n"
            self._skipping = before != b"\n"
        text = os.pread(fd, MOST_READ, self._offset)
        *lines, rest = text.split(b"\n")
        self._behind = len(text) == MOST_READ
        count = 0
        for line in lines:
            if count == most:
                self._behind = True
                return
            self._offset += len(line) + 1
            if self._skipping:
                self._skipping = False
                continue
            if len(line) > MOST_LINE:
                self._trouble = _TOO_LONG
                continue
            found = parse_sample(line, self._metric)
            if found is not None:
                count += 1
                yield replace(found, end=self._offset)
            elif line.strip():
                shown = line[:_SHOWN].decode("utf-8", "replace")
                self._trouble = f'a line of THEMIS_METRICS is not like {{"it": 12, ...}}: {shown!r}'
        # Half a line waits for its other half, unless it is too long already.
        if len(rest) > MOST_LINE:
            self._skipping = True
            self._trouble = _TOO_LONG
            self._offset += len(rest)
