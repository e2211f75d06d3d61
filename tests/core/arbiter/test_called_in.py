"""Leases that end early for an app that cannot wait for a beat."""

import random
from collections.abc import Callable, Collection, Mapping

import pytest

from tests.support.scripted_world import ScriptedWorld, simple_app
from themis.core.arbiter import GpuState, events
from themis.core.arbiter.commands import Assign, Command
from themis.core.model import AppId, GpuId, LeaseSource
from themis.core.policies import Allotment, DirectPolicy, Plan, View, policy

MakeWorld = Callable[..., ScriptedWorld]

LONG, SHORT = AppId("long"), AppId("short")
ALL = tuple(map(GpuId, range(8)))


def told(commands: list[Command], app: AppId) -> list[Assign]:
    return [item for item in commands if isinstance(item, Assign) and item.app == app]


class Calling(DirectPolicy):
    """Calls in what a test says, and gives it to whom the test says; all to the first app else."""

    name = "calling"
    calls_in = True

    def __init__(self, called: Collection[int], winner: str = "short") -> None:
        self.called = called
        self.winner = AppId(winner)
        self.lent: Mapping[GpuId, AppId] = {}

    def call_in(self, view: View, lent: Mapping[GpuId, AppId]) -> Collection[GpuId]:
        self.lent = lent
        return tuple(map(GpuId, self.called))

    def plan(self, view: View, rng: random.Random) -> Plan:
        first = (
            min(app.app for app in view.apps) if view.at_beat or view.now == 0.0 else self.winner
        )
        return Plan((Allotment(first, view.offer, LeaseSource.DIRECT),))


def full(make_world: MakeWorld, rule: object, at: float) -> ScriptedWorld:
    """A long app that holds all eight GPUs, some time after the start."""
    world = make_world(rule)
    world.submit(simple_app("long", gpus=1, jobs=8, iterations=100_000))
    world.advance(at)
    assert len(world.held("long")) == 8
    return world


def test_a_short_app_begins_between_beats_and_its_gpus_return(make_world: MakeWorld) -> None:
    world = full(make_world, "themis", 100.0)
    out = world.submit(simple_app("short", gpus=1, jobs=2, iterations=10))
    (loss,) = told(out, LONG)
    assert len(loss.revoked) == 2
    assert len(told(out, SHORT)[0].granted) == 2
    assert world.records[-1].trigger == "call"
    world.advance(100.0 + world.drain)
    assert len(world.running("short")) == 2
    assert len(world.running("long")) == 6
    world.finish("short")
    world.advance(200.0)
    assert len(world.held("long")) == 8


def test_it_is_dealt_with_by_the_auction(make_world: MakeWorld) -> None:
    world = full(make_world, "themis", 100.0)
    world.submit(simple_app("short", gpus=1, jobs=2, iterations=10))
    notes = world.records[-1].notes
    assert SHORT in {bid.app for bid in notes.bids}
    assert set(notes.won) == {SHORT}


def test_without_the_option_a_short_app_waits_for_the_beat(make_world: MakeWorld) -> None:
    world = full(make_world, policy("themis", call_in_gain=0.0), 100.0)
    world.submit(simple_app("short", gpus=1, jobs=2, iterations=10))
    assert world.held("short") == ()
    world.advance(562.0)
    assert len(world.held("short")) == 2


def test_app_arriving_after_a_beat_round_need_not_wait_for_the_next(make_world: MakeWorld) -> None:
    world = full(make_world, "themis", 585.0)
    world.submit(simple_app("short", gpus=1, jobs=2, iterations=10))
    assert len(world.held("short")) == 2
    assert {lease.end for lease in world.arbiter.ledger.holdings(SHORT).values()} == {1200.0}


def test_promised_lease_that_has_not_begun_can_be_called_in(make_world: MakeWorld) -> None:
    world = make_world(Calling(ALL))
    world.drain = 30.0
    world.submit(simple_app("b-first", gpus=1, jobs=8, iterations=100_000))
    world.submit(simple_app("a-second", gpus=1, jobs=8, iterations=100_000))
    world.advance(570.0)  # The first has been told to go.
    world.submit(simple_app("short", gpus=1, jobs=8))
    assert len(world.held("short")) == 8
    assert world.held("a-second") == ()
    world.advance(600.0)
    assert len(world.running("short")) == 8


def test_lease_won_back_keeps_its_token_source_and_process(make_world: MakeWorld) -> None:
    world = full(make_world, Calling((0, 1, 2), winner="long"), 100.0)
    before = dict(world.arbiter.ledger.holdings(LONG))
    out = world.submit(simple_app("short", gpus=1))
    assert world.records[-1].trigger == "call"
    assert not any(item.revoked for item in told(out, LONG))
    after = world.arbiter.ledger.holdings(LONG)
    assert {gpu: (one.token, one.end, one.source) for gpu, one in after.items()} == {
        gpu: (one.token, one.end, one.source) for gpu, one in before.items()
    }


def test_only_leased_gpus_that_take_new_leases_can_be_called_in(make_world: MakeWorld) -> None:
    rule = Calling((0, 1, 5, 99))
    world = full(make_world, rule, 100.0)
    world.send(events.MachineCordoned(100.0, "m0", drain=False))
    world.submit(simple_app("short", gpus=1, jobs=8))
    assert set(rule.lent) == set(ALL[4:])
    assert world.held("short") == (5,)


def test_an_app_is_new_until_the_round_of_a_beat(make_world: MakeWorld) -> None:
    rule = Calling(())
    world = full(make_world, rule, 100.0)
    world.submit(simple_app("short", gpus=1))
    assert rule.lent
    world.advance(600.0)
    rule.lent = {}
    world.send(events.GpusReleased(600.0, LONG, (GpuId(0),)))
    world.advance(650.0)
    assert not rule.lent


def test_failed_call_in_fails_the_round_and_takes_no_gpu(make_world: MakeWorld) -> None:
    class Raising(Calling):
        def call_in(self, view: View, lent: Mapping[GpuId, AppId]) -> Collection[GpuId]:
            if lent:
                raise RuntimeError("boom")
            return ()

    world = full(make_world, Raising(()), 100.0)
    world.submit(simple_app("short", gpus=1))
    assert world.records[-1].failed == "calling GPUs in: RuntimeError: boom"
    assert len(world.running("long")) == 8
    assert world.arbiter.ledger.counts()[GpuState.LEASED] == 8


@pytest.mark.parametrize("solver", ["fails", "silent"])
def test_a_round_that_fails_leaves_what_was_called_in_where_it_was(
    make_world: MakeWorld, solver: str
) -> None:
    world = full(make_world, "themis", 100.0)
    world.solver_mood = solver  # type: ignore[assignment]  # one of its words
    before = dict(world.arbiter.ledger.holdings(LONG))
    world.submit(simple_app("short", gpus=1, jobs=2, iterations=10))
    world.advance(110.0)
    assert world.records[-1].failed
    assert dict(world.arbiter.ledger.holdings(LONG)) == before
