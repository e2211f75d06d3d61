"""E16: the search climbs, keeps to its seeds, and its findings are told as they are."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from themis.evaluation import Scope, Verdict, reproduce
from themis.evaluation.experiment import Experiment, Results
from themis.evaluation.experiments import e16_red_team as e16
from themis.evaluation.lie_search import Axis, Family, SearchEffort, proposals, search
from themis.sim.config import RunConfig, prepare
from themis.sim.runs.result_cache import ResultCache

Finished = Callable[[Experiment, Scope, Callable[[RunConfig], dict[str, Any]]], Results]

TWO = Family("two", (Axis("left", 0.1, 10.0), Axis("demand", 0.1, 10.0)))
ONE = Family("one", (Axis("left", 0.1, 10.0),))


def _hill(point: tuple[float, ...]) -> float:
    """Best at 3 on every axis."""
    return -sum(abs(math.log(value / 3.0)) for value in point)


def test_the_search_finds_the_top_of_a_hill() -> None:
    hunt = search(TWO, SearchEffort(10, 50), _hill)
    assert hunt.best(1)[0] == pytest.approx((3.0, 3.0), rel=0.1)
    assert hunt.tried == 500
    # At random alone, as the first generation is, it would be far away.
    assert max(map(_hill, proposals(TWO, 0, 500, ()))) < _hill(hunt.best(1)[0])


def test_search_asks_for_one_generation_at_a_time_and_resumes() -> None:
    known: dict[tuple[float, ...], float] = {}
    rounds = 0
    while (hunt := search(TWO, SearchEffort(3, 8), known.get)).wanted:
        assert len(hunt.wanted) <= 8
        known |= {point: _hill(point) for point in hunt.wanted}
        rounds += 1
    assert rounds == 3
    assert hunt.scores == search(TWO, SearchEffort(3, 8), _hill).scores


def test_lies_stay_within_their_range_and_some_axes_stay_honest() -> None:
    points = [p for generation in range(4) for p in proposals(TWO, generation, 50, ((10.0, 1.0),))]
    assert all(0.1 <= value <= 10.0 for point in points for value in point)
    assert any(1.0 in point for point in points)
    assert not any(point == (1.0, 1.0) for point in proposals(TWO, 0, 50, ()))
    assert all(point != (1.0,) for point in proposals(ONE, 0, 50, ()))


def test_no_seed_is_both_searched_and_reported() -> None:
    scopes = [
        Scope(), Scope(quick=True), Scope(seeds=(3, 4)), Scope(quick=True, seeds=(1,)),
    ]  # fmt: skip
    for scope in scopes:
        seeds = e16.seeds_of(Results(scope, ResultCache(Path("nowhere"))))
        assert not {*seeds.first, *seeds.more} & set(seeds.report)
        assert not set(seeds.first) & set(seeds.more)
    assert len(e16.seeds_of(Results(Scope(), ResultCache(Path("nowhere")))).report) >= 30
    assert e16.FULL.evaluations >= 500


@pytest.mark.parametrize("family", e16.FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize("defences", e16.DEFENCES)
def test_every_lie_can_be_run(family: Family, defences: str) -> None:
    for point in proposals(family, 0, 3, ()):
        made = prepare(e16.run_of(family, point, defences, 1))
        assert any(app.spec.id.startswith(e16.LIAR) for app in made.workload.apps)


def test_the_truth_is_one_run_whatever_the_family() -> None:
    for family in e16.FAMILIES:
        if family.name not in {"early submission", "idling"}:
            point = (1.0,) * len(family.axes)
            assert e16.run_of(family, point, e16.ON, 7) == e16.honest(e16.ON, 7)


def _ends(config: RunConfig, gains: dict[str, float]) -> dict[str, Any]:
    """The liar is done after 100 s, or sooner by what its lies gain."""
    lies = str(config.options.get("lie", "")).split(",")
    gain = math.prod(gains.get(lie, 1.0) for lie in lies)
    noise = 1.0 + 0.01 * (config.seed % 3) if lies != [""] else 1.0
    return {"named": {e16.LIAR: 100.0 / gain * noise}}


def _closed(config: RunConfig) -> bool:
    return config.options.get("inputs") != "claimed"


SMALL = Scope(seeds=tuple(range(101, 109)))


def _verdicts(
    finished: Finished, monkeypatch: pytest.MonkeyPatch, **on: float
) -> tuple[list[Verdict], str]:
    monkeypatch.setattr(e16, "FULL", SearchEffort(2, 4))
    off = {"ideal": 1.8, "split": 1.5}
    results = finished(e16.EXPERIMENT, SMALL, lambda c: _ends(c, on if _closed(c) else off))
    claims = e16.study(results).claims
    return [claim.verdict for claim in claims], claims[-1].details_text


def test_a_strong_search_and_tight_defences_hold(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts, why = _verdicts(finished, monkeypatch, serial=1.03)
    assert verdicts == [Verdict.HOLDS] * 3
    assert "not surely below the bar: none" in why


def test_profitable_lie_despite_the_defences_is_reported(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts, why = _verdicts(finished, monkeypatch, demand=1.2)
    assert verdicts == [Verdict.HOLDS, Verdict.HOLDS, Verdict.FAILS]
    assert "not surely below the bar: demand 1.1" in why


def test_a_search_that_finds_nothing_is_called_too_weak(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e16, "FULL", SearchEffort(1, 2))
    results = finished(e16.EXPERIMENT, SMALL, lambda c: _ends(c, {}))
    claims = e16.study(results).claims
    assert [claim.verdict for claim in claims[:2]] == [Verdict.FAILS] * 2


@pytest.mark.slow
def test_a_tiny_search_gives_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e16, "QUICK", SearchEffort(1, 1))
    two = tuple(family for family in e16.FAMILIES if family.name in {e16.IDEAL, e16.SPLIT})
    monkeypatch.setattr(e16, "FAMILIES", two)
    (chapter,) = reproduce([e16.EXPERIMENT], Scope(quick=True, seeds=(9,)), tmp_path, workers=1)
    assert {claim.verdict for claim in chapter.claims} == {Verdict.UNDECIDED}
    assert (tmp_path / "E16" / "evaluations.csv").read_text("utf-8").count("\n") == 5
    runs = len(list((tmp_path / "runs").glob("*.json")))
    assert chapter.origin.runs == runs


def test_a_lie_whose_interval_holds_the_bar_is_left_open(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts, why = _verdicts(finished, monkeypatch, demand=1.057)
    assert verdicts[-1] is Verdict.UNDECIDED
    assert "not surely below the bar: demand 1.05x" in why


def test_luck_dependent_lie_is_reported_on_more_seeds(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e16, "FULL", SearchEffort(1, 2))
    monkeypatch.setattr(e16, "FINAL_SEEDS", range(101, 111))
    monkeypatch.setattr(e16, "FAMILIES", tuple(f for f in e16.FAMILIES if f.name == "demand"))

    def numbers(config: RunConfig) -> dict[str, Any]:
        gain = (1.06 if config.seed % 2 else 1.02) if "lie" in config.options else 1.0
        return {"named": {e16.LIAR: 100.0 / gain}}

    results = finished(e16.EXPERIMENT, Scope(), numbers)
    family = e16.FAMILIES[0]
    on, off = (e16.search_family(results, family, defences) for defences in (e16.ON, e16.OFF))
    # Half widths: 0.015 on ten seeds, up to 1.055; 0.0096 on twenty.
    assert (len(on.final_seeds), len(off.final_seeds)) == (20, 10)
    assert set(on.final_seeds).isdisjoint(range(1, 11))
