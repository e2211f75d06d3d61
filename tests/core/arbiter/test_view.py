"""The arbiter's own rho, computed by hand: what policies see of apps when a round opens.

Rounds of the beats at 600, 1200, ... open 100 s before them.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from tests.support.scripted_world import ScriptedWorld, simple_app
from themis.core.arbiter import Settings, events
from themis.core.arbiter.settings import BidderKind
from themis.core.fairness.ideal_time import Convention
from themis.core.model import (
    MACHINE,
    RACK,
    SLOT,
    AppId,
    Bid,
    Constraint,
    GpuId,
    LeaseSource,
    Machine,
    TableRow,
)
from themis.core.policies.base import Allotment, AppView, DirectPolicy, Plan, View

MakeWorld = Callable[..., ScriptedWorld]

A, B = AppId("a"), AppId("b")
SETTINGS = Settings(
    bid_deadline=10.0, solve_budget=10.0, grace=60.0, heartbeat=10.0, bidder=BidderKind.APP
)
THREE_MACHINES = tuple(Machine(f"m{number}", "r0", (2, 2)) for number in range(3))
TABLE = (TableRow(SLOT, 2, 6000.0), TableRow(MACHINE, 4, 3000.0), TableRow(RACK, 6, 2500.0))


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What a round saw of one app; views are computed on demand and would be stale later."""

    elapsed: float
    ideal_time: float
    rho_now: float
    rho_nothing: float
    best_case_seconds: float
    waiting_since: float
    hungry_rounds: int
    kept: tuple[GpuId, ...]


def glimpse(app: AppView) -> Glimpse:
    return Glimpse(
        elapsed=app.elapsed,
        ideal_time=app.ideal_time,
        rho_now=app.rho_now,
        rho_nothing=app.rho_nothing,
        best_case_seconds=app.best_case_seconds,
        waiting_since=app.waiting_since,
        hungry_rounds=app.hungry_rounds,
        kept=app.kept,
    )


class Observer(DirectPolicy):
    """Gives apps the GPUs a test wishes them, and remembers what it saw of everybody."""

    name: ClassVar[str] = "observer"

    def __init__(self, **wishes: range) -> None:
        self.wishes = wishes
        self.seen: dict[float, dict[str, Glimpse]] = {}
        """By the time of the round."""

    def plan(self, view: View, rng: random.Random) -> Plan:
        self.seen[view.now] = {app.app: glimpse(app) for app in view.apps}
        gifts = {
            app.app: tuple(gpu for gpu in view.offer if gpu in self.wishes.get(app.app, ()))
            for app in view.apps
        }
        return Plan(tuple(Allotment(app, gpus, LeaseSource.DIRECT) for app, gpus in gifts.items()))


class Inquirer(Observer):
    """The same, of apps that were asked for a table on arrival."""

    name: ClassVar[str] = "inquirer"
    asks_tables: ClassVar[bool] = True


def crowd(make_world: MakeWorld, convention: Convention) -> dict[str, Glimpse]:
    """Three apps that get nothing, seen at 500.

    `a` (weight 1) comes at 0, `b` (weight 2) at 100, `c` (weight 1) at 200, and is paused from
    300 to 400. One machine of three, with 4 of the 12 GPUs, is cordoned at 400.

        N of a: 1, 3, 4, 3, 4 over 100 s each: 3.    R_C: 12 for 400 s, 8 for 100 s: 11.2
        N of b:   (3, 4, 3, 4) / 2: 1.75             R_C: 12 for 300 s, 8 for 100 s: 11
        N of c:         4, paused, 4: 4              R_C: 12 for 100 s, 8 for 100 s: 10
    """
    observer = Observer()
    settings = replace(SETTINGS, convention=convention)
    world = make_world(observer, settings, machines=THREE_MACHINES)
    world.submit(simple_app("a", gpus=4, jobs=4, iterations=840))  # 33600 s, 16 GPUs at most
    world.advance(100.0)
    world.submit(simple_app("b", gpus=2, iterations=1000, weight=2.0))  # 10000 s, 2 GPUs
    world.advance(200.0)
    world.submit(simple_app("c", gpus=8, jobs=2, iterations=500))  # 10000 s, 16 GPUs
    world.advance(300.0)
    world.suspend("c")
    world.advance(400.0)
    world.resume("c")
    world.send(events.MachineCordoned(400.0, "m2"))
    world.advance(500.0)
    return observer.seen[500.0]


def test_elapsed_time_leaves_out_the_time_an_app_was_paused(make_world: MakeWorld) -> None:
    seen = crowd(make_world, Convention.PAPER)
    assert {app: seen[app].elapsed for app in "abc"} == {"a": 500.0, "b": 400.0, "c": 200.0}


def test_the_papers_ideal_time_is_the_budget_times_contention_over_usable_gpus(
    make_world: MakeWorld,
) -> None:
    seen = crowd(make_world, Convention.PAPER)
    assert seen["a"].ideal_time == pytest.approx(3.0 * 33600.0 / 11.2)  # 9000 s
    assert seen["b"].ideal_time == pytest.approx(1.75 * 10000.0 / 2)  # it can use but 2 GPUs
    assert seen["c"].ideal_time == pytest.approx(4.0 * 10000.0 / 10)


def test_the_fair_share_is_a_private_part_of_the_usable_gpus(make_world: MakeWorld) -> None:
    seen = crowd(make_world, Convention.FAIR_SHARE)
    assert seen["a"].ideal_time == pytest.approx(33600.0 / (11.2 / 3.0))
    # Its share is 6.3 GPUs and its one job uses 2 of them.
    assert seen["b"].ideal_time == pytest.approx(5000.0)
    assert seen["c"].ideal_time == pytest.approx(10000.0 / (10.0 / 4.0))


def test_app_without_gpus_waits_a_lease_then_runs_its_smallest_gang(make_world: MakeWorld) -> None:
    seen = crowd(make_world, Convention.FAIR_SHARE)
    assert seen["a"].rho_nothing == pytest.approx(2 * (500.0 + 600.0 + 33600.0) / 9000.0)
    assert seen["b"].rho_nothing == pytest.approx(2 * (400.0 + 600.0 + 10000.0) / 5000.0)
    assert seen["c"].rho_nothing == pytest.approx(2 * (200.0 + 600.0 + 10000.0) / 4000.0)
    for app in "abc":
        assert seen[app].rho_now == seen[app].rho_nothing


def test_best_case_gives_an_app_all_usable_gpus_at_once(make_world: MakeWorld) -> None:
    seen = crowd(make_world, Convention.FAIR_SHARE)
    # It could use 16 GPUs, but there were never so many: 11.2 in the mean of its time.
    assert seen["a"].best_case_seconds == pytest.approx(33600.0 / 11.2)
    assert seen["b"].best_case_seconds == pytest.approx(10000.0 / 2)
    assert seen["c"].best_case_seconds == pytest.approx(10000.0 / 10)


def test_under_the_papers_convention_a_declared_budget_stands_for_the_work(
    make_world: MakeWorld,
) -> None:
    observer = Observer()
    world = make_world(observer, replace(SETTINGS, convention=Convention.PAPER))
    world.submit(replace(simple_app("a", gpus=4, iterations=1000), budget=12000.0))
    assert observer.seen[0.0]["a"].ideal_time == pytest.approx(12000.0 / 4)


@pytest.mark.parametrize(
    ("event", "usable"),
    [
        pytest.param(events.Woken(0.0), 8, id="all of two machines"),
        pytest.param(events.MachineCordoned(0.0, "m1"), 4, id="a cordoned machine"),
        pytest.param(events.MachineCordoned(0.0, "m1", drain=True), 4, id="a draining machine"),
        pytest.param(events.MachineLeft(0.0, "m1"), 4, id="a machine that left"),
        pytest.param(events.GpuQuarantined(0.0, GpuId(5), "ecc"), 7, id="a quarantined GPU"),
    ],
)
def test_only_gpus_that_can_be_leased_count_as_usable(
    make_world: MakeWorld, event: events.Event, usable: int
) -> None:
    observer = Observer()
    world = make_world(observer, SETTINGS)
    world.send(event)
    world.submit(simple_app("a", gpus=8, jobs=2))
    assert observer.seen[0.0]["a"].ideal_time == pytest.approx(20000.0 / usable)


def test_only_gpus_that_match_the_constraint_count_as_usable(make_world: MakeWorld) -> None:
    observer = Observer()
    new = Machine("m1", "r0", (1, 1), gpu_model="v100")
    world = make_world(observer, SETTINGS, machines=(Machine("m0", "r0", (2, 2)), new))
    world.submit(simple_app("a", gpus=8, jobs=2, constraint=Constraint(gpu_model="v100")))
    assert observer.seen[0.0]["a"].ideal_time == pytest.approx(20000.0 / 2)


def wide_holder(
    make_world: MakeWorld, observer: Observer, starvation: float = 2.0
) -> ScriptedWorld:
    """One app of 10000 s whose one job takes 2 to 8 GPUs, and who gave `TABLE` on arrival.

    Its table is not what its declared work suggests, so the two are told apart.
    """
    world = make_world(observer, replace(SETTINGS, starvation=starvation))
    world.silent.add(A)
    world.submit(simple_app("a", gpus=8, min_gpus=2))
    world.speak("a", Bid(A, (), TABLE))
    return world


def test_rho_now_is_the_cached_table_rebased_on_measured_progress(make_world: MakeWorld) -> None:
    observer = Inquirer(a=range(4))
    world = wide_holder(make_world, observer)
    world.advance(400.0)
    world.progress("a", 250.0)
    world.advance(500.0)
    seen = observer.seen[500.0]["a"]
    # Alone on 8 GPUs it would need 1250 s. With one machine 3000 s, of which 3/4 are left.
    assert seen.ideal_time == pytest.approx(1250.0)
    assert seen.rho_now == pytest.approx((500.0 + 0.75 * 3000.0) / 1250.0)
    # Its table says that at best it takes 1.5 times as long as at S = 1.
    assert seen.best_case_seconds == pytest.approx(1.5 * 7500.0 / 8)


def test_progress_that_was_lost_makes_rho_rise_again(make_world: MakeWorld) -> None:
    observer = Inquirer(a=range(4))
    world = wide_holder(make_world, observer)
    world.advance(400.0)
    world.progress("a", 500.0)
    world.progress("a", 250.0)
    world.advance(500.0)
    assert observer.seen[500.0]["a"].rho_now == pytest.approx((500.0 + 0.75 * 3000.0) / 1250.0)


def test_app_losing_everything_is_valued_as_starved(make_world: MakeWorld) -> None:
    observer = Inquirer(a=range(4))
    world = wide_holder(make_world, observer, starvation=3.0)
    world.advance(400.0)
    world.progress("a", 250.0)
    world.advance(500.0)
    seen = observer.seen[500.0]["a"]
    assert seen.kept == ()
    # Three times: elapsed, a lease of waiting, and 7500 s on two GPUs, its smallest gang.
    assert seen.rho_nothing == pytest.approx(3 * (500.0 + 600.0 + 3750.0) / 1250.0)


def test_app_keeping_gpus_past_the_round_has_them_without_a_win(make_world: MakeWorld) -> None:
    observer = Inquirer(a=range(6))
    world = wide_holder(make_world, observer)
    world.advance(250.0)
    # Its leases on a cordoned machine are renewed without a round, so they are not offered.
    world.send(events.MachineCordoned(250.0, "m1"))
    world.progress("a", 250.0)
    world.advance(500.0)
    seen = observer.seen[500.0]["a"]
    assert seen.kept == (4, 5)
    ideal = 10000.0 / 6  # 8 GPUs, then 4, for 250 s each
    assert seen.ideal_time == pytest.approx(ideal)
    assert seen.rho_now == pytest.approx((500.0 + 0.75 * 2500.0) / ideal)
    assert seen.rho_nothing == pytest.approx((500.0 + 0.75 * 6000.0) / ideal)


def test_app_keeping_less_than_its_table_knows_is_valued_as_starved(make_world: MakeWorld) -> None:
    observer = Inquirer(a=range(5))
    world = wide_holder(make_world, observer)
    world.send(events.MachineCordoned(0.0, "m1"))
    world.advance(500.0)
    seen = observer.seen[500.0]["a"]
    assert seen.kept == (4,)
    assert seen.rho_nothing == pytest.approx(2 * (500.0 + 600.0 + 5000.0) / (10000.0 / 4))


def test_between_beats_a_holder_keeps_all_it_has(make_world: MakeWorld) -> None:
    observer = Inquirer(a=range(4))
    world = wide_holder(make_world, observer)
    world.advance(300.0)
    world.submit(simple_app("b", gpus=4))
    seen = observer.seen[300.0]["a"]
    assert seen.kept == (0, 1, 2, 3)
    assert seen.rho_nothing == seen.rho_now == pytest.approx((300.0 + 3000.0) / 1250.0)


def test_rho_now_without_a_table_uses_declared_work_and_held_gpus(make_world: MakeWorld) -> None:
    observer = Observer(a=range(4))
    world = make_world(observer, SETTINGS)
    world.submit(simple_app("a", gpus=8))
    world.advance(500.0)
    assert observer.seen[500.0]["a"].rho_now == pytest.approx((500.0 + 10000.0 / 4) / 1250.0)


def test_an_app_waits_since_it_lost_its_last_gpu(make_world: MakeWorld) -> None:
    observer = Observer(a=range(2), b=range(2, 4))
    world = make_world(observer, SETTINGS)
    for name in ("a", "b"):
        world.submit(simple_app(name, gpus=2))
    world.advance(40.0)
    world.submit(simple_app("c", gpus=2))
    world.advance(499.0)
    del observer.wishes["a"]
    world.advance(1100.0)
    assert {app: seen.waiting_since for app, seen in observer.seen[500.0].items()} == {
        "a": 500.0,  # it holds GPUs until this round is settled
        "b": 500.0,
        "c": 40.0,
    }
    assert {app: seen.waiting_since for app, seen in observer.seen[1100.0].items()} == {
        "a": 500.0,
        "b": 1100.0,
        "c": 40.0,
    }


def test_app_with_new_gpus_starts_a_new_wait(make_world: MakeWorld) -> None:
    observer = Observer()
    world = make_world(observer, SETTINGS)
    world.submit(simple_app("a", gpus=2))
    world.advance(499.0)
    observer.wishes["a"] = range(2)
    world.advance(700.0)
    observer.wishes.clear()
    world.send(events.GpusReleased(700.0, A, (GpuId(0),)))
    world.advance(800.0)
    world.send(events.GpusReleased(800.0, A, (GpuId(1),)))
    world.advance(1100.0)
    assert observer.seen[500.0]["a"].waiting_since == 0.0
    assert observer.seen[1100.0]["a"].waiting_since == 800.0


def test_hunger_is_counted_in_beats(make_world: MakeWorld) -> None:
    observer = Observer(b=range(2))
    world = make_world(observer, SETTINGS)
    world.submit(simple_app("a", gpus=2))
    for at in (100.0, 200.0, 700.0):
        # Each arrival opens a round, for GPUs are free.
        world.advance(at)
        world.submit(simple_app(f"late-{at:.0f}", gpus=2))
    world.submit(simple_app("b", gpus=2))
    world.advance(1699.0)
    observer.wishes["a"] = range(2, 4)
    world.advance(2900.0)
    assert [at for at in observer.seen if at < 1100.0] == [0.0, 100.0, 200.0, 500.0, 700.0]
    hunger = {at: seen["a"].hungry_rounds for at, seen in observer.seen.items()}
    assert hunger == {
        **dict.fromkeys((0.0, 100.0, 200.0, 500.0), 0),
        **dict.fromkeys((700.0, 1100.0), 1),
        1700.0: 2,
        2300.0: 0,
        2900.0: 0,
    }
    assert observer.seen[1700.0]["b"].hungry_rounds == 0
    assert observer.seen[1700.0]["late-700"].hungry_rounds == 1


def test_a_round_between_beats_waits_for_every_table_that_was_asked_for(
    make_world: MakeWorld,
) -> None:
    observer = Inquirer()
    world = make_world(observer, SETTINGS)
    world.silent.add(A)
    world.submit(simple_app("a", gpus=8))
    world.submit(simple_app("b", gpus=8))  # its own table comes at once
    world.advance(4.0)
    assert observer.seen == {}
    world.speak("a", Bid(A, (), TABLE))
    assert list(observer.seen) == [4.0]
    assert list(observer.seen[4.0]) == [A, B]


def test_round_between_beats_waits_for_a_table_until_its_deadline(make_world: MakeWorld) -> None:
    observer = Inquirer()
    world = make_world(observer, SETTINGS)
    world.silent.add(A)
    world.submit(simple_app("a", gpus=8))
    world.advance(5.0)
    world.submit(simple_app("b", gpus=8))
    world.advance(9.0)
    assert observer.seen == {}
    world.advance(20.0)
    assert list(observer.seen) == [10.0]


def test_the_round_of_a_beat_waits_for_no_table(make_world: MakeWorld) -> None:
    observer = Inquirer(b=range(8))
    world = make_world(observer, SETTINGS)
    world.submit(simple_app("b", gpus=8))
    world.advance(495.0)
    world.silent.add(A)
    world.submit(simple_app("a", gpus=8))
    world.advance(504.0)
    assert list(observer.seen) == [0.0, 500.0]
