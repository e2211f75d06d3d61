"""The floor: by hand on small cases, and no policy ever beats it."""

import random

import pytest

from tests.support.small_sims import sim_app, simulate, workload_of
from themis.core.fairness.ideal_time import Convention
from themis.core.fairness.loads import JobLoad
from themis.core.fairness.max_rho_floor import PRECISION, FloorApp, rho_floor
from themis.core.model import AppId, Machine, Phase, Slowdown, Topology
from themis.core.policies import POLICIES
from themis.errors import ConfigError
from themis.sim import RunConfig, prepare, run
from themis.sim.metrics import FAIR, app_results, limits, reference
from themis.sim.modelled_jobs import JobCosts

FOUR = Topology(tuple(Machine(f"m{n}", "r0", (2,)) for n in range(2)))


def _app(
    name: str, *phases: tuple[JobLoad, ...], ideal: float, arrival: float = 0.0, startup: float = 0
) -> FloorApp:
    return FloorApp(AppId(name), arrival, startup, phases, ideal)


def test_an_app_alone_needs_its_start_and_its_longest_jobs() -> None:
    # 10 s to start, then 100/2 s and 60/4 s.
    phases = ((JobLoad(100.0, 2), JobLoad(20.0, 2)), (JobLoad(60.0, 4),))
    app = _app("a", *phases, ideal=50.0, startup=10.0)
    assert rho_floor([app], 8.0) == pytest.approx(75.0 / 50.0)


def test_a_cluster_narrower_than_the_job_sets_the_pace() -> None:
    assert rho_floor([_app("a", (JobLoad(100.0, 8),), ideal=50.0)], 2.0) == pytest.approx(1.0)


def test_two_apps_at_once_share_what_there_is() -> None:
    # 200 s of work on 2 GPUs take 100 s: somebody ends at twice its ideal time.
    apps = [_app(name, (JobLoad(100.0, 2),), ideal=50.0) for name in "ab"]
    assert rho_floor(apps, 2.0) == pytest.approx(2.0, rel=2 * PRECISION)


def test_app_with_slack_yields_to_a_late_one() -> None:
    # One GPU. a fits anywhere in [0, 2r], b only in [1, 1 + r]: at r = 1.5 they just fit.
    apps = [
        _app("a", (JobLoad(2.0, 1),), ideal=2.0),
        _app("b", (JobLoad(1.0, 1),), ideal=1.0, arrival=1.0),
    ]
    assert rho_floor(apps, 1.0) == pytest.approx(1.5, rel=2 * PRECISION)


def test_a_job_that_no_place_suits_sets_the_pace() -> None:
    # 100 s of work on two GPUs: 50 s, but 60 s where the best place for two slows by 1.2.
    def pace(gpus: int) -> float:
        return gpus / 1.2 if gpus > 1 else 1.0

    app = FloorApp(AppId("a"), 0.0, 0.0, ((JobLoad(100.0, 2),),), 50.0, pace)
    assert rho_floor([app], 8.0) == pytest.approx(1.2)


def test_the_placed_floor_knows_the_largest_slot_machine_and_rack() -> None:
    apps = [
        sim_app(
            "a0",
            jobs=1,
            max_gpus=4,
            slowdown=Slowdown((1.0, 1.25, 1.5, 2.0)),
            phases=[Phase(1, 400)],
        )
    ]
    workload = workload_of(*apps)
    for slots, worst in (((4,), 1.0), ((2, 2), 1.25), ((2,), 1.5)):
        machines = tuple(Machine(f"m{n}", "r0", slots) for n in range(2))
        topology = Topology(machines)
        fluid = reference(workload, topology)
        best = limits(workload, topology, fluid, JobCosts(0.0, 0.0, 0.0, 0.0), 1)
        assert best.placed_floor == pytest.approx(worst * best.floor)
        assert best.fluid == pytest.approx(worst * fluid[AppId("a0")].completion)
        assert best.over_work == pytest.approx(worst)


def test_apps_that_could_not_be_fair_alone_are_counted() -> None:
    far = Slowdown((1.0, 1.25, 1.5, 2.0))
    workload = workload_of(
        sim_app("wide", jobs=1, max_gpus=4, slowdown=far, phases=[Phase(1, 400)]),
        sim_app("narrow", arrival=9000.0, jobs=1, max_gpus=2, slowdown=far, phases=[Phase(1, 400)]),
    )
    free = JobCosts(0.0, 0.0, 0.0, 0.0)
    for slots, share in (((4,), 1.0), ((2, 2), 0.5), ((1, 1), 0.0)):
        topology = Topology((Machine("m0", "r0", slots), Machine("m1", "r0", slots)))
        best = limits(workload, topology, reference(workload, topology), free, 1)
        assert best.share_fair == pytest.approx(share)
    slow = limits(workload, FOUR, reference(workload, FOUR), JobCosts(500.0, 500.0, 0.0, 0.0), 1)
    assert slow.share_fair == 0.0


def test_no_apps_have_no_floor() -> None:
    assert rho_floor([], 4.0) == 0.0


@pytest.mark.parametrize("seed", range(6))
def test_no_policy_beats_the_floor(seed: int) -> None:
    rng = random.Random(seed)
    workload = workload_of(
        *(
            sim_app(
                f"a{n}",
                arrival=rng.uniform(0.0, 1500.0),
                jobs=4,
                max_gpus=rng.choice([1, 2, 4]),
                phases=[Phase(4, rng.randint(100, 900)), Phase(1, rng.randint(100, 900))],
            )
            for n in range(6)
        )
    )
    fluid = reference(workload, FOUR)
    best = limits(workload, FOUR, fluid, JobCosts(), seed)
    placed = best.placed_floor
    assert placed >= best.floor > 0.5
    for rule in rng.sample(sorted(set(POLICIES) - {"themis-paper"}), 3):
        outcome = simulate(FOUR, workload, rule, seed=seed, costs=JobCosts())
        results = app_results(outcome, workload, FOUR, fluid)
        worst = max(result.rho_ref[Convention.FAIR_SHARE] for result in results)
        assert worst >= placed * (1.0 - 1e-9), rule
        fair = [result.rho_ref[Convention.FAIR_SHARE] <= FAIR for result in results]
        assert sum(fair) <= best.share_fair * len(fair) + 1e-9, rule
        alone = best.rho_alone(results, Convention.PAPER)
        assert alone is not None
        assert 0.0 < alone <= max(result.rho[Convention.PAPER] for result in results)


def test_run_reports_its_floor_by_default() -> None:
    with_floor, without = (
        run(RunConfig(cluster="demo16", apps=4, policy="equal-share", options=options)).summary
        for options in ({}, {"floor": False})
    )
    assert 0.0 < with_floor["floor_rho_ref"] <= with_floor["max_rho_ref"]["fair_share"]
    assert with_floor["share_fair_ref"]["fair_share"] <= with_floor["most_fair_ref"] <= 1.0
    for kind in Convention:
        assert 0.0 < with_floor["max_rho_alone"][kind] <= with_floor["max_rho"][kind]
        assert without["max_rho_alone"][kind] is None
    assert without["floor_rho_ref"] is None is without["most_fair_ref"]
    with pytest.raises(ConfigError, match="floor"):
        prepare(RunConfig(apps=2, options={"floor": "high"}))
