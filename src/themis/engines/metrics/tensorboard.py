"""What jobs write for TensorBoard: scalars in event files, read without TensorBoard.

    reader = TensorBoardReader(checkpoint_dir, "runs", metric="train/loss")
    reader.read()           # the samples since the last time
    reader.trouble          # "'events.out.tfevents.17' is damaged at byte 120: the rest ..."

A folder's files are read one after the other in the order of the seconds in their names, as
TensorBoard itself takes them: one that has a successor is done when its end was reached. A record
that is not whole yet waits; a damaged file is left where it is damaged; records that are too long
to hold only scalars are stepped over.
"""

import os
import re
import zlib
from dataclasses import dataclass, replace

from themis.engines.metrics.points import MetricSample, SampleBatch, sample
from themis.engines.metrics.safe_open import Owner, opened, opened_folder
from themis.engines.metrics.tfevents import RecordsEnd, Step, parse_event, steps

MOST_READ = 512 << 10
"""Bytes taken at a time; more than any record that is read."""
MOST_NAMES, MOST_FILES = 10_000, 1000
"""Most names in a folder, and most event files among them."""
MOST_OPENED = 64
"""Files looked into at a time."""

_EVENT_FILE = re.compile(r"tfevents(?:\.([0-9]{1,10})(?![0-9]))?")
_COUNTER = re.compile(r"\.([0-9]{1,9})(?:\.[a-z][^.]*)?\Z")
# A place is the key of a file and an offset in it. Keys grow in the order of reading, so that the
# files after one that is gone are known.
_OFFSET_BITS, _COUNTER_BITS, _HASH_BITS = 40, 30, 24
_DONE = (1 << _OFFSET_BITS) - 1
"""The offset in files that are not looked into again."""


@dataclass(frozen=True, slots=True, order=True)
class _File:
    key: int
    name: str


class TensorBoardReader:
    """Follows the event files in one folder."""

    def __init__(
        self,
        path: str,
        below: str = "",
        *,
        metric: str = "loss",
        since: float = 0.0,
        owner: Owner | None = None,
    ) -> None:
        """Look at nothing yet.

        Args:
            path: The job's checkpoint folder.
            below: The way from there to the folder of event files, as the job's owner said.
            metric: The tag that matters if one event has too many.
            since: When this start of the job began, on the wall clock. Files that were last written
                to before are those of earlier starts.
            owner: The user and group that own the files; None: this process's own.
        """
        self._path, self._below = path, below
        self._metric = metric
        self._since = since
        self._owner = owner
        self._key = 0
        self._offset = 0
        self._behind = False
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """What was left out last, for people."""
        return self._trouble

    @property
    def place(self) -> int:
        """Where to go on."""
        return self._key << _OFFSET_BITS | self._offset

    def seek(self, place: int) -> None:
        """Go on from a place."""
        self._key, self._offset = place >> _OFFSET_BITS, place & _DONE

    def batch(self, since: int, most: int) -> SampleBatch:
        """Samples from a place on."""
        self.seek(since)
        samples = self.read(most)
        return SampleBatch(samples, self.place, self._behind, self._trouble)

    def read(self, most: int | None = None) -> tuple[MetricSample, ...]:
        """New samples, oldest first, at most `most`; none if nothing can be read."""
        self._behind = False
        found: list[MetricSample] = []
        with opened_folder(self._path, self._below, self._owner) as folder:
            if folder is None:
                return ()
            try:
                self._read_files(folder, found, most)
            except OSError as error:
                self._trouble = f"the event files cannot be read: {error.strerror}"
        return tuple(found)

    def _read_files(self, folder: int, found: list[MetricSample], most: int | None) -> None:
        # Listed first: a file with a successor in the list was complete by then.
        files = [file for file in self._listed(folder) if file.key >= self._key]
        room = MOST_READ
        for count, file in enumerate(files, start=1):
            if file.key != self._key:
                self._key, self._offset = file.key, 0
            if self._offset != _DONE:
                room = self._read_file(folder, file, room, found, most)
            if self._behind:
                return
            if count == MOST_OPENED and count < len(files):
                self._key, self._offset = files[count].key, 0
                self._behind = True
                return

    def _listed(self, folder: int) -> list[_File]:
        files: list[_File] = []
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count == MOST_NAMES or len(files) == MOST_FILES:
                    self._trouble = "too many files in the folder of event files: some are left out"
                    break
                if (match := _EVENT_FILE.search(entry.name)) is not None:
                    files.append(_File(_key(entry.name, match), entry.name))
        return sorted(files)

    def _read_file(
        self, folder: int, file: _File, room: int, found: list[MetricSample], most: int | None
    ) -> int:
        """Read on in one file; returns the rest of the byte limit."""
        with opened(file.name, self._owner, folder) as fd:
            if fd is None:
                return room
            about = os.fstat(fd)
            if about.st_mtime < self._since:
                self._offset = _DONE
                return room
            size = min(about.st_size, _DONE - 1)
            if size < self._offset:  # written anew
                self._offset = 0
            data = os.pread(fd, room, self._offset)
            for step in steps(data, size - self._offset):
                if not self._take(step, file, found, most):
                    break
            return room - len(data)

    def _take(
        self, step: Step | RecordsEnd, file: _File, found: list[MetricSample], most: int | None
    ) -> bool:
        """Whether the file goes on."""
        if step is RecordsEnd.DAMAGED:
            self._trouble = (
                f"{file.name[:200]!a} is damaged at byte {self._offset}: the rest of it is left out"
            )
            self._offset = _DONE
            return False
        if not isinstance(step, Step) or len(found) == most:
            self._behind = True
            return False
        self._offset += step.length
        if (made := self._made(step.record)) is not None:
            found.append(replace(made, end=self.place))
        return True

    def _made(self, record: bytes | None) -> MetricSample | None:
        event = None if record is None else parse_event(record)
        if event is None or not event.scalars:
            return None
        return sample(event.step, event.wall_time, event.scalars, self._metric)


def _key(name: str, match: re.Match[str]) -> int:
    """What orders files: the seconds in the name, the counter at its end, then all of the name.

    Programs that write several files number those of one second.
    """
    counter = _COUNTER.search(name, match.end())
    key = int(match[1] or 0) << _COUNTER_BITS | int(counter[1] if counter else 0)
    known = zlib.crc32(os.fsencode(name)) >> (32 - _HASH_BITS)
    return (key << _HASH_BITS | known) + 1  # 0 is before all files
