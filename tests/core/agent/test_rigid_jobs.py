"""What agents promise and do where jobs cannot share their work, or take long to start."""

import heapq
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.core.agent import JobNeed
from themis.core.agent.carving import carve
from themis.core.agent.remaining_time import Clock
from themis.core.model import CLUSTER, NO_SLOWDOWN, JobId, JobSpec, Machine, Topology

ONE_MACHINE = Topology((Machine("m0", "r0", (8,)),))


def _promised(works: list[float], gpus: int) -> float:
    needs = [
        JobNeed(JobSpec(JobId(f"j{number}"), 1.0, 1, 1, NO_SLOWDOWN), work)
        for number, work in enumerate(works)
    ]
    return Clock((needs,)).seconds(((CLUSTER, gpus),))


def _longest_first(works: list[float], gpus: int) -> float:
    """When the last of them ends if each GPU takes the longest job left."""
    ends = [0.0] * gpus
    for work in sorted(works, reverse=True):
        heapq.heapreplace(ends, ends[0] + work)
    return max(ends)


def test_jobs_of_one_gpu_wait_for_each_other() -> None:
    # Evenly shared, 60 seconds of work on 4 GPUs would take 15.
    assert _promised([10.0] * 6, 4) == pytest.approx(20.0)
    assert _promised([10.0] * 6, 6) == pytest.approx(10.0)
    assert _promised([10.0] * 6, 2) == pytest.approx(30.0)
    assert _promised([30.0, 10.0, 10.0], 2) == pytest.approx(30.0)


@given(works=st.lists(st.floats(1.0, 1e4), min_size=1, max_size=30), gpus=st.integers(1, 30))
def test_the_promise_is_between_what_is_possible_and_what_is_done(
    works: list[float], gpus: int
) -> None:
    promised = _promised(works, gpus)
    done = _longest_first(works, gpus)
    assert promised <= done * (1 + 1e-9)
    assert done <= 2 * promised * (1 + 1e-9)
    assert promised >= max(*works, math.fsum(works) / max(gpus, 1)) * (1 - 1e-9)


@given(works=st.lists(st.floats(1.0, 1e4), min_size=1, max_size=30), gpus=st.integers(1, 29))
def test_one_more_gpu_never_makes_it_slower(works: list[float], gpus: int) -> None:
    assert _promised(works, gpus + 1) <= _promised(works, gpus) * (1 + 1e-9)


def test_short_jobs_start_side_by_side_rather_than_one_after_the_other() -> None:
    def sizes(start: float) -> list[int]:
        carving = carve(
            ONE_MACHINE.seats,
            jobs=8,
            min_gpus=1,
            max_gpus=4,
            slowdown=NO_SLOWDOWN,
            start=start,
        )
        return [len(gang) for gang in carving.gangs]

    assert sizes(start=0.0) == [4, 4]
    assert sizes(start=0.5) == [1] * 8
