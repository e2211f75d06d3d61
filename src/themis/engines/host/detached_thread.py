"""Blocking work that may hang, such as reading from a file server that is down.

    found = await aside(os.listdir, folder)

Each call has a thread of its own. Neither a cancelled caller nor the end of the process waits for
it, as both would for threads of `asyncio.to_thread`.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

_T = TypeVar("_T")


class OwnThreadExecutor(Executor):
    """A thread for each piece of work."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Start a thread for it."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # its caller gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, name="own-thread", daemon=True).start()
        return future


_EXECUTOR = OwnThreadExecutor()


async def in_own_thread(work: Callable[..., _T], *args: object) -> _T:
    """Run the work; returns its result or raises its error."""
    return await asyncio.get_running_loop().run_in_executor(_EXECUTOR, work, *args)
