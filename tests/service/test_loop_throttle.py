"""Crowds go on a few at a time, in order, and timers do not wait for them."""

import asyncio

from themis.service.loop_throttle import LoopThrottle


def test_a_crowd_goes_on_in_order_and_a_timer_rings_in_between() -> None:
    async def scene() -> list[str]:
        pace, done = LoopThrottle(3), list[str]()

        async def one(number: int) -> None:
            await pace.turn()
            done.append(str(number))

        crowd = [asyncio.create_task(one(number)) for number in range(10)]
        asyncio.get_running_loop().call_later(0.0, done.append, "timer")
        await asyncio.gather(*crowd)
        return done

    done = asyncio.run(scene())
    assert [each for each in done if each != "timer"] == [str(number) for number in range(10)]
    assert done.index("timer") <= 6, "two turns at most"


def test_a_cancelled_call_takes_no_turn_and_later_ones_wait_no_longer() -> None:
    async def scene() -> list[int]:
        pace, done = LoopThrottle(1), list[int]()

        async def one(number: int) -> None:
            await pace.turn()
            done.append(number)

        crowd = [asyncio.create_task(one(number)) for number in range(5)]
        await asyncio.sleep(0)
        crowd[1].cancel()
        crowd[2].cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        for number in (7, 8):
            await one(number)
        return done

    assert asyncio.run(scene()) == [0, 3, 4, 7, 8]
