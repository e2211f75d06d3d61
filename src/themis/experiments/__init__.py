"""The evaluation of the paper: each experiment one file, all of them one report.

from themis.experiments import Scope, chosen, reproduce
reproduce(chosen(["E12", "E13"]), Scope(quick=True), Path("out"))    # out/report.html
"""

from themis.experiments.base import Claim, Experiment, Findings, Results, Scope, Verdict
from themis.experiments.chapter import Chapter
from themis.experiments.registry import ALL, EXPERIMENTS, chosen
from themis.experiments.running import (
    can_tell,
    evaluate,
    evaluate_there,
    left_out,
    losing_data,
    missing,
    of_other_scopes,
    outdated,
    reproduce,
    run_experiments,
    write_report,
)
from themis.experiments.verifying import verify

__all__ = [
    "ALL",
    "EXPERIMENTS",
    "Chapter",
    "Claim",
    "Experiment",
    "Findings",
    "Results",
    "Scope",
    "Verdict",
    "can_tell",
    "chosen",
    "evaluate",
    "evaluate_there",
    "left_out",
    "losing_data",
    "missing",
    "of_other_scopes",
    "outdated",
    "reproduce",
    "run_experiments",
    "verify",
    "write_report",
]
