"""What a run is judged by, against numbers computed by hand."""

import math
from dataclasses import replace

import pytest

from tests.support.small_sims import sim_app, simulate, workload_of
from themis.core.fairness.ideal_time import Convention
from themis.core.model import Machine, Phase, Topology
from themis.sim.metrics import app_results, quantile, reference, summarise
from themis.sim.modelled_jobs import JobCosts
from themis.sim.workloads import Workload

PAIR = Topology((Machine("m0", "r0", (2,)),), "pair")
FIXED = JobCosts(restart_median=30.0, restart_p95=30.0, checkpoint_low=5.0, checkpoint_high=5.0)


def _two_apps() -> Workload:
    # As fifo: a runs 0-630 s (a start of 30 s, 1200 s on two GPUs), b 660-990 s.
    return workload_of(
        sim_app("a", work=1200.0, max_gpus=2), sim_app("b", arrival=100.0, work=600.0, max_gpus=1)
    )


def test_rho_is_elapsed_time_over_the_ideal_time_under_both_conventions() -> None:
    workload = _two_apps()
    outcome = simulate(PAIR, workload, "fifo", costs=FIXED)
    a, b = app_results(outcome, workload, PAIR, reference(workload, PAIR))
    assert (a.end, b.end) == (630.0, 660.0 + 30.0 + 600.0)
    # a: alone until 100 s, then two: N = (100 + 2 * 530) / 630.
    contention = (100.0 + 2 * 530.0) / 630.0
    assert a.rho[Convention.PAPER] == pytest.approx(630.0 / (contention * 1200.0 / 2))
    assert a.rho[Convention.FAIR_SHARE] == pytest.approx(630.0 / (1200.0 / (2 / contention)))
    # b: two until 630 s, then alone; it can use one GPU only, which a private share would give.
    elapsed = b.end - 100.0
    contention = (2 * 530.0 + (b.end - 630.0)) / elapsed
    assert b.rho[Convention.PAPER] == pytest.approx(elapsed / (contention * 600.0 / 1))
    assert b.rho[Convention.FAIR_SHARE] == pytest.approx(elapsed / 600.0)


def test_rho_ref_takes_contention_from_the_fluid_run_whatever_the_policy_did() -> None:
    workload = _two_apps()
    fluid = reference(workload, PAIR)
    # Fluid: a does 200 of its work alone by 100 s, then one GPU each: b ends at 700 s, when a has
    # 1200 - 200 - 600 = 400 left on both GPUs, so it ends at 900 s.
    assert [fluid[app.spec.id].completion for app in workload.apps] == pytest.approx([900.0, 600.0])
    outcome = simulate(PAIR, workload, "fifo", costs=FIXED)
    a, b = app_results(outcome, workload, PAIR, fluid)
    contention = (100.0 + 2 * 600.0 + 200.0) / 900.0
    assert a.rho_ref[Convention.FAIR_SHARE] == pytest.approx(630.0 / (1200.0 * contention / 2))
    assert b.rho_ref[Convention.FAIR_SHARE] == pytest.approx((b.end - 100.0) / 600.0)
    assert b.rho_ref[Convention.PAPER] == pytest.approx((b.end - 100.0) / (2.0 * 600.0))


def test_the_summary_adds_up() -> None:
    workload = _two_apps()
    fluid = reference(workload, PAIR)
    outcome = simulate(PAIR, workload, "fifo", costs=FIXED)
    results = app_results(outcome, workload, PAIR, fluid)
    summary = summarise(outcome, workload, PAIR, results, fluid, policy="fifo", seed=1)
    assert summary["cluster"] == "pair"
    assert (summary["apps"], summary["jobs"], summary["gpus"]) == (2, 2, 2)
    assert summary["makespan_h"] == pytest.approx(1290.0 / 3600)
    assert summary["mean_completion_h"] == pytest.approx((630.0 + 1190.0) / 2 / 3600)
    assert summary["fluid_completion_h"] == pytest.approx((900.0 + 600.0) / 2 / 3600)
    assert summary["gpu_hours"] == pytest.approx((2 * 630.0 + 630.0) / 3600)
    assert sum(summary["gpu_hours_by_source"].values()) == pytest.approx(summary["gpu_hours"])
    spent = summary["gpu_hours_spent"]
    assert spent["useful"] == pytest.approx(1800.0 / 3600)
    assert spent["restart"] == pytest.approx((2 * 30.0 + 30.0) / 3600)
    assert spent["checkpoint"] == spent["slowed"] == 0.0
    assert summary["placement_score"] == pytest.approx(1.0)
    assert summary["moves"] == summary["failed_rounds"] == summary["refused"] == 0
    worst = max(result.rho[Convention.PAPER] for result in results)
    assert summary["max_rho"]["paper"] == worst
    # b has waited too long, a has not.
    assert summary["share_fair_ref"]["fair_share"] == 0.5


def test_ideal_times_count_the_jobs_that_really_ran() -> None:
    # The survivor is twice as fast as the median job that its declaration counts with.
    app = sim_app("a", jobs=2, phases=(Phase(2, 100), Phase(1, 100)), qualities=(0.1, 0.5))
    fast, slow = app.spec.jobs
    jobs = (fast, replace(slow, serial_iteration_time=2.0))
    workload = workload_of(replace(app, spec=replace(app.spec, jobs=jobs)))
    outcome = simulate(PAIR, workload, "fifo")
    (result,) = app_results(outcome, workload, PAIR, reference(workload, PAIR))
    assert result.completion == pytest.approx(200.0 + 100.0)
    assert result.rho[Convention.FAIR_SHARE] == pytest.approx(1.0)
    assert result.rho_ref[Convention.FAIR_SHARE] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([5.0], 0.95, 5.0),
        ([1.0, 3.0], 0.5, 2.0),
        ([3.0, 1.0, 2.0], 1.0, 3.0),
        ([4.0, 1.0, 3.0, 2.0, 5.0], 0.0, 1.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 0.95, 4.8),
    ],
)
def test_quantiles_are_interpolated(values: list[float], share: float, expected: float) -> None:
    assert quantile(values, share) == pytest.approx(expected)


def test_the_quantile_of_nothing_is_not_a_number() -> None:
    assert math.isnan(quantile([], 0.5))
