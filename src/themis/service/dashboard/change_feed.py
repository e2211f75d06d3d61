"""Who looks at pages that change: told that something did, never what.

    async for _ in watchers.turns(pace=1.0, quiet=15.0):
        yield what_is_new()

Nothing waits in a queue: whoever reads slowly finds the latest state when its turn comes, and one
who does not read at all is hung up on by the HTTP guard.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress


class Watchers:
    """A bell that any number of streams wait for. All of it belongs to one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._changed: asyncio.Event | None = None
        self.closed = False

    def tell(self) -> None:
        """Something changed."""
        self._count += 1
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def close(self) -> None:
        """No more: streams end."""
        self.closed = True
        self.tell()

    async def turns(self, *, pace: float, quiet: float) -> AsyncIterator[bool]:
        """A turn for each change, at most one in `pace` seconds; False for one after `quiet`.

        The first comes at once.
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
