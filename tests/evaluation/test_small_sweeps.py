"""E7, E8, E9 and E14 from plan to findings on runs that are really simulated, only small ones."""

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from themis.core.arbiter.events import BidReceived
from themis.core.model import LEVELS, MACHINE, AppId, Bid
from themis.core.model.zoo import IntensityGroup, models_of_group, slowdown_of
from themis.core.policies import policy_options
from themis.evaluation import run_experiments
from themis.evaluation.claims import Verdict
from themis.evaluation.experiment import Experiment, Findings, Results, Scope
from themis.evaluation.experiments import e7_network_bound as e7
from themis.evaluation.experiments import e8_misestimates as e8
from themis.evaluation.experiments import e9_one_liar as e9
from themis.evaluation.experiments import e14_ablation as e14
from themis.recording.event_log import EventLogReader
from themis.sim import RunConfig, run
from themis.sim.config import PreparedRun, prepare
from themis.sim.runs.result_cache import ResultCache

# Of the first 1500 seeds, two with little work whose two apps are there at the same time.
SEEDS = (716, 1049)
TINY = Scope(quick=True, seeds=SEEDS, cluster="demo16", apps=2)


def carried_out(experiment: Experiment, scope: Scope, out: Path) -> tuple[Results, Findings]:
    results = run_experiments([experiment], scope, out, workers=1)
    configs = list(experiment.plan(results))
    # What was kept is what was asked for, and nothing else was run.
    assert {repr(results.record(config).config) for config in configs} == set(map(repr, configs))
    assert len(list((out / "runs").glob("*.json"))) == len(configs)
    return results, experiment.study(results)


def check_numbers(findings: Findings) -> None:
    """Every claim has a number of ours, and two seeds decide nothing."""
    for claim in findings.claims:
        assert claim.verdict is Verdict.UNDECIDED, claim.statement
        assert claim.themis.value is not None, claim.statement


def means(results: Results, configs: list[RunConfig], *keys: str) -> float:
    """The mean of a number of the summary, computed here."""
    found: list[Any] = [results.record(config).summary for config in configs]
    for key in keys:
        found = [summary[key] for summary in found]
    return fmean(found)


def network_apps(prepared: PreparedRun) -> set[str]:
    sensitive = models_of_group(IntensityGroup.NETWORK)
    return {app.spec.id for app in prepared.workload.apps if app.model in sensitive}


def test_e7_runs_the_share_of_network_intensive_apps_that_it_says(tmp_path: Path) -> None:
    results, findings = carried_out(e7.EXPERIMENT, TINY, tmp_path)
    check_numbers(findings)
    cells = e7.matrix(results)
    for (share, policy), config in cells.cells.items():
        assert (config.options["network_intensive"], config.policy) == (share, policy)
        for one in cells.runs((share, policy)):
            assert len(network_apps(prepare(one))) == share * TINY.apps
    rows = {(row[0], row[1]): row for row in findings.tables[0].rows}
    assert rows.keys() == cells.cells.keys()
    column = [column.name for column in findings.tables[0].columns].index("max rho (paper)")
    for cell in cells.cells:
        assert rows[cell[0], cell[1]][column] == pytest.approx(
            means(results, cells.runs(cell), "max_rho", "paper")
        )
    # The same work, but what is sensitive to the network takes more GPU time for it.
    hours = {
        share: means(results, cells.runs((share, "slaq")), "gpu_hours_spent", "slowed")
        for share in e7.QUICK_VALUES
    }
    assert hours[1.0] > hours[0.0]


def test_e7_at_full_size_has_its_shares_and_flips_single_apps(tmp_path: Path) -> None:
    cells = e7.matrix(Results(Scope(), ResultCache(tmp_path)))
    before: set[str] = set()
    for share in e7.VALUES:
        prepared = prepare(cells.runs((share, "themis"))[0])
        assert (prepared.topology.gpus, len(prepared.workload.apps)) == (256, e7.APPS)
        now = network_apps(prepared)
        # Four standard deviations of 340 draws.
        slack = 4 * math.sqrt(share * (1 - share) / e7.APPS)
        assert len(now) / e7.APPS == pytest.approx(share, abs=slack)
        assert before <= now
        before = now
    assert len(before) == e7.APPS


def test_e8_without_errors_is_the_run_without_the_key(tmp_path: Path) -> None:
    results, findings = carried_out(e8.EXPERIMENT, TINY, tmp_path)
    check_numbers(findings)
    cells = e8.matrix(results)
    for policy in e8.POLICIES:
        plain, wrong = cells.runs((0.0, policy)), cells.runs((0.2, policy))
        assert all("error" not in config.options for config in plain)
        assert [config.options["error"] for config in wrong] == [0.2, 0.2]
        for config in plain:
            said = run(replace(config, options={**config.options, "error": 0.0}))
            kept = results.record(config)
            assert said.apps == kept.apps
            assert said.summary["gpu_hours"] == kept.summary["gpu_hours"]
        for config in wrong:
            factors = [
                factor
                for app in prepare(config).workload.apps
                for factor in (app.distortion.work, app.distortion.slowdown)
            ]
            assert len(set(factors)) == 2 * TINY.apps
            assert all(0.8 <= factor <= 1.2 for factor in factors)
        outcomes = [[results.record(config).apps for config in each] for each in (plain, wrong)]
        assert outcomes[0] != outcomes[1]


def first_bids(config: RunConfig, log: Path) -> dict[AppId, Bid]:
    run(config, log_to=log)
    found: dict[AppId, Bid] = {}
    with EventLogReader(log) as lines:
        for line in lines:
            if isinstance(line.event, BidReceived):
                found.setdefault(line.event.app, line.event.bid)
    return found


@pytest.fixture
def _short_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twelfth of the work of E9's apps: an hour each where it would be half a day."""
    monkeypatch.setitem(e9.AUDIT_OFF, "gpu_hours", 4.0)


@pytest.mark.usefixtures("_short_lives")
def test_e9_compares_the_liar_with_itself_when_it_is_honest(tmp_path: Path) -> None:
    results, findings = carried_out(e9.EXPERIMENT, Scope(quick=True, seeds=(1,)), tmp_path)
    check_numbers(findings)
    gains = {row[:4]: row[4] for row in findings.tables[0].rows}
    assert len(gains) == len(e9.CASES) * len(e9.QUICK_VALUES)
    for case in e9.CASES:
        honest = e9.run_of(case, 0, 1)
        assert "liar" not in honest.options
        assert gains[case.policy, case.f, case.lie, 0] == 0.0
        for percent in e9.QUICK_VALUES[1:]:
            lying = e9.run_of(case, percent, 1)
            changed = {k: v for k, v in lying.options.items() if k not in honest.options}
            factor = 1 + percent / 100
            assert changed == {"liar": e9.LIAR, "lie": case.lie, "lie_factor": factor}
            times = [
                next(app.completion for app in results.record(one).apps if app.app == e9.LIAR)
                for one in (honest, lying)
            ]
            gain = gains[case.policy, case.f, case.lie, percent]
            assert gain == pytest.approx(times[0] / times[1] - 1)
    # In these runs lies are not without effect.
    assert any(gains.values())


@pytest.mark.usefixtures("_short_lives")
@pytest.mark.parametrize("case", [e9.OPEN, replace(e9.DENSE, f=0.0)], ids=["spread", "dense"])
def test_only_the_liar_of_e9_bids_with_its_factor(case: e9.LyingCase, tmp_path: Path) -> None:
    bids = first_bids(e9.run_of(case, 50, seed=1), tmp_path / "log.jsonl")
    assert len(bids) == 8  # with f = 0 everybody bids
    truth = slowdown_of("VGG16").levels
    profile = bids.pop(AppId(e9.LIAR)).profile
    assert profile is not None
    spread, dense = (1.5, 1.0) if case.lie == "spread" else (1.0, 1 / 1.5)
    expected = [s * (dense if level <= MACHINE else spread) for level, s in enumerate(truth)]
    assert [profile.at(level, 8) for level in LEVELS] == pytest.approx(expected)
    assert {bid.profile for bid in bids.values()} == {None}


def levers(prepared: PreparedRun) -> Mapping[str, object]:
    """Everything that a policy and the arbiter go by, as it has arrived there."""
    policy = prepared.policy
    return {name: getattr(policy, name) for name in policy_options(type(policy))} | asdict(
        prepared.settings
    )


def test_every_lever_of_e14_is_pulled_and_no_other(tmp_path: Path) -> None:
    results = Results(Scope(cluster="demo16", apps=2, seeds=SEEDS[:1]), ResultCache(tmp_path))
    cells = e14.matrix(results)
    wanted = {one.name: one for one in e14.variants(results)}
    assert len(wanted) > 25
    seen: set[str] = set()
    for (workload, name), config in cells.cells.items():
        variant, now = wanted[str(name)], prepare(config)
        base = prepare(replace(cells.cells[workload, e14.DEFAULT], policy=variant.policy))
        before, after = levers(base), levers(now)
        assert after.keys() == before.keys()
        changed = {key for key in after if after[key] != before[key]}
        assert changed == set(variant.options), name
        assert (now.workload, now.topology, now.costs) == (base.workload, base.topology, base.costs)
        told = repr((workload, variant.policy, sorted(after.items())))
        assert told not in seen, f"{name} is another one under a new name"
        seen.add(told)


def test_e14_compares_every_variant_with_the_default_on_the_same_seed(tmp_path: Path) -> None:
    results, findings = carried_out(e14.EXPERIMENT, replace(TINY, seeds=SEEDS[:1]), tmp_path)
    assert [claim.verdict for claim in findings.claims] == [Verdict.UNDECIDED] * 5
    cells = e14.matrix(results)
    worst = {
        cell: means(results, cells.runs(cell), "max_rho_ref", "fair_share") for cell in cells.cells
    }
    rows = {(row[0], row[1]): row[2] for row in findings.tables[0].rows}
    assert rows.keys() == worst.keys()
    for (workload, name), value in worst.items():
        assert rows[workload, name] == pytest.approx(value / worst[workload, e14.DEFAULT])
    # Runs of levers that matter even to two apps are other runs.
    for name in ("leftovers: paper", "lease: 5 min", "themis-paper"):
        default, other = (
            results.record(cells.runs(("w2", which))[0]).apps for which in (e14.DEFAULT, name)
        )
        assert default != other, name
