"""equal-share, worst-first, tiresias and fifo, on rounds small enough to work out by hand."""

from collections.abc import Iterable

import pytest

from themis.core.model import AppId, GpuId, Machine, Slowdown, Topology
from themis.core.policies import POLICIES, Allotment, View, policy
from themis.core.policies.equal_share import max_min
from themis.errors import ConfigError
from themis.testing.policy_fakes import FakeApp, drive, fake_view

SIX = Topology((Machine("m0", "r0", (2,)), Machine("m1", "r0", (4,))))
TWELVE = Topology(tuple(Machine(f"m{i}", "r0", (4,)) for i in range(3)))


def _got(allotments: Iterable[Allotment]) -> dict[str, list[int]]:
    return {item.app: sorted(item.gpus) for item in allotments}


def _counts(name: str, view: View) -> dict[str, int]:
    plan = drive(policy(name), view)
    return {app: len(gpus) for app, gpus in _got(plan.allotments).items()}


@pytest.mark.parametrize(
    ("weights", "demands", "total", "shares"),
    [
        pytest.param([1, 1], [10, 10], 6, [3, 3], id="equal"),
        pytest.param([2, 1], [10, 10], 6, [4, 2], id="weights two to one"),
        pytest.param([1, 1, 1], [1, 10, 10], 7, [1, 3, 3], id="what one cannot use the others do"),
        pytest.param([1, 3], [10, 1], 6, [5, 1], id="a heavy app with a small demand"),
        pytest.param([1, 1], [1, 2], 6, [1, 2], id="more than all can use"),
        pytest.param([1, 1], [5, 5], 0, [0, 0], id="nothing"),
        pytest.param([], [], 6, [], id="nobody"),
    ],
)
def test_max_min_shares(
    weights: list[float], demands: list[int], total: float, shares: list[float]
) -> None:
    assert max_min(weights, demands, total) == pytest.approx(shares)


def test_equal_share_gives_a_heavy_app_twice_as_much() -> None:
    apps = [FakeApp("heavy", jobs=12, weight=2.0), FakeApp("light", jobs=12)]
    assert _counts("equal-share", fake_view(TWELVE, apps)) == {"heavy": 8, "light": 4}


def test_equal_share_is_two_to_one_over_time_with_indivisible_gpus() -> None:
    attained = {"heavy": 0.0, "light": 0.0}
    topology = Topology((Machine("m0", "r0", (4,)),))
    for number in range(1, 61):
        apps = [
            FakeApp(
                name,
                jobs=4,
                weight=weight,
                elapsed=600.0 * (number - 1),
                attained=attained[name],
            )
            for name, weight in (("heavy", 2.0), ("light", 1.0))
        ]
        view = fake_view(topology, apps, round_number=number)
        for app, count in _counts("equal-share", view).items():
            attained[app] += 600.0 * count
    assert attained["heavy"] / attained["light"] == pytest.approx(2.0, rel=0.1)


def test_equal_share_counts_what_an_app_keeps() -> None:
    keeper = FakeApp("keeper", jobs=6, held=(GpuId(0), GpuId(1), GpuId(2)))
    view = fake_view(SIX, [keeper, FakeApp("new", jobs=6)], offer=[3, 4, 5])
    assert _counts("equal-share", view) == {"new": 3}


def test_equal_share_gives_the_next_gpu_to_the_least_served() -> None:
    topology = Topology((Machine("m0", "r0", (1,)),))
    apps = [
        FakeApp("a", elapsed=1000.0, attained=900.0),
        FakeApp("b", elapsed=1000.0, attained=100.0),
        FakeApp("c", elapsed=1000.0, attained=500.0),
    ]
    assert _counts("equal-share", fake_view(topology, apps)) == {"b": 1}


def test_equal_share_favours_no_name_when_all_is_equal() -> None:
    topology = Topology((Machine("m0", "r0", (1,)),))
    apps = [FakeApp(name) for name in "abc"]
    winners = {
        app
        for number in range(30)
        for app in _counts("equal-share", fake_view(topology, apps, round_number=number))
    }
    assert winners == {"a", "b", "c"}


def test_equal_share_lets_apps_stay_and_keeps_gangs_together() -> None:
    apps = [
        FakeApp("stays", gang=4, held=tuple(map(GpuId, (4, 5, 6, 7)))),
        FakeApp("new-1", gang=4),
        FakeApp("new-2", gang=4),
    ]
    got = _got(drive(policy("equal-share"), fake_view(TWELVE, apps)).allotments)
    assert got["stays"] == [4, 5, 6, 7]
    assert {TWELVE.level([GpuId(gpu) for gpu in gpus]) for gpus in got.values()} == {0}


def test_equal_share_serves_a_gang_larger_than_its_share() -> None:
    apps = [FakeApp("gang", gang=4, min_gang=4, elapsed=600.0), FakeApp("other", jobs=1)]
    topology = Topology((Machine("m0", "r0", (4,)), Machine("m1", "r0", (1,))))
    assert _counts("equal-share", fake_view(topology, apps)) == {"gang": 4, "other": 1}


def test_worst_first_fills_the_worst_off_and_then_the_next() -> None:
    apps = [
        FakeApp("fine", jobs=6, ideal_time=9000.0),
        FakeApp("worst", jobs=4, ideal_time=1000.0),
        FakeApp("bad", jobs=4, ideal_time=2000.0),
    ]
    assert _counts("worst-first", fake_view(SIX, apps)) == {"worst": 4, "bad": 2}


def test_worst_first_ranks_by_rho_now_and_not_by_potential() -> None:
    # With its GPUs `runs` is at 1.0; `waits` is younger but has nothing.
    runs = FakeApp("runs", jobs=6, held=(GpuId(0),), ideal_time=3600.0)
    waits = FakeApp("waits", jobs=5, work=1000.0)
    assert _counts("worst-first", fake_view(SIX, [runs, waits], offer=range(1, 6))) == {"runs": 5}
    assert _counts("worst-first", fake_view(SIX, [runs, waits], offer=range(6))) == {
        "runs": 6,
    }
    starving = FakeApp("waits", jobs=5, work=2000.0)
    assert _counts("worst-first", fake_view(SIX, [runs, starving])) == {"waits": 5, "runs": 1}


def test_worst_first_ties_prefer_longest_waiting_then_chance() -> None:
    topology = Topology((Machine("m0", "r0", (1,)),))
    waiting = [FakeApp("a", waiting_since=50.0), FakeApp("b", waiting_since=10.0)]
    assert _counts("worst-first", fake_view(topology, waiting)) == {"b": 1}
    winners = {
        app
        for seed in range(20)
        for app in _counts(
            "worst-first", fake_view(topology, [FakeApp("a"), FakeApp("b")], seed=seed)
        )
    }
    assert winners == {"a", "b"}


@pytest.mark.parametrize("name", ["tiresias", "tiresias+pack"])
def test_tiresias_fills_least_gpu_time_per_weight_first(name: str) -> None:
    apps = [
        FakeApp("much", jobs=4, attained=900.0),
        FakeApp("heavy", jobs=4, attained=600.0, weight=4.0),
        FakeApp("little", jobs=4, attained=200.0),
    ]
    assert _counts(name, fake_view(SIX, apps)) == {"heavy": 4, "little": 2}


def test_tiresias_ignores_placement_and_the_packed_one_does_not() -> None:
    apps = [FakeApp("a", gang=4), FakeApp("b", gang=4), FakeApp("c", gang=4)]
    spread = 0
    for number in range(10):
        view = fake_view(TWELVE, apps, round_number=number)
        packed = drive(policy("tiresias+pack"), view).allotments
        assert {TWELVE.level(item.gpus) for item in packed} == {0}
        blind = drive(policy("tiresias"), view).allotments
        spread += any(TWELVE.level(item.gpus) > 0 for item in blind)
    assert spread >= 8


def test_tiresias_lets_an_app_stay_when_it_is_its_turn() -> None:
    held = tuple(map(GpuId, (1, 6, 11)))
    apps = [FakeApp("a", jobs=3, held=held), FakeApp("b", jobs=12, attained=1.0)]
    assert _got(drive(policy("tiresias"), fake_view(TWELVE, apps)).allotments)["a"] == [1, 6, 11]


def test_tiresias_starts_no_gang_that_is_not_whole() -> None:
    apps = [FakeApp("gang", gang=4, min_gang=4), FakeApp("small", attained=5.0)]
    assert _counts("tiresias", fake_view(SIX, apps, offer=[0, 2, 3])) == {"small": 1}


def test_fifo_serves_in_the_order_of_arrival() -> None:
    apps = [
        FakeApp("first", jobs=4, arrival=10.0, elapsed=9e9),
        FakeApp("second", jobs=4, arrival=20.0),
        FakeApp("third", jobs=4, arrival=30.0, ideal_time=1.0),
    ]
    assert _counts("fifo", fake_view(SIX, apps)) == {"first": 4, "second": 2}


def test_fifo_takes_nothing_from_holders() -> None:
    late = FakeApp("late", jobs=4, arrival=99.0, held=tuple(map(GpuId, (2, 3, 4, 5))))
    early = FakeApp("early", jobs=6, arrival=1.0)
    got = _got(drive(policy("fifo"), fake_view(SIX, [late, early])).allotments)
    assert got == {"late": [2, 3, 4, 5], "early": [0, 1]}


def test_fifo_goes_past_a_gang_that_cannot_start() -> None:
    apps = [FakeApp("gang", gang=4, min_gang=4), FakeApp("small", arrival=5.0)]
    assert _counts("fifo", fake_view(SIX, apps, offer=[0, 1, 2])) == {"small": 1}


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"themis", "themis-paper", "static"}))
def test_owners_get_no_more_than_their_quota(name: str) -> None:
    apps = [FakeApp(f"a{i}", jobs=2, of="ann") for i in range(3)]
    apps.append(FakeApp("b", of="bob"))
    counts = _counts(name, fake_view(SIX, apps, quotas={"ann": 3}))
    assert counts.pop("b") == 1
    assert sum(counts.values()) == 3


def test_a_gang_spread_too_far_does_not_hoard_what_it_cannot_use() -> None:
    averse = Slowdown((1.0, 1.0, 9.0, 9.0))
    first = FakeApp("averse", gang=4, slowdown=averse)
    view = fake_view(TWELVE, [first, FakeApp("next", jobs=4, arrival=1.0)], offer=[0, 1, 4, 5])
    plan = drive(policy("fifo"), view)
    assert _got(plan.allotments)["averse"] in ([0, 1], [4, 5])
    assert len(_got(plan.allotments)["next"]) == 2
    assert AppId("averse") not in plan.notes.declined


@pytest.mark.parametrize("name", ["equal-share", "min-max-rho", "worst-first"])
def test_baseline_calls_in_gpus_only_when_configured(name: str) -> None:
    assert not policy(name).calls_in
    assert policy(name, call_in_gain=0.05).calls_in
    with pytest.raises(ConfigError, match="call_in_gain"):
        policy(name, call_in_gain=-1.0)
