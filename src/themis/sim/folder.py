"""A run as a folder of files: the same bytes for the same seed, and never half of one.

write_run(result, Path("run"))      # config.json, result.json, apps.jsonl, segments.csv, ...
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from themis import __version__
from themis.errors import ConfigError
from themis.policies import policy_options
from themis.records.codec import dumps
from themis.sim.run import RunResult


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
        raise ConfigError("out", str(path), f"a folder that can be written ({error})") from error
    if taken:
        raise ConfigError("out", str(path), "a folder that does not exist yet or is empty")
    try:
        yield draft
        if path.exists():
            path.rmdir()
        draft.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_run(result: RunResult, folder: Path) -> None:
    """Write everything a run left behind into a folder that is there."""
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
    with (folder / "rounds.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(dumps(record) + "\n" for record in result.rounds)
    with (folder / "segments.csv").open("w", encoding="utf-8") as file:
        file.write("gpu,app,start_s,end_s,source\n")
        for item in result.segments:
            file.write(f"{item.gpu},{item.app},{item.start!r},{item.end!r},{item.source}\n")


def _write_json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=2, default=str, allow_nan=False) + "\n", "utf-8")
