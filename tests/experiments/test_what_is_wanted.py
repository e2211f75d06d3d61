"""Which runs the evaluation asks for, of all that an experiment could use."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.conftest import keep

from themis.experiments import EXPERIMENTS, e5, e7, e9, e14, e15
from themis.experiments.base import Experiment, Results, Scope
from themis.experiments.provenance import seed_text
from themis.sim.config import RunConfig
from themis.sim.store import Store

SMALL = Scope(cluster="demo16", apps=1)


def seeds(configs: Iterable[RunConfig], of: Callable[[RunConfig], bool]) -> str:
    return seed_text(config.seed for config in configs if of(config))


@pytest.fixture
def nothing(tmp_path: Path) -> Results:
    results = Results(SMALL, Store(tmp_path / "runs"))
    results.store.make()
    return results


def test_the_mechanism_as_printed_has_few_seeds_and_one_where_no_claim_is_about_it(
    nothing: Results,
) -> None:
    wanted = list(e5.EXPERIMENT.wanted(nothing))
    assert seeds(wanted, lambda one: one.policy == "themis-paper" and one.contention == 1) == (
        "101-106"
    )
    assert seeds(wanted, lambda one: one.policy == "themis-paper" and one.contention == 2) == "101"
    lies = list(e9.EXPERIMENT.wanted(nothing))
    assert seeds(lies, lambda one: one.policy == "themis-paper") == "101-130"


def test_long_runs_have_as_many_seeds_as_a_verdict_needs(nothing: Results) -> None:
    shares = list(e7.EXPERIMENT.wanted(nothing))

    def at(share: float, policy: str) -> str:
        return seeds(
            shares,
            lambda one: one.policy == policy and one.options["network_intensive"] == share,
        )

    assert (at(1.0, "gandiva"), at(0.4, "gandiva")) == ("101-106", "101-103")
    assert (at(1.0, "themis"), at(0.4, "themis")) == ("101-106", "101-106")
    crowded = list(e5.EXPERIMENT.wanted(nothing))
    assert seeds(crowded, lambda one: one.policy == "slaq" and one.contention == 2) == "101-130"
    assert seeds(crowded, lambda one: one.policy == "slaq" and one.contention == 4) == "101-108"
    assert seeds(e14.EXPERIMENT.wanted(nothing), lambda _: True) == "101-106"


def test_an_opponent_that_is_surely_worse_at_a_first_look_is_let_go(nothing: Results) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        wobble = 1.0 + 0.2 * (config.seed % 3) * (config.policy == "equal-share")
        return {"rho": (3.0 if config.policy == "gandiva" else 1.0) * wobble}

    def crowded(policy: str) -> str:
        wanted = e15.EXPERIMENT.wanted(nothing)
        return seeds(wanted, lambda one: one.policy == policy and one.contention == 2)

    policies = ("themis", "gandiva", "tiresias")
    assert [crowded(name) for name in policies] == ["101-130", "101-108", "101-108"]
    for config in e15.EXPERIMENT.plan(nothing):
        if config.contention == 2 and config.seed <= 108:
            keep(nothing.store, config, numbers)
    assert [crowded(name) for name in policies] == ["101-130", "101-108", "101-130"]
    # What E1 shows is the same for all.
    wanted = list(e15.EXPERIMENT.wanted(nothing))
    assert seeds(wanted, lambda one: one.policy == "gandiva" and one.contention == 1) == "101-130"


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda one: one.id)
def test_seeds_that_were_asked_for_are_all_run(experiment: Experiment, tmp_path: Path) -> None:
    results = Results(Scope(seeds=(109,), cluster="demo16", apps=1), Store(tmp_path / "runs"))
    named = [one for one in experiment.plan(results) if one.policy != "themis-paper"]
    wanted = [one for one in experiment.wanted(results) if one.policy != "themis-paper"]
    assert wanted == named
