"""Finished runs on disk, for the pages.

    recording = open_run(Path("run"))        # what `themis sim run --out run` wrote
    recording.board(), recording.timeline(), recording.app("w2-0001"), recording.round(12)

Rounds are looked through once, and read again one at a time: a run of weeks has gigabytes of them.
What is in the files is not believed to be ours: a damaged line is named, and names are only text.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from themis.core.model import Topology
from themis.dashboard.app_history import Histories
from themis.dashboard.finished import AppIndex, FoundRound, Recording
from themis.dashboard.model import DataOrigin, RoundLine, finite
from themis.dashboard.segment_columns import HeldSegment
from themis.errors import ConfigError, CorruptLogError, MissingFileError, ThemisError
from themis.recording.cluster_files import cluster

Progress = Callable[[int, int], None]
"""Called with bytes read and bytes in all."""

_EVERY = 200
"""Rounds between two words on how far it is."""


class _Line:
    """An app of a round as it stands in the file."""

    __slots__ = ("app", "held", "reason", "rho")

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.app = str(data["app"])
        self.held = int(data["held"])
        self.reason = str(data["reason"])
        rho = data.get("rho")
        self.rho = None if rho is None else float(rho)


def is_run(path: Path) -> bool:
    """Whether this is the folder of a run."""
    return (path / "config.json").is_file() and (path / "result.json").is_file()


def open_run(path: Path, progress: Progress | None = None) -> Recording:
    """A run folder.

    Raises:
        MissingFileError: There is none.
        CorruptLogError: One of its files cannot be read; names it and the line.
    """
    if not path.is_dir():
        raise MissingFileError("run", str(path), "the folder of a run")
    config, summary = _json(path / "config.json"), _json(path / "result.json")
    topology, trouble = _topology(config)
    histories = Histories()
    index = list(_rounds(path / "rounds.jsonl", histories, progress))
    origin = DataOrigin(
        "run",
        path.resolve().name,
        str(config.get("policy", "")),
        str(summary.get("cluster", config.get("cluster", ""))),
        _number(config.get("settings", {}).get("lease")),
        int(config.get("seed", 0)),
    )
    convention = str(config.get("settings", {}).get("convention", "fair_share"))
    return Recording(
        origin=origin,
        topology=topology,
        apps=_apps(path / "apps.jsonl", convention),
        held=tuple(_segments(path / "segments.csv")),
        histories=histories,
        index=index,
        summary=summary,
        workload=str(summary.get("workload", "")),
        note=trouble,
    )


def _topology(config: Mapping[str, Any]) -> tuple[Topology | None, str]:
    """The cluster a run was on; its file may be gone since."""
    try:
        return cluster(str(config["cluster"]), int(config.get("contention", 1))), ""
    except (KeyError, TypeError, ValueError, ThemisError) as error:
        return None, f"the cluster of this run is not known any more ({error})"


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise MissingFileError("run", str(path), "the folder of a run") from None
    except (OSError, ValueError) as error:
        raise CorruptLogError(str(path), 1, f"it cannot be read ({error})") from None
    if not isinstance(data, dict):
        raise CorruptLogError(str(path), 1, "it is not a JSON object")
    return data


def _apps(path: Path, convention: str) -> AppIndex:
    found = AppIndex()
    for number, data in _lines(path):
        try:
            rho, ref = data.get("rho", {}), data.get("rho_ref", {})
            found.add(
                str(data["app"]),
                submitted=float(data["arrival"]),
                ended=float(data["end"]),
                rho=_number(rho.get(convention)),
                rho_ref=_number(ref.get("fair_share")),
                gpu_seconds=_number(data.get("gpu_seconds")),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptLogError(str(path), number, f"not an app ({error!r})") from None
    return found


def _segments(path: Path) -> Iterator[HeldSegment]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for number, row in enumerate(csv.reader(file), 1):
            if number == 1 and row[:1] == ["gpu"]:
                continue
            try:
                gpu, app, start, end, source = row
                item = HeldSegment(int(gpu), app, float(start), float(end), source)
            except ValueError:
                raise CorruptLogError(str(path), number, "not a segment") from None
            if not (0 <= item.gpu < 10**6 and finite(item.start) is not None
                    and finite(item.end) is not None):  # fmt: skip
                raise CorruptLogError(str(path), number, "not a segment")
            yield item


def _rounds(path: Path, histories: Histories, progress: Progress | None) -> Iterator[FoundRound]:
    if not path.is_file():
        return
    total = path.stat().st_size
    for number, offset, data in _placed_lines(path):
        try:
            opened = float(data["opened"])
            lines = [_Line(item) for item in data["apps"]]
            line = _round_line(data, lines)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptLogError(str(path), number, f"not a round ({error!r})") from None
        histories.note(opened, lines)
        if progress is not None and number % _EVERY == 0:
            progress(offset, total)
        yield FoundRound(line, path, number, offset)


def _round_line(data: Mapping[str, Any], lines: list[_Line]) -> RoundLine:
    notes = data.get("notes") or {}
    certificate = notes.get("certificate") or {}
    return RoundLine(
        round=int(data["round"]),
        opened=float(data["opened"]),
        settled=float(data["settled"]),
        trigger=str(data["trigger"]),
        offered=int(data["offered"]),
        given=sum(int(item["granted"]) for item in data["apps"]),
        idle=len(data.get("idle", ())),
        apps=len(lines),
        invited=sum(1 for item in data["apps"] if item.get("invited")),
        bids=len(notes.get("bids", ())),
        failed=bool(data.get("failed")),
        solver=str(certificate.get("solver", "")),
        exact=certificate.get("exact"),
    )


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if path.is_file():
        for number, _, data in _placed_lines(path):
            yield number, data


def _placed_lines(path: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Objects in a file of lines, each with its number and where it begins."""
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


def named_apart(recordings: list[Recording]) -> list[Recording]:
    """The same with titles that differ, where folders have the same name."""
    seen: dict[str, int] = {}
    result = []
    for item in recordings:
        count = seen[item.origin.title] = seen.get(item.origin.title, 0) + 1
        title = item.origin.title if count == 1 else f"{item.origin.title} ({count})"
        result.append(item if count == 1 else item.renamed(replace(item.origin, title=title)))
    return result
