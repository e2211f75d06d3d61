"""A start of a job on another machine, as the engine of that machine knows it."""

import asyncio
from collections.abc import Sequence

from themis.engines.attempt.attempt import Attempt, Page
from themis.engines.attempt.lease_timing import KILL, LOST, NEVER_RAN, RESUMABLE, RUN, LeaseTimer
from themis.engines.common.start_table import WatchedStart


class RemoteStart(WatchedStart):
    """A start that a scheduler launches; its supervisor writes pages on shared storage."""

    def __init__(self, attempt: Attempt, lease: LeaseTimer, heard: float) -> None:
        super().__init__(attempt, lease, None)
        self.launched = 0.0
        """When the scheduler accepted it; 0 before."""
        self.seen = False
        """Whether the scheduler has listed it."""
        self.beat = 0.0
        """The clock in its supervisor's latest page,"""
        self.heard = heard
        """and when the engine read that, on its own clock."""
        self.boot = ""
        """The boot whose clock its lease is written by."""
        self.calling_off = False
        """Whether the scheduler is being asked to end it."""
        self.unwanted = asyncio.Event()
        """Set when it is to end: a launch that is under way can be given up."""
        self.publishing = asyncio.Lock()

    @property
    def busy(self) -> bool:
        """Whether it starts or stops, so that the engine looks often."""
        return not self.over and (not self.started_told or self.lease.stop != RUN)

    def outcome(self, page: Page, now: float) -> str:
        """How it ended, if its supervisor could not write that."""
        if page.get("began") is None:
            return NEVER_RAN
        killed = self.lease.stop == KILL or now >= self.lease.end
        return RESUMABLE if killed else LOST


def read_pages(attempts: Sequence[Attempt]) -> list[Page]:
    """The latest status page of each start; this blocks."""
    return [attempt.status or {} for attempt in attempts]
