"""Work that may never come back: nobody waits for it who need not."""

import asyncio
import threading
import time

import pytest

from themis.engines.host.detached_thread import in_own_thread
from themis.evaluation.rehearsal.virtual_loop import run_virtually


def test_result_or_exception_of_the_work_is_passed_on() -> None:
    async def scene() -> None:
        assert await in_own_thread(max, 3, 5) == 5
        with pytest.raises(ZeroDivisionError):
            await in_own_thread(divmod, 1, 0)

    asyncio.run(scene())


def test_neither_cancellation_nor_shutdown_waits_for_the_work() -> None:
    release, begun, over = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        release.wait(60.0)
        over.set()

    async def scene() -> None:
        waiting = asyncio.create_task(in_own_thread(hang))
        await asyncio.to_thread(begun.wait, 60.0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scene())
    assert not over.is_set()
    release.set()
    assert over.wait(60.0), "what it would tell is told to nobody, and hurts nobody"


def test_virtual_time_does_not_outrun_it() -> None:
    async def scene() -> float:
        async with asyncio.timeout(1.0):
            await in_own_thread(time.sleep, 0.05)
        return asyncio.get_running_loop().time()

    assert run_virtually(scene()) == 0.0
