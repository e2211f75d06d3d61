"""Wakes the streams of open pages when something has changed.

    async for _ in changes.turns(pace=1.0, quiet=15.0):
        yield difference_since_the_last_one()

Nothing is queued: a slow reader gets the latest state at its next turn, and the limits on
connections end a reader that stops reading.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from themis.core.steward.commands import Outcome
from themis.core.steward.events import StewardEvent


class ChangeFeed:
    """A signal that any number of streams wait for, within one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._changed: asyncio.Event | None = None
        self.closed = False

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Wake the streams: an outcome changes something."""
        self.tell()

    def tell(self) -> None:
        """Wake the streams: something has changed."""
        self._count += 1
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def close(self) -> None:
        """End all streams."""
        self.closed = True
        self.tell()

    async def turns(self, *, pace: float, quiet: float) -> AsyncIterator[bool]:
        """A turn for each change, at most one in `pace` seconds; the first comes at once.

        After `quiet` seconds without a change comes a turn with False.
        """
        seen = -1
        while not self.closed:
            changed = seen != self._count
            seen = self._count
            yield changed
            await asyncio.sleep(pace)
            if seen == self._count and not self.closed:
                await self._wait(quiet)

    async def _wait(self, seconds: float) -> None:
        if self._changed is None:
            self._changed = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
