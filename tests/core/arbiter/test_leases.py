"""Renewals, handovers, shares of time, idle GPUs, and machines that come and go."""

from collections.abc import Callable

import pytest

from tests.support.scripted_world import Puppet, ScriptedWorld, simple_app
from themis.core.arbiter import GpuState, Settings, events
from themis.core.arbiter.commands import Assign, Command, End
from themis.core.model import AppId, GpuId, LeaseSource, Machine
from themis.core.model.reasons import Reason
from themis.core.policies import Allotment, Plan, policy

MakeWorld = Callable[..., ScriptedWorld]

A, B = AppId("a"), AppId("b")
FIRST = GpuId(0)


def told(commands: list[Command], app: AppId) -> list[Assign]:
    return [item for item in commands if isinstance(item, Assign) and item.app == app]


def give(**gpus: tuple[int, ...]) -> Plan:
    return Plan(
        tuple(
            Allotment(AppId(app), tuple(GpuId(gpu) for gpu in some), LeaseSource.DIRECT)
            for app, some in gpus.items()
        )
    )


def in_turn(*plans: Plan) -> Puppet:
    """The first plan in the first round, and so on; the last one from then on."""
    return Puppet(lambda view: plans[min(view.round, len(plans)) - 1])


def test_a_renewal_keeps_the_token_and_the_process(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4))
    before = dict(world.arbiter.ledger.holdings(A))
    world.advance(599.0)
    after = world.arbiter.ledger.holdings(A)
    assert {gpu: lease.token for gpu, lease in after.items()} == {
        gpu: lease.token for gpu, lease in before.items()
    }
    assert {lease.end for lease in after.values()} == {1200.0}
    assert not any(isinstance(item, End) for item in world.commands)
    assert world.running("a") == tuple(sorted(after))


def test_loser_is_notified_at_once_and_winner_starts_on_empty_slot(make_world: MakeWorld) -> None:
    world = make_world(in_turn(give(a=(0,)), give(a=(0,)), give(b=(0,))))
    world.submit(simple_app("a", gpus=1))
    world.submit(simple_app("b", gpus=1))
    out = world.advance(562.0)
    (loss,) = told(out, A)
    (gain,) = told(out, B)
    assert [lease.gpu for lease in loss.revoked] == [FIRST]
    assert loss.revoked[0].end == 600.0
    assert gain.granted[0].token > loss.revoked[0].token
    assert world.arbiter.ledger.state(FIRST) is GpuState.FENCING
    world.advance(566.9)
    assert world.running("a") == (FIRST,)
    world.advance(567.0)
    assert (world.running("a"), world.running("b")) == ((), (FIRST,))
    lease = world.arbiter.ledger.lease(FIRST)
    assert lease is not None
    assert (lease.app, lease.start, lease.end) == (B, 567.0, 1200.0)


def test_a_silent_slot_is_taken_as_empty_at_expiry_plus_guard(make_world: MakeWorld) -> None:
    world = make_world(in_turn(give(a=(0,)), give(a=(0,)), give(b=(0,))))
    world.stuck.add(FIRST)
    world.submit(simple_app("a", gpus=1))
    world.submit(simple_app("b", gpus=1))
    world.advance(601.9)
    assert world.running("b") == ()
    world.advance(602.0)
    assert world.running("b") == (FIRST,)


def test_an_old_token_does_not_empty_a_slot(make_world: MakeWorld) -> None:
    world = make_world(in_turn(give(a=(0,)), give(a=(0,)), give(b=(0,))))
    world.submit(simple_app("a", gpus=1))
    world.submit(simple_app("b", gpus=1))
    world.advance(570.0)
    assert world.send(events.GpusVacated(570.0, ((FIRST, 1),))) == []
    assert world.held("b") == (FIRST,)


# Shares of time


SHARED = Plan(
    (Allotment(A, (FIRST,), LeaseSource.AUCTION, until=900.0),),
    (Allotment(B, (FIRST,), LeaseSource.LEFTOVER),),
)


def test_a_share_of_time_passes_on_without_another_round(make_world: MakeWorld) -> None:
    world = make_world(in_turn(give(a=(0,)), give(), SHARED))
    world.submit(simple_app("a", gpus=1))
    world.submit(simple_app("b", gpus=1))
    world.advance(563.0)
    assert (world.held("a"), world.held("b")) == ((FIRST,), (FIRST,))
    rounds = len(world.records)
    world.advance(869.0)
    assert world.running("a") == (FIRST,)
    # Told the grace before its time is over, gone five seconds later.
    out = world.advance(875.0)
    assert told(out, A)[0].reason == "its share of the lease is over"
    assert (world.running("a"), world.running("b")) == ((), (FIRST,))
    assert len(world.records) == rounds
    lease = world.arbiter.ledger.lease(FIRST)
    assert lease is not None
    assert (lease.app, lease.end) == (B, 1200.0)


def test_renewed_share_gets_no_order_to_leave(make_world: MakeWorld) -> None:
    """The last share ends within the lead of the next beat and is then won again."""
    early = Plan((Allotment(A, (FIRST,), LeaseSource.AUCTION, until=1199.0),))
    world = make_world(in_turn(give(a=(0,)), early, give(a=(0,))))
    world.submit(simple_app("a", gpus=1))
    world.advance(1250.0)
    assert world.running("a") == (FIRST,)
    assert not any(item.revoked for item in told(world.commands, A))


def test_share_due_while_waiting_for_its_slot_is_still_announced(make_world: MakeWorld) -> None:
    settings = Settings(grace=60.0, guard=20.0)
    follow = Plan(
        (Allotment(B, (FIRST,), LeaseSource.AUCTION, until=660.0),),
        (Allotment(A, (FIRST,), LeaseSource.LEFTOVER),),
    )
    world = make_world(in_turn(give(a=(0,)), give(a=(0,)), follow), settings)
    world.stuck.add(FIRST)
    world.submit(simple_app("a", gpus=1))
    world.submit(simple_app("b", gpus=1))
    world.advance(621.0)  # a is taken as gone at 620; b should have been told at 600
    assert world.running("b") == (FIRST,)
    world.advance(661.0)
    assert any(item.revoked for item in told(world.commands, B))


def test_unexpired_share_may_follow_its_successor(make_world: MakeWorld) -> None:
    """The round of the next beat opens while the first share still runs."""
    late = Plan(
        (Allotment(A, (FIRST,), LeaseSource.AUCTION, until=1195.0),),
        (Allotment(B, (FIRST,), LeaseSource.LEFTOVER),),
    )
    back = Plan(
        (Allotment(B, (FIRST,), LeaseSource.AUCTION, until=1500.0),),
        (Allotment(A, (FIRST,), LeaseSource.LEFTOVER),),
    )
    world = make_world(in_turn(give(a=(0,)), give(), late, back))
    world.submit(simple_app("a", gpus=1))
    world.submit(simple_app("b", gpus=1))
    world.advance(1162.0)
    assert [lease.app for lease in world.arbiter.ledger.chain(FIRST)] == [A, B, A]
    world.advance(1200.0)
    assert world.running("b") == (FIRST,)
    world.advance(1500.0)
    assert world.running("a") == (FIRST,)


def test_a_share_not_yet_over_that_wins_again_goes_on(make_world: MakeWorld) -> None:
    late = Plan(
        (Allotment(A, (FIRST,), LeaseSource.AUCTION, until=1195.0),),
        (Allotment(B, (FIRST,), LeaseSource.LEFTOVER),),
    )
    world = make_world(in_turn(give(a=(0,)), give(), late, give(a=(0,))))
    world.submit(simple_app("a", gpus=1))
    world.submit(simple_app("b", gpus=1))
    world.advance(1300.0)
    (lease,) = world.arbiter.ledger.chain(FIRST)
    assert (lease.app, lease.token, lease.end) == (A, 1, 1800.0)
    assert not any(item.revoked for item in told(world.commands, A))


# Use it or lose it


def test_an_unused_gpu_is_reclaimed(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.lazy.add(A)
    world.submit(simple_app("a", gpus=1))
    assert not told(world.advance(59.9), A)
    (assign,) = told(world.advance(60.0), A)
    assert assign.reason == Reason.IDLE_RECLAIMED
    assert world.arbiter.world.apps[A].reason is Reason.IDLE_RECLAIMED
    assert world.held("a") == ()


def test_a_gpu_whose_job_stopped_is_reclaimed_sixty_seconds_later(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=2))
    world.advance(100.0)
    world.send(events.JobStopped(100.0, A, simple_app("a").jobs[0].id, (FIRST,)))
    world.advance(159.0)
    assert len(world.held("a")) == 2
    world.advance(160.0)
    assert world.held("a") == (GpuId(1),)


def test_idle_gpus_stay_when_that_is_switched_off(make_world: MakeWorld) -> None:
    world = make_world("fifo", Settings(idle_after=0.0))
    world.lazy.add(A)
    world.submit(simple_app("a", gpus=1))
    world.advance(500.0)
    assert world.held("a") == (FIRST,)


def test_released_gpus_go_to_another_app(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=8))
    world.submit(simple_app("b", gpus=2))
    world.advance(10.0)
    world.send(events.GpusReleased(10.0, A, (GpuId(6), GpuId(7))))
    world.advance(40.0)
    assert world.held("b") == (GpuId(6), GpuId(7))


def test_a_promise_that_is_given_back_is_taken_back(make_world: MakeWorld) -> None:
    world = make_world(in_turn(give(a=(0,)), give(a=(0,)), give(b=(0,))))
    world.submit(simple_app("a", gpus=1))
    world.submit(simple_app("b", gpus=1))
    world.advance(562.0)
    out = world.send(events.GpusReleased(562.0, B, (FIRST,)))
    assert [lease.gpu for lease in told(out, B)[0].revoked] == [FIRST]
    world.advance(570.0)
    assert world.running("b") == ()


# Machines


def test_a_cordoned_machine_renews_and_grants_nothing_new(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4))
    world.send(events.MachineCordoned(0.0, "m0"))
    world.send(events.MachineCordoned(0.0, "m1"))
    world.submit(simple_app("b", gpus=4))
    world.advance(1300.0)
    assert len(world.held("a")) == 4
    assert world.held("b") == ()
    world.send(events.MachineUncordoned(1300.0, "m1"))
    world.advance(1330.0)
    assert len(world.held("b")) == 4


def test_a_draining_machine_is_empty_after_the_beat(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=8))
    world.send(events.MachineCordoned(0.0, "m0", drain=True))
    world.advance(561.0)
    assert len(world.held("a")) == 8
    out = world.advance(562.0)
    assert told(out, A)[0].reason == "its machine is draining"
    world.advance(600.0)
    assert world.held("a") == tuple(GpuId(i) for i in range(4, 8))


@pytest.mark.parametrize("failing", [False, True])
def test_a_machine_cordoned_during_a_round_keeps_its_holders(
    make_world: MakeWorld, failing: bool
) -> None:
    world = make_world(policy("themis", f=0.0))
    world.submit(simple_app("a", gpus=8))
    world.advance(561.0)
    world.silent.add(A)
    world.solver_mood = "fails" if failing else "answers"
    world.advance(562.0)
    world.send(events.MachineCordoned(562.0, "m0"))
    world.speak("a")
    world.advance(600.0)
    assert len(world.held("a")) == 8
    assert bool(world.records[-1].failed) is failing


def test_a_machine_that_left_frees_its_leases_and_may_come_back(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=8))
    out = world.send(events.MachineLeft(0.0, "m0"))
    (ended,) = (item for item in out if isinstance(item, End))
    assert {lease.gpu for lease in ended.leases} == {GpuId(i) for i in range(4)}
    assert world.held("a") == tuple(GpuId(i) for i in range(4, 8))
    assert world.arbiter.ledger.counts()[GpuState.QUARANTINED] == 4
    world.send(events.MachineJoined(10.0, Machine("m0", "r0", (2, 2))))
    world.advance(45.0)
    assert len(world.held("a")) == 8


def test_a_machine_of_another_shape_may_not_take_a_name(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.send(events.MachineLeft(0.0, "m0"))
    world.send(events.MachineJoined(0.0, Machine("m0", "r0", (4,))))
    assert world.refusals[-1].who == "m0"
    assert world.arbiter.ledger.counts()[GpuState.QUARANTINED] == 4


def test_a_new_machine_is_dealt_after_the_window(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=5, jobs=2))
    world.send(events.MachineJoined(0.0, Machine("m2", "r1", (2,))))
    assert len(world.held("a")) == 8
    world.advance(30.0)
    assert len(world.held("a")) == 10


def test_a_gpu_stays_quarantined_while_its_machine_comes_and_goes(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    ledger = world.arbiter.ledger
    world.send(events.GpuQuarantined(0.0, FIRST, "xid 79"))
    world.send(events.MachineLeft(0.0, "m0"))
    world.send(events.MachineJoined(0.0, Machine("m0", "r0", (2, 2))))
    assert ledger.quarantine_reason(FIRST) == "xid 79"
    assert ledger.state(GpuId(1)) is GpuState.FREE
    world.send(events.MachineLeft(0.0, "m0"))
    world.send(events.GpuRestored(0.0, FIRST))
    assert ledger.state(FIRST) is GpuState.QUARANTINED
    world.send(events.MachineJoined(0.0, Machine("m0", "r0", (2, 2))))
    assert ledger.state(FIRST) is GpuState.FREE


def test_both_leases_on_a_lost_gpu_are_reported_as_ended(make_world: MakeWorld) -> None:
    """Paused and resumed, the app is promised the slot that it has not yet left."""
    world = make_world(in_turn(give(a=(0,))))
    world.stuck.add(FIRST)
    world.submit(simple_app("a", gpus=1))
    world.suspend("a")
    world.resume("a")
    world.submit(simple_app("b", gpus=1))
    assert len(world.arbiter.ledger.chain(FIRST)) == 2
    out = world.send(events.MachineLeft(0.0, "m0"))
    ends = [lease.token for item in out if isinstance(item, End) for lease in item.leases]
    assert ends == [1, 2]


def test_leases_per_grant_end_each_on_their_own(make_world: MakeWorld) -> None:
    world = make_world("themis-paper")
    world.submit(simple_app("a", gpus=4))
    world.advance(100.0)
    world.submit(simple_app("b", gpus=4))
    ends = {lease.app: lease.end for lease in world.arbiter.ledger.leases()}
    assert ends == {A: 600.0, B: 700.0}
    world.advance(562.0)
    assert {lease.end for lease in world.arbiter.ledger.holdings(A).values()} == {1200.0}
    assert {lease.end for lease in world.arbiter.ledger.holdings(B).values()} == {700.0}


def test_leases_per_grant_are_renewed_however_many_rounds_open_in_between(
    make_world: MakeWorld,
) -> None:
    world = make_world("themis-paper")
    world.submit(simple_app("a", gpus=2, iterations=10**6))
    world.advance(5.0)
    world.submit(simple_app("b", gpus=2, iterations=10**6))
    world.silent = {AppId("c")}  # it never answers, so that rounds last until their deadline
    world.submit(simple_app("c", gpus=8, iterations=10**6))
    for second in range(540, 600):  # somebody always wants the next one
        world.advance(float(second))
        world.send(events.MachineUncordoned(float(second), "m1"))
    assert {lease.end for lease in world.arbiter.ledger.holdings(A).values()} == {1200.0}
    assert {lease.end for lease in world.arbiter.ledger.holdings(B).values()} == {1205.0}
