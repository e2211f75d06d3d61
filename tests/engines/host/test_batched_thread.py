"""Work that goes to a thread together: each gets its own answer, and one trip is enough."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from themis.engines.host.batched_thread import BatchedThread


def during(work: Callable[[BatchedThread], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60.0):
            await work(BatchedThread())

    asyncio.run(run())


def test_every_caller_gets_its_own_answer_from_another_thread() -> None:
    def who(number: int) -> tuple[int, int]:
        return number, threading.get_ident()

    async def work(together: BatchedThread) -> None:
        answers = await asyncio.gather(*(together(who, number) for number in range(20)))
        assert [number for number, _ in answers] == list(range(20))
        threads = {thread for _, thread in answers}
        assert len(threads) == 1
        assert threading.get_ident() not in threads

    during(work)


def test_they_make_one_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    trips = []
    there_and_back = asyncio.to_thread

    async def counted(work: Callable[..., object], *args: object) -> object:
        trips.append(work)
        return await there_and_back(work, *args)

    monkeypatch.setattr(asyncio, "to_thread", counted)

    async def work(together: BatchedThread) -> None:
        await asyncio.gather(*(together(int) for _ in range(20)))
        assert len(trips) == 1
        await together(int)
        assert len(trips) == 2

    during(work)


def test_failing_call_affects_no_other() -> None:
    async def work(together: BatchedThread) -> None:
        answers = await asyncio.gather(
            together(int, "1"), together(int, "one"), together(int, "3"), return_exceptions=True
        )
        assert (answers[0], answers[2]) == (1, 3)
        assert isinstance(answers[1], ValueError)

    during(work)


def test_cancelled_caller_is_not_waited_for() -> None:
    hold = threading.Event()

    async def work(together: BatchedThread) -> None:
        leaving = asyncio.create_task(together(hold.wait, 60.0))
        staying = asyncio.create_task(together(int, "7"))
        await asyncio.sleep(0.05)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        hold.set()
        assert await staying == 7

    during(work)
