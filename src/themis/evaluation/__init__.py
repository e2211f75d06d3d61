"""The evaluation of the paper: each experiment one file, all of them one report.

from themis.evaluation import Scope, chosen, reproduce
reproduce(chosen(["E12", "E13"]), Scope(quick=True), Path("out"))    # out/report.html
"""

from themis.evaluation.experiment import Claim, Experiment, Findings, Results, Scope, Verdict
from themis.evaluation.registry import ALL, EXPERIMENTS, chosen
from themis.evaluation.report.chapter import Chapter
from themis.evaluation.runner import (
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
from themis.evaluation.verification import verify

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
