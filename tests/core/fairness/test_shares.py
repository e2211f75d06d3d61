"""Equal shares kept up beside a run: who would be done when, and how crowded it would be."""

import math
import random

import pytest

from themis.core.fairness import FluidApp, JobLoad, PhaseLoad, PhaseSums, fluid_run
from themis.core.fairness.fluid_shares import LULL, EqualShares
from themis.core.model import AppId
from themis.errors import DuplicateError

A, B, C = AppId("a"), AppId("b"), AppId("c")


def sums(*works: float, width: int = 4) -> tuple[PhaseSums, ...]:
    """Phases of one job each."""
    return tuple(PhaseSums.of((JobLoad(work, width),)) for work in works)


def test_a_run_to_its_end_is_the_fluid_reference() -> None:
    rng = random.Random(1)
    apps = []
    for number in range(30):
        loads: tuple[PhaseLoad, ...] = tuple(
            tuple(JobLoad(rng.uniform(10, 900), rng.choice((1, 2, 4))) for _ in range(jobs))
            for jobs in (6, 3, 1)
        )
        apps.append(FluidApp(AppId(f"a{number:02}"), rng.uniform(0, 900), 1.0, loads))
    expected = fluid_run(apps, 8.0)
    shares = EqualShares(8.0)
    ends: dict[AppId, float] = {}
    for app in sorted(apps, key=lambda app: app.arrival):
        ends.update(shares.advance(app.arrival))
        shares.join(app.id, 1.0, tuple(map(PhaseSums.of, app.phases)), app.arrival)
    for time in range(1000, 20_000, 37):  # Looking at it changes nothing.
        ends.update(shares.advance(float(time)))
    assert ends == pytest.approx({name: result.end for name, result in expected.items()})
    for name, result in expected.items():
        assert shares.mean_contention(name) == pytest.approx(result.mean_contention)
        assert shares.expected_contention(name) == shares.mean_contention(name)


def test_finished_app_keeps_its_contention() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(40.0), 0.0)
    shares.advance(10.0)
    assert shares.is_done(A)
    for number in range(9):
        shares.join(AppId(f"late{number}"), 1.0, sums(4000.0), 10.0)
    shares.advance(500.0)
    assert shares.expected_contention(A) == 1.0


def test_forecast_lies_between_current_crowding_and_running_alone() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(400.0), 0.0)
    shares.join(B, 1.0, sums(40.0), 0.0)
    # If nobody comes, B is done after 20 s and A, alone for its other 360, after 110 s.
    lull = (20.0 * 2 + 90.0) / 110.0
    assert shares.expected_contention(A) == pytest.approx((1 - LULL) * 2.0 + LULL * lull)
    assert shares.expected_contention(B) == pytest.approx(2.0)


def test_without_newcomers_the_forecast_is_what_then_happens() -> None:
    """If everybody can use all of its part; weights count."""
    shares = EqualShares(4.0)
    for app, weight, work in ((A, 10.0, 1000.0), (B, 1.0, 10.0), (C, 2.5, 300.0)):
        shares.join(app, weight, sums(work, 5.0), 0.0)
    foreseen = shares._without_newcomers()
    ends = dict(shares.advance(math.inf))
    for app in (A, B, C):
        until, area = foreseen[app]
        assert until == pytest.approx(ends[app])
        assert area / until == pytest.approx(shares.mean_contention(app))


def test_group_divides_its_weight_among_sharing_members() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(100.0), 0.0, group="eve")
    shares.join(B, 1.0, sums(300.0), 0.0, group="eve")
    shares.join(C, 1.0, sums(800.0), 0.0, group="bob")
    assert shares.expected_contention(A) == pytest.approx(4.0)
    # One GPU each, and two for C; A is done after 100 s, and then B has two.
    assert shares.advance(250.0) == [(A, 100.0), (B, 200.0)]
    assert shares.mean_contention(B) == pytest.approx((100 * 4 + 100 * 2) / 200)
    assert shares.mean_contention(C) == pytest.approx((200 * 2 + 50) / 250)


def test_latest_member_sets_the_weight_of_a_group() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(400.0), 0.0, group="eve")
    shares.join(C, 1.0, sums(400.0), 0.0)
    shares.join(B, 3.0, sums(400.0), 0.0, group="eve")
    assert shares.expected_contention(A) == pytest.approx(4.0 / 1.5)


def test_only_much_more_work_brings_a_finished_app_back() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(400.0), 0.0)
    shares.advance(100.0)
    assert shares.revise(A, sums(450.0), 200.0)
    assert shares.is_done(A)
    assert shares.revise(A, sums(850.0), 300.0)
    assert shares.advance(1000.0) == [(A, 400.0)]
    assert not shares.revise(A, sums(850.0), 1000.0)


def test_heaps_do_not_grow_for_ever() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(1e9), 0.0)
    shares.join(B, 1.0, sums(1e9), 0.0)
    for number in range(5000):
        shares.set_weight("a", 1.0 + number % 2, float(number))
    water = shares._water
    for heap in (water._thirsty_ends, water._thirsty_limits):
        assert len(heap._entries) < 200


def test_weights_count_in_shares_and_in_contention() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 3.0, sums(300.0), 0.0)
    shares.join(B, 1.0, sums(300.0), 0.0)
    assert shares.advance(100.0) == [(A, 100.0)]  # 3 of 4 GPUs
    assert shares.mean_contention(A) == pytest.approx(4 / 3)
    assert shares.mean_contention(B) == pytest.approx(4.0)


def test_a_new_weight_counts_from_then_on() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(400.0), 0.0)
    shares.join(B, 1.0, sums(400.0), 0.0)
    shares.set_weight("a", 3.0, 100.0)  # 200 s of work left, at 3 GPUs
    assert [app for app, _ in shares.advance(100.0 + 200.0 / 3.0)] == [A]


def test_resting_app_uses_nothing_and_resumes_in_place() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(40.0, 40.0), 0.0)
    shares.leave(A, 15.0)
    shares.leave(A, 16.0)
    shares.advance(1000.0)
    assert not shares.is_done(A)
    shares.come_back(A, 1000.0)
    shares.come_back(A, 1001.0)
    assert shares.advance(2000.0) == [(A, 1005.0)]


def test_other_work_than_was_thought_counts_less_what_was_used() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(400.0, 400.0), 0.0)
    shares.revise(A, sums(400.0, 40.0), 50.0)  # 200 used
    assert shares.advance(2000.0) == [(A, 110.0)]
    shares.join(B, 1.0, sums(400.0), 2000.0)
    shares.revise(B, sums(100.0, 90.0), 2050.0)  # less than it has used: done
    assert shares.is_done(B)


def test_more_or_fewer_gpus_count_from_then_on() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(400.0), 0.0)
    shares.set_capacity(2.0, 50.0)
    assert shares.advance(1000.0) == [(A, 150.0)]
    shares.join(B, 1.0, sums(400.0), 1000.0)
    shares.set_capacity(0.0, 1000.0)
    assert shares.advance(5000.0) == []
    assert math.isfinite(shares.expected_contention(B))
    shares.set_capacity(4.0, 5000.0)
    assert [app for app, _ in shares.advance(6000.0)] == [B]


def test_app_that_ended_early_counts_until_its_share_is_used() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(400.0), 0.0)
    shares.join(B, 1.0, sums(4000.0), 0.0)
    shares.part(A, 10.0)
    assert shares.is_parting(A)
    shares.advance(199.0)
    assert A in shares
    assert shares.mean_contention(B) == 2.0
    shares.advance(200.0)
    assert A not in shares
    shares.advance(400.0)
    assert shares.mean_contention(B) == pytest.approx(1.5)


def test_app_that_ended_late_is_forgotten_at_once() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(40.0), 0.0)
    shares.part(A, 100.0)
    assert A not in shares


def test_an_app_without_work_is_done_when_it_comes() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(0.0), 5.0)
    assert shares.is_done(A)
    shares.join(B, 1.0, sums(0.0, 8.0, 0.0), 5.0)
    assert shares.advance(100.0) == [(B, 7.0)]


def test_no_app_has_two_shares() -> None:
    shares = EqualShares(4.0)
    shares.join(A, 1.0, sums(40.0), 0.0)
    with pytest.raises(DuplicateError, match="a"):
        shares.join(A, 1.0, sums(40.0), 1.0)


def test_share_clock_restored_from_a_snapshot_continues_unchanged() -> None:
    rng = random.Random(2)
    shares, twin = EqualShares(6.0), EqualShares(6.0)
    now = 0.0
    for _ in range(300):
        now += rng.expovariate(1 / 20)
        app = AppId(f"a{rng.randrange(12)}")
        kind = rng.randrange(6)
        work = sums(rng.uniform(1, 400), rng.uniform(0, 90), width=rng.choice((1, 2, 8)))
        weight, gpus = rng.choice((1.0, 2.5)), rng.uniform(0, 12)
        for each in (shares, twin):
            if kind <= 1 and app not in each:
                each.join(app, weight, work, now)
            elif kind == 5:
                each.set_capacity(gpus, now)
            elif app in each and not each.is_parting(app):
                match kind:
                    case 2:
                        each.revise(app, work, now)
                    case 3:
                        each.leave(app, now)
                    case 4:
                        each.part(app, now)
                    case _:
                        each.come_back(app, now)
            each.advance(now)
        assert twin.apps() == shares.apps()
        for name in shares.apps():
            assert twin.share_state(name) == shares.share_state(name)
            assert twin.expected_contention(name) == shares.expected_contention(name)
        states = {name: shares.share_state(name) for name in shares.apps()}
        kept = {name: state for name, state in states.items() if state is not None}
        twin = EqualShares.restored(shares.state(), kept)
