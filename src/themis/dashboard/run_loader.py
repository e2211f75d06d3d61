"""The runs behind the paths that a command names: folders, comparisons, logs and snapshots.

runs = load_runs([Path("run-a"), Path("out/compare"), Path("events.jsonl")])
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from themis.dashboard.finished_run import FinishedRun
from themis.dashboard.run_builder import open_log, with_jobs
from themis.dashboard.sim_runs import (
    Progress,
    compared_runs,
    is_compared_run,
    is_run_folder,
    open_compared_run,
    open_run_folder,
)
from themis.dashboard.snapshot_pages import is_snapshot, open_snapshot
from themis.errors import ConfigError, MissingFileError

_ALLOWED = (
    "a folder of `themis sim run --out`, of `themis sim compare --out`, an event log "
    "(events.jsonl), or a file of `themis snapshot`"
)


def load_runs(paths: Sequence[Path], progress: Progress | None = None) -> list[FinishedRun]:
    """Everything that these paths name, in their order, with distinct titles.

    Raises:
        MissingFileError: One of them is not there.
        ConfigError: One of them is something else.
        CorruptLogError: One of them cannot be read.
    """
    runs = [run for path in paths for run in _load(path, progress)]
    seen: dict[str, int] = {}
    for place, run in enumerate(runs):
        count = seen[run.origin.title] = seen.get(run.origin.title, 0) + 1
        if count > 1:
            title = f"{run.origin.title} ({count})"
            runs[place] = replace(run, origin=replace(run.origin, title=title))
    return runs


def _load(path: Path, progress: Progress | None) -> list[FinishedRun]:
    if not path.exists():
        raise MissingFileError("run", str(path), _ALLOWED)
    if is_snapshot(path):
        return [open_snapshot(path)]
    if path.is_file():
        return [open_compared_run(path) if is_compared_run(path) else open_log(path, progress)]
    if is_run_folder(path):
        run, log = open_run_folder(path, progress), path / "events.jsonl"
        return [with_jobs(run, open_log(log, progress)) if log.is_file() else run]
    inside = sorted(item for item in path.iterdir() if item.is_dir() and is_run_folder(item))
    if inside:
        return [open_run_folder(item, progress) for item in inside]
    compared = compared_runs(path)
    if not compared:
        raise ConfigError("run", str(path), _ALLOWED)
    return [open_compared_run(item) for item in compared]
