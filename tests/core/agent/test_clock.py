"""Clocks: what they remember from one question to the next."""

import pytest

import themis.core.agent.remaining_time
from themis.core.agent.job_assignment import JobNeed
from themis.core.agent.remaining_time import Clock, Outlook
from themis.core.model import CLUSTER, JobId, JobSpec

MOST = 50


@pytest.fixture(autouse=True)
def _a_small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(themis.core.agent.remaining_time, "MOST_REMEMBERED", MOST)


def _needs(jobs: int, work: float) -> list[JobNeed]:
    return [JobNeed(JobSpec(JobId(f"j{number}"), 1.0, 1), work) for number in range(jobs)]


def test_an_outlook_does_not_grow_with_every_offer() -> None:
    outlook = Outlook([_needs(4, 12.0)])
    for first in range(1, 2000, 20):
        shapes = [((CLUSTER, count, 1),) for count in range(first, first + 20)]
        found = outlook.seconds([((CLUSTER, 2, 1),), *shapes])
        # Also what was known before is answered when room had to be made.
        assert found[0] == (24.0,)
        assert found[-1] == (12.0,)
        assert len(outlook._known) <= MOST


def test_a_clock_does_not_grow_with_every_offer() -> None:
    clock = Clock([_needs(4, 12.0)], Outlook([_needs(2, 6.0)]))
    for first in range(1, 2000, 20):
        shapes = [((CLUSTER, count, 1),) for count in range(first, first + 20)]
        found = clock.seconds_on([((CLUSTER, 1, 1),), *shapes])
        assert (found[0], found[-1]) == (60.0, 18.0)
        assert len(clock._known) <= MOST
