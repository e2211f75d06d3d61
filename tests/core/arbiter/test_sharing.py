"""Equal shares beside the leases: whose contention ideal times inside the scheduler are of."""

from dataclasses import replace

import pytest

from tests.support.scripted_world import ScriptedWorld, simple_app
from themis.core.arbiter import ContentionOf, Settings, events
from themis.core.arbiter.offer import fairness_of, view_of
from themis.core.arbiter.saved_state import arbiter_from, parts, take_changed
from themis.core.model import AppId, GpuId, JobId, Machine, Topology
from themis.core.policies import policy

TOPOLOGY = Topology((Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2, 2))), "lab")
SHARES = Settings(lease=200.0, grace=10.0, pooling=5.0, contention_of=ContentionOf.SHARES)
RUN = replace(SHARES, contention_of=ContentionOf.RUN)


def world_with(*apps: str, settings: Settings = SHARES, iterations: int = 800) -> ScriptedWorld:
    """Apps of one job on up to 8 GPUs: alone, 800 iterations take 1000 seconds."""
    world = ScriptedWorld(TOPOLOGY, policy("themis"), settings)
    for app in apps:
        world.submit(simple_app(app, gpus=8, iterations=iterations))
    return world


def after_one_finished_early(settings: Settings = SHARES) -> ScriptedWorld:
    """At 1000 s; of three apps one was done at 500, before its share would have been."""
    world = world_with("a", "b", "c", settings=settings, iterations=8000)
    world.advance(500.0)
    world.progress("a", 8000.0)
    world.finish("a")
    world.advance(1000.0)
    return world


def inside(world: ScriptedWorld, app: str) -> float:
    """The contention in an app's ideal time, as a round would see it now."""
    world.arbiter.world.sharing.advance(world.now)
    return world.arbiter.world.contention_inside(AppId(app), world.now)


def ideal_time(world: ScriptedWorld, app: str) -> float:
    """The ideal time that a policy would be told."""
    world.arbiter.world.sharing.advance(world.now)
    view = view_of(
        world.arbiter.world, (), now=world.now, round_number=1, at_beat=False, end=600.0, seed=0
    )
    return view.find(AppId(app)).ideal_time


def test_early_finisher_counts_until_its_share_would_have_ended() -> None:
    world = after_one_finished_early()
    assert inside(world, "b") == pytest.approx(3.0)
    assert world.arbiter.world.contention.mean_contention(AppId("b"), 1000.0) < 3.0


def test_cancelled_app_no_longer_counts() -> None:
    world = world_with("a", "b", "c", iterations=8000)
    world.finish("a", "cancelled")
    assert inside(world, "b") == pytest.approx(2.0)


def test_paused_app_does_not_count_until_it_resumes() -> None:
    world = world_with("a", "b", iterations=8000)
    world.suspend("a")
    assert inside(world, "b") == pytest.approx(1.0)
    world.advance(100.0)
    world.resume("a")
    assert inside(world, "b") > 1.5


def test_late_app_is_measured_against_its_due_share() -> None:
    """Its contention is of the time that its share would have taken, not of all it has waited."""
    world = world_with("a")
    world.advance(1001.0)  # Nothing was measured: it has done nothing, but its share would have.
    for number in range(4):
        world.submit(simple_app(f"b{number}", gpus=8, iterations=8000))
    world.advance(9000.0)
    assert inside(world, "a") == 1.0
    assert ideal_time(world, "a") == pytest.approx(1000.0)


def test_without_it_contention_is_of_the_run() -> None:
    world = after_one_finished_early(RUN)
    assert inside(world, "b") == pytest.approx(2.5)


def test_reported_run_equals_the_final_run() -> None:
    world = after_one_finished_early()
    told = fairness_of(world.arbiter.world, 1000.0)[AppId("b")].ideal_time
    assert told == pytest.approx(8000 * 10.0 * 2.5 / 8)
    assert ideal_time(world, "b") > told


def test_undone_declared_work_delays_no_app() -> None:
    world = world_with("a", "b", iterations=8_000_000)
    world.advance(100.0)
    world.progress("a", 8.0)
    world.finish("a")
    assert AppId("a") not in world.arbiter.world.sharing
    assert inside(world, "b") < 2.0
    world.advance(10_000.0)
    assert inside(world, "b") == pytest.approx(1.0, rel=0.02)


def test_an_owner_weighs_as_much_however_many_of_its_apps_have_ended() -> None:
    world = world_with(iterations=8000)
    for number in range(4):
        app = simple_app(f"e{number}", gpus=8, iterations=8000, owner="eve")
        world.submit(app)
    world.submit(simple_app("b", gpus=8, iterations=8000, owner="bob"))
    assert inside(world, "b") == pytest.approx(2.0)
    before = inside(world, "e3")  # 8 as long as bob is there, then 4
    assert 7.0 < before < 8.0
    for number in range(3):
        world.progress(f"e{number}", 8000.0)
        world.finish(f"e{number}")
    world.advance(100.0)
    assert inside(world, "b") == pytest.approx(2.0)
    assert inside(world, "e3") == pytest.approx(before, rel=0.01)


def test_app_with_much_more_work_takes_a_share_again() -> None:
    world = world_with("a", "b")
    world.advance(2100.0)  # Both have had their shares.
    world.submit(simple_app("c", gpus=8, iterations=8000))
    assert inside(world, "c") == pytest.approx(1.0)
    slow = tuple(events.ProgressSample(JobId("j0"), 10.0 * n, 10_000.0) for n in range(1, 9))
    for sample in slow:
        world.send(events.ProgressMeasured(world.now + 1.0, AppId("a"), (sample,)))
        world.now += 1.0
    assert inside(world, "c") > 1.5


def test_new_app_reusing_a_name_gets_its_own_share() -> None:
    world = world_with("a", "b", iterations=8000)
    world.finish("a")
    world.advance(100.0)
    world.submit(simple_app("a", gpus=8, iterations=80))
    assert inside(world, "a") == pytest.approx(2.0)
    assert inside(world, "b") < 2.01


def test_app_ended_while_paused_loses_its_share() -> None:
    world = world_with("a", "b", iterations=80)
    world.suspend("a")
    world.finish("a")
    world.advance(10_000.0)
    assert AppId("a") not in world.arbiter.world.sharing
    assert "share/a" not in parts(world.arbiter)


def test_no_gpu_at_all_stops_shares_and_nothing_breaks() -> None:
    world = world_with("a", "b")
    for name in ("m0", "m1"):
        world.send(events.MachineLeft(world.now, name))
    world.advance(50_000.0)
    assert ideal_time(world, "a") > 0.0
    for machine in TOPOLOGY.machines:
        world.send(events.MachineJoined(world.now, machine))
    world.advance(60_000.0)
    assert inside(world, "a") == pytest.approx(2.0)


def test_work_that_was_added_counts_in_shares_too() -> None:
    world = world_with("a", "b")
    world.advance(100.0)
    world.send(events.WorkAdded(100.0, AppId("a"), ((JobId("j0"), 80_000.0),)))
    world.advance(4000.0)
    # The share of `b` has brought it home after 2000 seconds.
    assert inside(world, "a") < 2.0
    assert inside(world, "b") == pytest.approx(2.0)


def test_it_can_be_switched_on_and_off_while_apps_run() -> None:
    world = world_with("a", "b", settings=RUN, iterations=8000)
    world.advance(100.0)
    saved = parts(world.arbiter)
    assert not any(key.startswith("share") for key in saved)
    take_changed(world.arbiter)
    world.send(events.SettingsChanged(world.now, SHARES))
    world.advance(300.0)
    changed = take_changed(world.arbiter)
    assert {"shares", "share/a", "share/b"} <= set(changed)
    world.submit(simple_app("c", gpus=8, iterations=80))
    assert inside(world, "c") == pytest.approx(3.0, rel=0.1)
    world.send(events.SettingsChanged(world.now, RUN))
    world.advance(600.0)
    changed = take_changed(world.arbiter)
    assert [changed[key] for key in ("shares", "share/a", "share/c")] == [None, None, None]


@pytest.mark.parametrize("lost", [{"shares", "share/a", "share/b"}, {"share/a"}, {"share/b"}])
def test_an_arbiter_from_before_takes_its_apps_in_as_they_are(lost: set[str]) -> None:
    world = world_with("a", "b", iterations=8000)
    world.advance(300.0)
    kept = {key: part for key, part in parts(world.arbiter).items() if key not in lost}
    twin = arbiter_from(kept, policy("themis"), seed=0)
    assert lost <= set(take_changed(twin))  # and are written down from now on
    twin.handle(events.ServiceRestarted(300.0))
    for name in ("a", "b"):
        assert twin.world.contention_inside(AppId(name), 300.0) == pytest.approx(2.0, rel=0.3)
    twin.handle(events.GpusReleased(301.0, AppId("a"), (GpuId(0),)))
