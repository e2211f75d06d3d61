"""What the arbiter does not take an app's word for, and what becomes of it when it is told to."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.scripted_world import ScriptedWorld, simple_app
from themis.core.arbiter import AddedWork, BidderKind, Inputs, Settings, events
from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.app_view import ArbiterAppView
from themis.core.arbiter.cluster_state import World
from themis.core.arbiter.commands import Command, RecordApp, Refuse
from themis.core.arbiter.offer import view_of
from themis.core.fairness.loads import total_work
from themis.core.model import AppId, Bid, Chunk, JobId, Phase, RhoClaim, Row, TableRow

MakeWorld = Callable[..., ScriptedWorld]

A, J0, J1 = AppId("a"), JobId("j0"), JobId("j1")


def _view(world: ScriptedWorld, app: AppId = A) -> ArbiterAppView:
    found = view_of(
        world.arbiter.world, (), now=world.now, round_number=1, at_beat=True,
        end=world.now + 600.0, seed=0,
    ).find(app)  # fmt: skip
    assert isinstance(found, ArbiterAppView)
    return found


def _refused(commands: list[Command]) -> list[str]:
    return [item.reason for item in commands if isinstance(item, Refuse)]


def _measure(world: ScriptedWorld, *samples: tuple[JobId, float, float]) -> list[Command]:
    told = tuple(events.ProgressSample(*sample) for sample in samples)
    return world.deliver(events.ProgressMeasured(world.now, A, told))


# Inputs


@pytest.mark.parametrize(("inputs", "factor"), [(Inputs.COMPUTED, 1.0), (Inputs.CLAIMED, 0.5)])
def test_claims_count_only_where_the_arbiter_is_configured_to_trust_them(
    make_world: MakeWorld, inputs: Inputs, factor: float
) -> None:
    world = make_world("themis", Settings(inputs=inputs))
    world.submit(simple_app("a", gpus=4))
    world.advance(100.0)
    computed = _view(world).ideal_time
    state = world.arbiter.world.apps[A]
    state.hear(Bid(A, (), (TableRow(0, 1, 10.0),), claim=RhoClaim(3.0, 0.5)), 0.25)
    seen = _view(world)
    assert seen.ideal_time == pytest.approx(computed * factor)
    assert seen.elapsed == pytest.approx(100.0 * (3.0 if factor < 1 else 1.0))


@pytest.mark.parametrize("claim", [RhoClaim(math.nan), RhoClaim(-1.0), RhoClaim(1.0, 0.0)])
def test_a_claim_that_is_no_number_is_refused(make_world: MakeWorld, claim: RhoClaim) -> None:
    world = make_world("themis", Settings(inputs=Inputs.CLAIMED))
    world.submit(simple_app("a"))
    # As if its table were still waited for.
    world.arbiter._awaiting_tables[A] = world.now
    bid = Bid(A, (), (TableRow(0, 1, 10.0),), claim=claim)
    assert _refused(world.deliver(events.BidReceived(world.now, A, 0, bid)))


# The audit


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, True, "10"])
def test_seconds_that_are_no_time_are_refused_with_all_their_samples(
    make_world: MakeWorld, seconds: float
) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4))
    assert _refused(_measure(world, (J0, 5.0, 1.0), (J0, 6.0, seconds)))
    assert world.arbiter.world.apps[A].jobs[J0].done == 0.0


def _slow_runner(world: ScriptedWorld, factor: float) -> None:
    """An app whose iterations take so many times what it has declared, for ten samples."""
    world.submit(simple_app("a", gpus=1, iterations=100_000, seconds=1.0))
    for number in range(1, 11):
        world.advance(number * 300.0)
        _measure(world, (J0, number * 300.0 / factor, 300.0))


def test_work_is_counted_by_measured_times_once_the_declared_ones_are_contradicted(
    make_world: MakeWorld,
) -> None:
    world = make_world("themis")
    _slow_runner(world, 2.0)
    state = world.arbiter.world.apps[A]
    assert total_work(state.whole) == pytest.approx(200_000.0)
    assert state.work_left == pytest.approx(200_000.0 - 3000.0)
    assert any(line.contradicted for record in world.records for line in record.apps)


def test_declared_remaining_work_is_ignored_after_a_wrong_declaration(
    make_world: MakeWorld,
) -> None:
    world = make_world("themis")
    _slow_runner(world, 2.0)
    state = world.arbiter.world.apps[A]
    rows = (Row((Chunk(0, 1),), 98_500.0),)
    told = state.hear(Bid(A, rows, (TableRow(0, 1, 98_500.0),)), 0.25)
    assert told.rows[0].seconds == pytest.approx(197_000.0)
    assert _view(world).seconds_at(0, 1) == pytest.approx(197_000.0)
    # What it kept quiet about counts once more where the shortest go first.
    assert _view(world).queued_work == pytest.approx(297_000.0)


def test_without_the_audit_a_false_iteration_time_stands(make_world: MakeWorld) -> None:
    world = make_world("themis", Settings(audit_tolerance=0.0))
    _slow_runner(world, 2.0)
    assert total_work(world.arbiter.world.apps[A].whole) == pytest.approx(100_000.0)
    assert not any(line.contradicted for record in world.records for line in record.apps)


def test_app_within_tolerance_is_corrected_without_penalty(make_world: MakeWorld) -> None:
    world = make_world("themis")
    _slow_runner(world, 1.2)
    assert 110_000.0 < total_work(world.arbiter.world.apps[A].whole) < 120_000.0
    assert _view(world).elapsed == pytest.approx(3000.0)
    assert not any(line.contradicted for record in world.records for line in record.apps)


def test_app_beyond_tolerance_is_recounted_once(make_world: MakeWorld) -> None:
    world = make_world("themis")
    _slow_runner(world, 1.4)
    elapsed = _view(world).elapsed
    assert 0.0 < elapsed < 3000.0
    world.advance(world.now + 300.0)
    _measure(world, (J0, 3300.0 / 1.4, 300.0))
    assert _view(world).elapsed == pytest.approx(elapsed + 300.0)


def test_small_undeclared_work_counts_once_under_shortest_first(make_world: MakeWorld) -> None:
    world = make_world("themis")
    _slow_runner(world, 1.2)
    assert _view(world).queued_work == world.arbiter.world.apps[A].work_left


@pytest.mark.parametrize(("seconds", "iterations"), [(1e-322, 1e3), (1e15, 20.0), (5e-324, 20.0)])
def test_meaningless_samples_do_no_harm(
    make_world: MakeWorld, seconds: float, iterations: float
) -> None:
    world = make_world("themis")
    world.submit(simple_app("a", gpus=1, iterations=100_000, seconds=1.0))
    world.advance(300.0)
    for number in range(1, 6):
        assert not _refused(_measure(world, (J0, number * iterations, seconds)))
    assert 0.0 < _view(world).ideal_time < math.inf


# Nothing to run


def _early_app(make_world: MakeWorld) -> ScriptedWorld:
    """An app that comes long before it can run anything, beside one that runs."""
    world = make_world("fifo")
    world.lazy.add(A)
    world.submit(simple_app("a", gpus=1))
    world.submit(simple_app("b", gpus=1, iterations=100_000))
    return world


def test_time_in_which_an_app_could_not_run_is_no_waiting(make_world: MakeWorld) -> None:
    world = _early_app(make_world)
    for hours in range(1, 6):
        world.advance(hours * 3600.0)
        # At most the beat that it was offered GPUs again at, and the minute until it lost them.
        assert _view(world).elapsed <= 600.0 + 60.0 + world.arbiter.settings.round_lead
    # What it was counted by before is kept in one piece, however often.
    assert len(world.arbiter.world._stretches[A]) == 1


def test_repeatedly_outbid_app_does_count_as_waiting(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("b", gpus=8, iterations=100_000))
    world.lazy.add(A)
    state = world.arbiter.world.apps
    world.submit(simple_app("a", gpus=1))
    state[A].leave_empty()
    world.advance(3600.0)
    assert world.held("a") == ()
    assert _view(world).elapsed > 2000.0


def test_an_app_that_runs_after_all_waits_like_any_other(make_world: MakeWorld) -> None:
    world = _early_app(make_world)
    world.advance(3600.0)
    world.lazy.discard(A)
    while not world.running("a"):
        world.advance(world.now + 60.0)
        assert world.now < 12_000.0
    began, elapsed = world.now, _view(world).elapsed
    world.advance(began + 3000.0)
    assert _view(world).elapsed == pytest.approx(elapsed + 3000.0)


def test_arbiter_with_a_running_clock_gives_credit_for_early_finish(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AppState, "unready", False)
    world = _early_app(make_world)
    longest = 0.0
    for minutes in range(1, 300):
        world.advance(minutes * 60.0)
        longest = max(longest, _view(world).elapsed)
    assert longest > 3600.0


# Work added later


def _half_done(make_world: MakeWorld, how: AddedWork, gpus: int = 4) -> ScriptedWorld:
    """An app of two jobs that said 100 iterations each, did them in 1000 s and wants 100 more."""
    world = make_world("fifo", Settings(added_work=how, lease=60.0))
    world.submit(simple_app("a", gpus=gpus, jobs=2, iterations=100, seconds=10.0))
    world.submit(simple_app("b", iterations=1000))
    world.advance(1000.0)
    _measure(world, (J0, 100.0, 1000.0), (J1, 100.0, 1000.0))
    targets = ((J0, 200.0), (J1, 200.0))
    assert not _refused(world.deliver(events.WorkAdded(world.now, A, targets)))
    return world


def test_added_work_counts_as_arriving_when_it_is_declared(make_world: MakeWorld) -> None:
    world = _half_done(make_world, AddedWork.ARRIVES)
    state = world.arbiter.world.apps[A]
    assert (state.arrival, state.submitted) == (1000.0, 0.0)
    assert total_work(state.whole) == pytest.approx(2000.0)
    assert state.work_left == pytest.approx(2000.0)
    world.advance(1100.0)
    assert _view(world).elapsed == pytest.approx(100.0)


def test_app_that_would_gain_by_resubmission_continues_unchanged(make_world: MakeWorld) -> None:
    # On one GPU a job takes as long as it is allowed to: it would be urgent at once.
    world = _half_done(make_world, AddedWork.ARRIVES, gpus=1)
    world.advance(1100.0)
    assert _view(world).elapsed == pytest.approx(1100.0)


def test_added_work_extends_the_app_where_that_is_wanted(make_world: MakeWorld) -> None:
    world = _half_done(make_world, AddedWork.EXTENDS)
    state = world.arbiter.world.apps[A]
    assert state.arrival == 0.0
    assert total_work(state.whole) == pytest.approx(4000.0)
    assert state.work_left == pytest.approx(2000.0)
    # Where the shortest go first, who looked short is as long as if it had begun anew twice.
    assert _view(world).queued_work == pytest.approx(4000.0)
    world.advance(1100.0)
    assert _view(world).elapsed == pytest.approx(1100.0)


def test_arbiter_that_never_recounts_keeps_the_old_clock(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(World, "count_anew", lambda *_: None)
    world = _half_done(make_world, AddedWork.ARRIVES)
    world.advance(1100.0)
    assert _view(world).elapsed == pytest.approx(1100.0)


@pytest.mark.parametrize("how", list(AddedWork))
def test_the_record_of_an_app_counts_from_its_submission(
    make_world: MakeWorld, how: AddedWork
) -> None:
    world = _half_done(make_world, how)
    world.advance(2000.0)
    _measure(world, (J0, 200.0, 1000.0), (J1, 200.0, 1000.0))
    step = len(world.history)
    world.finish("a")
    world.advance(2100.0)
    (record,) = [item.record for item in world.commands_since(step) if isinstance(item, RecordApp)]
    assert (record.arrival, record.end) == (0.0, 2000.0)
    assert record.elapsed == pytest.approx(2000.0)
    assert record.mean_contention == pytest.approx(2.0)
    assert record.mean_capacity == pytest.approx(8.0)
    assert total_work(record.phases) == pytest.approx(4000.0)


def test_only_jobs_of_this_phase_may_have_more_and_never_less(make_world: MakeWorld) -> None:
    world = make_world("fifo")
    world.submit(simple_app("a", jobs=2, phases=(Phase(1, 100), Phase(1, 50))))
    for job, target in ((J1, 200.0), (J0, 50.0), (J0, math.nan)):
        before = world.arbiter.world.apps[A].work_left
        assert _refused(world.deliver(events.WorkAdded(world.now, A, ((job, target),))))
        assert world.arbiter.world.apps[A].work_left == before


# Idling


def _sleeper(make_world: MakeWorld, idle_after: float) -> ScriptedWorld:
    """An app that is leased GPUs and never starts anything."""
    world = make_world("themis", Settings(idle_after=idle_after))
    world.lazy.add(A)
    world.submit(simple_app("a", gpus=4))
    world.advance(150.0)
    return world


def test_app_with_idle_gpus_has_not_been_waiting(make_world: MakeWorld) -> None:
    world = _sleeper(make_world, 60.0)
    assert _view(world).elapsed < 100.0


def test_without_the_guard_idling_counts_as_waiting(make_world: MakeWorld) -> None:
    assert _view(_sleeper(make_world, 0.0)).elapsed == pytest.approx(150.0)


# Owners


@pytest.mark.parametrize(("bidder", "share"), [(BidderKind.OWNER, 1 / 2), (BidderKind.APP, 4 / 5)])
def test_parts_of_a_split_app_count_together_as_one(
    make_world: MakeWorld, bidder: BidderKind, share: float
) -> None:
    world = make_world("themis", Settings(bidder=bidder))
    whole = simple_app("a", gpus=2, jobs=4, owner="ann")
    for number in range(4):
        part = replace(whole, id=AppId(f"a-p{number}"), jobs=whole.jobs[number : number + 1],
                       phases=(Phase(1, 1000),))  # fmt: skip
        world.submit(part)
    world.submit(simple_app("b", gpus=8, owner="bob"))
    queued = {_view(world, AppId(f"a-p{number}")).queued_work for number in range(4)}
    assert queued == {40_000.0 if bidder is BidderKind.OWNER else 10_000.0}
    parts = sum(_view(world, AppId(f"a-p{number}")).weight for number in range(4))
    assert parts / (parts + _view(world, AppId("b")).weight) == pytest.approx(share)


@pytest.mark.parametrize("seconds", [0.5, 10.0])
def test_app_without_iteration_time_is_measured_without_loss(
    make_world: MakeWorld, seconds: float
) -> None:
    world = make_world("fifo", Settings(lease=60.0))
    world.submit(replace(simple_app("a", iterations=1000, seconds=1.0), estimated=True))
    world.advance(100.0)
    state = world.arbiter.world.apps[A]
    world.deliver(events.JobStarted(world.now, A, J0, tuple(world.arbiter.ledger.holdings(A))))
    _measure(world, (J0, 10.0, 500.0))
    before = state.audit.estimated
    assert total_work(state.whole) == pytest.approx(1000.0)
    world.advance(200.0)
    _measure(world, (J0, 40.0, 30.0 * seconds))
    assert (before, state.audit.estimated) == (True, False)
    assert total_work(state.whole) == pytest.approx(1000.0 * seconds)
    assert (state.arrival, state.added_work) == (0.0, 0.0)
    assert _view(world).elapsed == pytest.approx(200.0)
