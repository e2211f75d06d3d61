"""Reads what runs report: their progress, and the points for their agents."""

import asyncio
import math
from collections.abc import Callable, Collection
from functools import partial

from themis.engines.base import Engine
from themis.node.core import events as ev
from themis.node.runs import Put, RunHandle, Runs, job_name
from themis.protocol.node_messages import Point


class RunMeter:
    """Measures runs from time to time, and once more at their ends."""

    def __init__(
        self,
        engine: Engine,
        runs: Runs,
        put: Put,
        over_limit: Callable[[RunHandle], None],
        now: Callable[[], float],
    ) -> None:
        """Bring the parts together.

        Args:
            engine: Reads the samples of jobs.
            runs: All runs of the node.
            put: Takes events.
            over_limit: Called once for a run that passed its limit of iterations.
            now: The clock of leases.
        """
        self._engine = engine
        self._runs = runs
        self._put = put
        self._over_limit = over_limit
        self._now = now
        self._begun = asyncio.Event()
        """Set when a run has begun."""

    def wake(self) -> None:
        """A run begins: there may be something to measure."""
        self._begun.set()

    async def work(self, every: float, live: Callable[[], Collection[int]]) -> None:
        """Measure runs each `every` seconds; until cancelled."""
        looking: dict[int, asyncio.Task[None]] = {}
        try:
            while True:
                await asyncio.sleep(every)
                if not self._runs.by_number:
                    self._begun.clear()
                    await self._begun.wait()
                alive = live()
                for number, run in self._runs.by_number.items():
                    if number not in looking and (number in alive or run.progress.more):
                        look = self._look(run, alive=number in alive)
                        looking[number] = asyncio.create_task(look)
                # Together, so that the engine reads their files in one trip to a thread. A run
                # whose file server is down holds up no other run.
                if looking:
                    await asyncio.wait(looking.values(), timeout=every)
                for number in [number for number, task in looking.items() if task.done()]:
                    looking.pop(number).result()
        finally:
            for task in looking.values():
                task.cancel()

    async def finish(self, run: RunHandle) -> None:
        """Read the rest of a run that has ended."""
        await self._measure(run, alive=False)
        await self._read_points(run)

    async def _look(self, run: RunHandle, *, alive: bool) -> None:
        if alive:
            await self._measure(run, alive=True)
        await self._read_points(run)

    async def _read_points(self, run: RunHandle) -> None:
        """Read the next points of a run, as far as its agent has acknowledged earlier ones."""
        progress, number = run.progress, run.order.run
        async with progress.lock:
            before = (progress.more, progress.trouble)
            points: tuple[Point, ...] = ()
            if not self._runs.is_last(run):
                progress.more = False  # Its job was started again.
            elif progress.room > 0:
                found = await self._engine.points(
                    job_name(run.order), progress.place, progress.room
                )
                points = progress.take(found)
            else:
                # Perhaps there are none, but the run must not count as read to its end.
                progress.more = True
            if points or (progress.more, progress.trouble) != before:
                more, trouble = progress.more, progress.trouble
                self._put(
                    partial(ev.PointsRead, run=number, points=points, more=more, trouble=trouble)
                )

    async def _measure(self, run: RunHandle, *, alive: bool) -> None:
        if math.isnan(run.began):
            return  # Its samples are read only once, and they count from its beginning.
        async with run.measuring:
            samples = await self._engine.measure(job_name(run.order))
        if not samples:
            return
        run.iterations = max(sample.iteration for sample in samples)
        seconds = max(0.0, self._now() - run.began)
        self._put(
            partial(ev.RunMeasured, run=run.order.run, iterations=run.iterations, seconds=seconds)
        )
        if alive and 0.0 < run.order.limit < run.iterations and not run.overran:
            run.overran = True
            self._over_limit(run)
