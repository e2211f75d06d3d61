"""The evaluation of the paper: each experiment is a file, all of them make one report.

from themis.evaluation import Scope, chosen, reproduce
reproduce(chosen(["E12", "E13"]), Scope(quick=True), Path("out"))    # out/report.html

An experiment (`experiments/eN_*.py`) declares its runs, its claims as data and its figures; the
Markdown file beside it explains the numbers. `runner` makes the runs, `reporting` evaluates them,
and `report/` writes one table of claims for the console, for HTML and for Markdown.
"""

from themis.evaluation.claims import CheckedClaim, Claim, Verdict
from themis.evaluation.experiment import Experiment, Findings, Results, Scope
from themis.evaluation.registry import ALL, EXPERIMENTS, chosen
from themis.evaluation.report.chapter import Chapter
from themis.evaluation.reporting import (
    can_tell,
    evaluate,
    evaluate_all,
    evaluate_others,
    reproduce,
    write_report,
)
from themis.evaluation.runner import left_out, missing, run_experiments
from themis.evaluation.verification import verify

__all__ = [
    "ALL",
    "EXPERIMENTS",
    "Chapter",
    "CheckedClaim",
    "Claim",
    "Experiment",
    "Findings",
    "Results",
    "Scope",
    "Verdict",
    "can_tell",
    "chosen",
    "evaluate",
    "evaluate_all",
    "evaluate_others",
    "left_out",
    "missing",
    "reproduce",
    "run_experiments",
    "verify",
    "write_report",
]
