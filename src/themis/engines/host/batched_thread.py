"""Short pieces of blocking work, done together in one trip to a thread.

    batched = BatchedThread()
    first, second = await asyncio.gather(batched(read, "a"), batched(read, "b"))

A trip to a thread takes longer than reading a few lines, and a node reads files of a hundred jobs
every second. Calls in the same turn of the event loop share a trip, in which they run one after
the other. Work that may hang belongs into `in_own_thread`.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
_Piece = tuple["asyncio.Future[Any]", Callable[[], Any]]


class BatchedThread:
    """Batches calls of one event loop."""

    def __init__(self) -> None:
        self._waiting: list[_Piece] = []
        self._trips: set[asyncio.Task[None]] = set()

    async def __call__(self, work: Callable[..., _T], *args: object) -> _T:
        """Run the work; returns its result or raises its error."""
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            trip = asyncio.create_task(self._go())
            self._trips.add(trip)
            trip.add_done_callback(self._trips.discard)
        self._waiting.append((done, lambda: work(*args)))
        return await done

    async def _go(self) -> None:
        # Tasks that were woken in the same turn join the trip.
        await asyncio.sleep(0)
        pieces, self._waiting = self._waiting, []
        ends = await asyncio.to_thread(_do_all, [work for _, work in pieces])
        for (done, _), (result, error) in zip(pieces, ends, strict=True):
            if done.done():
                continue  # its caller was cancelled
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)


def _do_all(works: list[Callable[[], Any]]) -> list[tuple[Any, Exception | None]]:
    ends: list[tuple[Any, Exception | None]] = []
    for work in works:
        try:
            ends.append((work(), None))
        except Exception as error:  # its caller gets it
            ends.append((None, error))
    return ends
