"""Blocking work that may never come back, such as a look at a file server that is down.

    found = await aside(os.listdir, folder)

It has a thread of its own that nobody waits for: not who is cancelled meanwhile, nor the end of
the process, which would wait for threads of `asyncio.to_thread`.
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
        """Begin it."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # whoever waits hears of it
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, name="aside", daemon=True).start()
        return future


_ASIDE = OwnThreadExecutor()


async def in_own_thread(work: Callable[..., _T], *args: object) -> _T:
    """What the work returns or raises."""
    return await asyncio.get_running_loop().run_in_executor(_ASIDE, work, *args)
