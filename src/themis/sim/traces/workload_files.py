"""Workloads as files, so that a run does not need what they were made from.

write_workload(Path("philly.jsonl"), plan.header, plan.lines())
read_workload(Path("philly.jsonl")).apps

JSON lines: a header with name, horizon, load, seed and generator, then one app per line in order of
arrival. The header counts the apps, so a file that was cut off is noticed. Apps of one phase take
the short form of `CompactApp`; any other app is written whole.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from themis import __version__
from themis.core.model.ids import check_count, check_number
from themis.errors import (
    ConfigError,
    CorruptLogError,
    MissingFileError,
    RefusedError,
    ThemisError,
)
from themis.recording.codec import decode, dumps, loads
from themis.sim.traces.compact_apps import CompactApp, app_from
from themis.sim.traces.trace import collector_paused
from themis.sim.workloads import SimApp, Workload, realised_load

FORMAT = 1
MAX_LINE = 64 * 2**20
"""Bytes. The largest app that can be imported stays far below."""


@dataclass(frozen=True, slots=True)
class WorkloadHeader:
    """The first line. `load` is that on `gpus` GPUs."""

    name: str
    horizon: float
    load: float
    gpus: int
    seed: int
    generator: str
    generator_version: int
    apps: int
    hardware: str = "p100"
    """Whose slowdowns the models of short lines have."""
    themis_workload: int = FORMAT
    version: str = __version__

    def __post_init__(self) -> None:
        check_number("horizon", self.horizon, above=True)
        check_number("load", self.load)
        check_count("gpus", self.gpus)
        check_count("apps", self.apps)
        check_count("themis_workload", self.themis_workload, high=FORMAT)

    def workload(self, lines: Iterable[CompactApp | SimApp]) -> Workload:
        """The workload of this header with these apps."""
        return Workload(
            name=self.name,
            apps=tuple(map(self.app, lines)),
            horizon=self.horizon,
            load=self.load,
            seed=self.seed,
            generator=self.generator,
            version=self.generator_version,
        )

    def app(self, line: CompactApp | SimApp) -> SimApp:
        """The app of one line."""
        return app_from(line, self.seed, self.hardware) if isinstance(line, CompactApp) else line


def header_of(workload: Workload, gpus: int) -> WorkloadHeader:
    """The header for a workload whose load was computed for this many GPUs."""
    return WorkloadHeader(
        name=workload.name,
        horizon=workload.horizon,
        load=workload.load,
        gpus=gpus,
        seed=workload.seed,
        generator=workload.generator,
        generator_version=workload.version,
        apps=len(workload.apps),
    )


@collector_paused()
def write_workload(
    path: Path, header: WorkloadHeader, lines: Iterable[CompactApp | SimApp]
) -> None:
    """Write a workload, replacing what is there; the file has its name only when it is whole.

    Raises:
        ConfigError: It cannot be written.
    """
    draft = path.with_name(f".{path.name}.part")
    try:
        try:
            with draft.open("w", encoding="ascii", newline="\n") as file:
                file.write(dumps(header) + "\n")
                file.writelines(_written(line) for line in lines)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError("out", error.strerror, "a file to write", str(path)) from None


def _written(line: CompactApp | SimApp) -> str:
    return (line.to_json() if isinstance(line, CompactApp) else dumps(line)) + "\n"


def read_workload(path: Path) -> Workload:
    """The workload in a file.

    Raises:
        MissingFileError: There is no such file.
        ConfigError: It cannot be opened.
        CorruptLogError: It is not a workload, or not whole; names the line.
    """
    try:
        handle = path.open("rb")
    except FileNotFoundError:
        raise MissingFileError("workload", str(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError("workload", reason, "a readable file", str(path)) from None
    header: WorkloadHeader | None = None
    apps: list[SimApp] = []
    number = 0
    try:
        with handle:
            while line := handle.readline(MAX_LINE):
                number += 1
                if header is None:
                    header = _header(line)
                else:
                    apps.append(header.app(_line(loads(_text(line)))))
        number += 1
        if header is None:
            raise _UnfitError("the file is empty")
        if len(apps) != header.apps:
            raise _UnfitError(f"the header counts {header.apps} apps, but {len(apps)} are here")
        return header.workload(apps)
    except OSError as error:
        raise ConfigError("workload", error.strerror, "a readable file", str(path)) from None
    except RefusedError as error:
        # What a line was read as says nothing to people, only where in it the mistake is.
        field = error.who.partition(".")[2]
        reason = f"{field}: {error.reason}" if field else error.reason
        raise CorruptLogError(str(path), number, reason) from None
    except (ThemisError, _UnfitError) as error:
        raise CorruptLogError(str(path), number, str(error)) from None


class _UnfitError(Exception):
    pass


def for_cluster(workload: Workload, gpus: int, load: float | None = None) -> Workload:
    """The workload with its load on this many GPUs; to have exactly `load`, arrivals are stretched.

    Raises:
        ConfigError: The load is out of range.
    """
    own = realised_load(workload.apps, gpus, workload.horizon)
    if load is None:
        return replace(workload, load=own)
    check_number("load", load, above=True, high=10.0)
    factor = own / load
    apps = tuple(replace(app, arrival=app.arrival * factor) for app in workload.apps)
    return replace(workload, apps=apps, horizon=workload.horizon * factor, load=load)


def _text(line: bytes) -> str:
    if not line.endswith(b"\n"):
        raise _UnfitError("the line is cut off or too long")
    try:
        return line.decode("ascii")
    except UnicodeDecodeError:
        raise _UnfitError("the line is not ASCII") from None


def _header(line: bytes) -> WorkloadHeader:
    # Any other file can come here by a slip, so this is not the place for details.
    data = loads(_text(line)) if b'"themis_workload"' in line else None
    if not isinstance(data, dict) or "themis_workload" not in data:
        raise _UnfitError(
            "not a workload file: its first line is no header (themis trace import makes one)"
        )
    return decode(WorkloadHeader, data)


def _line(data: object) -> CompactApp | SimApp:
    if isinstance(data, dict) and "spec" in data:
        return decode(SimApp, data)
    return decode(CompactApp, data)


def is_workload_file(name: str) -> bool:
    """Whether a workload's name means a file, be it there or not."""
    return "." in name or os.sep in name or os.path.isfile(name)
