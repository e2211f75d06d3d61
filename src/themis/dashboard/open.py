"""What people name on the command line, opened: folders of runs and comparisons, stored runs, logs.

recordings = open_all([Path("run-a"), Path("out/compare"), Path("events.jsonl")])
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from themis.dashboard.event_logs import open_log, with_jobs
from themis.dashboard.finished import Recording
from themis.dashboard.run_folders import is_run, named_apart, open_run
from themis.dashboard.snapshots import is_snapshot, open_snapshot
from themis.dashboard.stored_runs import is_stored, open_stored, stored_runs
from themis.errors import ConfigError, MissingFileError

Progress = Callable[[int, int], None]

_ALLOWED = (
    "a folder of `themis sim run --out`, of `themis sim compare --out`, an event log "
    "(events.jsonl), or a file of `themis snapshot`"
)


def open_all(paths: Sequence[Path], progress: Progress | None = None) -> list[Recording]:
    """Everything that these paths name, in their order.

    Raises:
        MissingFileError: One of them is not there.
        ConfigError: One of them is something else.
        CorruptLogError: One of them cannot be read.
    """
    found: list[Recording] = []
    for path in paths:
        found += _open(path, progress)
    return named_apart(found)


def _open(path: Path, progress: Progress | None) -> list[Recording]:
    if not path.exists():
        raise MissingFileError("run", str(path), _ALLOWED)
    if is_snapshot(path):
        return [open_snapshot(path)]
    if path.is_file():
        return [open_stored(path) if is_stored(path) else open_log(path, progress)]
    if is_run(path):
        run, log = open_run(path, progress), path / "events.jsonl"
        return [with_jobs(run, open_log(log, progress)) if log.is_file() else run]
    inside = sorted(item for item in path.iterdir() if item.is_dir() and is_run(item))
    if inside:
        return [open_run(item, progress) for item in inside]
    kept = stored_runs(path)
    if not kept:
        raise ConfigError("run", str(path), _ALLOWED)
    return [open_stored(item) for item in kept]
