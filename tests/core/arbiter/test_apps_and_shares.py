"""Apps, owners, quotas, weights, settings, and the reason each app is told."""

import math
from collections.abc import Callable

import pytest

from tests.support.scripted_world import ScriptedWorld, simple_app
from themis.core.arbiter import BidderKind, Settings, events
from themis.core.arbiter.commands import RecordApp, RecordRound, Refuse
from themis.core.model import AppId, Constraint, GpuId, JobId, LeaseSource, Machine, OwnerId, Phase
from themis.core.model.reasons import Reason
from themis.core.policies import policy

MakeWorld = Callable[..., ScriptedWorld]

A, B, C = AppId("a"), AppId("b"), AppId("c")


def reasons(world: ScriptedWorld) -> dict[str, Reason]:
    return {line.app: line.reason for line in world.records[-1].apps}


def reason_of(world: ScriptedWorld, app: AppId) -> Reason:
    return world.arbiter.world.apps[app].reason


# Arrivals and ends


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param(simple_app("a"), "running", id="a name that is taken"),
        pytest.param(simple_app("x", gpus=9, min_gpus=9), "9 GPUs", id="a gang above the cluster"),
        pytest.param(
            simple_app("x", constraint=Constraint("h100")), "match", id="no such GPU model"
        ),
    ],
)
def test_an_app_that_cannot_be_is_refused(make_world: MakeWorld, spec: object, why: str) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a"))
    out = world.submit(spec)  # type: ignore[arg-type]  # built in the table above
    assert [type(item) for item in out] == [Refuse]
    assert why in world.refusals[-1].reason


def test_ended_app_is_closed_when_its_last_slot_is_empty(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=2))
    world.advance(100.0)
    assert not any(isinstance(item, RecordApp) for item in world.finish("a"))
    (close,) = (item for item in world.advance(105.0) if isinstance(item, RecordApp))
    assert (close.record.end, close.record.elapsed, close.record.outcome) == (
        100.0,
        100.0,
        "finished",
    )
    # Slots count until they are empty.
    assert close.record.attained == {LeaseSource.ARRIVAL: 210.0}
    assert world.arbiter.world.apps == {}


def test_an_app_ends_once(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=2))
    world.advance(100.0)
    world.finish("a")
    world.advance(102.0)
    world.finish("a", "cancelled")
    assert world.refusals[-1].who == "a"
    (close,) = (item for item in world.advance(110.0) if isinstance(item, RecordApp))
    assert (close.record.end, close.record.outcome) == (100.0, "finished")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda at: events.AppEnded(at, B), id="an end"),
        pytest.param(lambda at: events.AppSuspended(at, B, Reason.PAUSED_BY_USER), id="a pause"),
        pytest.param(lambda at: events.AppSuspended(at, A, Reason.OUTBID), id="a strange reason"),
        pytest.param(lambda at: events.WeightChanged(at, 1.0, app=B), id="a weight"),
        pytest.param(lambda at: events.WeightChanged(at, 1.0), id="a weight of nobody"),
        pytest.param(lambda at: events.WeightChanged(at, math.nan, app=A), id="a NaN weight"),
        pytest.param(lambda at: events.WeightChanged(at, 0.0, app=A), id="no weight"),
        pytest.param(lambda at: events.QuotaChanged(at, OwnerId("a"), -1), id="a negative quota"),
        pytest.param(lambda at: events.MachineLeft(at, "m9"), id="an unknown machine"),
        pytest.param(lambda at: events.MachineCordoned(at, "m9"), id="a cordon of nothing"),
        pytest.param(lambda at: events.GpuQuarantined(at, GpuId(99), "x"), id="an unknown GPU"),
        pytest.param(lambda at: events.GpusVacated(at, ((GpuId(-1), 1),)), id="a negative GPU"),
        pytest.param(lambda at: events.GpusReleased(at, B, (GpuId(0),)), id="a stranger's GPUs"),
        pytest.param(
            lambda at: events.ProgressMeasured(
                at, A, (events.ProgressSample(JobId("j0"), math.nan, 1.0),)
            ),
            id="NaN progress",
        ),
        pytest.param(
            lambda at: events.ProgressMeasured(
                at, A, (events.ProgressSample(JobId("j0"), -1.0, 1.0),)
            ),
            id="negative progress",
        ),
        pytest.param(
            lambda at: events.PhaseStarted(at, A, 2, ((JobId("j0"), 1.0),)), id="no such phase"
        ),
        pytest.param(
            lambda at: events.PhaseStarted(at, A, 1, ((JobId("j9"), 1.0),)), id="no such job"
        ),
        pytest.param(
            lambda at: events.PhaseStarted(at, A, 1, ((JobId("j0"), 1e6),)), id="undeclared work"
        ),
        pytest.param(lambda at: events.PhaseStarted(at, A, 1, ()), id="a phase without jobs"),
    ],
)
def test_invalid_request_is_refused_without_effect(
    make_world: MakeWorld, make: Callable[[float], events.Event]
) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4, phases=(Phase(1, 10), Phase(1, 20))))
    before = list(world.arbiter.ledger.leases())
    work = world.arbiter.world.apps[A].work_left
    out = world.deliver(make(0.0))
    assert [type(item) for item in out] == [Refuse]
    assert list(world.arbiter.ledger.leases()) == before
    assert world.arbiter.world.apps[A].work_left == work
    assert world.arbiter.world.apps[A].weight == 1.0


# Pauses


def test_a_paused_app_gives_up_its_gpus_and_gets_them_back(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4))
    world.advance(100.0)
    world.suspend("a")
    assert world.held("a") == ()
    assert world.arbiter.world.apps[A].reason is Reason.PAUSED_BY_USER
    world.advance(300.0)
    world.resume("a")
    assert len(world.held("a")) == 4
    # Time that it was paused does not count.
    assert world.arbiter.world.contention.elapsed(A, 400.0) == 200.0


def test_an_app_is_suspended_while_any_reason_lasts(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4))
    world.suspend("a", Reason.HELD_BY_ADMIN)
    world.suspend("a", Reason.PAUSED_BY_USER)
    assert reason_of(world, A) is Reason.PAUSED_BY_USER
    world.resume("a", Reason.PAUSED_BY_USER)
    assert reason_of(world, A) is Reason.HELD_BY_ADMIN
    assert world.held("a") == ()
    world.resume("a", Reason.HELD_BY_ADMIN)
    world.advance(60.0)
    assert len(world.held("a")) == 4


# Quotas, weights, owners


def test_an_owner_gets_no_more_than_its_quota_over_all_its_apps(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.send(events.QuotaChanged(0.0, OwnerId("ann"), 3))
    world.submit(simple_app("a", gpus=2, owner="ann"))
    world.submit(simple_app("b", gpus=2, owner="ann"))
    assert (len(world.held("a")), len(world.held("b"))) == (2, 1)
    world.send(events.QuotaChanged(0.0, OwnerId("ann"), None))
    assert len(world.held("b")) == 2


def test_a_smaller_quota_holds_from_the_next_beat(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4, owner="ann"))
    world.send(events.QuotaChanged(0.0, OwnerId("ann"), 1))
    world.advance(561.0)
    assert len(world.held("a")) == 4
    world.advance(600.0)
    assert len(world.held("a")) == 1


def test_reached_quota_is_the_reported_reason(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.send(events.QuotaChanged(0.0, OwnerId("ann"), 4))
    world.submit(simple_app("a", gpus=4, owner="ann"))
    world.submit(simple_app("b", gpus=4, owner="ann"))
    assert reasons(world) == {"a": Reason.SERVED, "b": Reason.QUOTA_REACHED}


def test_weights_move_shares_at_the_next_beat(make_world: MakeWorld) -> None:
    world = make_world("equal-share", Settings(bidder=BidderKind.APP))
    world.submit(simple_app("a", gpus=8))
    world.submit(simple_app("b", gpus=8))
    world.advance(600.0)
    assert (len(world.held("a")), len(world.held("b"))) == (4, 4)
    world.send(events.WeightChanged(600.0, 3.0, app=A))
    world.advance(1200.0)
    assert (len(world.held("a")), len(world.held("b"))) == (6, 2)


def test_the_apps_of_one_owner_weigh_together_as_one(make_world: MakeWorld) -> None:
    world = make_world("equal-share", Settings(bidder=BidderKind.OWNER))
    for name in ("a1", "a2", "a3"):
        world.submit(simple_app(name, gpus=8, owner="ann"))
    world.submit(simple_app("b", gpus=8, owner="bob"))
    of = world.arbiter.world
    assert [of.weight(AppId(name)) for name in ("a1", "a2", "a3", "b")] == [
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
        1.0,
    ]
    assert of.contention.total_weight == pytest.approx(2.0)
    world.suspend("a3")
    assert of.weight(AppId("a1")) == 0.5
    world.send(events.WeightChanged(0.0, 4.0, owner=OwnerId("ann")))
    assert of.weight(AppId("a1")) == 2.0
    assert of.contention.total_weight == pytest.approx(5.0)


def test_bidders_as_apps_each_weigh_their_own(make_world: MakeWorld) -> None:
    world = make_world("equal-share", Settings(bidder=BidderKind.APP))
    for name in ("a1", "a2"):
        world.submit(simple_app(name, gpus=8, owner="ann", weight=2.0))
    assert world.arbiter.world.contention.total_weight == 4.0


# Settings


def test_new_settings_hold_from_the_next_beat(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4))
    world.advance(100.0)
    world.send(events.SettingsChanged(100.0, Settings(lease=900.0)))
    assert world.arbiter.settings.lease == 600.0
    world.advance(562.0)
    assert world.arbiter.settings.lease == 900.0
    assert {lease.end for lease in world.arbiter.ledger.leases()} == {900.0}
    world.advance(2000.0)
    assert {lease.end for lease in world.arbiter.ledger.leases()} == {2700.0}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(Settings(lease=900.0, grace=1.0), id="a shorter lead"),
        pytest.param(Settings(lease=900.0, grace=300.0), id="a longer lead"),
        pytest.param(Settings(lease=61.0, grace=1.0), id="a short beat"),
    ],
)
def test_no_lease_is_lost_between_two_grids_of_beats(
    make_world: MakeWorld, settings: Settings
) -> None:
    """The checkers of the world watch that none outlives its end."""
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4))
    world.send(events.SettingsChanged(0.0, settings))
    for second in range(0, 4000, 50):
        world.advance(float(second))
        world.send(events.Woken(float(second)))
    assert len(world.held("a")) == 4
    assert world.running("a") == world.held("a")


def test_settings_of_an_empty_cluster_hold_at_once(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4))
    world.finish("a")
    world.advance(50.0)
    world.send(events.SettingsChanged(50.0, Settings(lease=60.0)))
    world.submit(simple_app("b", gpus=4))
    assert {lease.end for lease in world.arbiter.ledger.leases()} == {120.0}
    world.advance(130.0)
    world.send(events.Woken(130.0))
    assert {lease.end for lease in world.arbiter.ledger.leases()} == {180.0}


# Constraints


def test_an_app_runs_only_on_gpus_that_match(make_world: MakeWorld) -> None:
    machines = (
        Machine("m0", "r0", (4,), gpu_model="p100"),
        Machine("m1", "r0", (4,), gpu_model="v100", gpu_memory=32.0),
    )
    world = make_world(policy("themis", f=0.0), machines=machines)
    world.submit(simple_app("a", gpus=8, constraint=Constraint("v100", 20.0)))
    world.submit(simple_app("b", gpus=8))
    world.advance(1300.0)
    assert set(world.held("a")) <= {GpuId(i) for i in range(4, 8)}
    assert world.arbiter.world.capacity.capacity_now(Constraint("v100", 20.0)) == 4.0


def test_missing_gpu_model_is_the_reported_reason(make_world: MakeWorld) -> None:
    machines = (Machine("m0", "r0", (4,)), Machine("m1", "r0", (1,), gpu_model="v100"))
    world = make_world("fifo", machines=machines)
    world.send(events.MachineCordoned(0.0, "m1"))
    world.submit(simple_app("a", constraint=Constraint("v100")))
    assert reasons(world) == {"a": Reason.NO_FREE_GPUS}


# Starvation and reasons


def test_an_app_that_starves_for_five_beats_gets_a_gang_first(make_world: MakeWorld) -> None:
    """With all others worse off it never wins by itself."""
    world = make_world(
        policy("themis", f=1.0, min_invited=1, payment="gpus", leftovers="paper"),
        Settings(bidder=BidderKind.APP),
    )
    for name in ("a", "b"):
        world.submit(simple_app(name, gpus=8, iterations=100_000))
    world.submit(simple_app("c", gpus=8, min_gpus=2, iterations=1))
    starved = [
        record
        for record in _run(world, 9 * 600.0)
        if any(item.source is LeaseSource.GUARD for item in record.record.allotments)
    ]
    assert starved
    guard = next(x for x in starved[0].record.allotments if x.source is LeaseSource.GUARD)
    hungry = [
        report.record.round
        for report in _reports(world)
        if report.record.trigger == "beat"
        and report.record.round < starved[0].record.round
        and all(line.held == 0 for line in report.record.apps if line.app == guard.app)
    ]
    assert len(hungry) >= 5


@pytest.mark.parametrize(("patience", "gangs"), [(24, 1), (1, 5)])
def test_app_with_slack_is_not_restarted_again_and_again(
    make_world: MakeWorld, patience: int, gangs: int
) -> None:
    world = make_world(policy("themis", guard_patience=patience))
    for name in ("a", "b", "c", "d"):
        world.submit(simple_app(name, gpus=8, iterations=100_000))
    world.submit(simple_app("long", gpus=8, iterations=10_000_000))
    rounds = [report.record for report in _run(world, 32 * 600.0)]
    guarded = [item.app for record in rounds for item in record.allotments
               if item.source is LeaseSource.GUARD]  # fmt: skip
    assert guarded.count(AppId("long")) == gangs


def _run(world: ScriptedWorld, to: float) -> list[RecordRound]:
    world.advance(to)
    return _reports(world)


def _reports(world: ScriptedWorld) -> list[RecordRound]:
    return [item for item in world.commands if isinstance(item, RecordRound)]


def test_every_app_gets_one_reason(make_world: MakeWorld) -> None:
    world = make_world(policy("themis", f=0.7, min_invited=2), Settings(bidder=BidderKind.APP))
    for name in ("a", "b", "c", "d", "e"):
        world.submit(simple_app(name, gpus=4))
    world.advance(5000.0)
    seen = {line.reason for report in _reports(world) for line in report.record.apps}
    assert seen >= {Reason.SERVED, Reason.NOT_IN_AUCTION}
    assert seen <= {
        Reason.SERVED,
        Reason.PARTLY_SERVED,
        Reason.NOT_IN_AUCTION,
        Reason.OUTBID,
        Reason.HIDDEN_PAYMENT,
        Reason.PLACEMENT_TOO_SLOW,
    }
    for report in _reports(world):
        ranks = [item.rank for item in report.record.notes.standings]
        assert sorted(ranks) == list(range(1, len(report.record.apps) + 1))


def test_app_without_need_is_not_shown_worse_off_apps_as_reason(make_world: MakeWorld) -> None:
    world = make_world(policy("themis", min_invited=1), Settings(bidder=BidderKind.APP))
    world.lazy.add(AppId("a"))
    world.submit(simple_app("a", gpus=4))
    world.advance(90.0)
    assert world.held("a") == ()
    world.submit(simple_app("b", gpus=4))
    world.advance(100.0)
    lines = {line.app: line for line in _reports(world)[-1].record.apps}
    assert not lines[AppId("a")].invited
    assert lines[AppId("a")].reason is Reason.IDLE_RECLAIMED


def test_an_app_that_arrived_and_was_in_no_round_is_pending(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=8))
    world.submit(simple_app("b", gpus=8))
    assert world.arbiter.world.apps[B].reason is Reason.PENDING_EVALUATION
    world.advance(562.0)
    assert world.arbiter.world.apps[B].reason is Reason.NO_FREE_GPUS


def test_waiting_counts_from_the_time_the_last_gpu_was_lost(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4))
    state = world.arbiter.world.apps[A]
    assert state.waiting_since == math.inf
    world.advance(100.0)
    for gpu, lease in list(world.arbiter.ledger.holdings(A).items()):
        world.send(events.GpusVacated(100.0, ((gpu, lease.token),)))
    assert state.waiting_since == 100.0


def test_leftovers_go_to_previous_holders_then_to_apps_outside_the_auction(
    make_world: MakeWorld,
) -> None:
    """One bidder, who wants two of the eight GPUs; the rest is dealt."""
    world = make_world(
        policy("themis", f=1.0, min_invited=1, rank="now"), Settings(bidder=BidderKind.APP)
    )
    world.submit(simple_app("a", gpus=4, iterations=10))
    world.submit(simple_app("b", gpus=2, iterations=100_000))
    before = world.held("a")
    world.advance(600.0)
    record = world.records[-1]
    invited = {item.app for item in record.notes.standings if item.invited}
    outside = {A, B} - invited
    assert len(invited) == 1
    for item in record.allotments:
        expected = LeaseSource.AUCTION if item.app in invited else LeaseSource.LEFTOVER
        assert item.source is expected
    assert {item.app for item in record.allotments} >= outside
    assert world.held("a") == before
