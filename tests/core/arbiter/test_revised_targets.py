"""Targets that shrink while a phase runs: the arbiter counts less work, and never more."""

import math
from collections.abc import Callable

import pytest

from tests.support.scripted_world import ScriptedWorld, simple_app
from themis.core.arbiter import events
from themis.core.arbiter.commands import Command, Refuse
from themis.core.fairness.loads import total_work
from themis.core.model import AppId, JobId

MakeWorld = Callable[..., ScriptedWorld]

A = AppId("a")


def _world(make_world: MakeWorld) -> ScriptedWorld:
    world = make_world("fifo")
    world.submit(simple_app("a", gpus=4, jobs=2))
    return world


def _revise(world: ScriptedWorld, *targets: tuple[str, float], app: str = "a") -> list[Command]:
    named = tuple((JobId(job), target) for job, target in targets)
    return world.deliver(events.TargetsRevised(world.now, AppId(app), named))


def _jobs(world: ScriptedWorld) -> list[str]:
    return list(world.arbiter.world.apps[A].jobs)


def _refused(commands: list[Command]) -> list[str]:
    return [item.reason for item in commands if isinstance(item, Refuse)]


def test_work_left_and_the_whole_app_shrink_with_a_target(make_world: MakeWorld) -> None:
    world = _world(make_world)
    state = world.arbiter.world.apps[A]
    first, second = _jobs(world)
    target = state.jobs[JobId(first)].target
    left, whole = state.work_left, total_work(state.whole)
    assert not _refused(_revise(world, (first, target / 2)))
    assert state.work_left == pytest.approx(0.75 * left)
    assert total_work(state.whole) == pytest.approx(0.75 * whole)
    assert state.jobs[JobId(second)].target == target


def test_a_target_below_what_is_done_ends_the_job_where_it_is(make_world: MakeWorld) -> None:
    world = _world(make_world)
    state = world.arbiter.world.apps[A]
    first, second = _jobs(world)
    sample = events.ProgressSample(JobId(first), 30.0, 10.0)
    world.deliver(events.ProgressMeasured(world.now, A, (sample,)))
    demand = state.demand
    assert not _refused(_revise(world, (first, 10.0)))
    assert state.jobs[JobId(first)].target == 30.0
    assert state.runnable == 1
    assert state.demand == demand // 2
    assert not _refused(_revise(world, (second, 0.0)))
    assert not state.active


@pytest.mark.parametrize("change", ["more", "again"])
def test_more_than_declared_is_refused_and_nothing_changed(
    make_world: MakeWorld, change: str
) -> None:
    world = _world(make_world)
    state = world.arbiter.world.apps[A]
    first, second = _jobs(world)
    target = state.jobs[JobId(first)].target
    if change == "again":
        _revise(world, (first, target / 2))
    left = state.work_left
    high = target + 1 if change == "more" else target
    (reason,) = _refused(_revise(world, (second, 1.0), (first, high)))
    assert "may do" in reason
    assert state.work_left == left


def test_unknown_callers_are_refused(make_world: MakeWorld) -> None:
    world = _world(make_world)
    assert "not in phase 0" in _refused(_revise(world, ("x", 1.0)))[0]
    assert _refused(_revise(world, ("x", 1.0), app="nobody"))


@pytest.mark.parametrize("target", [math.nan, math.inf, -1.0])
def test_targets_that_are_no_numbers_are_refused(make_world: MakeWorld, target: float) -> None:
    world = _world(make_world)
    left = world.arbiter.world.apps[A].work_left
    assert _refused(_revise(world, (_jobs(world)[0], target)))
    assert world.arbiter.world.apps[A].work_left == left
