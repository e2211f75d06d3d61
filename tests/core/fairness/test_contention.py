import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirements import examples
from themis.core.fairness import CapacityClock, ContentionClock
from themis.core.model import AppId
from themis.errors import InvariantError

A, B, C = AppId("a"), AppId("b"), AppId("c")


def test_contention_counts_the_app_itself() -> None:
    clock = ContentionClock()
    clock.join(A, 1.0, at=0.0)
    assert clock.contention_now(A) == 1.0
    assert clock.mean_contention(A, at=100.0) == 1.0


def test_at_arrival_the_mean_is_the_present_value() -> None:
    clock = ContentionClock()
    clock.join(A, 1.0, at=0.0)
    clock.join(B, 2.0, at=7.0)
    assert clock.mean_contention(B, at=7.0) == 1.5
    assert clock.elapsed(B, at=7.0) == 0.0


def test_the_mean_is_weighted_by_time() -> None:
    clock = ContentionClock()
    clock.join(A, 1.0, at=0.0)
    clock.join(B, 2.0, at=10.0)
    clock.leave(B, at=15.0)
    # A: N = 1 for 15 s, 3 for 5 s.
    assert clock.mean_contention(A, at=20.0) == pytest.approx(1.5)
    assert clock.mean_contention(B, at=20.0) == pytest.approx(1.5)


def test_a_pause_stops_elapsed_and_mean_until_the_app_joins_again() -> None:
    clock = ContentionClock()
    clock.join(A, 1.0, at=0.0)
    clock.join(B, 1.0, at=0.0)
    clock.leave(A, at=10.0)
    clock.join(C, 8.0, at=10.0)
    assert clock.elapsed(A, at=90.0) == 10.0
    assert clock.mean_contention(A, at=90.0) == 2.0
    assert clock.contention_now(A) == 10.0  # as if it were active
    clock.leave(C, at=100.0)
    clock.leave(B, at=100.0)
    clock.join(A, 1.0, at=100.0)
    assert clock.elapsed(A, at=110.0) == 20.0
    assert clock.mean_contention(A, at=110.0) == pytest.approx(1.5)


def test_a_new_weight_leaves_the_past_as_it_was() -> None:
    clock = ContentionClock()
    clock.join(A, 1.0, at=0.0)
    clock.join(B, 1.0, at=0.0)
    clock.set_weight(A, 3.0, at=10.0)
    assert clock.mean_contention(A, at=20.0) == pytest.approx((2.0 + 4.0 / 3.0) / 2)
    assert clock.mean_contention(B, at=20.0) == pytest.approx((2.0 + 4.0) / 2)


def test_a_weight_changed_during_a_pause_counts_from_the_return() -> None:
    clock = ContentionClock()
    clock.join(A, 1.0, at=0.0)
    clock.join(B, 1.0, at=0.0)
    clock.leave(A, at=10.0)
    clock.set_weight(A, 2.0, at=15.0)
    assert clock.total_weight == 1.0
    assert clock.mean_contention(A, at=20.0) == 2.0


def test_joining_twice_only_sets_the_weight_and_leaving_twice_does_nothing() -> None:
    clock = ContentionClock()
    clock.join(A, 1.0, at=0.0)
    clock.join(A, 2.0, at=5.0)
    assert clock.total_weight == 2.0
    clock.leave(A, at=8.0)
    clock.leave(A, at=9.0)
    assert clock.total_weight == 0.0
    assert clock.elapsed(A, at=9.0) == 8.0


def test_an_app_can_be_forgotten_only_after_it_left() -> None:
    clock = ContentionClock()
    clock.join(A, 1.0, at=0.0)
    with pytest.raises(InvariantError, match="active"):
        clock.forget(A)
    clock.leave(A, at=1.0)
    clock.forget(A)
    clock.forget(A)
    with pytest.raises(InvariantError, match="never joined"):
        clock.elapsed(A, at=2.0)


def test_time_does_not_run_backwards() -> None:
    clock = ContentionClock()
    clock.join(A, 1.0, at=10.0)
    with pytest.raises(InvariantError, match="backwards"):
        clock.leave(A, at=9.0)


@dataclass
class History:
    """Every moment's weights, kept whole: the definition, with no cleverness."""

    steps: list[tuple[float, dict[AppId, float]]] = field(default_factory=list)

    def note(self, at: float, weights: dict[AppId, float]) -> None:
        self.steps.append((at, dict(weights)))

    def measure(self, app: AppId, at: float) -> tuple[float, float]:
        seconds = area = 0.0
        for (start, weights), (end, _) in pairwise([*self.steps, (at, {})]):
            if app in weights:
                seconds += end - start
                area += (end - start) * sum(weights.values()) / weights[app]
        return seconds, area


ACTIONS: dict[str, Callable[[ContentionClock, AppId, float, float], None]] = {
    "join": lambda clock, app, weight, at: clock.join(app, weight, at),
    "leave": lambda clock, app, _, at: clock.leave(app, at),
    "weigh": lambda clock, app, weight, at: clock.set_weight(app, weight, at),
}


def act(weights: dict[AppId, float], action: str, app: AppId, weight: float) -> None:
    if action == "leave":
        weights.pop(app, None)
    elif action == "join" or app in weights:
        weights[app] = weight


STEP = st.tuples(
    st.sampled_from(sorted(ACTIONS)),
    st.sampled_from((A, B, C)),
    st.sampled_from((1.0, 2.0, 1.0 / 3.0, 1e-6, 1e6)),
    st.one_of(st.just(0.0), st.floats(1e-3, 1e7)),
)


@examples(150)
@given(st.lists(STEP, max_size=30))
def test_means_agree_with_an_integral_over_the_whole_history(
    steps: list[tuple[str, AppId, float, float]],
) -> None:
    clock, history = ContentionClock(), History()
    weights: dict[AppId, float] = {}
    now = 0.0
    for app in (A, B, C):
        clock.join(app, 1.0, now)
        weights[app] = 1.0
    history.note(now, weights)
    for action, app, weight, delay in steps:
        now += delay
        ACTIONS[action](clock, app, weight, now)
        act(weights, action, app, weight)
        history.note(now, weights)
    for app in (A, B, C):
        seconds, area = history.measure(app, now + 5.0)
        assert clock.elapsed(app, now + 5.0) == pytest.approx(seconds, rel=1e-9)
        if seconds > 0.0:
            assert clock.mean_contention(app, now + 5.0) == pytest.approx(area / seconds, rel=1e-9)


def test_a_long_history_of_many_apps_does_not_drift() -> None:
    rng = random.Random(11)
    clock, history = ContentionClock(), History()
    weights: dict[AppId, float] = {}
    now = 1e8
    for number in range(1500):
        now += rng.expovariate(0.1)
        app = AppId(f"app-{number}")
        clock.join(app, weight := rng.choice((1.0, 0.1, 1 / 7)), now)
        weights[app] = weight
        if len(weights) > 12:
            gone = rng.choice(sorted(weights))
            clock.leave(gone, now)
            del weights[gone]
        history.note(now, weights)
    for app in sorted(weights):
        seconds, area = history.measure(app, now + 1.0)
        assert clock.mean_contention(app, now + 1.0) == pytest.approx(area / seconds, rel=1e-11)
    for app in sorted(weights):
        clock.leave(app, now)
    assert clock.total_weight == 0.0


def test_capacity_is_averaged_over_the_time_the_app_is_active() -> None:
    clock = CapacityClock()
    clock.set_capacity("any", 8, at=0.0)
    clock.set_capacity("big", 2, at=0.0)
    clock.start(A, "any", at=10.0)
    assert clock.mean_capacity(A, at=10.0) == 8.0
    clock.set_capacity("any", 4, at=20.0)
    assert clock.mean_capacity(A, at=30.0) == 6.0
    clock.stop(A, at=30.0)
    clock.stop(A, at=31.0)
    clock.set_capacity("any", 100, at=40.0)
    assert clock.mean_capacity(A, at=50.0) == 6.0
    clock.start(A, "big", at=50.0)  # a class of its own, as after a change of constraints
    assert clock.mean_capacity(A, at=60.0) == pytest.approx((8 + 4 + 2) / 3)


def test_capacity_switches_class_without_a_stop() -> None:
    clock = CapacityClock()
    clock.set_capacity("any", 8, at=0.0)
    clock.set_capacity("big", 2, at=0.0)
    clock.start(A, "any", at=0.0)
    clock.start(A, "big", at=10.0)
    assert clock.mean_capacity(A, at=20.0) == 5.0
    assert clock.capacity_now("big") == 2.0
    assert clock.capacity_now("none") == 0.0


def test_an_app_needs_a_class_whose_capacity_is_known() -> None:
    clock = CapacityClock()
    with pytest.raises(InvariantError, match="no capacity"):
        clock.start(A, "any", at=0.0)
    clock.set_capacity("any", 8, at=0.0)
    clock.start(A, "any", at=0.0)
    clock.forget(A)
    with pytest.raises(InvariantError, match="never started"):
        clock.mean_capacity(A, at=1.0)
