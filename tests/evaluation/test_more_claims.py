"""Claims of E3 to E9 on runs that were made up so that the answer is known."""

from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest

from themis.core.arbiter import SETTING_NAMES
from themis.core.policies import policy_class, policy_options
from themis.evaluation.claims import Verdict
from themis.evaluation.comparisons import mean_ratio
from themis.evaluation.experiment import Scope
from themis.evaluation.experiments import e3_two_jobs as e3
from themis.evaluation.experiments import e5_contention as e5
from themis.evaluation.experiments import e6_overheads as e6
from themis.evaluation.experiments import e7_network_bound as e7
from themis.evaluation.experiments import e8_misestimates as e8
from themis.evaluation.experiments import e9_one_liar as e9
from themis.evaluation.experiments import e14_ablation as e14
from themis.recording.written_settings import settings_for
from themis.sim.compare import Estimate
from themis.sim.config import RunConfig

SEEDS = tuple(range(1, 9))
SCOPE = Scope(quick=True, seeds=SEEDS, cluster="demo16", apps=1)


def wobble(config: RunConfig) -> float:
    return 1.0 + 0.2 * (config.seed % 3)


def test_e3_says_that_the_printed_claim_is_false(finished: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        long, short = (0.9, 1.9) if config.policy == "tiresias" else (1.0, 1.1)
        return {"named": {"long": long * wobble(config), "short": short * wobble(config)}}

    short, long, short_level, long_level = e3.study(finished(e3.EXPERIMENT, SCOPE, numbers)).claims
    assert (short.verdict, long.verdict) == (Verdict.HOLDS, Verdict.FAILS)
    assert long.themis.value == pytest.approx(0.9)
    assert "claim is false" in dict(e3.EXPERIMENT.explanation.sections)[long.why]
    # The means are 1.175 times these.
    assert (short_level.verdict, long_level.verdict) == (Verdict.FAILS, Verdict.FAILS)


@pytest.mark.parametrize(("other", "verdict"), [(1.9, Verdict.HOLDS), (0.3, Verdict.UNDECIDED)])
def test_e3_finds_nothing_in_a_level_that_every_policy_keeps(
    finished: Any, other: float, verdict: Verdict
) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        rho = (other if config.policy == "tiresias" else 0.2) * wobble(config)
        return {"named": {"long": rho, "short": rho}}

    *_, level = e3.study(finished(e3.EXPERIMENT, SCOPE, numbers)).claims
    assert level.verdict is verdict
    assert ("says nothing" in level.details_text) is (verdict is Verdict.UNDECIDED)


def test_e3_makes_no_claim_about_others_where_themis_fails(finished: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        rho = 3.0 if config.policy == "themis" else 0.2
        return {"named": {"long": rho, "short": rho}}

    *_, level = e3.study(finished(e3.EXPERIMENT, SCOPE, numbers)).claims
    assert level.verdict is Verdict.FAILS
    assert "says nothing" not in level.details_text


@pytest.mark.parametrize(("printed", "called"), [(1, None), (6, "themis-paper, 6 seeds")])
def test_e3_draws_the_printed_mechanism_on_sufficient_seeds_only(
    begun: Any, printed: int, called: str | None
) -> None:
    def there(config: RunConfig) -> bool:
        return config.policy != "themis-paper" or config.seed <= printed

    numbers = {"named": {"long": 1.0, "short": 1.1}}
    findings = e3.study(begun(e3.EXPERIMENT, SCOPE, lambda _: numbers, there))
    labels = findings.figures[0].draw().figure.axes[0].get_yticklabels()
    names = [label.get_text() for label in labels]
    assert [name for name in names if name.startswith("themis-paper")] == [called] * bool(called)
    assert "seeds 1-8" in findings.figures[0].caption
    assert findings.claims[0].themis_paper.text.endswith(f"{printed} seed{'s' * (printed > 1)}")


def test_e5_wants_only_themis_to_be_fair(finished: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        if config.policy in {"themis", "equal-share"}:
            return {"rho": 1.0}
        fair = config.contention == 4 and config.policy == "gandiva"
        return {"rho": 1.0 if fair else 1.0 * config.contention + 0.5}

    one, two, four = e5.study(finished(e5.EXPERIMENT, SCOPE, numbers)).claims
    assert [claim.verdict for claim in (one, two, four)] == [
        Verdict.HOLDS, Verdict.HOLDS, Verdict.PARTLY,
    ]  # fmt: skip
    assert "gandiva" in four.details_text


def test_e6_tells_times_as_they_were_measured(finished: Any) -> None:
    bid, auction, overhead, change, checkpoint = e6.study(
        finished(e6.EXPERIMENT, SCOPE, lambda _: {"named": {"a": 1000.0}})
    ).claims
    assert bid.themis.text == "10 (20) ms"
    assert (bid.verdict, auction.verdict) == (Verdict.HOLDS, Verdict.FAILS)
    assert overhead.themis.value == pytest.approx(100 * 2.6 / 1020.0)  # two apps of 10 s more
    assert (change.verdict, checkpoint.verdict) == (
        Verdict.BY_CONSTRUCTION,
        Verdict.BY_CONSTRUCTION,
    )
    assert (change.themis.text, checkpoint.themis.text) == ("35 (50) s", "5-10 s")


def test_e6_says_what_was_not_run_and_tells_small_shares(begun: Any) -> None:
    results = begun(
        e6.EXPERIMENT, SCOPE, lambda _: {"named": {"a": 1e7}}, lambda one: one.policy == "themis"
    )
    findings = e6.study(results)
    assert findings.claims[2].themis.text == "0.000026 %"
    assert findings.notes == ("themis-paper: not run yet, so there are no times of it.",)
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    axes = findings.figures[0].draw().figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["themis"]


def test_e6_counts_runs_without_times(finished: Any) -> None:
    results = finished(e6.EXPERIMENT, SCOPE, lambda _: {})
    one = next(
        path for path in results.store.folder.glob("*.timing") if b'"themis"' in path.read_bytes()
    )
    one.unlink()
    (note,) = e6.study(results).notes
    assert note == "themis: 1 of 16 runs came without their times."


def _network(slowed: dict[str, float]) -> Any:
    def numbers(config: RunConfig) -> dict[str, Any]:
        worse = {"gandiva": 1.3, "slaq": 1.5}.get(config.policy, 1.0)
        share = config.options["network_intensive"]
        lost = slowed.get(config.policy, 4.0)
        work = {"useful": 80.0, "slowed": lost, "restart": 0.5, "checkpoint": 0.3, "lost": 0.0}
        return {
            "rho": (worse if share == 1.0 else 3.0) * wobble(config),
            "gpu_hours_spent": work,
            "gpu_hours": 80.8 + lost,
            "placed_over_work": 1.05,
            "moves": 1200,
        }

    return numbers


def test_e7_compares_the_far_end_of_the_sweep(finished: Any) -> None:
    results = finished(e7.EXPERIMENT, SCOPE, _network({"gandiva": 9.2, "themis": 3.2}))
    found = {claim.statement: claim for claim in e7.study(results).claims}
    assert found["100 % network-intensive: max rho, gandiva over ours"].verdict is Verdict.HOLDS
    assert found["100 % network-intensive: max rho, slaq over ours"].verdict is Verdict.PARTLY
    assert found["100 % network-intensive: GPU time against Gandiva's"].verdict is Verdict.PARTLY
    excess = found["Our bar: GPU time above the bare work, over Gandiva's"]
    assert excess.themis.value == pytest.approx(0.4)
    told = "12.5 %, of it 11.5 % by placement and 1.0 % by starts and checkpoints (1,200 moves)"
    assert told in excess.details_text
    assert excess.details_text.endswith("in the best places, without a start: 5.0 %")
    # A quick sweep does not look at the middle.
    assert found["The share with the largest max rho"].verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("largest", "spread", "verdict"),
    [
        ((0.4,), 0.0, Verdict.HOLDS),
        ((0.6, 0.4), 0.0, Verdict.HOLDS),
        ((0.8,), 0.0, Verdict.FAILS),
        ((0.4, 0.8), 0.0, Verdict.UNDECIDED),
        ((0.8,), 0.5, Verdict.UNDECIDED),
    ],
)
def test_e7_finds_the_worst_share_by_pairs(
    finished: Any, largest: tuple[float, ...], spread: float, verdict: Verdict
) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        share = float(config.options["network_intensive"])
        odd = spread * (config.seed % 2) if share in e7.MIDDLE else 0.0
        return {"rho": (1.2 if share in largest else 1.0) * (1.0 + odd)}

    results = finished(e7.EXPERIMENT, replace(SCOPE, quick=False), numbers)
    (claim,) = [one for one in e7.study(results).claims if "largest max rho" in one.statement]
    assert claim.verdict is verdict
    assert ("that at 80% over that at 40%: 1.20x" in claim.details_text) is (
        verdict is Verdict.FAILS
    )


@pytest.mark.parametrize(("slowed", "says_so"), [(4.0, True), (9.2, False)])
def test_e7_says_what_binds_only_where_it_does(finished: Any, slowed: float, says_so: bool) -> None:
    # Missed both times; 5 % in the best places is more than half of 6 %, and less than of 12.5 %.
    results = finished(e7.EXPERIMENT, SCOPE, _network({"gandiva": slowed, "themis": 9.9}))
    (excess,) = [one for one in e7.study(results).claims if "bare work" in one.statement]
    assert excess.themis.value == pytest.approx(10.7 / (slowed + 0.8))
    assert ("less than that is the bar: 3.0 %" in excess.details_text) is says_so
    assert ("less than that is the bar" in excess.details_text) is says_so


@pytest.mark.parametrize(("change", "verdict"), [(1.1, "holds"), (1.2, "does not hold")])
def test_e8_judges_the_change_of_the_mean(finished: Any, change: float, verdict: str) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        return {"rho": wobble(config) * (change if config.options.get("error") else 1.0)}

    (claim,) = e8.study(finished(e8.EXPERIMENT, SCOPE, numbers)).claims
    assert str(claim.verdict) == verdict
    assert claim.themis.value == pytest.approx(100 * (change - 1))


def test_a_ratio_of_means_is_not_a_mean_of_ratios() -> None:
    assert mean_ratio([1.0, 9.0], [1.0, 3.0]).mean == pytest.approx(2.5)
    sure = mean_ratio([2.0 * one for one in range(1, 9)], [float(one) for one in range(1, 9)])
    assert (sure.low, sure.high) == pytest.approx((2.0, 2.0))


def lying(gains: dict[tuple[float, str], float]) -> Any:
    def numbers(config: RunConfig) -> dict[str, Any]:
        lie = config.options.get("lie")
        gain = gains.get((config.options.get("f", 0.8), str(lie)), 0.0) if lie else 0.0
        return {"named": {"truth-01": 100.0 * wobble(config) / (1.0 + gain)}}

    return numbers


def test_e9_finds_the_lie_that_pays(finished: Any) -> None:
    numbers = lying({(0.8, "spread"): -0.1, (0.8, "dense"): 0.05, (0.0, "spread"): 0.002})
    spread, dense, beyond, everybody = e9.study(finished(e9.EXPERIMENT, SCOPE, numbers)).claims
    assert [claim.verdict for claim in (spread, dense, beyond, everybody)] == [
        Verdict.HOLDS, Verdict.FAILS, Verdict.HOLDS, Verdict.HOLDS,
    ]  # fmt: skip
    assert dense.themis.value == pytest.approx(5.0)
    assert beyond.themis.value == pytest.approx(-10.0)


def test_e9_calls_no_loss_sharp_that_is_not(finished: Any) -> None:
    numbers = lying({(0.8, "spread"): -0.005})
    _, _, beyond, _ = e9.study(finished(e9.EXPERIMENT, SCOPE, numbers)).claims
    assert beyond.verdict is Verdict.PARTLY
    assert "-0.5 %" in beyond.details_text


def test_e9_adds_seeds_until_its_intervals_are_narrow(
    finished: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e9, "VALUES", (0, 50))
    monkeypatch.setattr(e9, "MOST_SEEDS", 120)

    def numbers(config: RunConfig) -> dict[str, Any]:
        # Only the precise cases are so noisy, and 90 seeds bring them below.
        noise = 0.022 * (-1) ** config.seed if config.options.get("lie") == "dense" else 0.0
        return {"named": {"truth-01": 100.0 / (1.0 + noise)}}

    results = finished(e9.EXPERIMENT, Scope(), numbers)
    assert len(e9.seeds_of(results, e9.DENSE)) == 90
    assert len(e9.seeds_of(results, e9.MAIN)) == 30
    assert len(e9.seeds_of(results, e9.OPEN)) == 30


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Estimate(0.005, 0.004, 300), Verdict.HOLDS),
        (Estimate(0.005, 0.006, 300), Verdict.UNDECIDED),
        (Estimate(0.012, 0.004, 300), Verdict.UNDECIDED),
        (Estimate(0.02, 0.004, 300), Verdict.FAILS),
        (Estimate(0.0, None, 1), Verdict.UNDECIDED),
    ],
)
def test_a_gain_is_judged_with_its_interval(found: Estimate, verdict: Verdict) -> None:
    assert e9.judge([Estimate(-0.1, 0.001, 300), found]) is verdict


def test_e14_names_changes_that_would_be_better(finished: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        better = config.workload == "w2" and config.options.get("payment") in {
            "time", "gpus", "floor"
        }  # fmt: skip
        worse = config.options.get("rank") == "now"
        return {"rho": (0.8 if better else 2.0 if worse else 1.0) * wobble(config)}

    findings = e14.study(finished(e14.EXPERIMENT, SCOPE, numbers))
    first, together, second, _, alone = findings.claims
    assert first.verdict is Verdict.HOLDS
    assert second.verdict is Verdict.FAILS
    assert together.verdict is Verdict.HOLDS
    assert together.themis.value == pytest.approx(2.0)
    assert "payment: time 0.80x" in second.details_text
    assert "by chance" in second.details_text
    assert (alone.verdict, alone.themis.text) == (Verdict.UNDECIDED, "-")  # not in a quick look
    rows = {(row[0], row[1]): row for row in findings.tables[0].rows}
    assert rows["w1", "rank: rho now"][2] == pytest.approx(2.0)
    # The default under another name is not run twice.
    assert ("w1", "payment: lottery") not in rows


def test_one_of_many_changes_may_look_better_by_chance(finished: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        worse = 1.0 + 1e-6 * len(f"{config.policy}{config.options}")
        return {"rho": 0.8 if config.options.get("payment") == "time" else worse * wobble(config)}

    first, *_ = e14.study(finished(e14.EXPERIMENT, SCOPE, numbers)).claims
    assert first.verdict is Verdict.UNDECIDED
    assert first.themis.text.startswith("1 of ")
    assert "not counted" not in first.details_text
    assert [e14.by_chance(count) for count in (1, 20, 30, 50)] == [0, 2, 2, 3]


def test_ineffective_change_is_not_counted(finished: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        return {"rho": (0.8 if config.options.get("payment") == "time" else 1.0) * wobble(config)}

    first, *_ = e14.study(finished(e14.EXPERIMENT, SCOPE, numbers)).claims
    assert (first.verdict, first.themis.text) == (Verdict.FAILS, "1 of 1 do")
    assert "not counted, since their runs are the default's: rank: rho now" in first.details_text


@pytest.mark.parametrize(
    ("roaming", "verdict", "helpful"), [(2.0, Verdict.HOLDS, 2), (1.0, Verdict.UNDECIDED, 1)]
)
def test_every_lever_alone_is_held_against_none(
    finished: Any, roaming: float, verdict: Verdict, helpful: int
) -> None:
    full = Scope(seeds=tuple(range(1, 7)), cluster="demo16", apps=1)

    def numbers(config: RunConfig) -> dict[str, Any]:
        options = dict(config.options)
        printed = config.policy == "themis" and options.get("min_invited") == 1
        ranked = printed and options.get("payment") == "gpus" and "rank" not in options
        sticks = "Roaming" not in config.policy or not options
        # Whoever bids, these come out the same.
        told_apart = sorted((options | {"bidder": "app"}).items())
        moves = crc32(f"{config.policy} {told_apart}".encode())
        rho = 0.5 if ranked else 1.0 if sticks else roaming
        return {"rho": rho * wobble(config), "moves": moves}

    *_, alone = e14.study(finished(e14.EXPERIMENT, full, numbers)).claims
    assert alone.verdict is verdict  # One of them may seem to help by chance.
    assert alone.themis.text == f"{helpful} of {len(e14.LEVERS) - 1 + len(e14.KEPT)} do"
    assert "they change nothing alone: bidder" in alone.details_text
    assert "alone they help: ranking 0.50x" in alone.details_text
    assert ("sticky agents 0.50x" in alone.details_text) is (helpful == 2)


def test_none_of_the_levers_is_every_option_of_the_printed_mechanism() -> None:
    ours, printed = policy_class("themis"), policy_class("themis-paper")
    options = {key: value for key, value in policy_options(printed).items()
               if policy_options(ours)[key] != value}  # fmt: skip
    before, after = settings_for(ours, {}), settings_for(printed, {})
    settings = {name for name in SETTING_NAMES if getattr(before, name) != getattr(after, name)}
    assert set(e14.PRINTED) == options.keys() | settings
    for key, value in options.items():
        assert e14.PRINTED[key] == value, key
    made = settings_for(ours, {key: e14.PRINTED[key] for key in settings})
    assert all(getattr(made, name) == getattr(after, name) for name in settings)


@pytest.mark.parametrize("module", [e3, e5, e6, e7, e8, e9, e14])
def test_every_figure_can_be_drawn(finished: Any, module: Any) -> None:
    few = Scope(quick=True, seeds=(1, 2), cluster="demo16", apps=1)
    named = {"long": 1.0, "short": 1.0, "truth-01": 1.0}
    findings = module.study(finished(module.EXPERIMENT, few, lambda _: {"named": named}))
    judged = {claim.verdict for claim in findings.claims if claim.by_policy}
    if module is not e6:  # times are what they are
        assert judged == {Verdict.UNDECIDED}
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    for figure in findings.figures:
        assert figure.draw().figure.axes
