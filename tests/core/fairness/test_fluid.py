import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirements import examples
from themis.core.fairness import (
    Convention,
    FluidApp,
    JobLoad,
    PhaseLoad,
    fluid_run,
    reference_ideal_time,
)
from themis.core.model import AppId
from themis.errors import ConfigError, DuplicateError


def one_job(name: str, arrival: float, work: float, gpus: int, weight: float = 1.0) -> FluidApp:
    return FluidApp(AppId(name), arrival, weight, ((JobLoad(work, gpus),),))


def test_a_lone_app_runs_at_its_useful_demand() -> None:
    phases = ((JobLoad(400.0, 4), JobLoad(100.0, 4)), (JobLoad(90.0, 3),))
    result = fluid_run([FluidApp(AppId("a"), 5.0, 1.0, phases)], capacity=100)[AppId("a")]
    assert result.end == pytest.approx(5.0 + 100.0 + 30.0)
    assert result.completion == pytest.approx(130.0)
    assert result.mean_contention == 1.0


def test_two_apps_share_equally_while_both_are_there() -> None:
    apps = [one_job("a", 0.0, 800.0, 8), one_job("b", 50.0, 200.0, 8)]
    results = fluid_run(apps, capacity=8)
    # a: 400 alone, then 4 GPUs each; b needs 50 s, and a has 200 left for 8 GPUs.
    assert results[AppId("b")].end == pytest.approx(100.0)
    assert results[AppId("a")].end == pytest.approx(125.0)
    assert results[AppId("a")].mean_contention == pytest.approx((50 + 100 + 25) / 125)
    assert results[AppId("b")].mean_contention == pytest.approx(2.0)


def test_shares_follow_weights() -> None:
    apps = [one_job("a", 0.0, 600.0, 9, weight=2.0), one_job("b", 0.0, 300.0, 9)]
    results = fluid_run(apps, capacity=9)
    assert results[AppId("a")].end == pytest.approx(100.0)
    assert results[AppId("b")].end == pytest.approx(100.0)
    assert results[AppId("a")].mean_contention == pytest.approx(1.5)
    assert results[AppId("b")].mean_contention == pytest.approx(3.0)


def test_unusable_share_of_a_small_app_goes_to_the_others() -> None:
    apps = [one_job("small", 0.0, 100.0, 1), one_job("large", 0.0, 700.0, 8)]
    results = fluid_run(apps, capacity=8)
    assert results[AppId("large")].end == pytest.approx(100.0)
    assert results[AppId("small")].end == pytest.approx(100.0)


def test_phases_without_work_take_no_time() -> None:
    idle: PhaseLoad = (JobLoad(0.0, 4),)
    apps = [
        FluidApp(AppId("a"), 3.0, 1.0, (idle, (JobLoad(8.0, 4),), idle)),
        FluidApp(AppId("b"), 4.0, 1.0, (idle,)),
    ]
    results = fluid_run(apps, capacity=4)
    assert results[AppId("a")].end == pytest.approx(5.0)
    assert results[AppId("b")].completion == 0.0
    assert results[AppId("b")].mean_contention == 2.0


def test_fluid_run_without_apps_works() -> None:
    assert fluid_run([], capacity=4) == {}


def test_a_cluster_without_gpus_and_apps_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="capacity"):
        fluid_run([], capacity=0)
    with pytest.raises(DuplicateError):
        fluid_run([one_job("a", 0.0, 1.0, 1), one_job("a", 1.0, 1.0, 1)], capacity=4)


def test_equal_shares_never_treat_a_wide_app_worse_than_its_private_share() -> None:
    rng = random.Random(3)
    apps = [
        one_job(f"app-{n}", rng.uniform(0, 5000), rng.lognormvariate(8, 1.5), 64) for n in range(60)
    ]
    results = fluid_run(apps, capacity=64)
    rhos = {
        app.id: results[app.id].completion
        / reference_ideal_time(Convention.FAIR_SHARE, app.phases, results[app.id], capacity=64)
        for app in apps
    }
    # Share times contention is constant, so by Cauchy and Schwarz rho is at most one, and it is
    # one where the contention never changed.
    assert max(rhos.values()) <= 1.0 + 1e-9
    assert max(rhos.values()) > 0.9


def literal_shares(active: Sequence["Literal"], capacity: float) -> list[float]:
    """Fill everybody at the same pace per weight until full, round by round."""
    shares = [0.0] * len(active)
    open_ones, spare = set(range(len(active))), capacity
    while open_ones and spare > 1e-12:
        pace = spare / sum(active[i].app.weight for i in open_ones)
        full = {i for i in open_ones if active[i].demand() <= pace * active[i].app.weight}
        if not full:
            for i in open_ones:
                shares[i] = pace * active[i].app.weight
            break
        for i in full:
            shares[i] = active[i].demand()
            spare -= shares[i]
        open_ones -= full
    return shares


class Literal:
    """One app of a slow run that follows the definition word for word."""

    def __init__(self, app: FluidApp) -> None:
        self.app = app
        self.phase = 0
        self.left = 1.0
        self.area = 0.0

    def loads(self) -> PhaseLoad:
        return self.app.phases[self.phase]

    def demand(self) -> float:
        loads = self.loads()
        work = sum(job.work for job in loads)
        longest = max(job.work / job.max_gpus for job in loads)
        return min(sum(job.max_gpus for job in loads), work / longest)

    def pace(self, share: float) -> float:
        work = sum(job.work for job in self.loads())
        slowest = max(job.work / min(share, job.max_gpus) for job in self.loads())
        return 1.0 / max(work / share, slowest)


def literal_run(apps: Sequence[FluidApp], capacity: float) -> dict[AppId, tuple[float, float]]:
    waiting = sorted(apps, key=lambda app: app.arrival, reverse=True)
    active: list[Literal] = []
    results: dict[AppId, tuple[float, float]] = {}
    now = 0.0
    while waiting or active:
        shares = literal_shares(active, capacity)
        paces = [one.pace(share) for one, share in zip(active, shares, strict=True)]
        steps = [one.left / pace for one, pace in zip(active, paces, strict=True)]
        arrival = waiting[-1].arrival - now if waiting else math.inf
        step = min([arrival, *steps])
        total = sum(one.app.weight for one in active)
        now += step
        for one, pace in zip(active, paces, strict=True):
            one.left -= pace * step
            one.area += step * total / one.app.weight
            if one.left <= 1e-9:
                one.phase, one.left = one.phase + 1, 1.0
        for one in [one for one in active if one.phase == len(one.app.phases)]:
            active.remove(one)
            results[one.app.id] = (now, one.area / (now - one.app.arrival))
        while waiting and waiting[-1].arrival <= now:
            active.append(Literal(waiting.pop()))
    return results


LOAD = st.builds(JobLoad, st.sampled_from((50.0, 100.0, 333.0, 1000.0)), st.integers(1, 8))
PHASES = st.lists(st.lists(LOAD, min_size=1, max_size=4).map(tuple), min_size=1, max_size=4).map(
    tuple
)
ARRIVAL = st.tuples(st.integers(0, 400).map(float), st.sampled_from((1.0, 2.0, 0.5, 1 / 3)), PHASES)


@examples(60)
@given(st.lists(ARRIVAL, min_size=1, max_size=7), st.sampled_from((1, 4, 10, 30)))
def test_fast_run_agrees_with_the_literal_definition(
    arrivals: list[tuple[float, float, tuple[PhaseLoad, ...]]], capacity: int
) -> None:
    apps = [FluidApp(AppId(f"a{index}"), *rest) for index, rest in enumerate(arrivals)]
    slow = literal_run(apps, capacity)
    quick = fluid_run(apps, capacity)
    assert quick.keys() == slow.keys()
    for app, (end, contention) in slow.items():
        assert quick[app].end == pytest.approx(end, rel=1e-6)
        assert quick[app].mean_contention == pytest.approx(contention, rel=1e-5)


def test_a_crowded_run_agrees_with_the_definition_too() -> None:
    rng = random.Random(9)
    apps = []
    for number in range(60):
        phases = tuple(
            tuple(JobLoad(rng.lognormvariate(4, 1), rng.choice((1, 2, 4))) for _ in range(jobs))
            for jobs in rng.choice(((1,), (8, 4, 2, 1), (5, 2, 1)))
        )
        weight = rng.choice((1.0, 3.0))
        apps.append(FluidApp(AppId(f"a{number}"), rng.uniform(0, 300), weight, phases))
    slow = literal_run(apps, 24)
    for app, result in fluid_run(apps, 24).items():
        assert (result.end, result.mean_contention) == pytest.approx(slow[app], rel=1e-6)
