"""Blocking work that may never come back, such as a look at a file server that is down.

    found = await aside(os.listdir, folder)

It has a thread of its own that nobody waits for: not who is cancelled meanwhile, nor the end of
the process, which would wait for threads of `asyncio.to_thread`.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_T = TypeVar("_T")


async def aside(work: Callable[..., _T], *args: object) -> _T:
    """What the work returns or raises."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def tell(result: _T | None, error: BaseException | None) -> None:
        if done.done():
            return  # Nobody waits any more.
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type] # without an error it is one

    def run() -> None:
        result, error = None, None
        try:
            result = work(*args)
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # The loop is closed by now.
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, name="aside", daemon=True).start()
    return await done
