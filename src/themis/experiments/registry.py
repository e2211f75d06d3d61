"""Experiments by name. Adding one is a file and a line here.

chosen(["E12", "e13"])
chosen(["all"])
"""

from collections.abc import Sequence
from pathlib import Path

from themis.errors import unknown_name
from themis.experiments import (
    e1,
    e2,
    e3,
    e4,
    e5,
    e6,
    e7,
    e8,
    e9,
    e10,
    e11,
    e12,
    e13,
    e14,
    e15,
    e16,
    e17,
)
from themis.experiments.base import Experiment
from themis.experiments.chapter import Chapter, read_chapters

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.id: module.EXPERIMENT
    for module in (e1, e2, e3, e4, e5, e6, e7, e8, e9, e10, e11, e12, e13, e14, e15, e16, e17)
}
ALL = "all"


def holdings(out: Path) -> tuple[list[Chapter], list[str], list[Experiment]]:
    """What a folder tells of: chapters, the ids of damaged ones, and experiments without any."""
    chapters, damaged = read_chapters(out, EXPERIMENTS)
    told = {*damaged, *(chapter.id for chapter in chapters)}
    return chapters, damaged, [item for name, item in EXPERIMENTS.items() if name not in told]


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, in their own order; `all` are all there are.

    Raises:
        ConfigError: There is no such experiment.
    """
    wanted = {name.strip().upper() for name in names}
    for name in names:
        if name.strip().upper() not in {*EXPERIMENTS, ALL.upper()}:
            raise unknown_name("experiment", name, [*EXPERIMENTS, ALL])
    if ALL.upper() in wanted:
        return list(EXPERIMENTS.values())
    return [item for name, item in EXPERIMENTS.items() if name in wanted]
