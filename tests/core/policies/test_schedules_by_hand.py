"""Three apps on two machines, beat by beat, against schedules worked out by hand."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from themis.core.model import GpuId, Machine, Slowdown, Topology
from themis.core.policies import POLICIES, policy
from themis.core.policies.static import home_of, partition
from themis.testing.policy_fakes import FakeApp, drive, fake_view

LEASE = 600.0
PAIRS = Topology((Machine("m0", "r0", (2,)), Machine("m1", "r0", (2,))))
FOURS = Topology((Machine("m0", "r0", (4,)), Machine("m1", "r0", (4,))))

Schedule = list[dict[str, list[int]]]


def _after(app: FakeApp, gpus: Sequence[int], topology: Topology) -> FakeApp:
    """The app one lease later. Work that ends within the lease is over at the beat."""
    held = tuple(GpuId(gpu) for gpu in gpus)
    placed = replace(app, topology=topology)
    work = min(1.0, LEASE / placed.seconds_with(held)) * app.work if held else 0.0
    return replace(
        app,
        work=app.work - work,
        done=app.done + work,
        held=held,
        attained=app.attained + LEASE * len(held),
        elapsed=app.elapsed + LEASE,
    )


def _play(
    name: str, apps: Sequence[FakeApp], topology: Topology, seed: int = 0, **options: float
) -> Schedule:
    """Who has which GPUs at each beat until all are done. Apps arrive with the beat they name."""
    schedule: Schedule = []
    everybody = list(apps)
    while everybody:
        now = LEASE * len(schedule)
        present = [app for app in everybody if app.arrival <= now]
        view = fake_view(topology, present, round_number=len(schedule) + 1, seed=seed)
        plan = drive(policy(name, **options), view)
        got = {item.app: [int(gpu) for gpu in item.gpus] for item in plan.allotments}
        schedule.append({str(app): gpus for app, gpus in sorted(got.items())})
        moved = [_after(app, got.get(app.app, ()), topology) for app in present]
        coming = [app for app in everybody if app.arrival > now]
        everybody = [app for app in moved if app.work > 1e-6] + coming
        assert len(schedule) < 50, "it never ends"
    return schedule


def _three(**arrivals: float) -> list[FakeApp]:
    """Apps that can each use all four GPUs: one, two and three leases long."""
    return [
        FakeApp(name, work=work, jobs=4, arrival=arrivals.get(name, 0.0))
        for name, work in (("a", 2400.0), ("b", 4800.0), ("c", 7200.0))
    ]


@pytest.mark.parametrize(
    ("name", "turns"),
    [
        # Rests with four GPUs: 600, 1200 and 1800 s, and whoever is ahead gets further ahead.
        pytest.param("optimus", "abbccc", id="optimus"),
        pytest.param("optimus+pack", "abbccc", id="optimus+pack"),
        # The loss 1 / (1 + 9 p) falls in a lease by 0.9, 0.818 and 0.75 at first. Then b would
        # gain 0.082 from half to whole; c gains 0.75, then 0.107, then 0.043.
        pytest.param("slaq", "abccbc", id="slaq"),
        pytest.param("slaq+pack", "abccbc", id="slaq+pack"),
        # Nobody has had anything; the first come. Then b and c have had as much, and c runs.
        pytest.param("tiresias+pack", "abccbc", id="tiresias+pack"),
    ],
)
def test_one_app_after_the_other(name: str, turns: str) -> None:
    # In the order of their names, all there from the start.
    apps = [replace(app, arrival=-3.0 + i) for i, app in enumerate(_three())]
    expected: Schedule = [{turn: [0, 1, 2, 3]} for turn in turns]
    assert _play(name, apps, PAIRS) == expected


def test_fifo_lets_each_finish_in_the_order_of_arrival() -> None:
    apps = [replace(app, arrival=-float(i)) for i, app in enumerate(_three())]
    assert _play("fifo", apps, PAIRS) == [{turn: [0, 1, 2, 3]} for turn in "cccbba"]


def test_worst_first_turns_to_lagging_apps() -> None:
    # Without GPUs rho is 2 (elapsed + 600 + work) / T_id: 5.0, 3.0 and 2.6 at first, so a runs.
    # Then b is at 3.33 and c at 2.8. With its GPUs b is at (1200 + 600) / 3600 = 0.5, c at 3.0.
    # With its own c is at 0.5 and b, without, at 2.67; and so on.
    ideals = {"a": 1200.0, "b": 3600.0, "c": 6000.0}
    apps = [replace(app, ideal_time=ideals[app.name]) for app in _three()]
    schedule = _play("worst-first", apps, PAIRS)
    assert schedule == [{turn: [0, 1, 2, 3]} for turn in "abcbcc"]


def test_equal_share_divides_what_there_is_at_every_beat() -> None:
    # Four GPUs for three: the one who has had least gets the fourth, at first the first to come.
    apps = [
        FakeApp("a", work=1200.0, jobs=4, arrival=-2.0),
        FakeApp("b", work=1800.0, jobs=4, arrival=-1.0),
        FakeApp("c", work=6000.0, jobs=4),
    ]
    counts = [
        {app: len(gpus) for app, gpus in beat.items()} for beat in _play("equal-share", apps, PAIRS)
    ]
    # After the first beat a is done; b has 1200 left, which two GPUs finish in one more.
    assert counts[:3] == [{"a": 2, "b": 1, "c": 1}, {"b": 2, "c": 2}, {"c": 4}]


def test_drf_takes_nothing_from_earlier_arrivals() -> None:
    apps = [
        FakeApp("a", work=2400.0, jobs=4, arrival=-1.0),
        FakeApp("b", work=6000.0, jobs=4),
        FakeApp("c", work=1200.0, jobs=4, arrival=LEASE),
    ]
    assert _play("drf", apps, PAIRS) == [
        {"a": [0, 2], "b": [1, 3]},  # in turns, task by task
        {"a": [0, 2], "b": [1, 3]},  # c finds nothing free, whatever its share would be
        {"b": [1, 3], "c": [0, 2]},  # a is done; c has the smallest share and takes both
        {"b": [0, 1, 2, 3]},
    ]


def test_min_max_rho_levels_the_worst() -> None:
    apps = [
        FakeApp("a", work=1200.0, jobs=4, ideal_time=600.0),
        FakeApp("b", work=1200.0, jobs=4, ideal_time=1200.0),
        FakeApp("c", work=2520.0, jobs=4, ideal_time=1200.0),
    ]
    assert _play("min-max-rho", apps, PAIRS) == [
        # With one GPU each: 2.0, 1.0 and 2.1, so c gets the fourth: 1.05.
        {"a": [2], "b": [3], "c": [0, 1]},
        # A lease later with one each: 2.0, 1.0 and 1.6, so it goes to a: 1.5.
        {"a": [1, 2], "b": [3], "c": [0]},
        {"c": [0, 1, 2, 3]},
    ]


def test_gandiva_moves_a_spread_gang_together_when_it_can() -> None:
    far = Slowdown((1.0, 1.0, 1.5, 1.5))
    apps = [
        FakeApp("left", work=1200.0, gang=2, slowdown=far, held=(GpuId(0), GpuId(1))),
        FakeApp("right", work=3600.0, gang=2, slowdown=far, held=(GpuId(6), GpuId(7))),
        # 4 / 1.5 serial seconds a second: faster than on two of them.
        FakeApp("wide", work=6400.0, gang=4, slowdown=far, held=tuple(map(GpuId, (2, 3, 4, 5)))),
    ]
    assert _play("gandiva", apps, FOURS) == [
        {"left": [0, 1], "right": [6, 7], "wide": [2, 3, 4, 5]},  # nothing is free
        {"right": [6, 7], "wide": [0, 1, 2, 3]},  # 1/S rises from 0.67 to 1
        {"right": [6, 7], "wide": [0, 1, 2, 3]},  # of 6400: 1600, 2400 and 2400 done
    ]


def test_static_leaves_a_part_idle_while_the_other_has_a_queue() -> None:
    names = ["first", "second", *(f"alone-{i}" for i in range(20))]
    seed = next(s for s in range(1000) if _part("first", s) == _part("second", s) == 0)
    alone = next(name for name in names[2:] if _part(name, seed) == 1)
    apps = [
        FakeApp("first", work=2400.0, jobs=4, arrival=-2.0),
        FakeApp("second", work=1200.0, jobs=4, arrival=-1.0),
        FakeApp(alone, work=1200.0, jobs=4),
    ]
    assert _play("static", apps, PAIRS, seed=seed, parts=2) == [
        {"first": [0, 1], alone: [2, 3]},
        {"first": [0, 1]},
        {"second": [0, 1]},
    ]


def _part(name: str, seed: int) -> int:
    view = fake_view(PAIRS, [FakeApp(name)], seed=seed)
    parts = partition(PAIRS, 2)
    return [frozenset(part) for part in parts].index(home_of(view, view.apps[0], parts))


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_no_app_starves_for_good(name: str) -> None:
    rng = random.Random(7)
    apps = [FakeApp(f"app-{i}", work=rng.uniform(300.0, 9000.0), jobs=4) for i in range(3)]
    schedule = _play(name, apps, PAIRS)
    assert {app for beat in schedule for app in beat} == {app.name for app in apps}
