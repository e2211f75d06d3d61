"""Runs of the simulator on disk: folders of `themis sim run`, and files of `themis sim compare`.

    open_run_folder(Path("run"))                 # rounds, histories, segments and apps
    open_compared_run(Path("out/runs/3f2a.json"))    # segments and apps: comparisons keep no rounds
    compared_runs(Path("out"))                   # the paths of a comparison's runs

Rounds are scanned once and read again one at a time: a run of weeks has gigabytes of them. The
files are not trusted: a damaged line is named, and names are only text.
"""

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from themis.core.model import Topology
from themis.dashboard.app_history import AppHistories
from themis.dashboard.finished_run import FinishedRun, RunApps, RunRound
from themis.dashboard.model import DataOrigin, RoundLine, finite
from themis.dashboard.timeline_columns import HeldSegment
from themis.errors import ConfigError, CorruptLogError, MissingFileError, ThemisError
from themis.recording.cluster_files import cluster

Progress = Callable[[int, int], None]
"""Called with the bytes read and the bytes in all."""

_MOST_COMPARED = 200
"""Runs of one comparison that are shown."""
_PROGRESS_EVERY = 200
"""Rounds between two calls of `Progress`."""
_MOST_GPUS = 10**6

# Folders of one run


def is_run_folder(path: Path) -> bool:
    """Whether this is the folder of a run."""
    return (path / "config.json").is_file() and (path / "result.json").is_file()


def open_run_folder(path: Path, progress: Progress | None = None) -> FinishedRun:
    """The run in a folder.

    Raises:
        MissingFileError: There is none.
        CorruptLogError: One of its files cannot be read; names the file and the line.
    """
    if not path.is_dir():
        raise MissingFileError("run", str(path), "the folder of a run")
    config, summary = _json_file(path / "config.json"), _json_file(path / "result.json")
    settings = config.get("settings", {})
    topology, trouble = _topology(config)
    histories = AppHistories()
    rounds = list(_rounds(path / "rounds.jsonl", histories, progress))
    return FinishedRun(
        origin=DataOrigin(
            "run",
            path.resolve().name,
            str(config.get("policy", "")),
            str(summary.get("cluster", config.get("cluster", ""))),
            _number(settings.get("lease")),
            int(config.get("seed", 0)),
        ),
        topology=topology,
        apps=_apps_of_folder(path / "apps.jsonl", str(settings.get("convention", "fair_share"))),
        held=tuple(_segments_of_folder(path / "segments.csv")),
        histories=histories,
        round_index=rounds,
        summary=summary,
        workload=str(summary.get("workload", "")),
        note=trouble,
    )


def _apps_of_folder(path: Path, convention: str) -> RunApps:
    found = RunApps()
    for number, _, data in _lines(path):
        try:
            _add_app(found, data, convention)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptLogError(str(path), number, f"not an app ({error!r})") from None
    return found


def _segments_of_folder(path: Path) -> Iterator[HeldSegment]:
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            yield from _segments(path, file)


def _rounds(path: Path, histories: AppHistories, progress: Progress | None) -> Iterator[RunRound]:
    for number, offset, data in _lines(path):
        try:
            line = _round_line(data)
            for app in data["apps"]:
                rho, held, reason = app.get("rho"), int(app["held"]), str(app["reason"])
                histories.note(
                    str(app["app"]), line.opened, None if rho is None else float(rho), held, reason
                )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptLogError(str(path), number, f"not a round ({error!r})") from None
        if progress is not None and number % _PROGRESS_EVERY == 0:
            progress(offset, path.stat().st_size)
        yield RunRound(line, path, number, offset)


def _round_line(data: Mapping[str, Any]) -> RoundLine:
    apps = data["apps"]
    notes = data.get("notes") or {}
    certificate = notes.get("certificate") or {}
    return RoundLine(
        round=int(data["round"]),
        opened=float(data["opened"]),
        settled=float(data["settled"]),
        trigger=str(data["trigger"]),
        offered=int(data["offered"]),
        given=sum(int(item["granted"]) for item in apps),
        idle=len(data.get("idle", ())),
        apps=len(apps),
        invited=sum(1 for item in apps if item.get("invited")),
        bids=len(notes.get("bids", ())),
        failed=bool(data.get("failed")),
        solver=str(certificate.get("solver", "")),
        exact=certificate.get("exact"),
    )


# Files of a comparison


def compared_runs(folder: Path) -> list[Path]:
    """The files of runs in the folder of a comparison, by name."""
    place = folder / "runs" if (folder / "runs").is_dir() else folder
    return sorted(path for path in place.glob("*.json") if is_compared_run(path))[:_MOST_COMPARED]


def is_compared_run(path: Path) -> bool:
    """Whether a file looks like a run of a comparison, without reading all of it."""
    try:
        with path.open("rb") as file:
            return file.read(12).startswith(b'{"themis":')
    except OSError:
        return False


def open_compared_run(path: Path) -> FinishedRun:
    """One run of a comparison.

    Raises:
        CorruptLogError: It cannot be read.
    """
    apps = RunApps()
    try:
        data: Any = json.loads(path.read_text("utf-8"))
        config, summary = dict(data["config"]), dict(data["summary"])
        for row in data["apps"]:
            _add_app(apps, row, "fair_share")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptLogError(str(path), 1, f"not the record of a run ({error!r})") from None
    options = [f"{key} {value}" for key, value in config.get("options", {}).items()]
    origin = DataOrigin(
        "run",
        ", ".join([str(config.get("policy")), f"seed {config.get('seed')}", *options]),
        str(config.get("policy", "")),
        str(summary.get("cluster", "")),
        None,
        int(config.get("seed", 0)),
    )
    return FinishedRun(
        origin=origin,
        topology=_topology(config)[0],
        apps=apps,
        held=_compared_segments(path.with_name(f"{path.stem}.segments.gz")),
        histories=AppHistories(),
        round_index=(),
        summary=summary,
        workload=str(summary.get("workload", "")),
    )


def _compared_segments(path: Path) -> tuple[HeldSegment, ...]:
    if not path.is_file():
        return ()
    try:
        lines = gzip.decompress(path.read_bytes()).decode("utf-8", "replace").splitlines()
    except (OSError, EOFError) as error:
        raise CorruptLogError(str(path), 1, f"it cannot be read ({error})") from None
    return tuple(_segments(path, lines))


# Both


def _topology(config: Mapping[str, Any]) -> tuple[Topology | None, str]:
    """The cluster of a run; or, if its file is gone, None and the trouble."""
    try:
        return cluster(str(config["cluster"]), int(config.get("contention", 1))), ""
    except (KeyError, TypeError, ValueError, ThemisError) as error:
        return None, f"the cluster of this run is not known any more ({error})"


def _add_app(apps: RunApps, data: Mapping[str, Any], convention: str) -> None:
    rho, ref = data.get("rho", {}), data.get("rho_ref", {})
    apps.add(
        str(data["app"]),
        submitted=float(data["arrival"]),
        ended=float(data["end"]),
        rho=_number(rho.get(convention)),
        rho_ref=_number(ref.get("fair_share")),
        gpu_seconds=_number(data.get("gpu_seconds")),
    )


def _segments(path: Path, lines: Iterable[str]) -> Iterator[HeldSegment]:
    for number, row in enumerate(csv.reader(lines), 1):
        if number == 1 and row[:1] == ["gpu"]:
            continue
        try:
            gpu, app, start, end, source = row
            item = HeldSegment(int(gpu), app, float(start), float(end), source)
        except ValueError:
            raise CorruptLogError(str(path), number, "not a segment") from None
        times = finite(item.start), finite(item.end)
        if not 0 <= item.gpu < _MOST_GPUS or None in times:
            raise CorruptLogError(str(path), number, "not a segment")
        yield item


def _json_file(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise MissingFileError("run", str(path), "the folder of a run") from None
    except (OSError, ValueError) as error:
        raise CorruptLogError(str(path), 1, f"it cannot be read ({error})") from None
    if not isinstance(data, dict):
        raise CorruptLogError(str(path), 1, "it is not a JSON object")
    return data


def _lines(path: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """The objects in a file of lines, each with its number and offset; none if there is no file."""
    if not path.is_file():
        return
    offset = 0
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    data = json.loads(raw)
                except (ValueError, RecursionError) as error:
                    raise CorruptLogError(str(path), number, f"not JSON ({error})") from None
                if not isinstance(data, dict):
                    raise CorruptLogError(str(path), number, "not a JSON object")
                yield number, offset, data
                offset += len(raw)
    except OSError as error:
        raise ConfigError("file", error.strerror, "a readable file", str(path)) from None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return finite(float(value))
