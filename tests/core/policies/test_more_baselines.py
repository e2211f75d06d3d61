"""gandiva, optimus, slaq, min-max-rho, drf and static, on rounds worked out by hand."""

import pytest

from themis.core.model import RACK, SLOT, GpuId, Machine, Slowdown, Topology
from themis.core.policies import View, policy
from themis.core.policies.gandiva import placement_score
from themis.core.policies.min_max_rho import level_rho
from themis.core.policies.slaq import loss_drop
from themis.core.policies.static import home_of, partition
from themis.testing.policy_fakes import FakeApp, drive, fake_view

FAR = Slowdown((1.0, 1.0, 1.5, 1.5))
FOURS = Topology((Machine("m0", "r0", (4,)), Machine("m1", "r0", (4,))))
SIX = Topology((Machine("m0", "r0", (2,)), Machine("m1", "r0", (4,))))


def _gpus(*ids: int) -> tuple[GpuId, ...]:
    return tuple(GpuId(i) for i in ids)


def _got(name: str, view: View, **options: float) -> dict[str, list[int]]:
    plan = drive(policy(name, **options), view)
    return {str(item.app): sorted(item.gpus) for item in plan.allotments}


def _counts(name: str, view: View, **options: float) -> dict[str, int]:
    return {app: len(gpus) for app, gpus in _got(name, view, **options).items()}


# gandiva


def test_the_placement_score_is_one_over_the_slowdown() -> None:
    app = fake_view(FOURS, [FakeApp("a", jobs=3, gang=4, slowdown=FAR)]).apps[0]
    assert placement_score(app, SLOT, 4) == 1.0
    assert placement_score(app, RACK, 4) == pytest.approx(1 / 1.5)
    assert placement_score(app, RACK, 1) == 1.0


def test_the_placement_score_of_a_gang_that_needs_all_its_gpus() -> None:
    rigid = FakeApp("a", gang=4, min_gang=4, slowdown=Slowdown((1.0, 1.25, 2.0, 2.0)))
    app = fake_view(FOURS, [rigid]).apps[0]
    assert placement_score(app, RACK, 4) == pytest.approx(0.5)
    assert placement_score(app, SLOT, 2) == 0.0


def test_gandiva_serves_the_best_placed_gang_before_earlier_arrivals() -> None:
    # Four GPUs are free, two on each machine: `wide` would be spread, `tight` would not.
    apps = [
        FakeApp("tight", gang=2, slowdown=FAR, arrival=9.0),
        FakeApp("wide", gang=4, slowdown=FAR),
    ]
    view = fake_view(FOURS, apps, offer=[0, 1, 4, 5])
    assert _got("gandiva", view) == {"tight": [0, 1], "wide": [4, 5]}
    assert _got("fifo", view) == {"wide": [0, 1, 4, 5]}


def test_gandiva_serves_the_larger_of_two_gangs_with_the_same_score() -> None:
    apps = [FakeApp("large", gang=4, arrival=9.0), FakeApp("small", gang=2)]
    assert _got("gandiva", fake_view(FOURS, apps, offer=range(4))) == {"large": [0, 1, 2, 3]}


def test_gandiva_packs_onto_few_machines() -> None:
    apps = [FakeApp(f"app-{i}", gang=2, slowdown=FAR, arrival=float(i)) for i in range(2)]
    got = _got("gandiva", fake_view(SIX, apps))
    # The small machine first, so that four stay together on the other as long as possible.
    assert got == {"app-0": [0, 1], "app-1": [2, 3]}


def test_gandiva_takes_nothing_from_badly_placed_running_apps() -> None:
    spread = FakeApp("spread", gang=2, slowdown=FAR, held=_gpus(0, 4), arrival=5.0)
    # A pair of machines full but for nothing: only `spread`'s GPUs are on offer.
    view = fake_view(FOURS, [spread, FakeApp("new", gang=1)], offer=[0, 4])
    assert _got("gandiva", view) == {"spread": [0, 4]}


def test_gandiva_moves_a_gang_only_above_the_score_margin() -> None:
    spread = FakeApp("spread", gang=2, slowdown=FAR, held=_gpus(3, 4))
    view = fake_view(FOURS, [spread], offer=[3, 4, 6])
    assert _got("gandiva", view) == {"spread": [4, 6]}  # 1 / (1 / 1.5) = 1.5
    assert _got("gandiva", view, margin=0.49) == {"spread": [4, 6]}
    assert _got("gandiva", view, margin=0.51) == {"spread": [3, 4]}


def test_gandiva_leaves_a_well_placed_gang_where_it_is() -> None:
    apps = [FakeApp("a", gang=2, slowdown=FAR, held=_gpus(6, 7))]
    assert _got("gandiva", fake_view(FOURS, apps)) == {"a": [6, 7]}


def test_gandiva_moves_a_cut_gang_to_where_it_is_whole() -> None:
    # Two of four on a machine that is full: four on the other machine are worth a move.
    cut = FakeApp("cut", gang=4, slowdown=FAR, held=_gpus(0, 1))
    assert _got("gandiva", fake_view(FOURS, [cut], offer=[0, 1, 4, 5, 6, 7])) == {
        "cut": [4, 5, 6, 7]
    }
    # If it can become whole where it is, it does not move.
    assert _got("gandiva", fake_view(FOURS, [cut])) == {"cut": [0, 1, 2, 3]}


def test_gandiva_moves_no_app_between_beats() -> None:
    spread = FakeApp("spread", gang=2, slowdown=FAR, held=_gpus(3, 4))
    assert _got("gandiva", fake_view(FOURS, [spread], offer=[5, 6], at_beat=False)) == {}


def test_a_gandiva_job_moves_within_its_owners_quota() -> None:
    spread = FakeApp("spread", gang=4, slowdown=FAR, held=_gpus(3, 4), of="ann")
    view = fake_view(FOURS, [spread], offer=[3, 4, 5, 6], quotas={"ann": 2})
    assert _got("gandiva", view) == {"spread": [4, 5]}


def test_gandiva_does_not_take_two_jobs_for_one_gang() -> None:
    # Two jobs on one GPU each run at full speed: together they would do no better.
    apart = FakeApp("apart", jobs=2, gang=2, slowdown=FAR, held=_gpus(3, 4))
    view = fake_view(FOURS, [apart], offer=[3, 4], quotas={"apart": 2})
    assert _got("gandiva", view) == {"apart": [3, 4]}


# optimus and slaq


@pytest.mark.parametrize("name", ["optimus", "optimus+pack"])
def test_optimus_ranks_by_remaining_time_and_not_work(name: str) -> None:
    # 600 s on six GPUs against 1000 s on the one that its only job can use.
    apps = [FakeApp("long", work=3600.0, jobs=6), FakeApp("narrow", work=1000.0)]
    assert _counts(name, fake_view(SIX, apps)) == {"long": 6}


@pytest.mark.parametrize("name", ["optimus", "optimus+pack"])
def test_optimus_counts_only_gpus_an_app_may_have(name: str) -> None:
    # On its two GPUs `bound` needs 1000 s, more than the other's 900 on all six.
    bound = FakeApp("bound", work=2000.0, jobs=6, machines=frozenset({0}))
    other = FakeApp("other", work=5400.0, jobs=6)
    assert _counts(name, fake_view(SIX, [bound, other])) == {"other": 6}
    # With four kept, two more would end it in 333 s.
    keeper = FakeApp("bound", work=2000.0, jobs=6, machines=frozenset({0}), held=_gpus(2, 3, 4, 5))
    assert _counts(name, fake_view(SIX, [keeper, other], offer=[0, 1])) == {"bound": 2}


@pytest.mark.parametrize("name", ["optimus", "optimus+pack"])
def test_optimus_weighs_remaining_times(name: str) -> None:
    apps = [
        FakeApp("short", work=1200.0, jobs=6),
        FakeApp("heavy", work=2000.0, jobs=6, weight=2.0),
    ]
    assert _counts(name, fake_view(SIX, apps)) == {"heavy": 6}


def test_the_loss_falls_fast_at_first() -> None:
    # 1 / (1 + 9 p): from 1 to 1/5.5 in the first half of the work, from there to 0.1.
    assert loss_drop(0.0, 1200.0, 600.0, 9.0) == pytest.approx(1 - 1 / 5.5)
    assert loss_drop(0.5, 600.0, 600.0, 9.0) == pytest.approx(1 / 5.5 - 0.1)
    # What ends within the lease cannot fall further, and what never ends does not fall.
    assert loss_drop(0.5, 1.0, 600.0, 9.0) == loss_drop(0.5, 600.0, 600.0, 9.0)
    assert loss_drop(0.5, float("inf"), 600.0, 9.0) == 0.0
    assert loss_drop(1.0, 0.0, 600.0, 9.0) == 0.0


@pytest.mark.parametrize("name", ["slaq", "slaq+pack"])
def test_slaq_prefers_the_young_to_the_nearly_done(name: str) -> None:
    apps = [
        FakeApp("old", work=3600.0, done=7200.0, jobs=6),
        FakeApp("young", work=10_800.0, jobs=6),
    ]
    assert _counts(name, fake_view(SIX, apps)) == {"young": 6}
    assert _counts("optimus", fake_view(SIX, apps)) == {"old": 6}


def test_nearly_linear_loss_makes_slaq_prefer_relative_gain() -> None:
    apps = [
        FakeApp("old", work=3600.0, done=3600.0, jobs=6),  # gains half of its work in a lease
        FakeApp("young", work=10_800.0, jobs=6),  # gains a third
    ]
    assert _counts("slaq", fake_view(SIX, apps), steepness=0.01) == {"old": 6}
    assert _counts("slaq", fake_view(SIX, apps), steepness=9.0) == {"young": 6}


@pytest.mark.parametrize("name", ["optimus", "slaq"])
def test_baselines_ignore_placement_and_packed_variants_do_not(name: str) -> None:
    apps = [FakeApp("a", gang=4, slowdown=FAR), FakeApp("b", gang=4, slowdown=FAR)]
    spread = 0
    for number in range(10):
        view = fake_view(FOURS, apps, round_number=number)
        packed = drive(policy(f"{name}+pack"), view).allotments
        assert {FOURS.level(item.gpus) for item in packed} == {SLOT}
        blind = drive(policy(name), view).allotments
        spread += any(FOURS.level(item.gpus) > SLOT for item in blind)
    assert spread >= 8


# min-max-rho


def test_min_max_rho_raises_the_next_when_the_worst_cannot_be_helped() -> None:
    # `stuck` is far behind but can use one GPU only; the others level out at 1.2 each.
    apps = [
        FakeApp("stuck", work=900.0, elapsed=9000.0, ideal_time=900.0),
        FakeApp("x", work=3600.0, jobs=6, ideal_time=1000.0),
        FakeApp("y", work=2400.0, jobs=6, ideal_time=1000.0),
    ]
    assert _counts("min-max-rho", fake_view(SIX, apps)) == {"stuck": 1, "x": 3, "y": 2}


def test_min_max_rho_steps_by_whole_gangs() -> None:
    apps = [
        FakeApp("rigid", jobs=2, gang=4, min_gang=4, ideal_time=900.0),
        FakeApp("free", jobs=6, ideal_time=3600.0),
    ]
    view = fake_view(SIX, apps)
    assert level_rho(view, view.apps) == {"rigid": 4, "free": 2}


def test_min_max_rho_counts_what_an_app_keeps() -> None:
    keeper = FakeApp("keeper", jobs=6, held=_gpus(2, 3, 4))
    view = fake_view(SIX, [keeper, FakeApp("new", jobs=6)], offer=[0, 1, 5])
    assert _counts("min-max-rho", view) == {"new": 3}


def test_min_max_rho_lets_apps_stay() -> None:
    apps = [
        FakeApp("a", jobs=6, held=_gpus(1, 3, 5)),
        FakeApp("b", jobs=6, held=_gpus(0, 2, 4)),
    ]
    assert _got("min-max-rho", fake_view(SIX, apps)) == {"a": [1, 3, 5], "b": [0, 2, 4]}


def test_min_max_rho_divides_an_owners_quota_by_need() -> None:
    apps = [
        FakeApp("late", jobs=6, of="ann", ideal_time=900.0),
        FakeApp("fine", jobs=6, of="ann", ideal_time=4000.0),
    ]
    # Falling rho: 9.3, 4.0, 2.0, 1.3 for `late`; 2.1 and 0.9 for `fine`.
    assert _counts("min-max-rho", fake_view(SIX, apps, quotas={"ann": 4})) == {"late": 3, "fine": 1}


# drf


def test_drf_divides_free_gpus_by_weight() -> None:
    apps = [FakeApp("heavy", jobs=6, weight=2.0), FakeApp("light", jobs=6)]
    assert _counts("drf", fake_view(SIX, apps)) == {"heavy": 4, "light": 2}


def test_drf_counts_what_apps_hold() -> None:
    holder = FakeApp("holder", jobs=6, held=_gpus(2, 3))
    # Two it has are renewed, so of the four that are free the other gets three.
    assert _counts("drf", fake_view(SIX, [holder, FakeApp("new", jobs=6)])) == {
        "holder": 3,
        "new": 3,
    }


def test_drf_starts_whole_tasks() -> None:
    apps = [FakeApp("wide", jobs=2, gang=4, arrival=0.0), FakeApp("thin", jobs=6, arrival=1.0)]
    # The first task takes a machine; then `thin` is behind until it has as many.
    assert _got("drf", fake_view(SIX, apps)) == {"wide": [2, 3, 4, 5], "thin": [0, 1]}


# static


def test_parts_are_equal_and_close_together() -> None:
    topology = Topology(tuple(Machine(f"m{i}", f"r{i // 2}", (2, 2)) for i in range(4)))
    parts = partition(topology, 4)
    assert [topology.level(part) for part in parts] == [1, 1, 1, 1]
    assert [len(part) for part in partition(topology, 5)] == [3, 3, 3, 3, 4]
    assert [len(part) for part in partition(topology, 100)] == [1] * 16
    assert partition(Topology(()), 8) == [()]


def test_a_machine_that_joins_its_rack_stands_in_its_racks_part() -> None:
    topology = Topology((Machine("m0", "r0", (2,)), Machine("m1", "r1", (4,))))
    grown = topology.joined_by(Machine("m2", "r0", (2,)))
    assert partition(grown, 2) == [(0, 1, 6, 7), (2, 3, 4, 5)]


def test_app_keeps_its_static_partition_for_life() -> None:
    app = FakeApp("a", jobs=8)
    alone = fake_view(FOURS, [app], seed=3)
    later = fake_view(FOURS, [app, FakeApp("b"), FakeApp("c")], seed=3, round_number=99)
    parts = partition(FOURS, 4)
    assert home_of(alone, alone.apps[0], parts) == home_of(later, later.apps[0], parts)
    assert _counts("static", alone, parts=4) == {"a": 2}


def test_apps_are_spread_over_all_parts() -> None:
    view = fake_view(FOURS, [FakeApp(f"app-{i}") for i in range(200)])
    parts = partition(FOURS, 4)
    sizes = [sum(home_of(view, app, parts) == set(part) for app in view.apps) for part in parts]
    assert sum(sizes) == 200
    assert min(sizes) >= 30


@pytest.mark.parametrize("seed", range(4))
def test_app_too_large_for_any_part_gets_the_gpus_it_needs(seed: int) -> None:
    rigid = FakeApp("rigid", gang=4, min_gang=4)
    assert _counts("static", fake_view(FOURS, [rigid], seed=seed), parts=4) == {"rigid": 4}
    bound = FakeApp("bound", jobs=9, machines=frozenset({1}))
    got = _got("static", fake_view(FOURS, [bound], seed=seed), parts=4)
    assert got["bound"] in ([4, 5], [6, 7])


def test_static_serves_a_part_in_the_order_of_arrival() -> None:
    apps = [FakeApp("late", jobs=6, arrival=9.0), FakeApp("early", jobs=4)]
    assert _counts("static", fake_view(SIX, apps), parts=1) == {"early": 4, "late": 2}
    holder = FakeApp("late", jobs=6, arrival=9.0, held=_gpus(0, 1, 2, 3, 4, 5))
    assert _counts("static", fake_view(SIX, [holder, apps[1]]), parts=1) == {"late": 6}
