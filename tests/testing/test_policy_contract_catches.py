"""The contract is worth something only if policies that break it fail."""

import random
from collections.abc import Callable
from typing import ClassVar

import pytest

from themis.core.model import GpuId, LeaseSource
from themis.core.policies import Allotment, AppView, DirectPolicy, Plan, Policy, View, policy
from themis.errors import InvariantError
from themis.testing.policies import PolicyContract, random_view
from themis.testing.policy_fakes import FakeApp


class _Broken(DirectPolicy):
    name: ClassVar[str] = "broken"

    def plan(self, view: View, rng: random.Random) -> Plan:
        items = ((app.app, tuple(self.choose(app, view))) for app in view.apps)
        return Plan(tuple(Allotment(app, gpus, LeaseSource.DIRECT) for app, gpus in items if gpus))

    def choose(self, app: AppView, view: View) -> list[GpuId]:
        raise NotImplementedError


class _GivesTwice(_Broken):
    def choose(self, app: AppView, view: View) -> list[GpuId]:
        return list(view.offer[: app.room])


class _TakesWhatIsKept(_Broken):
    def choose(self, app: AppView, view: View) -> list[GpuId]:
        return [gpu for other in view.apps for gpu in other.kept if other.app != app.app][:1]


class _Overfeeds(_Broken):
    def choose(self, app: AppView, view: View) -> list[GpuId]:
        return list(view.offer) if app is view.apps[0] else []


class _IgnoresMachines(_Broken):
    def choose(self, app: AppView, view: View) -> list[GpuId]:
        return list(view.offer[: app.room]) if app is view.apps[0] else []


class _HalfServes(_Broken):
    def choose(self, app: AppView, view: View) -> list[GpuId]:
        index = view.apps.index(app)
        return list(view.offer[index : index + 1]) if app.room else []


class _Idles(_Broken):
    def choose(self, app: AppView, view: View) -> list[GpuId]:
        return []


class _FirstInTheList(DirectPolicy):
    name: ClassVar[str] = "first"

    def plan(self, view: View, rng: random.Random) -> Plan:
        for app in view.apps:
            if app.room and view.offer:
                return Plan((Allotment(app.app, view.offer[:1], LeaseSource.DIRECT),))
        return Plan(())


class _Remembers(DirectPolicy):
    name: ClassVar[str] = "remembers"

    def __init__(self) -> None:
        self.rounds = 0

    def plan(self, view: View, rng: random.Random) -> Plan:
        self.rounds += 1
        if self.rounds % 2:
            return Plan(())
        return policy("fifo").plan(view, rng)  # type: ignore[attr-defined,no-any-return]  # direct


class _Crashes(_Broken):
    def choose(self, app: AppView, view: View) -> list[GpuId]:
        return [view.offer[0]]


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        (_GivesTwice, PolicyContract.test_plans_can_be_carried_out),
        (_TakesWhatIsKept, PolicyContract.test_gpus_kept_past_the_round_are_left_alone),
        (_Overfeeds, PolicyContract.test_plans_can_be_carried_out),
        (_IgnoresMachines, PolicyContract.test_apps_get_gpus_only_on_machines_they_may_use),
        (_HalfServes, PolicyContract.test_nobody_is_given_less_than_a_gang),
        (_Idles, PolicyContract.test_no_gpu_idles_that_would_make_an_app_faster),
        (_Idles, PolicyContract.test_an_app_alone_gets_all_it_can_use),
        (_FirstInTheList, PolicyContract.test_the_order_of_apps_and_of_answers_decides_nothing),
        (_Remembers, PolicyContract.test_a_round_can_be_held_again),
        (_Crashes, PolicyContract.test_nobody_is_given_anything_when_nothing_is_offered),
    ],
)
def test_a_broken_policy_is_caught(
    broken: Callable[[], Policy], caught_by: Callable[..., None]
) -> None:
    with pytest.raises((AssertionError, InvariantError, IndexError, ExceptionGroup)):
        caught_by(PolicyContract(), policy=broken())


def test_random_rounds_are_of_many_kinds() -> None:
    seen = [random_view(seed, 1 + seed % 5, seed % 6) for seed in range(300)]
    apps = [app for view in seen for app in view.apps if isinstance(app, FakeApp)]
    assert {view.at_beat for view in seen} == {view.by_owner for view in seen} == {True, False}
    assert any(view.quotas for view in seen)
    assert any(app.kept and app.expiring for app in apps)
    assert any(app.min_gang > 1 and app.machines for app in apps)
    assert any(len(view.apps) == 0 for view in seen)
