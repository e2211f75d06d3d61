"""The runs of a comparison, as `themis sim compare --out` keeps them: no rounds, all the rest.

open_stored(Path("out/runs/3f2a.json"))
stored_runs(Path("out"))
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from themis.dashboard.app_history import Histories
from themis.dashboard.finished import AppIndex, Recording
from themis.dashboard.model import DataOrigin, finite
from themis.dashboard.segment_columns import HeldSegment
from themis.errors import CorruptLogError, ThemisError
from themis.recording.cluster_files import cluster

MOST_RUNS = 200
"""Of one folder."""


def stored_runs(folder: Path) -> list[Path]:
    """Files of runs in a folder of a comparison, in order of their names."""
    place = folder / "runs" if (folder / "runs").is_dir() else folder
    return sorted(path for path in place.glob("*.json") if is_stored(path))[:MOST_RUNS]


def is_stored(path: Path) -> bool:
    """Whether a file looks like the record of a run, without reading all of it."""
    try:
        with path.open("rb") as file:
            return file.read(12).startswith(b'{"themis":')
    except OSError:
        return False


def open_stored(path: Path) -> Recording:
    """One run of a comparison.

    Raises:
        CorruptLogError: It cannot be read.
    """
    try:
        data: Any = json.loads(path.read_text("utf-8"))
        config, summary = dict(data["config"]), dict(data["summary"])
        apps = _apps(data["apps"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptLogError(str(path), 1, f"not the record of a run ({error!r})") from None
    try:
        topology = cluster(str(config["cluster"]), int(config.get("contention", 1)))
    except (KeyError, TypeError, ValueError, ThemisError):
        topology = None
    options = ", ".join(f"{key} {value}" for key, value in config.get("options", {}).items())
    title = f"{config.get('policy')}, seed {config.get('seed')}" + (options and f", {options}")
    origin = DataOrigin(
        "run",
        title,
        str(config.get("policy", "")),
        str(summary.get("cluster", "")),
        None,
        int(config.get("seed", 0)),
    )
    held = tuple(_segments(path.with_name(f"{path.stem}.segments.gz")))
    workload = str(summary.get("workload", ""))
    return Recording(origin, topology, apps, held, Histories(), [], summary, workload)


def _apps(rows: Any) -> AppIndex:
    found = AppIndex()
    for row in rows:
        rho, ref = row.get("rho", {}), row.get("rho_ref", {})
        found.add(
            str(row["app"]),
            submitted=float(row["arrival"]),
            ended=float(row["end"]),
            rho=finite(rho.get("fair_share")),
            rho_ref=finite(ref.get("fair_share")),
            gpu_seconds=finite(row.get("gpu_seconds")),
        )
    return found


def _segments(path: Path) -> Iterator[HeldSegment]:
    if not path.is_file():
        return
    try:
        lines = gzip.decompress(path.read_bytes()).decode("utf-8", "replace").splitlines()
    except (OSError, EOFError) as error:
        raise CorruptLogError(str(path), 1, f"it cannot be read ({error})") from None
    for number, line in enumerate(lines, 1):
        try:
            gpu, app, start, end, source = line.split(",")
            yield HeldSegment(int(gpu), app, float(start), float(end), source)
        except ValueError:
            raise CorruptLogError(str(path), number, "not a segment") from None
