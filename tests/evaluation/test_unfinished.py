"""An evaluation that is not finished tells what it has, and says what that rests on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from themis.evaluation import can_tell, evaluate, evaluate_all, write_report
from themis.evaluation.claims import Verdict
from themis.evaluation.experiment import Experiment, Results, Scope
from themis.evaluation.experiments import e1_finish_time_fairness as e1
from themis.evaluation.experiments import e5_contention as e5
from themis.evaluation.experiments import e7_network_bound as e7
from themis.evaluation.experiments import e8_misestimates as e8
from themis.evaluation.experiments import e9_one_liar as e9
from themis.evaluation.experiments import e11_lease_time as e11
from themis.evaluation.experiments import e14_ablation as e14
from themis.evaluation.experiments import e15_all_policies as e15
from themis.evaluation.experiments import e16_red_team as e16
from themis.evaluation.registry import EXPERIMENTS
from themis.evaluation.report.markdown import write_results
from themis.sim.config import RunConfig

SEEDS = tuple(range(1, 9))
SCOPE = Scope(quick=True, seeds=SEEDS, cluster="demo16", apps=1)
NAMED = {"named": {"long": 1.0, "short": 1.0, "truth-01": 1.0, e16.LIAR: 1.0}}
RUNNING = [item for item in EXPERIMENTS.values() if item.id not in {"E12", "E13"}]


def without_figures(experiment: Experiment) -> Experiment:
    """The same, quicker: drawing takes longest."""
    return replace(experiment, study=lambda results: replace(experiment.study(results), figures=()))


def few(config: RunConfig) -> bool:
    """Three seeds, of the mechanism as printed one, of Gandiva and of W1 at 2x none."""
    if config.policy == "gandiva" or (config.workload, config.contention) == ("w1", 2):
        return False
    return config.seed <= (1 if config.policy == "themis-paper" else 3)


def alone(config: RunConfig) -> bool:
    return config.policy == "fifo" or (config.policy == "slaq" and config.workload == "w2")


def swept(config: RunConfig) -> bool:
    """Nothing of the default, so that nothing can be compared with it."""
    return bool(config.options) and config.policy != "themis-paper"


@pytest.mark.parametrize("there", [few, alone, swept], ids=lambda one: one.__name__)
@pytest.mark.parametrize("experiment", RUNNING, ids=lambda item: item.id)
def test_every_experiment_tells_of_what_there_is(
    begun: Any, experiment: Experiment, there: Callable[[RunConfig], bool], tmp_path: Path
) -> None:
    scope = replace(SCOPE, seeds=(8, 9)) if experiment is e16.EXPERIMENT else SCOPE
    results = begun(experiment, scope, lambda _: NAMED, there)
    findings = experiment.study(results)
    decided = {
        claim.statement: claim.verdict
        for claim in findings.claims
        if claim.by_policy and claim.verdict is not Verdict.UNDECIDED
    }
    if there is not swept:  # which may have all that a claim is about
        assert decided == {}
    for claim in findings.claims:
        assert "nan" not in f"{claim.themis.text} {claim.themis_paper.text} {claim.details_text}"
    if there is few:
        return
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    for figure in findings.figures:
        assert figure.draw().figure.axes


def test_printed_mechanism_is_compared_on_its_own_seeds(begun: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        # From the fourth seed on all is worse: on all seeds the factor would be another one.
        much = 10.0 if config.seed > 3 else 1.0
        return {"rho": much * {"themis": 1.0, "themis-paper": 1.5}.get(config.policy, 3.0)}

    def there(config: RunConfig) -> bool:
        return config.policy != "themis-paper" or config.seed <= 3

    findings = e1.study(begun(e1.EXPERIMENT, SCOPE, numbers, there))
    claim = findings.claims[0]
    assert claim.verdict is Verdict.HOLDS
    assert claim.themis.value == pytest.approx(3.0)
    assert claim.themis_paper.value == pytest.approx(2.0)
    assert claim.themis_paper.text.endswith("; 3 seeds")
    assert "seeds" not in claim.themis.text
    table = findings.tables[0]
    assert table.title == "Means over seeds of 1-8, those that each row has"
    rows = {row[1]: row for row in table.rows if row[0] == "w1"}
    assert (rows["themis"][2], rows["themis-paper"][2]) == ("1-8", "1-3")
    assert rows["themis-paper"][3] == pytest.approx(1.5)


def test_a_table_names_the_seeds_that_it_has_of_those_asked_for(begun: Any) -> None:
    some = begun(e1.EXPERIMENT, SCOPE, lambda _: {}, lambda config: config.seed in {1, 2, 3, 7})
    assert e1.study(some).tables[0].title == "Means over seeds 1-3, 7 of 1-8"
    less = replace(some, scope=replace(SCOPE, seeds=(2, 3)))
    assert e1.study(less).tables[0].title == "Means over seeds 2-3"


def test_means_are_compared_on_seeds_that_all_have(begun: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        # On the first seeds, which SLAQ lacks, everybody is fair.
        return {"rho": 0.5 if config.seed <= 2 or config.policy == "themis" else 3.0}

    there = e5.study(
        begun(e5.EXPERIMENT, SCOPE, numbers, lambda c: c.policy != "slaq" or c.seed > 2)
    )
    assert {claim.verdict for claim in there.claims} == {Verdict.HOLDS}


def test_the_bar_is_not_cleared_before_all_opponents_have_run(begun: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        return {"rho": 1.0 if config.policy == "themis" else 2.0}

    def there(config: RunConfig) -> bool:
        return config.seed <= (5 if config.policy == "equal-share" else 8)

    findings = e15.study(begun(e15.EXPERIMENT, SCOPE, numbers, there))
    unbeaten, better = findings.claims[:2]
    assert unbeaten.verdict is Verdict.UNDECIDED
    assert "not on all seeds: equal-share" in unbeaten.details_text
    assert better.verdict is Verdict.HOLDS
    assert "over seeds 1-5 of 1-8: W1 1.00 (2.00)" in findings.lead[0]


@pytest.mark.parametrize(
    ("rho", "verdict"),
    [
        pytest.param(2.0, Verdict.HOLDS, id="surely worse"),
        pytest.param(1.0, Verdict.UNDECIDED, id="just as good, so far"),
    ],
)
def test_best_claim_needs_all_seeds_or_worse_opponents(
    begun: Any, rho: float, verdict: Verdict
) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        near = {"themis": 1.0, "equal-share": rho}.get(config.policy, 2.0)
        return {"rho": near * (1.0 + 0.01 * config.seed * (config.policy != "themis"))}

    def there(config: RunConfig) -> bool:
        # Just as good: on three of the seven seeds above, on others below.
        return config.seed <= (7 if config.policy == "equal-share" else 8)

    def told(config: RunConfig) -> dict[str, Any]:
        if config.policy == "equal-share" and rho == 1.0:
            return {"rho": 0.9 if config.seed % 2 else 1.2}
        return numbers(config)

    unbeaten = e15.study(begun(e15.EXPERIMENT, SCOPE, told, there)).claims[0]
    assert unbeaten.verdict is verdict
    assert "seeds of the others, at least: 7 of 8" in unbeaten.details_text


def test_the_ablation_is_open_until_all_variants_have_six_pairs(begun: Any) -> None:
    def there(config: RunConfig) -> bool:
        return config.seed <= (5 if config.options == {"rank": "now"} else 8)

    first, *_ = e14.study(begun(e14.EXPERIMENT, SCOPE, lambda _: {}, there)).claims
    assert first.verdict is Verdict.UNDECIDED
    assert "with fewer than 6 pairs of seeds: 1" in first.details_text


def test_a_chapter_says_which_part_of_the_plan_it_rests_on(begun: Any, tmp_path: Path) -> None:
    def there(config: RunConfig) -> bool:
        return config.policy in {"themis", "slaq"} and config.seed <= 3

    results = begun(e1.EXPERIMENT, SCOPE, lambda _: {}, there)
    experiment = without_figures(e1.EXPERIMENT)
    chapter = evaluate(experiment, results, tmp_path)
    given = chapter.origin
    assert (given.runs, given.wanted, given.seeds_text) == (12, 112, "1-3 of 1-8")
    assert given.by_policy == (
        ("themis, slaq", "1-3"),
        ("themis-paper, equal-share, gandiva, tiresias, optimus", "none"),
    )
    write_report(tmp_path)
    page = tmp_path / "results.md"
    write_results(tmp_path, page)
    for text in (page.read_text("utf-8"), (tmp_path / "report.html").read_text("utf-8")):
        assert "12 of 112 runs" in text
        assert "1-3 of 1-8" in text
        assert text.count("not run") >= 15
    whole = evaluate(experiment, replace(results, scope=replace(SCOPE, seeds=(1,))), tmp_path)
    assert whole.origin.wanted == 14  # the plan of one seed, not of those that the folder holds


def test_selected_seeds_are_reported_as_part_of_the_evaluation(begun: Any, tmp_path: Path) -> None:
    scope = Scope(seeds=(101, 102), cluster="demo16", apps=1)
    results = begun(e5.EXPERIMENT, scope, lambda _: {}, lambda _: True)
    experiment = without_figures(e5.EXPERIMENT)
    chapter = evaluate(experiment, results, tmp_path)
    assert not chapter.origin.partial
    assert chapter.origin.seeds_text == "101-102 of 101-130"
    odd = replace(results, scope=replace(scope, seeds=(7, 101)))
    assert evaluate(experiment, odd, tmp_path).origin.seeds_text == "101 of 7, 101"


def test_runs_without_a_chapter_are_evaluated(
    begun: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "E9", without_figures(e9.EXPERIMENT))
    scope = replace(SCOPE, seeds=(1,))
    results: Results = begun(e9.EXPERIMENT, scope, lambda _: NAMED, lambda _: True)
    assert evaluate_all(results, tmp_path) == ["E9"]
    more = replace(results, scope=replace(SCOPE, seeds=(1, 2)))
    assert evaluate_all(more, tmp_path) == ["E9"]
    assert evaluate_all(replace(results, scope=replace(SCOPE, seeds=(3,))), tmp_path) == []


def test_runs_that_belong_to_others_do_not_make_an_experiment(begun: Any) -> None:
    results = begun(e8.EXPERIMENT, SCOPE, lambda _: {}, lambda config: not config.options)
    assert can_tell(e8.EXPERIMENT, results)  # both presets without errors are half of a quick one
    whole = replace(results, scope=replace(SCOPE, quick=False))
    assert not can_tell(e8.EXPERIMENT, whole)
    assert not can_tell(e11.EXPERIMENT, whole)
    assert not can_tell(e14.EXPERIMENT, whole)
    assert not can_tell(e7.EXPERIMENT, whole)


def test_policy_subset_of_all_scenarios_is_reported(begun: Any) -> None:
    results = begun(
        e15.EXPERIMENT, SCOPE, lambda _: {}, lambda one: one.policy in {"themis", "gandiva"}
    )
    assert can_tell(e15.EXPERIMENT, results)


def test_sweep_with_two_of_its_values_is_reported(begun: Any) -> None:
    def there(config: RunConfig) -> bool:
        return config.policy == "themis" and config.options.get("lease", "5m") == "5m"

    results = begun(e11.EXPERIMENT, replace(SCOPE, quick=False), lambda _: {}, there)
    assert can_tell(e11.EXPERIMENT, results)


def test_the_liar_is_compared_on_seeds_that_have_both_runs(begun: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        return {"named": {e9.LIAR: 100.0 if "liar" in config.options else 110.0}}

    def there(config: RunConfig) -> bool:
        return config.seed <= (8 if "liar" in config.options else 6)

    findings = e9.study(begun(e9.EXPERIMENT, SCOPE, numbers, there))
    assert findings.claims[0].verdict is Verdict.FAILS
    rows = {row[:4]: row for row in findings.tables[0].rows}
    lying, honest = (rows["themis", 0.8, "spread", percent] for percent in (34, 0))
    assert lying[4] == pytest.approx(0.1)
    assert (lying[6], honest[6]) == ("1-8", "1-6 of 1-8")
