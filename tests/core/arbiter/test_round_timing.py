"""When rounds open and settle, and what becomes of answers that are late, missing or wrong."""

import math
from collections.abc import Callable

import pytest

from tests.support.scripted_world import ScriptedWorld, simple_app
from themis.core.arbiter import Settings, events
from themis.core.arbiter.commands import Ask, Assign, Command, RecordRound, Refuse, Solve
from themis.core.model import AppId, Bid, Chunk, Row, TableRow
from themis.core.policies import policy

MakeWorld = Callable[..., ScriptedWorld]

A, B, C = AppId("a"), AppId("b"), AppId("c")


def asks(commands: list[Command], number: int | None = None) -> list[Ask]:
    found = [item for item in commands if isinstance(item, Ask)]
    return [item for item in found if number is None or item.offer.round == number]


def busy_world(make_world: MakeWorld, **options: object) -> ScriptedWorld:
    """Two apps that each want all eight GPUs, served once, shortly before the first beat."""
    world = make_world(policy("themis", f=0.0, **options))
    for name in ("a", "b"):
        world.submit(simple_app(name, gpus=4, jobs=2))
    world.advance(561.0)
    return world


def test_a_new_app_is_asked_for_its_first_table(make_world: MakeWorld) -> None:
    world = make_world("themis")
    commands = world.deliver(events.AppArrived(0.0, simple_app("a", gpus=4)))
    (ask,) = asks(commands)
    assert (ask.app, ask.offer.round, ask.deadline) == (A, 0, 2.0)
    assert len(ask.offer.gpus) == 8


def test_an_arrival_that_finds_free_gpus_gets_a_round_at_once(make_world: MakeWorld) -> None:
    world = make_world("themis")
    world.submit(simple_app("a", gpus=4))
    assert world.now == 0.0
    assert len(world.held("a")) == 4
    (record,) = world.records
    assert (record.trigger, record.opened, record.settled) == ("free", 0.0, 0.0)


def test_an_arrival_whose_agent_is_silent_gets_its_round_at_the_deadline(
    make_world: MakeWorld,
) -> None:
    world = make_world("themis")
    world.silent.add(A)
    world.submit(simple_app("a", gpus=4))
    assert world.records == []
    world.advance(2.0)
    # It never bid, so it gets what is left; the declared work stands in for its valuation.
    world.advance(4.0)
    assert len(world.held("a")) == 4


def test_a_round_opens_the_lead_before_its_beat(make_world: MakeWorld) -> None:
    world = busy_world(make_world)
    before = len(world.records)
    assert world.advance(561.9) == []
    world.advance(562.0)
    record = world.records[before]
    assert (record.trigger, record.opened, record.offered) == ("beat", 562.0, 8)
    assert all(lease.end == 1200.0 for lease in world.arbiter.ledger.leases() if lease.token)


def test_a_round_settles_as_soon_as_all_have_answered(make_world: MakeWorld) -> None:
    world = busy_world(make_world)
    world.silent |= {A, B}
    opened = asks(world.advance(562.0))
    assert [ask.app for ask in opened] == [A, B]
    number = opened[0].offer.round
    first = world.deliver(events.BidReceived(562.5, A, number, world.bid(A, opened[0].offer)))
    assert first == []
    second = world.deliver(events.BidReceived(562.7, B, number, world.bid(B, opened[1].offer)))
    assert any(isinstance(item, Solve) for item in second)
    settled = world.advance(562.7)
    assert any(isinstance(item, RecordRound) for item in settled)


def test_a_missing_bid_falls_back_to_the_cached_valuation(make_world: MakeWorld) -> None:
    world = busy_world(make_world, payment="lottery")
    world.silent.add(A)
    world.advance(563.9)
    assert world.arbiter.round_open
    world.advance(564.0)
    record = world.records[-1]
    assert record.settled == 564.0
    assert [bid.app for bid in record.notes.bids] == [A, B]
    stand_in = next(bid for bid in record.notes.bids if bid.app == A)
    assert stand_in.rows


def test_an_app_without_any_valuation_has_no_bid_at_the_deadline(make_world: MakeWorld) -> None:
    world = make_world(policy("themis", f=0.0))
    world.silent.add(A)
    world.submit(simple_app("a", gpus=8))
    world.submit(simple_app("b", gpus=8))
    world.advance(600.0)
    assert all(A not in {bid.app for bid in record.notes.bids} for record in world.records)


def test_a_late_bid_is_refused_and_nothing_changes(make_world: MakeWorld) -> None:
    world = busy_world(make_world)
    world.silent.add(A)
    ask = asks(world.advance(562.0), None)[0]
    world.advance(570.0)
    before = list(world.arbiter.ledger.leases())
    valuation = world.arbiter.world.apps[A].valuation
    late = world.deliver(
        events.BidReceived(570.0, A, ask.offer.round, Bid(A, (), (TableRow(0, 1, 5.0),)))
    )
    assert [type(item) for item in late] == [Refuse]
    assert list(world.arbiter.ledger.leases()) == before
    assert world.arbiter.world.apps[A].valuation == valuation


@pytest.mark.parametrize(
    "bid",
    [
        pytest.param(Bid(A, (Row((Chunk(1, 1),), math.nan),)), id="NaN seconds"),
        pytest.param(Bid(A, (Row((Chunk(1, 1),), -1.0),)), id="negative seconds"),
        pytest.param(Bid(A, (Row((Chunk(1, 1),), math.inf),)), id="infinite seconds"),
        pytest.param(Bid(A, (Row((Chunk(1, 9),), 1.0),)), id="more GPUs than were offered"),
        pytest.param(Bid(A, (Row((Chunk(3, 5), Chunk(3, 5)), 1.0),)), id="too many in all"),
        pytest.param(Bid(A, (Row((Chunk(9, 1),), 1.0),)), id="no such level"),
        pytest.param(Bid(A, (Row((Chunk(1, 1, machine=7),), 1.0),)), id="a foreign machine"),
        pytest.param(Bid(A, (Row((), 1.0),)), id="an empty row"),
        pytest.param(Bid(A, (), (TableRow(0, 0, 1.0),)), id="a table of no GPUs"),
        pytest.param(Bid(A, (), (TableRow(0, 1, math.nan),)), id="NaN in the table"),
    ],
)
def test_an_invalid_bid_is_refused_for_that_app_alone(make_world: MakeWorld, bid: Bid) -> None:
    world = busy_world(make_world)
    world.silent.add(A)
    opened = asks(world.advance(562.0))
    valuation = world.arbiter.world.apps[A].valuation
    out = world.send(events.BidReceived(562.0, A, opened[0].offer.round, bid))
    (refusal,) = (item for item in out if isinstance(item, Refuse))
    assert refusal.who == A
    record = world.records[-1]
    assert record.failed == ""
    assert set(record.refused) == {A}
    assert [kept.app for kept in record.notes.bids] == [B]
    assert world.arbiter.world.apps[A].valuation == valuation


@pytest.mark.parametrize(
    ("app", "number", "bid"),
    [
        pytest.param(A, None, Bid(B), id="in another's name"),
        pytest.param(AppId("nobody"), None, Bid(AppId("nobody")), id="by an unknown app"),
        pytest.param(A, 0, Bid(A), id="a first table that nobody waits for"),
        pytest.param(A, 999, Bid(A), id="for a round to come"),
        pytest.param(A, 1, Bid(A), id="for a round gone by"),
    ],
)
def test_unexpected_answer_is_refused(
    make_world: MakeWorld, app: AppId, number: int | None, bid: Bid
) -> None:
    world = busy_world(make_world)
    world.silent |= {A, B}
    opened = asks(world.advance(562.0))
    where = opened[0].offer.round if number is None else number
    out = world.deliver(events.BidReceived(562.0, app, where, bid))
    assert [type(item) for item in out] == [Refuse]
    assert world.arbiter.round_open


def test_the_second_answer_of_an_app_is_refused(make_world: MakeWorld) -> None:
    world = busy_world(make_world)
    world.silent |= {A, B}
    opened = asks(world.advance(562.0))
    bid = world.bid(A, opened[0].offer)
    number = opened[0].offer.round
    assert world.deliver(events.BidReceived(562.0, A, number, bid)) == []
    out = world.deliver(events.BidReceived(562.0, A, number, Bid(A)))
    assert [type(item) for item in out] == [Refuse]
    world.silent.clear()
    world.send(events.BidReceived(562.1, B, number, world.bid(B, opened[1].offer)))
    assert next(kept for kept in world.records[-1].notes.bids if kept.app == A) == bid


def test_gpus_that_come_free_within_the_window_are_offered_together(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    for name in ("a", "b", "c"):
        world.submit(simple_app(name, gpus=4))
    assert world.held("c") == ()
    before = len(world.records)
    world.advance(100.0)
    world.finish("a")
    world.advance(120.0)
    world.finish("b")
    world.advance(134.0)
    assert len(world.records) == before
    world.advance(200.0)
    # The window opens when the first slot is empty, five seconds after the app ended.
    (record,) = world.records[before:]
    assert (record.opened, record.trigger, record.offered) == (135.0, "free", 8)
    assert len(world.held("c")) == 4


def test_an_arrival_does_not_wait_for_the_pooling_window(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4))
    world.submit(simple_app("b", gpus=4))
    world.advance(100.0)
    world.finish("a")
    world.advance(110.0)
    world.submit(simple_app("c", gpus=4))
    assert len(world.held("c")) == 4
    assert world.records[-1].opened == 110.0


def test_grant_between_beats_ends_at_the_first_beat_without_a_round(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4))
    world.advance(570.0)
    # The round of the beat at 600 has been held, so this lease goes on to the next one.
    world.submit(simple_app("b", gpus=4))
    ends = {lease.app: lease.end for lease in world.arbiter.ledger.leases()}
    assert ends == {A: 1200.0, B: 1200.0}


def test_an_event_out_of_time_is_taken_as_happening_now(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.advance(50.0)
    world.submit(simple_app("a", gpus=4))
    world.deliver(events.AppArrived(10.0, simple_app("b", gpus=4)))
    assert world.arbiter.now == 50.0
    assert world.arbiter.world.apps[B].arrival == 50.0


@pytest.mark.parametrize("at", [math.nan, math.inf, -math.inf])
def test_an_event_without_a_time_is_refused(make_world: MakeWorld, at: float) -> None:
    world = make_world("fifo")
    (out,) = world.arbiter.handle(events.Woken(at))
    assert isinstance(out, Refuse)


@pytest.mark.parametrize(
    ("lease", "lead"),
    [(60.0, 0.3), (7.0, 0.7), (600.0, 38.0)],
)
def test_beats_are_found_in_times_as_large_as_a_calendar(
    make_world: MakeWorld, lease: float, lead: float
) -> None:
    settings = Settings(
        lease=lease, bid_deadline=lead, solve_budget=0.0, grace=0.0, heartbeat=0.0, idle_after=0.1
    )
    world = make_world("fifo", settings)
    world.now = 1_790_000_000.3
    world.lazy.add(B)
    world.submit(simple_app("a", gpus=4))
    world.submit(simple_app("b", gpus=1))
    start = world.now
    world.advance(start + 5 * lease)
    beats = [record for record in world.records if record.trigger == "beat"]
    assert len(beats) == 5
    assert len(world.held("a")) == 4


def test_renewals_are_sent_in_one_command_per_app(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4))
    assigns = [item for item in world.advance(562.0) if isinstance(item, Assign)]
    (assign,) = assigns
    assert (assign.app, len(assign.renewed), assign.granted, assign.revoked) == (A, 4, (), ())
