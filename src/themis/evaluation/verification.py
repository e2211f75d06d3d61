"""Finished runs made again, to check that the present code makes the same runs.

checked = verify(chosen(["E15"]), Results(Scope(), Store(Path("out/runs"))), 5)
[one.label for one in checked if one.differences]

An evaluation takes days, and its runs may be of several commits: they stay valid as long as no
later commit decides differently.
"""

import random
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from themis.errors import ThemisError
from themis.evaluation.experiment import Experiment, Results
from themis.evaluation.levers import family
from themis.sim.config import RunConfig
from themis.sim.runs.result_cache import CachedRun, ResultCache
from themis.sim.runs.worker_pool import Progress, finish_all

MOST_SHOWN = 5
COSTS = frozenset({"events"})
"""Numbers about the computation, not about its result."""


@dataclass(frozen=True, slots=True)
class VerifiedRun:
    """A run that was made again."""

    label: str
    commit: str
    """Of the code that made the finished run."""
    differences: tuple[str, ...]
    """How the new run differs; none if it is the same."""


def verify(
    experiments: Sequence[Experiment],
    results: Results,
    count: int,
    *,
    policies: Collection[str] = (),
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[VerifiedRun]:
    """Make some of the finished runs of experiments again, outside the folder, and compare.

    They are drawn, always in the same way, by turns of each experiment and policy: most runs are of
    a search, and similar to each other. A larger `count` adds to the same ones.
    """
    kinds: dict[tuple[str, str], list[RunConfig]] = {}
    seen: set[str] = set()
    for item in experiments:
        for config in item.plan(results):
            wanted = not policies or family(config.policy) in policies
            if wanted and repr(config) not in seen and results.has(config):
                seen.add(repr(config))
                kinds.setdefault((item.id, config.policy), []).append(config)
    stream = random.Random(0)
    for each in kinds.values():
        stream.shuffle(each)
    turns = [one for turn in zip_longest(*kinds.values()) for one in turn if one is not None]
    chosen = turns[:count]
    with tempfile.TemporaryDirectory(prefix="themis-verify-") as folder:
        again = ResultCache(Path(folder))
        try:
            finish_all(chosen, again, workers=workers, progress=progress)
            why = ""
        except ThemisError as error:  # Runs that were finished before it are kept.
            why = str(error)
        return [_checked(config, results.store, again.load(config), why) for config in chosen]


def _checked(config: RunConfig, store: ResultCache, new: CachedRun | None, why: str) -> VerifiedRun:
    old, timing = store.load(config), store.timing(config)
    if old is None:
        found: tuple[str, ...] = ("the finished run cannot be read",)
    elif new is None:
        found = (f"not made: {why or 'it cannot be read'}",)
    else:
        found = tuple(_differences(old, new))
    return VerifiedRun(_label(config), "" if timing is None else timing.commit, found)


def _label(config: RunConfig) -> str:
    crowd = f" {config.contention}x" if config.contention > 1 else ""
    load = "" if config.load is None else f", load {config.load:g}"
    options = "".join(f" {key}={value}" for key, value in config.options.items())
    where = f"{Path(config.workload).stem}, {Path(config.cluster).stem}{crowd}"
    return f"{config.policy} on {where}, {config.apps} apps{load}, seed {config.seed}{options}"


def _differences(old: CachedRun, new: CachedRun) -> list[str]:
    # A number that the code of the old run did not record is no difference.
    both = [key for key in new.summary if key in old.summary and key not in COSTS]
    found = [
        f"{key}: {_short(old.summary[key])}, now {_short(new.summary[key])}"
        for key in both
        if old.summary[key] != new.summary[key]
    ]
    parts = ("apps", "scores", "usage")
    found += [f"{part} differ" for part in parts if getattr(old, part) != getattr(new, part)]
    more = len(found) - MOST_SHOWN
    return [*found[:MOST_SHOWN], f"and {more} more"] if more > 0 else found


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
