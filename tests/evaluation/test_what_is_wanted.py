"""Which runs the evaluation asks for, of all that an experiment could use."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from themis.evaluation import EXPERIMENTS
from themis.evaluation.experiment import Experiment, Results, Scope
from themis.evaluation.experiments import e5_contention as e5
from themis.evaluation.experiments import e7_network_bound as e7
from themis.evaluation.experiments import e9_one_liar as e9
from themis.evaluation.experiments import e10_fairness_knob as e10
from themis.evaluation.experiments import e14_ablation as e14
from themis.evaluation.provenance import seed_text
from themis.evaluation.runner import _chosen
from themis.sim.config import RunConfig
from themis.sim.runs.result_cache import ResultCache

SMALL = Scope(cluster="demo16", apps=1)


def seeds(configs: Iterable[RunConfig], of: Callable[[RunConfig], bool]) -> str:
    return seed_text(config.seed for config in configs if of(config))


@pytest.fixture
def nothing(tmp_path: Path) -> Results:
    results = Results(SMALL, ResultCache(tmp_path / "runs"))
    results.store.make()
    return results


def test_printed_mechanism_has_sufficient_seeds_and_none_for_hour_long_runs(
    nothing: Results,
) -> None:
    wanted = list(e5.EXPERIMENT.wanted(nothing))
    printed = [one for one in wanted if one.policy == "themis-paper"]
    for contention in (1, 2, 4):
        there = [one for one in printed if one.contention == contention]
        assert seeds(there, lambda _: True) == "101-106"
    large = list(e7.EXPERIMENT.wanted(nothing))
    assert seeds(large, lambda one: one.policy == "themis-paper") == ""
    unfiltered = list(e10.EXPERIMENT.wanted(nothing))
    printed = [one for one in unfiltered if one.policy == "themis-paper"]
    assert {one.options.get("f") for one in printed} == {None, 1.0}
    assert seeds(printed, lambda one: not one.options) == "101-106"
    assert seeds(printed, lambda one: bool(one.options)) == "101-106"
    lies = list(e9.EXPERIMENT.wanted(nothing))
    assert seeds(lies, lambda one: one.policy == "themis-paper") == "101-130"


def test_sweeps_have_ten_seeds_and_contention_thirty(nothing: Results) -> None:
    shares = list(e7.EXPERIMENT.wanted(nothing))

    def at(share: float, policy: str) -> str:
        return seeds(
            shares,
            lambda one: one.policy == policy and one.options["network_intensive"] == share,
        )

    assert (at(1.0, "gandiva"), at(0.4, "gandiva")) == ("101-110", "101-110")
    crowded = list(e5.EXPERIMENT.wanted(nothing))
    assert seeds(crowded, lambda one: one.policy == "slaq" and one.contention == 2) == "101-130"
    assert seeds(crowded, lambda one: one.policy == "slaq" and one.contention == 4) == "101-130"
    levers = list(e14.EXPERIMENT.wanted(nothing))
    assert seeds(levers, lambda one: one.policy == "themis") == "101-110"
    assert seeds(levers, lambda one: "OwnLeases" in one.policy) == "101-110"


@pytest.mark.parametrize("name", ["E1", "E2", "E4", "E15"])
def test_bar_policies_have_every_seed_of_every_opponent(name: str, nothing: Results) -> None:
    experiment = EXPERIMENTS[name]
    found: dict[str, set[int]] = {}
    for one in experiment.wanted(nothing):
        if one.policy != "themis-paper":
            found.setdefault(repr(replace(one, seed=0)), set()).add(one.seed)
    named = {
        repr(replace(one, seed=0))
        for one in experiment.plan(nothing)
        if one.policy != "themis-paper"
    }
    assert {cell: seed_text(each) for cell, each in found.items()} == dict.fromkeys(
        named, "101-130"
    )


@pytest.mark.parametrize(
    ("policies", "gandiva", "printed"),
    [((), "101-130", "101-106"), (("gandiva",), "101-130", ""), (("themis-paper",), "", "101-130"),
     (("themis", "gandiva", "equal-share", "tiresias"), "101-130", ""),
     (("gandiva", "themis-paper"), "101-130", "101-130")],
)  # fmt: skip
def test_only_the_mechanism_as_printed_gets_more_by_being_named(
    nothing: Results, policies: tuple[str, ...], gandiva: str, printed: str
) -> None:
    wanted = [one for one in _chosen(e5.EXPERIMENT, nothing, policies) if one.contention == 4]
    assert seeds(wanted, lambda one: one.policy == "gandiva") == gandiva
    assert seeds(wanted, lambda one: one.policy == "themis-paper") == printed
    assert len(wanted) == len({repr(one) for one in wanted})


@pytest.mark.parametrize("asked", [(), (101, 102, 140)], ids=["no seeds", "seeds"])
@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda one: one.id)
def test_nothing_of_the_plan_is_left_out_but_the_mechanism_as_printed(
    experiment: Experiment, asked: tuple[int, ...], tmp_path: Path
) -> None:
    results = Results(replace(SMALL, seeds=asked), ResultCache(tmp_path / "runs"))
    results.store.make()
    named = [one for one in experiment.plan(results) if one.policy != "themis-paper"]
    wanted = [one for one in experiment.wanted(results) if one.policy != "themis-paper"]
    assert wanted == named
