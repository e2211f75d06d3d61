"""Modelled processes: they wait for empty slots, cost time to start, and save their work."""

import heapq
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from themis.core.model import (
    AppId,
    AppSpec,
    GpuId,
    JobId,
    JobSpec,
    Machine,
    OwnerId,
    Phase,
    Slowdown,
    Topology,
)
from themis.errors import ConfigError, InvariantError
from themis.sim.modelled_jobs import NO_COSTS, JobCosts, Nodes, declared_costs

TOPOLOGY = Topology((Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2, 2))))
A, B = AppId("a"), AppId("b")
J0 = JobId("j0")
FIXED = JobCosts(restart_median=30.0, restart_p95=30.0, checkpoint_low=5.0, checkpoint_high=5.0)


@dataclass
class Clock:
    """Virtual time around some nodes, and what they reported."""

    costs: JobCosts = NO_COSTS
    seed: int = 1
    now: float = 0.0
    story: list[tuple[float, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._pushed = 0
        self.nodes = Nodes(
            topology=lambda: TOPOLOGY,
            costs=self.costs,
            seed=self.seed,
            at=self.at,
            started=lambda at, app, job, gpus: self._note(at, "start", app),
            stopped=lambda at, app, job, gpus: self._note(at, "stop", app),
            reached=lambda at, app, job: self._note(at, "reach", app),
        )
        slow = Slowdown((1.0, 1.25, 2.0, 4.0))
        for app in (A, B):
            self.nodes.add(app, [JobSpec(J0, 2.0, 4, slowdown=slow)])

    def at(self, time: float, action: Callable[[float], None]) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (time, self._pushed, action))

    def _note(self, at: float, what: str, app: str) -> None:
        self.story.append((at, what, app))

    def start(self, app: AppId, gpus: list[int], until: float) -> None:
        self.nodes.start(app, J0, tuple(map(GpuId, gpus)), until, self.now)

    def stop(self, app: AppId) -> None:
        self.nodes.stop(app, J0, self.now)

    def run(self, to: float = float("inf")) -> None:
        while self._heap and self._heap[0][0] <= to:
            self.now, _, action = heapq.heappop(self._heap)
            action(self.now)
        self.now = self.now if to == float("inf") else to


def test_a_job_runs_at_the_rate_of_its_gang() -> None:
    clock = Clock()
    clock.start(A, [0, 1, 2, 3], until=100.0)
    clock.run()
    # 100 iterations of 2 s on four GPUs of one machine at S = 1.25.
    assert clock.story == [(0.0, "start", "a"), (62.5, "stop", "a"), (62.5, "reach", "a")]
    spent = clock.nodes.spent[A]
    assert spent.useful == pytest.approx(200.0)
    assert spent.slowed == pytest.approx(4 * 62.5 - 200.0)


def test_starting_takes_its_time_before_anything_is_done() -> None:
    clock = Clock(FIXED)
    clock.start(A, [0, 1], until=100.0)
    clock.run(60.0)
    run = clock.nodes.running[A][J0]
    assert clock.nodes.progress(run, 60.0) == pytest.approx(30.0)
    clock.run()
    assert clock.story[-1] == (130.0, "reach", "a")
    assert clock.nodes.spent[A].restart == pytest.approx(2 * 30.0)


def test_a_start_waits_until_every_slot_is_empty() -> None:
    clock = Clock()
    clock.start(A, [0], until=50.0)
    clock.start(B, [0, 1], until=10.0)
    assert clock.nodes.occupant(GpuId(0)) == "a"
    assert clock.nodes.occupant(GpuId(1)) is None
    clock.run()
    assert [item for item in clock.story if item[2] == "b"] == [
        (100.0, "start", "b"),
        (110.0, "stop", "b"),
        (110.0, "reach", "b"),
    ]


def test_a_stopped_process_writes_its_checkpoint_and_then_leaves_the_slot() -> None:
    clock = Clock(FIXED)
    clock.start(A, [0, 1], until=1000.0)
    clock.run(130.0)
    clock.stop(A)
    clock.start(B, [1], until=10.0)
    assert A not in clock.nodes.running
    clock.run(134.0)
    assert clock.nodes.occupant(GpuId(1)) == "a"
    clock.run(136.0)
    assert clock.story == [(0.0, "start", "a"), (135.0, "stop", "a"), (135.0, "start", "b")]
    assert clock.nodes.trainings[A, J0].done == pytest.approx(100.0)
    assert clock.nodes.spent[A].checkpoint == pytest.approx(2 * 5.0)


def test_a_job_goes_on_from_what_it_saved() -> None:
    clock = Clock(FIXED)
    clock.start(A, [0, 1], until=100.0)
    clock.run(80.0)
    clock.stop(A)
    clock.start(A, [2, 3], until=100.0)
    clock.run()
    # 50 s of running, 5 to save, 30 to start again, 50 for the rest.
    assert clock.story[-1] == (165.0, "reach", "a")
    assert clock.nodes.spent[A].useful == pytest.approx(200.0)
    assert clock.nodes.moves == 1


def test_a_process_that_is_still_starting_may_go_at_once() -> None:
    clock = Clock(FIXED)
    clock.start(A, [0, 1], until=100.0)
    clock.run(10.0)
    clock.stop(A)
    assert clock.story == [(0.0, "start", "a"), (10.0, "stop", "a")]
    assert clock.nodes.spent[A].restart == pytest.approx(2 * 10.0)
    clock.run()
    assert len(clock.story) == 2
    assert clock.nodes.trainings[A, J0].done == 0.0


def test_a_start_that_has_not_happened_is_forgotten() -> None:
    clock = Clock()
    clock.start(A, [0], until=50.0)
    clock.start(B, [0], until=50.0)
    clock.stop(B)
    clock.run()
    assert all(app == "a" for _, _, app in clock.story)


def test_start_requested_during_a_checkpoint_can_be_dropped_too() -> None:
    clock = Clock(FIXED)
    clock.start(A, [0], until=50.0)
    clock.run(40.0)
    clock.stop(A)
    clock.start(A, [1], until=50.0)
    clock.stop(A)
    clock.run()
    assert clock.story == [(0.0, "start", "a"), (45.0, "stop", "a")]


def test_stopping_what_does_not_run_does_nothing() -> None:
    clock = Clock()
    clock.stop(A)
    clock.run()
    assert clock.story == []


def test_one_job_is_never_two_processes() -> None:
    clock = Clock()
    clock.start(A, [0], until=50.0)
    with pytest.raises(InvariantError, match="started twice"):
        clock.start(A, [1], until=50.0)


def test_a_job_that_is_at_its_target_already_is_reported_at_once() -> None:
    clock = Clock()
    clock.start(A, [0], until=0.0)
    clock.run()
    assert clock.story[-1] == (0.0, "reach", "a")


def _start_times(seed: int, app: AppId, starts: int) -> list[float]:
    clock = Clock(JobCosts(), seed)
    begun = []
    for _ in range(starts):
        clock.start(app, [0], until=1e9)
        before = clock.nodes.spent[app].restart
        clock.run(clock.now + 500.0)
        begun.append(clock.nodes.spent[app].restart - before)
        clock.stop(app)
        clock.run(clock.now + 500.0)
    return begun


def test_the_nth_start_of_a_job_costs_the_same_whatever_else_happens() -> None:
    first = _start_times(1, A, 3)
    assert first == _start_times(1, A, 3)
    assert len(set(first)) == 3
    assert first != _start_times(2, A, 3)
    assert first != _start_times(1, B, 3)


def test_starts_are_lognormal_with_the_median_and_95th_percentile_given() -> None:
    costs, rng = JobCosts(), random.Random(1)
    draws = sorted(costs.restart(rng.random()) for _ in range(4000))
    assert statistics.median(draws) == pytest.approx(35.0, rel=0.02)
    assert draws[int(0.95 * len(draws))] == pytest.approx(50.0, rel=0.03)
    checkpoints = [costs.checkpoint(rng.random()) for _ in range(1000)]
    assert min(checkpoints) >= 5.0
    assert max(checkpoints) <= 10.0
    assert statistics.mean(checkpoints) == pytest.approx(7.5, rel=0.05)


@pytest.mark.parametrize(
    "values",
    [
        {"restart_median": -1.0},
        {"restart_median": float("nan")},
        {"restart_median": 60.0},
        {"checkpoint_low": 11.0},
        {"checkpoint_high": float("inf")},
    ],
)
def test_costs_that_cannot_be_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        JobCosts(**values)


@pytest.mark.parametrize(("costs", "gone"), [(NO_COSTS, 100.0), (FIXED, 135.0)])
def test_job_stopped_as_it_reaches_its_target_has_reached_it(costs: JobCosts, gone: float) -> None:
    clock = Clock(costs)
    end = 100.0 + costs.restart_median
    # Before anything of that moment happens by itself, as when a round opens there.
    clock.at(end, lambda _: clock.stop(A))
    clock.start(A, [0], until=50.0)
    clock.run()
    assert clock.story == [(0.0, "start", "a"), (gone, "stop", "a"), (gone, "reach", "a")]
    assert clock.nodes.trainings[A, J0].done == 50.0


def test_job_at_its_target_does_not_move_elsewhere() -> None:
    clock = Clock()

    def move(_: float) -> None:
        clock.stop(A)
        clock.start(A, [4], until=50.0)

    clock.at(100.0, move)
    clock.start(A, [0], until=50.0)
    clock.run()
    assert clock.story == [(0.0, "start", "a"), (100.0, "stop", "a"), (100.0, "reach", "a")]


def test_a_job_that_moves_on_to_a_later_target_goes_on() -> None:
    clock = Clock()

    def move(_: float) -> None:
        clock.stop(A)
        clock.start(A, [4], until=60.0)

    clock.at(100.0, move)
    clock.start(A, [0], until=50.0)
    clock.run()
    assert [what for _, what, _ in clock.story] == ["start", "stop", "start", "stop", "reach"]
    assert clock.story[-1][0] == 120.0


def test_undeclared_costs_take_their_defaults() -> None:
    job = JobSpec(JobId("j0"), 1.0, 1)
    spec = AppSpec(AppId("a"), OwnerId("a"), (job,), (Phase(1, 1),))
    assert declared_costs(spec) == JobCosts()
    none = replace(spec, checkpoint_seconds=0.0, restart_seconds=0.0)
    assert declared_costs(none) == NO_COSTS
    assert declared_costs(replace(spec, restart_seconds=1e9)).restart(0.5) == 86400.0
