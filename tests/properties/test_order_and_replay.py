"""The order in which answers come changes nothing, and a log replayed says the same again."""

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.arbiter_invariants import Watch
from tests.support.requirements import examples
from tests.support.scripted_world import ScriptedWorld, replay, simple_app
from themis.core.arbiter import Settings, events
from themis.core.arbiter.commands import Command, Refuse, WakeMe
from themis.core.arbiter.round_session import OpenRound
from themis.core.model import AppId, Bid, LeaseSource, Machine, Topology
from themis.core.policies import Plan, Policy, View, policy
from themis.core.policies.base import AskBids, Round
from themis.core.policies.leftovers import Hand
from themis.core.policies.placing import Pool

TOPOLOGY = Topology((Machine("m0", "r0", (2, 2)), Machine("m1", "r1", (2, 1))))
APPS = tuple(AppId(f"a{i}") for i in range(4))
KINDS: Mapping[str, Mapping[str, object]] = {
    "lottery": {"f": 0.0, "horizon": "end"},
    "gpus": {"f": 0.0, "payment": "gpus"},
    "time": {"f": 0.0, "payment": "time", "rank": "now"},
    "fresh": {"f": 0.3, "payment": "gpus", "fresh_tables": True, "rank": "now"},
}


def story(kind: str, seed: int, orders: list[tuple[AppId, ...]]) -> ScriptedWorld:
    """Four apps over some beats; in each round they answer in the order given."""
    world = ScriptedWorld(
        TOPOLOGY,
        policy("themis", **KINDS[kind]),
        Settings(),
        seed=seed,
        slowdown=(1.0, 1.1, 1.4, 2.0),
        on_event=[Watch()],
    )
    for index, app in enumerate(APPS):
        world.submit(simple_app(app, gpus=1 + index, jobs=2, owner=f"o{index % 3}"))
    for number, order in enumerate(orders, start=1):
        world.silent = set(APPS)
        world.advance(600.0 * number - 37.5)
        for _ in range(2):  # policies that ask for tables first ask twice
            for app in order:
                if app in world.unanswered:
                    world.speak(app)
        world.silent.clear()
        world.progress(APPS[number % 4], 100.0 * number)
        world.advance(600.0 * number)
    return world


def decisions(world: ScriptedWorld) -> list[Command]:
    return [item for item in world.commands if not isinstance(item, WakeMe | Refuse)]


@pytest.mark.parametrize("kind", sorted(KINDS))
@examples(20)
@given(seed=st.integers(0, 5), orders=st.lists(st.permutations(APPS), min_size=2, max_size=2))
def test_the_order_of_answers_changes_nothing(
    kind: str, seed: int, orders: list[tuple[AppId, ...]]
) -> None:
    assert decisions(story(kind, seed, orders)) == decisions(story(kind, seed, [APPS] * 2))


class FirstCome(Policy):
    """Serves bids in the order in which the arbiter hands them over."""

    name = "first-come"

    def hold_round(self, view: View, rng: random.Random) -> Round:
        bids: Mapping[AppId, Bid] = yield AskBids(tuple(app.app for app in view.apps))
        hand = Hand(view, Pool(view.topology, view.offer))
        hand.deal([view.find(app) for app in bids])
        return Plan(hand.allotments(LeaseSource.DIRECT))


def first_come_story(order: tuple[AppId, ...]) -> list[Command]:
    world = ScriptedWorld(TOPOLOGY, FirstCome(), Settings(), on_event=[Watch()])
    world.silent = set(APPS)
    for app in APPS:
        world.submit(simple_app(app, gpus=4))
    world.advance(562.5)
    for app in order:
        world.speak(app)
    world.advance(600.0)
    return decisions(world)


def test_even_a_first_come_policy_ignores_the_order_of_bids() -> None:
    assert first_come_story(APPS) == first_come_story(APPS[::-1])


def test_arbiter_that_keeps_the_arrival_order_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenRound, "sorted_bids", lambda self: dict(self.bids))
    assert first_come_story(APPS) != first_come_story(APPS[::-1])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_replayed_log_gives_the_same_commands(kind: str) -> None:
    world = story(kind, 1, [APPS, tuple(reversed(APPS)), APPS])
    again = replay(world.history, TOPOLOGY, policy("themis", **KINDS[kind]), Settings(), 1)
    assert again == [step.commands for step in world.history]


def test_arbiter_with_its_own_randomness_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: payments are drawn from a generator that outlives the round."""
    shared = random.Random(7)
    monkeypatch.setattr(View, "rng", lambda self, purpose: shared)
    orders = [APPS] * 3
    world = story("lottery", 1, orders)
    again = replay(world.history, TOPOLOGY, policy("themis", **KINDS["lottery"]), Settings(), 1)
    assert again != [step.commands for step in world.history]


def test_the_seed_and_nothing_else_decides_chance() -> None:
    first, same, other = (story("lottery", seed, [APPS] * 3) for seed in (1, 1, 2))
    assert first.history == same.history
    assert decisions(first) != decisions(other)


def test_needless_wake_ups_change_nothing() -> None:
    calm, nervous = (
        ScriptedWorld(TOPOLOGY, policy("themis", f=0.0), Settings(), seed=3) for _ in range(2)
    )
    for world in (calm, nervous):
        for app in APPS:
            world.submit(simple_app(app, gpus=3))
    for second in range(1, 700, 7):
        calm.advance(float(second))
        nervous.advance(float(second))
        nervous.send(events.Woken(float(second)))
    assert decisions(calm) == decisions(nervous)
