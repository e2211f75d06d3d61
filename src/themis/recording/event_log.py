"""Event logs: the events and commands of an arbiter, one line per event.

    with LogWriter(path, header_of(topology, "themis", settings, seed=1)) as log:
        for command in log.handle(arbiter, event):
            ...
    with LogReader(path) as log:
        for entry in log:
            entry.event, entry.commands

The first line is the header: everything a fresh arbiter is made from. The last line of a finished
run counts its events. Every line is flushed at once, so that a crash loses none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from themis import __version__
from themis.core.arbiter import Arbiter, Settings
from themis.core.arbiter.commands import Command
from themis.core.arbiter.events import Event
from themis.core.model import Topology
from themis.errors import ConfigError, CorruptLogError, RefusedError
from themis.recording.codec import command_from, decode, dumps, event_from, loads
from themis.recording.yaml_documents import shown, told

FORMAT = 1
MAX_LINE = 64 * 2**20
"""Bytes. No event comes near; a file with a longer line is no event log."""

_FORMAT_KEY = "themis_log"
_ENTRY_KEYS = {"n", "event", "commands"}
_END_KEYS = {"events"}


@dataclass(frozen=True, slots=True)
class LogHeader:
    """Everything that a fresh arbiter is made from, and the version that wrote the log."""

    version: str
    seed: int
    policy: str
    options: Mapping[str, object]
    """Of the policy; plain data."""
    settings: Settings
    topology: Topology


def header_of(
    topology: Topology,
    policy: str,
    settings: Settings,
    *,
    seed: int = 0,
    options: Mapping[str, object] | None = None,
) -> LogHeader:
    """The header of a log written by this version of Themis."""
    return LogHeader(__version__, seed, policy, dict(options or {}), settings, topology)


@dataclass(frozen=True, slots=True)
class EventEntry:
    """One event and the commands it led to; None where the arbiter itself failed."""

    line: int
    event: Event
    commands: tuple[Command, ...] | None


def _opened(path: Path | str, mode: str) -> IO[bytes]:
    return cast("IO[bytes]", Path(path).open(mode))


class LogWriter:
    """Writes a log during a run. If its `with` block ends without an error, the run is finished.

    Raises:
        ConfigError: The file is there already (unless `overwrite`) or cannot be written.
    """

    def __init__(self, path: Path | str, header: LogHeader, *, overwrite: bool = False) -> None:
        first = {_FORMAT_KEY: FORMAT}
        text = dumps(first)[:-1] + "," + dumps(header)[1:]
        try:
            self._file = _opened(path, "wb" if overwrite else "xb")
        except FileExistsError:
            raise ConfigError("log", str(path), "a file that does not exist yet") from None
        except OSError as error:
            raise ConfigError("log", error.strerror, "a file to write", str(path)) from None
        self.events = 0
        self._put(text)

    def handle(self, arbiter: Arbiter, event: Event) -> list[Command]:
        """Let the arbiter handle an event, and log it; a failure too, for the bug report."""
        try:
            commands = arbiter.handle(event)
        except BaseException:
            self.write(event, None)
            raise
        self.write(event, commands)
        return commands

    def write(self, event: Event, commands: Sequence[Command] | None) -> None:
        """Add one event and the commands it led to; None if the arbiter failed."""
        text = dumps({"n": self.events + 1, "event": event, "commands": commands})
        self.events += 1
        self._put(text)

    def close(self, *, finished: bool = True) -> None:
        """End the log; a second call does nothing."""
        if self._file.closed:
            return
        try:
            if finished:
                self._put(dumps({"events": self.events}))
        finally:
            self._file.close()

    def _put(self, text: str) -> None:
        self._file.write(text.encode("ascii") + b"\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(finished=kind is None)


class EventLogReader:
    """Reads a log line by line: once, in bounded memory. `finished` is known at the end.

    Args:
        path: The log.
        forgive_cut: Whether a last line that a crash cut off ends the log without an error; `cut`
            is then its number.

    Raises:
        ConfigError: The file cannot be read.
        CorruptLogError: It is not a log, or damaged; names the line.
    """

    def __init__(self, path: Path | str, *, forgive_cut: bool = False) -> None:
        self.path = str(path)
        self.cut: int | None = None
        """The number of the last line, if it was cut off and forgiven."""
        self._forgive_cut = forgive_cut
        self.line = 0
        self.bytes_read = 0
        self.finished = False
        """Whether the run that wrote the log came to its end."""
        try:
            self._file = _opened(path, "rb")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError("log", reason, "a readable file", self.path) from None
        try:
            self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[EventEntry]:
        while (data := self._next()) is not None:
            if self.finished:
                raise self.corrupt("something follows the end of the run")
            if data.keys() == _END_KEYS:
                self._check_end(data["events"])
            else:
                yield self._entry(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def corrupt(self, reason: str) -> CorruptLogError:
        """An error about the line read last."""
        return CorruptLogError(self.path, self.line, reason)

    def _read_header(self) -> LogHeader:
        data = self._next()
        if data is None:
            self.line = 1
            raise self.corrupt("the file is empty")
        if _FORMAT_KEY not in data:
            raise self.corrupt("the file does not begin with the header of a Themis log")
        number = data.pop(_FORMAT_KEY)
        if type(number) is not int or number != FORMAT:
            raise self.corrupt(f"format {told(number)}, this version reads {FORMAT}")
        try:
            return decode(LogHeader, data)
        except RefusedError as error:
            raise self.corrupt(str(error)) from None

    def _entry(self, data: dict[str, object]) -> EventEntry:
        if data.keys() != _ENTRY_KEYS:
            keys = ", ".join(sorted(str(shown(key)) for key in data)[:5])
            raise self.corrupt(f"neither an event nor the end of the run, but {{{keys}}}")
        # The header is line 1, so event n stands on line n + 1.
        if type(data["n"]) is not int or data["n"] != self.line - 1:
            raise self.corrupt(
                f"event {told(data['n'])} where {self.line - 1} was due: "
                "lines are missing, doubled or out of order"
            )
        commands = data["commands"]
        if commands is not None and not isinstance(commands, list):
            raise self.corrupt(f"commands: {told(commands)} is not a list")
        try:
            event = event_from(data["event"])
            kept = None if commands is None else tuple(command_from(item) for item in commands)
        except RefusedError as error:
            raise self.corrupt(str(error)) from None
        return EventEntry(self.line, event, kept)

    def _check_end(self, count: object) -> None:
        if type(count) is not int or count != self.line - 2:
            raise self.corrupt(f"the run had {told(count)} events, {self.line - 2} are here")
        self.finished = True

    def _next(self) -> dict[str, object] | None:
        """The object on the next line; None at the end of the file."""
        raw = self._file.readline(MAX_LINE + 1)
        if not raw:
            return None
        self.line += 1
        self.bytes_read += len(raw)
        if len(raw) > MAX_LINE:
            raise self.corrupt(f"longer than {MAX_LINE} bytes")
        if not raw.endswith(b"\n"):
            if self._forgive_cut and self.line > 1:
                self.cut = self.line
                return None
            raise self.corrupt("the last line is cut off")
        try:
            data = loads(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise self.corrupt(f"byte {error.start + 1} is not UTF-8") from None
        except RefusedError as error:
            raise self.corrupt(str(error)) from None
        if not isinstance(data, dict):
            raise self.corrupt(f"{told(data)} is not an object")
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
