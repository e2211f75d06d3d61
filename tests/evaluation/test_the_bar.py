"""E15: the default policy against all others, and the real trace among the scenarios."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from themis.evaluation import philly_workload, small_apps
from themis.evaluation.claims import CheckedClaim, Verdict
from themis.evaluation.experiment import Findings, Results, Scope
from themis.evaluation.experiments import e15_all_policies as e15
from themis.sim.config import RunConfig, prepare
from themis.sim.metrics import reference
from themis.sim.runs.result_cache import ResultCache

SEEDS = tuple(range(1, 9))
SCOPE = Scope(quick=True, seeds=SEEDS, cluster="demo16", apps=1)


def wobble(config: RunConfig) -> float:
    return 1.0 + 0.2 * (config.seed % 3)


def claims(findings: Findings) -> dict[str, CheckedClaim]:
    return {claim.statement.removeprefix("Our bar, "): claim for claim in findings.claims}


def test_bar_names_policies_that_beat_themis(finished: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        crowded = config.contention == 2
        rho = {"themis": 1.0, "equal-share": 0.9 if crowded else 1.1}.get(config.policy, 1.5)
        if config.policy == "optimus":
            rho += 0.1 * (config.seed % 4)
        return {
            "rho": 0.95 * rho * wobble(config),
            "floor_rho_ref": 0.5,
            "placed_floor_rho_ref": 1.3 if config.workload == "w2" else 0.8,
            "placed_fluid_h": 1.5,
            "most_fair_ref": 0.94 if config.workload == "w2" else None,
            "mean_completion_h": 0.9 if config.policy == "slaq" else 1.0,
        }

    findings = e15.study(finished(e15.EXPERIMENT, SCOPE, numbers))
    found = claims(findings)
    fine = found["W1: no opponent's max rho_ref is surely lower"]
    beaten = found["W1 2x: no opponent's max rho_ref is surely lower"]
    assert (fine.verdict, fine.themis.text) == (Verdict.HOLDS, "none")
    assert (beaten.verdict, beaten.themis.text) == (Verdict.FAILS, "equal-share")
    assert "equal-share" in fine.details_text
    printed = found["W1: max rho_ref, themis-paper over ours"]
    assert printed.verdict is Verdict.HOLDS
    assert printed.themis.value == pytest.approx(1.5)
    four = found["W2: max rho_ref surely better than the paper's four"]
    assert four.verdict is Verdict.HOLDS
    assert four.themis.value == pytest.approx(1.5)
    level = found["W1: mean max rho_ref <= 1.2, 95% of apps fair"]
    assert level.verdict is Verdict.FAILS  # only half of the apps are fair
    assert "that floor: 0.80" in level.details_text
    out_of_reach = found["W2: mean max rho_ref <= 1.2, 95% of apps fair"]
    assert "that floor: 1.30, above 1.2 for every policy" in out_of_reach.details_text
    assert "could be fair, at most: 94.0% of the apps" in out_of_reach.details_text
    assert "could be fair" not in level.details_text
    assert found["W1: GPU time at most 1.01x Gandiva's"].verdict is Verdict.HOLDS
    sooner = found["W1: mean completion time below the fluid equal share's"]
    assert sooner.themis.value == pytest.approx(0.8)
    assert "the fluid share itself in the best places: 1.20x" in sooner.details_text
    assert "soonest of the opponents, slaq: 0.72x" in sooner.details_text
    headline, auction = findings.lead
    assert "W1 2x" in headline
    assert "W1 25%" in auction
    assert any("THEMIS_DATA" in note for note in findings.notes)
    table = next(table for table in findings.tables if table.name == "bar")
    rows: dict[Any, dict[str, Any]] = {
        row[:2]: dict(zip((column.name for column in table.columns), row, strict=True))
        for row in table.rows
    }
    crowded = rows["W1 2x", "equal-share"]
    varied = rows["W1", "optimus"]
    assert varied["over themis, low"] < varied["over themis"] < varied["over themis, high"]
    assert crowded["over themis"] == pytest.approx(0.9)
    for end in ("low", "high"):  # every seed the same
        assert crowded[f"over themis, {end}"] == pytest.approx(0.9)


def test_soonest_policy_is_judged_on_common_seeds(begun: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        return {"mean_completion_h": 0.5 if config.policy == "slaq" else 1.0}

    def there(config: RunConfig) -> bool:
        return config.policy != "slaq" or config.seed < SEEDS[-1]

    found = claims(e15.study(begun(e15.EXPERIMENT, SCOPE, numbers, there)))
    sooner = found["W1: mean completion time below the fluid equal share's"]
    assert "soonest of the opponents, slaq: 0.40x" in sooner.details_text
    assert sooner.details_text.endswith(" on seeds 1-7")


def test_no_policy_beats_the_printed_mechanism_on_one_seed(begun: Any) -> None:
    def there(config: RunConfig) -> bool:
        return config.policy != "themis-paper" or config.contention == 1 or config.seed == SEEDS[0]

    found = claims(e15.study(begun(e15.EXPERIMENT, SCOPE, lambda _: {}, there)))
    columns = {
        name: found[f"{name}: no opponent's max rho_ref is surely lower"].themis_paper.text
        for name in ("W1", "W1 2x")
    }
    assert columns == {"W1": "none", "W1 2x": "-"}


def test_bar_figures_mark_policies_with_fewer_seeds(begun: Any) -> None:
    def there(config: RunConfig) -> bool:
        return config.policy != "themis-paper" or config.seed <= 6

    findings = e15.study(begun(e15.EXPERIMENT, SCOPE, lambda _: {}, there))
    figure = next(one for one in findings.figures if one.name == "bar").draw().figure
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "themis-paper, 6 seeds" in names
    assert {"themis", "equal-share"} <= set(names)


def test_a_few_seeds_decide_nothing(finished: Any) -> None:
    few = Scope(quick=True, seeds=(1, 2), cluster="demo16", apps=1)
    findings = e15.study(finished(e15.EXPERIMENT, few, lambda _: {}))
    assert {claim.verdict for claim in findings.claims} == {Verdict.UNDECIDED}
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    for figure in findings.figures:
        assert figure.draw().figure.axes


TRACE = """app,app_submit_s,job,job_submit_s,num_gpus,duration_s,vc,philly_job_id
0,0,0,0,1,8000,a,1
0,0,1,0,1,9000,a,2
1,500000,0,500000,4,90000,b,3
2,1000000,0,1000000,2,4000,b,4
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / philly_workload.FILE).write_text(TRACE, "utf-8")
    return folder


def test_the_seed_draws_models_and_leaves_what_was_measured(tmp_path: Path, data: Path) -> None:
    results = Results(Scope(data=data), ResultCache(tmp_path / "out" / "runs"))
    runs = [philly_workload.for_seed(results, "0.91", seed) for seed in range(1, 6)]
    made = [prepare(config).workload for config in runs]
    assert len({tuple(app.model for app in one.apps) for one in made}) > 1
    assert len({tuple(app.arrival for app in one.apps) for one in made}) == 1
    full = prepare(philly_workload.for_seed(results, "1.10", 1)).workload
    assert made[0].load == pytest.approx(0.83 * full.load, rel=1e-3)


def test_the_real_trace_is_found_again_wherever_the_folder_lies(tmp_path: Path, data: Path) -> None:
    names = set()
    for place in ("a", "b"):
        results = Results(Scope(data=data, apps=2), ResultCache(tmp_path / place / "runs"))
        config = philly_workload.for_seed(results, "1.10", 7)
        assert len(prepare(config).workload.apps) == 2
        names.add(results.store._path(config).name)
    assert len(names) == 1


def test_with_the_trace_at_hand_the_bar_has_two_more_scenarios(tmp_path: Path, data: Path) -> None:
    with_trace = Results(Scope(quick=True, data=data), ResultCache(tmp_path / "out" / "runs"))
    without = Results(Scope(quick=True), ResultCache(tmp_path / "out" / "runs"))
    more, fewer = (len(list(e15.plan(results))) for results in (with_trace, without))
    assert 2 * more == 3 * fewer


def test_strongest_opponents_call_in_gpus_as_themis_does(finished: Any) -> None:
    """And the printed mechanism is judged too, once it has been run."""

    def numbers(config: RunConfig) -> dict[str, Any]:
        calls = config.policy == "equal-share" and config.options.get("call_in_gain") == 0.05
        rho = 0.9 if calls or config.policy == "themis-paper" else 1.0
        return {"rho": rho * wobble(config)}

    scope = Scope(seeds=tuple(range(1, 7)), cluster="demo16", apps=1)
    found = claims(e15.study(finished(e15.EXPERIMENT, scope, numbers)))
    beaten = found["W2: no opponent's max rho_ref is surely lower"]
    assert (beaten.verdict, beaten.themis.text) == (Verdict.FAILS, "equal-share+call")
    assert found["W2: max rho_ref, themis-paper over ours"].verdict is Verdict.FAILS


def test_apps_demanding_less_than_their_share_are_separate(finished: Any) -> None:
    scope = Scope(quick=True, seeds=(1,), apps=6)
    config = replace(scope.base("w2"), seed=1)
    made = prepare(config)
    fluid = reference(made.workload, made.topology)
    below = small_apps.modest(config)
    assert 0 < len(below) < 6
    for app in made.workload.apps:
        widest = max(sum(job.max_gpus for job in app.spec.jobs[: each.jobs])
                     for each in app.spec.phases)  # fmt: skip
        share = made.topology.gpus / fluid[app.spec.id].mean_contention
        assert (widest <= share) == (app.spec.id in below)

    def numbers(config: RunConfig) -> dict[str, Any]:
        few = small_apps.modest(config)
        apps = (app.spec.id for app in prepare(config).workload.apps)
        return {"rho": 1.2, "named": {app: 0.9 if app in few else 1.7 for app in apps}}

    findings = e15.study(finished(e15.EXPERIMENT, scope, numbers))
    table = next(table for table in findings.tables if table.name == "apart")
    texts = zip([column.name for column in table.columns], table.texts()[0], strict=True)
    row = dict(texts)
    assert (row["max rho_ref below"], row["fair below"]) == ("0.90", "100.0%")
    assert row["max rho_ref above"] == "1.70"
    assert float(row["fair above"].rstrip("%")) < 50.0
