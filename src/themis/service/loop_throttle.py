"""Throttles a crowd of calls to a few in each turn of the event loop.

    throttle = LoopThrottle(16)
    await throttle.turn()       # returns at once, or in one of the next turns

The loop checks its timers once in a turn, and runs everything that is ready: a thousand bids that
come together would delay the deadline that they come for.
"""

import asyncio
from collections import deque


class LoopThrottle:
    """Lets so many calls go on in each turn, in the order in which they came."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._passed = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait until this call may go on."""
        loop = asyncio.get_running_loop()
        if not self._passed:
            loop.call_soon(self._begin)
        if self._passed < self._most and not self._waiting:
            self._passed += 1
            return
        mine = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _begin(self) -> None:
        """The next turn."""
        self._passed = 0
        while self._waiting and self._passed < self._most:
            next_one = self._waiting.popleft()
            if not next_one.done():  # A cancelled call needs no turn.
                next_one.set_result(None)
                self._passed += 1
        if self._passed:
            asyncio.get_running_loop().call_soon(self._begin)
