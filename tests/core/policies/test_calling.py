"""Which GPUs are called in for a newcomer, and of whom."""

import math
from dataclasses import replace

import pytest

from themis.core.model import AppId, GpuId, Machine, Topology
from themis.core.policies import View, policy
from themis.core.policies.newcomer_preemption import _loss, call_in
from themis.testing.policy_fakes import FakeApp, drive, fake_view

EIGHT = Topology((Machine("m0", "r0", (4,)), Machine("m1", "r0", (4,))))


def gpus(*numbers: int) -> tuple[GpuId, ...]:
    return tuple(map(GpuId, numbers))


# Rounds between beats at 600 s; leases end at 1200 s.
SHORT = FakeApp("short", work=400.0, jobs=4, ideal_time=100.0, newcomer=True)
"""Four jobs of 100 s, all of which fit its share."""
LONG = FakeApp(
    "long", work=1e6, jobs=8, ideal_time=250_000.0, elapsed=1000.0, held=gpus(0, 1, 2, 3)
)
"""Needs half of its ideal time with all it can use."""
LATE = FakeApp("late", work=4000.0, jobs=4, ideal_time=1000.0, elapsed=100.0, held=gpus(4, 5, 6, 7))
"""Any wait makes it later still."""


def between_beats(*apps: FakeApp, free: tuple[int, ...] = ()) -> View:
    return fake_view(EIGHT, apps, offer=free, at_beat=False, now=600.0)


def called(view: View, least_gain: float = 0.05) -> list[GpuId]:
    lent = {gpu: app.app for app in view.apps for gpu in app.held}
    return call_in(view, lent, least_gain=least_gain)


def test_short_newcomer_gets_gpus_of_apps_with_slack() -> None:
    assert called(between_beats(SHORT, LONG, LATE)) == [0, 1, 2, 3]


def test_app_that_would_become_late_keeps_its_gpus() -> None:
    assert called(between_beats(SHORT, LATE)) == []


def test_late_app_losing_almost_nothing_can_yield() -> None:
    # 600 s more are 0.1 % of what it takes.
    huge = replace(LATE, work=4e6, ideal_time=600_000.0)
    assert called(between_beats(SHORT, huge)) == [4, 5, 6, 7]


def test_no_app_yields_to_a_better_off_one() -> None:
    huge = replace(LATE, work=4e6, ideal_time=100_000.0)
    assert called(between_beats(SHORT, huge)) == []


@pytest.mark.parametrize(
    "app",
    [
        pytest.param(replace(SHORT, newcomer=False), id="it has been through a beat"),
        pytest.param(replace(SHORT, work=4e5, ideal_time=1e5), id="the wait is nothing to it"),
        pytest.param(replace(SHORT, ideal_time=1000.0), id="it will be in time"),
        pytest.param(replace(SHORT, of="long"), id="it would call in its own owner's"),
        pytest.param(replace(SHORT, machines=frozenset({1})), id="it may not use them"),
        pytest.param(replace(SHORT, min_gang=8, gang=8, jobs=1), id="too few for its gang"),
    ],
)
def test_nothing_is_called_in_for(app: FakeApp) -> None:
    assert called(between_beats(app, LONG)) == []


def test_app_unable_to_run_on_called_gpus_causes_no_call() -> None:
    assert _loss(math.inf, 3.0) == 0.0
    assert _loss(math.inf, math.inf) == 0.0
    assert _loss(2.0, 3.0) == pytest.approx(math.log(1.5))


def test_free_gpus_are_not_called_in() -> None:
    assert len(called(between_beats(SHORT, LONG, free=(6, 7)))) == 2
    assert called(between_beats(SHORT, LONG, free=(4, 5, 6, 7))) == []


def test_no_more_are_called_in_than_it_needs_to_be_in_time() -> None:
    # Its share would take 400 s; two GPUs are too slow, three are in time.
    wide = FakeApp("wide", work=1000.0, jobs=8, ideal_time=400.0, newcomer=True)
    assert len(called(between_beats(wide, LONG))) == 3


def test_starts_count_as_time_that_it_needs() -> None:
    # With 95 s of starts in its phases three GPUs would be late.
    wide = FakeApp("wide", work=1000.0, jobs=8, ideal_time=400.0, newcomer=True)
    starting = replace(wide, starting_seconds=95.0)
    assert len(called(between_beats(starting, LONG))) == 4


def test_the_most_patient_goes_first() -> None:
    longer = replace(LONG, name="longer", ideal_time=900_000.0, held=gpus(4, 5, 6, 7))
    assert called(between_beats(SHORT, LONG, longer)) == [4, 5, 6, 7]


def test_two_newcomers_are_not_called_the_same_gpus() -> None:
    everything = replace(LONG, held=gpus(*range(8)))
    twin = replace(SHORT, name="twin")
    assert called(between_beats(SHORT, twin, everything)) == list(range(8))


def test_gpus_for_a_gang_are_close_together() -> None:
    gang = FakeApp("gang", work=400.0, jobs=1, gang=4, ideal_time=100.0, newcomer=True)
    everything = replace(LONG, held=gpus(*range(7)))
    assert called(between_beats(gang, everything)) == [0, 1, 2, 3]


def test_the_least_gain_is_an_option_and_the_paper_calls_nothing_in() -> None:
    view = between_beats(SHORT, LONG)
    lent = {gpu: AppId("long") for gpu in LONG.held}
    assert called(view, least_gain=10.0) == []
    assert policy("themis").calls_in
    assert list(policy("themis").call_in(view, lent)) == [0, 1, 2, 3]
    assert list(policy("themis", call_in_gain=10.0).call_in(view, lent)) == []
    assert not policy("themis", call_in_gain=0.0).calls_in
    assert not policy("themis-paper").calls_in
    assert not policy("equal-share").calls_in


CROWD = Topology(tuple(Machine(f"m{i}", "r0", (4, 4)) for i in range(4)))


@pytest.mark.parametrize("name", ["themis", "equal-share", "min-max-rho", "worst-first"])
def test_called_in_gpus_go_to_their_intended_app(name: str) -> None:
    # They want twice what they have, so that all of them are owed something.
    want = replace(LONG, jobs=16, ideal_time=500_000.0)
    old = [
        replace(want, name=f"old{i}", held=gpus(*range(8 * i, 8 * i + 8)), arrival=float(i))
        for i in range(4)
    ]
    chosen = policy(name, call_in_gain=0.05)
    quiet = fake_view(CROWD, [SHORT, *old], offer=(), at_beat=False, now=600.0)
    lent = {gpu: app.app for app in old for gpu in app.held}
    found = list(chosen.call_in(quiet, lent))
    assert len(found) == 4
    view = fake_view(CROWD, [SHORT, *old], offer=found, at_beat=False, now=600.0)
    plan = drive(chosen, view)
    got = [gpu for item in plan.allotments if item.app == AppId("short") for gpu in item.gpus]
    assert sorted(got) == found
