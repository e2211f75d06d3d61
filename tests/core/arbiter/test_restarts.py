"""What becomes of rounds, leases and questions when the service dies and comes back."""

from collections.abc import Callable

import pytest

from tests.support.save_restore import through_json
from tests.support.scripted_world import Puppet, ScriptedWorld, simple_app
from themis.core.arbiter import Arbiter, Settings, events
from themis.core.arbiter.commands import Ask, Assign, Command, End, Refuse, WakeMe
from themis.core.arbiter.saved_state import arbiter_from, fold, parts, take_changed
from themis.core.arbiter.state_parts import GpuPart, StandingPart
from themis.core.model import AppId, GpuId, JobId, Lease, LeaseSource
from themis.core.policies import Allotment, Plan, Policy, View, policy
from themis.errors import InvariantError, RefusedError

A, B = AppId("a"), AppId("b")
LEAD = Settings().round_lead
MakeWorld = Callable[..., ScriptedWorld]


def restart(world: ScriptedWorld, rule: str | Policy, at: float) -> list[Command]:
    """The service dies now and is back at a time, with what it had stored."""
    chosen = policy(rule) if isinstance(rule, str) else rule
    world.arbiter = arbiter_from(through_json(parts(world.arbiter)), chosen, seed=0)
    world.now = max(world.now, at)
    return world.send(events.ServiceRestarted(at))


def ends(world: ScriptedWorld) -> set[float]:
    return {lease.end for lease in world.arbiter.ledger.leases()}


def of(kind: type[Command], commands: list[Command]) -> list[Command]:
    return [command for command in commands if isinstance(command, kind)]


def test_a_short_absence_changes_no_lease(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=8))
    before = list(world.arbiter.ledger.leases())
    assert not of(Assign, restart(world, "fifo", 100.0))
    assert list(world.arbiter.ledger.leases()) == before


def test_wake_ups_are_asked_for_again(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=8))
    world.advance(100.0)
    assert not of(WakeMe, world.send(events.Woken(100.0)))
    assert of(WakeMe, restart(world, "fifo", 100.0)) == [WakeMe(600.0 - LEAD)]


def test_open_round_is_dropped_and_reopened(make_world: MakeWorld) -> None:
    world = make_world("themis")
    world.submit(simple_app("a", gpus=8))
    world.submit(simple_app("b", gpus=8))
    world.silent = {A, B}
    world.advance(600.0 - LEAD + 1.0)
    assert world.arbiter.round_open
    number = world.arbiter.rounds
    asked = of(Ask, restart(world, "themis", 600.0 - LEAD + 1.5))
    assert {command.offer.round for command in asked if isinstance(command, Ask)} == {number + 1}
    stale = world.unanswered[A]
    bid = world.bid(A, stale)
    refused = world.send(events.BidReceived(world.now, A, number, bid))
    assert of(Refuse, refused)


def test_open_round_between_beats_is_reopened(make_world: MakeWorld) -> None:
    world = make_world("themis")
    world.solver_mood = "silent"
    world.submit(simple_app("a", gpus=8))
    assert world.arbiter.round_open
    world.solver_mood = "answers"
    restart(world, "themis", 1.0)
    assert len(world.held("a")) == 8


def test_a_beat_that_a_forgotten_round_had_begun_is_not_passed_twice(make_world: MakeWorld) -> None:
    """Who left its GPUs empty is offered none for so many beats, restarts or not."""
    worlds = [make_world("themis"), make_world("themis")]
    for world in worlds:
        world.submit(simple_app("a", gpus=4))
        world.submit(simple_app("b", gpus=4))
        state = world.arbiter.world.apps[B]
        for _ in range(3):
            state.leave_empty()
        world.silent = {A}
        world.advance(600.0 - LEAD + 1.0)
        world.silent = set()
    restart(worlds[0], "themis", 600.0 - LEAD + 1.0)
    for world in worlds:
        world.advance(700.0)
    kept, other = (parts(world.arbiter)["standing/b"] for world in worlds)
    assert isinstance(kept, StandingPart)
    assert isinstance(other, StandingPart)
    assert (kept.enough, kept.barred) == (other.enough, other.barred) == (0, 3)


def test_leases_that_lapsed_are_kept_until_a_round_could_take_them_away(
    make_world: MakeWorld,
) -> None:
    world = make_world("themis")
    world.submit(simple_app("a", gpus=8))
    world.silent = {A}
    tokens = {lease.token for lease in world.arbiter.ledger.leases()}
    commands = restart(world, "themis", 5000.0)
    assert not of(End, commands)
    (renewal,) = of(Assign, commands)
    assert isinstance(renewal, Assign)
    assert {lease.end for lease in renewal.renewed} == {5000.0 + LEAD}
    assert {lease.token for lease in renewal.renewed} == tokens
    world.advance(5010.0)  # Nobody answered: the round went on with the cached valuation.
    assert ends(world) == {5400.0}
    assert {lease.token for lease in world.arbiter.ledger.leases()} == tokens


def test_pending_settings_leave_no_lease_behind_after_a_missed_beat(make_world: MakeWorld) -> None:
    """A round of theirs looks ahead less far than the old ones would let leases last."""
    world = make_world()
    world.submit(simple_app("a", gpus=4, iterations=10_000))
    world.send(events.SettingsChanged(1.0, Settings(lease=120.0, grace=5.0, pooling=0.0)))
    world.send(events.ServiceRestarted(1293.0))
    world.now = 1293.0
    world.advance(1400.0)
    assert world.held("a")
    ends = {world.arbiter.ledger.tail(gpu) for gpu in world.held("a")}
    assert {lease.end for lease in ends if lease is not None} == {1440.0}


def test_leases_near_their_end_leave_time_for_round_and_checkpoint(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=8))
    world.arbiter = arbiter_from(parts(world.arbiter), _nobody(), seed=0)
    world.now = 590.0
    commands = world.send(events.ServiceRestarted(590.0))
    revoked = [lease for item in of(Assign, commands) for lease in _revoked(item)]
    assert {lease.end for lease in revoked} == {590.0 + LEAD}


def _revoked(command: Command) -> tuple[Lease, ...]:
    return command.revoked if isinstance(command, Assign) else ()


def _nobody() -> Policy:
    return Puppet(lambda view: Plan(()))


def test_slot_being_vacated_counts_as_empty_after_its_guard(make_world: MakeWorld) -> None:
    """Its node has killed what ran there at the end that it knew, service or no service."""
    world = make_world("fifo")
    world.stuck |= {GpuId(index) for index in range(8)}
    world.submit(simple_app("a", gpus=8))
    world.suspend("a")
    before = restart(world, "fifo", 600.0 + Settings().guard - 0.1)
    assert not of(End, before)
    assert of(End, restart(world, "fifo", 600.0 + Settings().guard))


def test_holder_of_a_lease_share_still_leaves_it_to_its_successor(make_world: MakeWorld) -> None:
    def shared(view: View) -> Plan:
        first = Allotment(A, view.offer[:1], LeaseSource.AUCTION, until=view.now + 200.0)
        return Plan((first,), (Allotment(B, view.offer[:1], LeaseSource.AUCTION),))

    def calm(view: View) -> Plan:
        return shared(view) if len(view.apps) == 2 and view.round == 2 else Plan(())

    world = make_world(Puppet(calm), drain=1.0)
    world.submit(simple_app("a"))
    world.submit(simple_app("b"))
    world.advance(31.0)
    assert [lease.app for lease in world.arbiter.ledger.chain(GpuId(0))] == [A, B]
    restart(world, Puppet(calm), 400.0)
    world.advance(405.0)
    assert [lease.app for lease in world.arbiter.ledger.chain(GpuId(0))] == [B]


def test_early_leave_order_is_repeated_after_a_restart(make_world: MakeWorld) -> None:
    def early(view: View) -> Plan:
        return Plan((Allotment(A, view.offer[:1], LeaseSource.AUCTION, until=view.now + 100.0),))

    rule = Puppet(early)
    world = make_world(rule)
    world.submit(simple_app("a"))
    restart(world, rule, 300.0)
    assert ends(world) == {300.0 + LEAD}
    told = world.advance(300.0 + LEAD - Settings().grace)
    assert any(_revoked(command) for command in told)


def test_app_with_an_unreported_process_gets_time_to_report_it(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.lazy = {A}  # Its process runs; the message was lost with the service.
    world.submit(simple_app("a", gpus=2))
    assert not of(End, restart(world, "fifo", 100.0))
    world.send(events.JobStarted(101.0, A, JobId("j0"), world.held("a")))
    assert not of(End, world.advance(500.0))


@pytest.mark.parametrize("at", [1.0, 50.0])
def test_a_first_valuation_is_asked_for_again(make_world: MakeWorld, at: float) -> None:
    world = make_world("themis")
    world.silent = {A}
    world.submit(simple_app("a"))
    world.silent = set()
    (asked,) = of(Ask, restart(world, "themis", at))[:1]
    assert isinstance(asked, Ask)
    assert (asked.app, asked.offer.round) == (A, 0)
    assert world.held("a")
    assert not world.refusals


def test_tokens_to_come_are_above_the_floor(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    kept = parts(world.arbiter)
    assert arbiter_from(kept, policy("fifo"), seed=0, token_floor=41).ledger.next_token == 42
    world.send(events.ServiceRestarted(0.0, token_floor=99))
    world.submit(simple_app("a"))
    assert [lease.token for lease in world.arbiter.ledger.leases()] == [100]
    # A floor that was passed long ago moves nothing.
    world.send(events.ServiceRestarted(1.0, token_floor=5))
    assert world.arbiter.ledger.next_token == 101


@pytest.mark.parametrize("at", [0.0, 1.0, 562.5, 563.0, 601.0, 3000.0])
@pytest.mark.parametrize("rule", ["themis", "themis-paper", "equal-share"])
def test_a_log_with_restarts_is_replayed_as_it_was(
    make_world: MakeWorld, rule: str, at: float
) -> None:
    """A fresh arbiter that still knows an open round answers as the restored one did."""
    world = make_world(rule)
    world.submit(simple_app("a", gpus=8))
    world.submit(simple_app("b", gpus=8, jobs=2))
    world.silent = {A}
    world.advance(at)
    restart(world, rule, at)
    world.silent = set()
    world.advance(at + 900.0)
    again = Arbiter(world.arbiter.world.topology, policy(rule), Settings(), seed=0)
    for step in world.history:
        assert tuple(again.handle(step.event)) == step.commands


# Parts


def test_parts_have_a_stable_order(make_world: MakeWorld) -> None:
    world = make_world("themis")
    take_changed(world.arbiter)
    kept = parts(world.arbiter)
    world.submit(simple_app("b", gpus=8))
    world.submit(simple_app("a", gpus=8))
    folded = fold(kept, take_changed(world.arbiter))
    assert list(folded.items()) == list(parts(world.arbiter).items())
    keys = list(folded)
    assert keys.index("gpu/2") < keys.index("gpu/7") < keys.index("app/a") < keys.index("app/b")


def test_an_event_about_one_app_changes_no_part_of_another(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    for index in range(5):
        world.submit(simple_app(f"a{index}", gpus=1))
    take_changed(world.arbiter)
    world.progress("a3", 100.0)
    changed = take_changed(world.arbiter)
    assert {key.partition("/")[2] for key in changed} <= {"", "a3"}
    assert "work/a3" in changed


def test_ended_app_leaves_no_part(make_world: MakeWorld) -> None:
    world = make_world("themis")
    world.submit(simple_app("a", gpus=8))
    assert any(key.endswith("/a") for key in parts(world.arbiter))
    world.finish("a")
    world.advance(100.0)
    assert not any(key.endswith("/a") for key in parts(world.arbiter))


def test_a_restored_arbiter_has_changed_nothing_yet(make_world: MakeWorld) -> None:
    world = make_world("themis")
    world.submit(simple_app("a", gpus=8))
    kept = parts(world.arbiter)
    restored = arbiter_from(kept, policy("themis"), seed=0)
    assert fold(kept, take_changed(restored)) == kept
    assert not any("/" in key for key in take_changed(restored))


@pytest.mark.parametrize(
    ("key", "part", "error"),
    [
        pytest.param("gpu/0", None, RefusedError, id="a GPU is missing"),
        pytest.param("machine/m0", None, RefusedError, id="a machine is missing"),
        pytest.param("work/a", None, RefusedError, id="the work of an app is missing"),
        pytest.param("account/a", None, RefusedError, id="the account of a holder is missing"),
        pytest.param("clock/a", GpuPart(), RefusedError, id="a part of another kind"),
        pytest.param("colour/a", GpuPart(), RefusedError, id="a part of no kind"),
        pytest.param(
            "gpu/1",
            GpuPart(Lease(GpuId(0), A, 1, 0.0, 600.0, LeaseSource.DIRECT)),
            InvariantError,
            id="a lease of another GPU",
        ),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(
    make_world: MakeWorld, key: str, part: GpuPart | None, error: type[Exception]
) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=1))
    kept = {name: each for name, each in parts(world.arbiter).items() if name != key}
    if part is not None:
        kept[key] = part
    with pytest.raises(error):
        arbiter_from(kept, policy("fifo"), seed=0)
