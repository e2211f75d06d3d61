"""A run takes no more room the longer it goes on: only results grow, with the number of apps."""

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.small_sims import sim_app, workload_of
from themis.core.arbiter import RoundRecord
from themis.sim import RunConfig, prepare, run

EARLY, LATE = 40, 160
BEAT = 600.0
PER_BEAT = 16
"""Bytes. Less than one float, so that a single number kept from every beat is noticed."""


def steady_growth(policy: str, keep: Callable[[RoundRecord], object] | None = None) -> float:
    """Bytes per beat by which memory grows while four apps train on and nothing changes."""
    prepared = prepare(RunConfig(cluster="demo16", apps=1, policy=policy, options={"floor": False}))
    apps = [sim_app(f"a{n}", work=4 * (LATE + 20) * BEAT, max_gpus=4) for n in range(4)]
    prepared = replace(prepared, workload=workload_of(*apps))
    taken: dict[int, int] = {}

    def look(record: RoundRecord) -> None:
        if keep is not None:
            keep(record)
        if record.round in {EARLY, LATE}:
            gc.collect()
            taken[record.round] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        run(prepared, keep_segments=False, on_round=look)
    finally:
        tracemalloc.stop()
    return (taken[LATE] - taken[EARLY]) / (LATE - EARLY)


@pytest.mark.parametrize("policy", ["themis", "equal-share", "tiresias", "fifo"])
def test_a_run_in_which_nothing_changes_does_not_grow(policy: str) -> None:
    assert steady_growth(policy) < PER_BEAT


def test_the_look_at_memory_would_notice_one_number_a_beat() -> None:
    kept: list[float] = []
    assert steady_growth("fifo", lambda record: kept.append(record.round * 1.5)) > PER_BEAT
