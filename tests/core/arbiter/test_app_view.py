"""What a policy is told of an app beyond the GPUs it holds: counts of GPUs, and progress."""

import math

import pytest

from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.app_view import ArbiterAppView, Surroundings
from themis.core.arbiter.settings import Settings
from themis.core.fairness.valuation import Valuation
from themis.core.model import (
    CLUSTER,
    MACHINE,
    SLOT,
    AppId,
    AppSpec,
    JobId,
    JobSpec,
    Machine,
    OwnerId,
    Phase,
    TableRow,
    Topology,
)

TOPOLOGY = Topology((Machine("m0", "r0", (2, 2)),))
TABLE = (
    TableRow(SLOT, 1, 1000.0),
    TableRow(SLOT, 2, 500.0),
    TableRow(MACHINE, 2, 600.0),
    TableRow(MACHINE, 4, 300.0),
)


def _state() -> AppState:
    """Two jobs of 100 s, then one that goes on for 300 s more: 500 s of work."""
    jobs = tuple(JobSpec(JobId(f"j{i}"), serial_iteration_time=1.0, max_gpus=2) for i in range(2))
    phases = (Phase(2, 100), Phase(1, 300))
    return AppState(AppSpec(AppId("a"), OwnerId("ann"), jobs, phases), 0.0)


def _seen(state: AppState) -> ArbiterAppView:
    around = Surroundings(
        now=0.0,
        settings=Settings(),
        topology=TOPOLOGY,
        offered=frozenset(),
        elapsed=lambda _: 0.0,
        mean_contention=lambda _: 1.0,
        mean_capacity=lambda _: 4.0,
        attained=lambda _: 0.0,
        weight=lambda _: 1.0,
        queued_work=lambda app: 0.0,
        quota_left=lambda _: None,
    )
    return ArbiterAppView(state, (), None, around)


def test_gpu_counts_are_valued_at_the_same_or_a_worse_level() -> None:
    state = _state()
    state.valuation = Valuation(TABLE, 500.0)
    seen = _seen(state)
    assert seen.seconds_at(SLOT, 2) == 500.0
    assert seen.seconds_at(MACHINE, 2) == 600.0
    assert seen.seconds_at(SLOT, 4) == 300.0
    assert seen.seconds_at(SLOT, 3) == 500.0  # the next smaller row
    assert math.isinf(seen.seconds_at(CLUSTER, 4))
    assert math.isinf(seen.seconds_at(SLOT, 0))


def test_the_value_of_a_count_falls_with_the_work() -> None:
    state = _state()
    state.valuation = Valuation(TABLE, 500.0)
    state.measure(JobId("j0"), 50.0)
    assert _seen(state).seconds_at(SLOT, 1) == pytest.approx(900.0)


def test_without_a_table_the_declared_work_stands_in() -> None:
    seen = _seen(_state())
    # The first phase on two GPUs, then one job that can use both.
    assert seen.seconds_at(SLOT, 2) == seen.seconds_at(CLUSTER, 2) == pytest.approx(250.0)
    assert math.isinf(seen.seconds_at(SLOT, 0))


def test_progress_is_the_share_of_all_phases_that_is_done() -> None:
    state = _state()
    assert _seen(state).progress == 0.0
    state.measure(JobId("j0"), 100.0)
    assert _seen(state).progress == pytest.approx(0.2)
    state.measure(JobId("j1"), 100.0)
    state.start_phase(1, [(JobId("j1"), 400.0)])
    assert _seen(state).progress == pytest.approx(0.4)
    state.measure(JobId("j1"), 400.0)
    assert _seen(state).progress == pytest.approx(1.0)
