"""A run as a folder of files: the same bytes for the same seed, and never half of one.

with new_folder(Path("run")) as draft:
    with run_files(draft) as files:         # rounds.jsonl, segments.csv, while the run goes on
        result = run(config, on_round=files.on_round, on_segment=files.on_segment)
    write_run(result, draft)                # config.json, result.json, apps.jsonl
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from themis import __version__
from themis.core.arbiter import RoundRecord
from themis.core.policies import policy_options
from themis.errors import ConfigError
from themis.recording.codec import dumps
from themis.sim.run import RunResult, Segment


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that gets its name only when all went well.

    Raises:
        ConfigError: Something is at that path already, or it cannot be written.
    """
    if not path.name:
        # The folder takes its name last, which cannot be done to the one that we are in.
        raise ConfigError("out", str(path), "a folder with a name of its own")
    draft = path.with_name(f".{path.name}.part")
    try:
        taken = path.exists() and (not path.is_dir() or any(path.iterdir()))
        if not taken:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            "out", str(path), f"a folder that can be written ({error.strerror})"
        ) from error
    if taken:
        raise ConfigError("out", str(path), "a folder that does not exist yet or is empty")
    try:
        yield draft
        if path.exists():
            path.rmdir()
        draft.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def refilled_folder(path: Path, pattern: str) -> Iterator[Path]:
    """A folder to fill whose files take the place of those of this pattern when all went well.

    Other files in it stay.

    Raises:
        ConfigError: There is something that is no folder, or it cannot be written.
    """
    if not path.name:
        raise ConfigError("out", str(path), "a folder with a name of its own")
    draft = path.with_name(f".{path.name}.part")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
    except OSError as error:
        raise ConfigError("out", str(path), f"a folder that can be written ({error})") from error
    try:
        if path.exists() and not path.is_dir():
            raise ConfigError("out", str(path), "a folder")
        yield draft
        _refill(path, draft, pattern)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _refill(path: Path, draft: Path, pattern: str) -> None:
    new = {item.name for item in draft.iterdir()}
    try:
        path.mkdir(exist_ok=True)
        for name in sorted(new):
            (draft / name).replace(path / name)
        for old in path.glob(pattern):
            if old.name not in new:
                old.unlink()
    except OSError as error:
        raise ConfigError("out", str(path), f"a folder that can be written ({error})") from error


class RunFiles:
    """The files that grow with simulated time, written while the run goes on."""

    def __init__(self, rounds: TextIO, segments: TextIO) -> None:
        self._rounds = rounds
        self._segments = segments
        segments.write("gpu,app,start_s,end_s,source\n")

    def on_round(self, record: RoundRecord) -> None:
        """One more round."""
        self._rounds.write(dumps(record) + "\n")

    def on_segment(self, item: Segment) -> None:
        """One more segment that is over."""
        line = f"{item.gpu},{item.app},{item.start!r},{item.end!r},{item.source}\n"
        self._segments.write(line)


@contextmanager
def run_files(folder: Path) -> Iterator[RunFiles]:
    """Open rounds.jsonl and segments.csv in a folder that is there."""
    with (
        (folder / "rounds.jsonl").open("w", encoding="utf-8") as rounds,
        (folder / "segments.csv").open("w", encoding="utf-8") as segments,
    ):
        yield RunFiles(rounds, segments)


def write_run(result: RunResult, folder: Path) -> None:
    """Write what a run ended with; rounds and segments come from `run_files` during the run."""
    prepared = result.prepared
    _write_json(
        folder / "config.json",
        {
            "themis": __version__,
            **asdict(prepared.config),
            "policy_options": {
                **policy_options(type(prepared.policy)),
                **prepared.policy_options,
            },
            "settings": asdict(prepared.settings),
            "costs": asdict(prepared.costs),
            "faults": asdict(prepared.faults),
            "learning": asdict(prepared.learning),
            "solver": prepared.solver,
            "generator": prepared.workload.generator,
            "generator_version": prepared.workload.version,
        },
    )
    _write_json(folder / "result.json", result.summary)
    with (folder / "apps.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(dumps(app) + "\n" for app in result.apps)


def _write_json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=2, default=str, allow_nan=False) + "\n", "utf-8")
