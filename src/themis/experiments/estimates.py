"""How long runs will take, before they are begun: from like runs, else by a rough guess.

forecast(todo, store.timings())      # processor seconds of all together
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from themis.model.presets import PRESETS, preset
from themis.sim.config import RunConfig
from themis.sim.timing import Timing

GUESSES = {"themis": 0.4, "themis-paper": 8.0}
GUESS = 0.15
"""Seconds for each app on 64 GPUs, by policy: a first idea, until the folder has runs."""
_GPUS = 64.0


def forecast(todo: Sequence[RunConfig], known: Iterable[Timing]) -> float:
    """Processor seconds that these runs will take."""
    alike: dict[tuple[object, ...], list[float]] = defaultdict(list)
    by_policy: dict[str, list[float]] = defaultdict(list)
    for timing in known:
        alike[_kind(timing.config)].append(timing.cpu_s)
        by_policy[timing.config.policy].append(timing.cpu_s / _size(timing.config))
    total = 0.0
    for config in todo:
        same = alike.get(_kind(config))
        if same:
            total += fmean(same)
        elif config.policy in by_policy:
            total += fmean(by_policy[config.policy]) * _size(config)
        else:
            total += GUESSES.get(config.policy, GUESS) * _size(config)
    return total


def _kind(config: RunConfig) -> tuple[object, ...]:
    """What runs of about the same length have in common."""
    return (config.policy, config.workload, config.cluster, config.contention, config.apps,
            config.options.get("f"), config.options.get("lease"))  # fmt: skip


def _size(config: RunConfig) -> float:
    gpus = preset(config.cluster).gpus if config.cluster in PRESETS else _GPUS
    return config.apps * max(1.0, gpus / _GPUS)
