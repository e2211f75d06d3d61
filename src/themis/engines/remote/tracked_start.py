"""A start of a job on another machine, as the engine of that machine knows it."""

import asyncio
from collections.abc import Sequence

from themis.engines.attempt.attempt import Attempt, Page
from themis.engines.attempt.lease_timing import KILL, LOST, NEVER_RAN, RESUMABLE, RUN, LeaseTimer
from themis.engines.common.engine import WatchedStart


class Far(WatchedStart):
    """One that a scheduler launches, and whose supervisor writes pages on storage of both."""

    def __init__(self, attempt: Attempt, lease: LeaseTimer, heard: float) -> None:
        super().__init__(attempt, lease, None)
        self.launched = 0.0
        """When the scheduler took it; 0 before."""
        self.seen = False
        """Whether the scheduler has been heard to have it."""
        self.beat = 0.0
        """The last time that its supervisor has said,"""
        self.heard = heard
        """and when that was heard."""
        self.boot = ""
        """Whose clock its lease was written by."""
        self.calling_off = False
        self.unwanted = asyncio.Event()
        """Set when it is to go: what was not launched yet need not be."""
        self.telling = asyncio.Lock()

    @property
    def busy(self) -> bool:
        """Whether it starts or stops, and news of it are waited for."""
        return not self.over and (not self.started_told or self.lease.stop != RUN)

    def outcome(self, page: Page, now: float) -> str:
        """How it ended if its supervisor did not live to say so."""
        if page.get("began") is None:
            return NEVER_RAN
        killed = self.lease.stop == KILL or now >= self.lease.end
        return RESUMABLE if killed else LOST


def read_pages(attempts: Sequence[Attempt]) -> list[Page]:
    """What their supervisors have written; this blocks."""
    return [attempt.status or {} for attempt in attempts]
