"""The small table of runs: it comes back as it was written, and gives the claims of the page."""

import re
from pathlib import Path
from typing import Any

import pytest

from themis.errors import ConfigError
from themis.evaluation.experiment import Experiment, Results, Scope
from themis.evaluation.experiments import e1_finish_time_fairness as e1
from themis.evaluation.experiments import e8_misestimates as e8
from themis.evaluation.metric_table import MetricTable, read_run_table, write_run_table
from themis.evaluation.registry import EXPERIMENTS
from themis.evaluation.report.document import verdict_text
from themis.sim.config import RunConfig
from themis.sim.runs.result_cache import ResultCache

DOCS = Path(__file__).parents[2] / "docs"
FROM_TABLE = ("E1", "E2", "E3", "E4", "E5", "E7", "E8", "E10", "E11", "E14", "E15")
SCOPE = Scope(quick=True, seeds=tuple(range(1, 9)), cluster="demo16", apps=1)


def rows_of_page() -> dict[tuple[str, str], tuple[str, ...]]:
    """Claims of the page: the mechanism as printed, ours, and the verdict."""
    text = (DOCS / "results.md").read_text("utf-8")
    found = {}
    for line in text.splitlines():
        cells = [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", line)]
        if len(cells) == 8 and (name := re.match(r"\[(E\d+)\]", cells[1])):
            found[name[1], cells[2]] = tuple(cells[4:7])
    return found


def test_a_table_gives_the_claims_that_the_runs_give(begun: Any, tmp_path: Path) -> None:
    results = begun(e8.EXPERIMENT, SCOPE, lambda one: {"rho": 1.0 + one.seed / 10}, lambda _: True)
    claims = e8.study(results).claims
    write_run_table(tmp_path / "runs.csv", results.table)
    table = read_run_table(tmp_path / "runs.csv")
    alone = Results(SCOPE, ResultCache(tmp_path / "none"), table=table)
    assert e8.study(alone).claims == claims
    assert not alone.has(RunConfig())


def test_a_table_keeps_options_and_leaves_out_what_no_claim_uses(tmp_path: Path) -> None:
    config = RunConfig(workload="w2", seed=3, policy="gandiva", options={"lease": "5m", "f": 0.5})
    table = MetricTable()
    table.add(config, {"max_rho": 1.23456789, "most_fair": 0.5, "jain": 0.9, "moves": float("nan")})
    write_run_table(tmp_path / "runs.csv", table)
    assert read_run_table(tmp_path / "runs.csv").given == {repr(config): {"max_rho": 1.23457}}


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("cluster,seed\ntestbed64,one\n", "utf-8")
    with pytest.raises(ConfigError, match="readable table of runs"):
        read_run_table(tmp_path / "runs.csv")


@pytest.mark.slow
@pytest.mark.parametrize("name", FROM_TABLE)
def test_the_page_follows_from_the_table_beside_it(name: str, tmp_path: Path) -> None:
    experiment: Experiment = EXPERIMENTS[name]
    table = read_run_table(DOCS / "results" / "runs.csv")
    findings = experiment.study(Results(Scope(), ResultCache(tmp_path), table=table))
    page = rows_of_page()
    for claim in findings.claims:
        literal = claim.themis_paper.text
        found = (literal, claim.themis.text, verdict_text(claim.verdict))
        assert page[name, claim.statement] == found
    assert findings.claims


def test_every_claim_of_e1_is_on_the_page() -> None:
    assert sum(name == "E1" for name, _ in rows_of_page()) == len(e1.CLAIMS)
