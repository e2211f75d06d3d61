"""Finished runs made again, to see that they come out the same with the code that is here.

checked = verify(chosen(["E15"]), Results(Scope(), Store(Path("out/runs"))), 5)
[one.label for one in checked if one.differences]

An evaluation takes days, and its runs may be of several commits: they are good as long as nothing
decides otherwise since.
"""

import random
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from themis.experiments.base import Experiment, Results
from themis.sim.config import RunConfig
from themis.sim.pool import Progress, finish_all
from themis.sim.store import RunRecord, Store

MOST_SHOWN = 5
COSTS = frozenset({"events"})
"""Numbers of how something is done, not of what comes out."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A run that was made again."""

    label: str
    commit: str
    """Of the code that made the one that was there."""
    differences: tuple[str, ...]
    """What the new one has otherwise; none if they are the same."""


def verify(
    experiments: Sequence[Experiment],
    results: Results,
    count: int,
    *,
    policies: Collection[str] = (),
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Checked]:
    """Run some of the finished runs of experiments again, beside the folder, and compare.

    Which ones is drawn, always in the same way: with a larger `count` there are more of them.
    """
    there = {
        repr(config): config
        for item in experiments
        for config in item.plan(results)
        if (not policies or config.policy in policies) and results.has(config)
    }
    drawn = sorted(there)
    random.Random(0).shuffle(drawn)
    chosen = [there[key] for key in drawn[:count]]
    with tempfile.TemporaryDirectory(prefix="themis-verify-") as folder:
        again = Store(Path(folder))
        finish_all(chosen, again, workers=workers, progress=progress)
        return [_checked(config, results.store, again.load(config)) for config in chosen]


def _checked(config: RunConfig, store: Store, new: RunRecord | None) -> Checked:
    old, timing = store.load(config), store.timing(config)
    if old is None or new is None:
        found: tuple[str, ...] = ("cannot be read",)
    else:
        found = tuple(_differences(old, new))
    options = "".join(f" {key}={value}" for key, value in config.options.items())
    crowd = f" {config.contention}x" if config.contention > 1 else ""
    name = Path(config.workload).stem
    return Checked(
        f"{config.policy} on {name}{crowd}, seed {config.seed}{options}",
        "" if timing is None else timing.commit,
        found,
    )


def _differences(old: RunRecord, new: RunRecord) -> list[str]:
    # What was not told yet when the old one was made is no difference.
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
