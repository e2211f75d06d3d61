"""Experiments by name. Adding one is a file and a line here.

chosen(["E12", "e13"])
chosen(["all"])
"""

from collections.abc import Sequence
from pathlib import Path

from themis.errors import unknown_name
from themis.evaluation.experiment import Experiment
from themis.evaluation.experiments import e1_finish_time_fairness as e1
from themis.evaluation.experiments import e2_gpu_time as e2
from themis.evaluation.experiments import e3_two_jobs as e3
from themis.evaluation.experiments import e4_placement as e4
from themis.evaluation.experiments import e5_contention as e5
from themis.evaluation.experiments import e6_overheads as e6
from themis.evaluation.experiments import e7_network_bound as e7
from themis.evaluation.experiments import e8_misestimates as e8
from themis.evaluation.experiments import e9_one_liar as e9
from themis.evaluation.experiments import e10_fairness_knob as e10
from themis.evaluation.experiments import e11_lease_time as e11
from themis.evaluation.experiments import e12_workload_study as e12
from themis.evaluation.experiments import e13_placement_sensitivity as e13
from themis.evaluation.experiments import e14_ablation as e14
from themis.evaluation.experiments import e15_all_policies as e15
from themis.evaluation.experiments import e16_red_team as e16
from themis.evaluation.experiments import e17_live_against_simulated as e17
from themis.evaluation.report.chapter import Chapter, read_chapters

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.id: module.EXPERIMENT
    for module in (e1, e2, e3, e4, e5, e6, e7, e8, e9, e10, e11, e12, e13, e14, e15, e16, e17)
}
ALL = "all"


def holdings(out: Path) -> tuple[list[Chapter], list[str], list[Experiment]]:
    """What a folder holds: chapters, the ids of damaged ones, and experiments without one."""
    chapters, damaged = read_chapters(out, EXPERIMENTS)
    known = {*damaged, *(chapter.id for chapter in chapters)}
    return chapters, damaged, [item for name, item in EXPERIMENTS.items() if name not in known]


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
