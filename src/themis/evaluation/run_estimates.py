"""How long runs will take, before they begin: from similar runs, else by a rough guess.

costs(todo, store.timings())         # processor seconds of each, by the repr of its configuration
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean

from themis.core.model.presets import PRESETS, preset
from themis.sim.config import RunConfig
from themis.sim.runs.run_timing import Timing
from themis.sim.traces.workload_files import is_workload_file

GUESSES = {"themis": 0.4, "themis-paper": 6.0}
GUESS = 0.15
"""Seconds for each app on 64 GPUs, by policy, until the folder has runs to estimate from."""
_TRUTH = 0.1
"""An app of the truth workload takes this part of the time of others."""
_GPUS = 64.0

Kind = tuple[object, ...]


def costs(todo: Sequence[RunConfig], known: Iterable[Timing]) -> dict[str, float]:
    """Processor seconds that each of these runs will take, by the `repr` of its configuration."""
    seen: dict[Kind, list[float]] = defaultdict(list)
    for timing in known:
        for kind in _kinds(timing.config):
            seen[kind].append(timing.cpu_s / _size(timing.config))
    paces = {kind: fmean(values) for kind, values in seen.items()}
    return {
        repr(config): _size(config)
        * next((paces[kind] for kind in _kinds(config) if kind in paces), _guess(config))
        for config in todo
    }


def _guess(config: RunConfig) -> float:
    pace = GUESSES.get(config.policy, GUESS)
    return pace * _TRUTH if config.workload == "truth" else pace


def _kinds(config: RunConfig) -> Iterable[Kind]:
    """Keys that runs of about the same pace share, from the most to the least specific."""
    work = "file" if is_workload_file(config.workload) else config.workload
    options = config.options
    near = (config.policy, work, config.cluster, config.contention)
    yield (*near, _apps(config), options.get("f"), options.get("lease"))
    yield near
    yield (config.policy, work)


def _size(config: RunConfig) -> float:
    gpus = preset(config.cluster).gpus if config.cluster in PRESETS else _GPUS
    return _apps(config) * max(1.0, gpus / _GPUS)


def _apps(config: RunConfig) -> int:
    if not is_workload_file(config.workload):
        return config.apps
    return _apps_in(config.workload) or config.apps


@lru_cache(maxsize=4096)
def _apps_in(file: str) -> int:
    """The number of apps in the header of a workload file, or 0 if it cannot be read."""
    try:
        with Path(file).open(encoding="ascii") as lines:
            return int(json.loads(lines.readline())["apps"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
