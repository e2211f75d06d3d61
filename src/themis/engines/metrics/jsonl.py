"""What jobs report: one JSON object a line, `{"it": 12, "loss": 0.31, "t": 1699.2}`.

Other keys with numbers are values by their names, as the loss is.

    reader = MetricsReader(path, uid=1001, gid=1001)
    reader.read()           # the samples since the last time

The owner can put anything into the file, so the reader trusts nothing: it is opened as the
owner, only if it is a plain file of the owner's, never through a link and never waiting; lines and
reads have a length. Lines that are no sample are skipped.
"""

import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from themis.engines.supervisor import libc

MOST_LINE = 4096
MOST_READ = 1 << 20
"""Bytes taken at a time; a job that writes more is read over several times."""
MOST_VALUES, LONGEST_NAME = 8, 64
"""Values taken from one line, and the length of a name; the others are left out."""
_LARGEST = 1e15
_OWN = ("it", "t", "loss")
_SHOWN = 60
"""Bytes of a line that people are shown."""
_TOO_LONG = f"a line of THEMIS_METRICS is longer than {MOST_LINE} bytes"


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One line."""

    iteration: float
    loss: float | None
    """None if it was not reported. Infinite or undefined values are kept of the metric only, as
    `nan`."""
    time: float | None
    """Seconds on the job's clock."""
    others: tuple[tuple[str, float], ...] = ()
    """What else it said, by name, in its order."""
    end: int = field(default=0, compare=False)
    """Where its line ends in the file."""

    @property
    def values(self) -> tuple[tuple[str, float], ...]:
        """Its loss and the others, by name."""
        return self.others if self.loss is None else (("loss", self.loss), *self.others)


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Part of a file."""

    samples: tuple[MetricSample, ...]
    end: int
    """Where to go on; beyond the last sample if other lines follow it."""
    more: bool
    """Whether there are lines after it."""
    trouble: str = ""
    """Why something could not be read, as in `Reader.trouble`."""


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
    iteration = _number(body.get("it"))
    if iteration is None or iteration < 0:
        return None
    loss = _value("loss", body.get("loss"), metric)
    most = MOST_VALUES - (loss is not None)
    return MetricSample(iteration, loss, _number(body.get("t")), _others(body, most, metric))


def _others(body: dict[str, object], most: int, metric: str) -> tuple[tuple[str, float], ...]:
    found = []
    for name, value in body.items():
        number = _value(name, value, metric)
        if number is None or name in _OWN or not 0 < len(name) <= LONGEST_NAME:
            continue
        if name.isprintable() and _is_text(name):
            found.append((name, number))
    late = [pair for pair in found[most:] if pair[0] == metric]
    return (*found[: most - len(late)], *late)


def _is_text(name: str) -> bool:
    """Half a character, which JSON can say, cannot be sent on."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _value(name: str, value: object, metric: str) -> float | None:
    """A number; `nan` for a metric that is none, for a job that has diverged must not do well."""
    number = _number(value)
    odd = number is None and isinstance(value, int | float) and not isinstance(value, bool)
    return math.nan if odd and name == metric else number


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) > _LARGEST:
        return None
    number = float(value)
    return number if math.isfinite(number) and abs(number) <= _LARGEST else None


class MetricsReader:
    """Reads one job's file as it grows. Blocking, so not for the event loop."""

    def __init__(
        self,
        path: str,
        uid: int | None = None,
        gid: int | None = None,
        *,
        metric: str = "loss",
    ) -> None:
        self._path = path
        self._metric = metric
        self._owner = None if uid is None or gid is None else (uid, gid)
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

    def stretch(self, since: int, most: int) -> SampleBatch:
        """Samples from a place on."""
        self.seek(since)
        samples = self.read(most)
        return SampleBatch(samples, self._offset, self._behind, self.trouble)

    def read(self, most: int | None = None) -> tuple[MetricSample, ...]:
        """New samples, oldest first, at most `most`; none without a readable file."""
        self._behind = False
        self._closed = ""
        try:
            with self._as_owner():
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

    @contextmanager
    def _as_owner(self) -> Iterator[None]:
        if self._owner is None or os.geteuid() != 0:
            yield
            return
        own = os.geteuid(), os.getegid()
        try:
            libc.set_file_identity(*self._owner)
            yield
        finally:
            libc.set_file_identity(*own)

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
            sample = parse_sample(line, self._metric)
            if sample is not None:
                count += 1
                yield MetricSample(
                    sample.iteration, sample.loss, sample.time, sample.others, self._offset
                )
            elif line.strip():
                shown = line[:_SHOWN].decode("utf-8", "replace")
                self._trouble = f'a line of THEMIS_METRICS is not like {{"it": 12, ...}}: {shown!r}'
        # Half a line waits for its other half, unless it is too long already.
        if len(rest) > MOST_LINE:
            self._skipping = True
            self._trouble = _TOO_LONG
            self._offset += len(rest)
