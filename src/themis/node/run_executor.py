"""A node's runs on its engine: commands in their order, and what the engine tells of them.

Commands to one run go to the engine in their order, those to different runs at the same time, so
that a slow start does not hold up a kill.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any, assert_never

from themis.engines import base
from themis.engines.base import Engine
from themis.engines.host import boottime
from themis.errors import ConfigError, ThemisError
from themis.node.core import events as ev
from themis.node.disk import NodeDisk
from themis.node.runs import (
    MOST_MESSAGE,
    NO_PROGRAM_CODE,
    NodeRun,
    Put,
    Runs,
    advice,
    code_of,
    job_name,
    last_words,
    task_for,
)
from themis.protocol.node_messages import Point, RunOrder

_LOG = logging.getLogger(__name__)

_WORTH_WRITING = 1.0
"""Seconds by which limits of a run must move to be written down; a restart may lose less."""

_NOTE_EVERY = 30.0
"""Seconds after which it is written down again how far a run's points were heard."""


class RunExecutor:
    """Starts, watches and ends runs. What happens to them is put where the core takes it."""

    def __init__(
        self,
        engine: Engine,
        disk: NodeDisk,
        runs: Runs,
        put: Put,
        *,
        overrun: float,
        over: Callable[[NodeRun], None],
        now: Callable[[], float] = boottime.now,
    ) -> None:
        """Bring the parts together.

        Args:
            engine: Starts and kills jobs.
            disk: Where records of runs are kept.
            runs: All of them.
            put: Takes what happens.
            overrun: What a run that passed its limit of iterations gets to save, in seconds.
            over: Called when a run is over, before that is put.
            now: The clock of leases.
        """
        self._engine = engine
        self._disk = disk
        self._runs = runs
        self._put = put
        self._overrun = overrun
        self._over = over
        self._now = now
        self._chains: dict[int, asyncio.Task[None]] = {}
        self._begun = asyncio.Event()
        """Set when there may be something to measure."""

    def cancel(self) -> None:
        """Leave undone what is under way; jobs go on."""
        for task in self._chains.values():
            task.cancel()

    # Commands

    def do(self, number: int, work: Callable[[NodeRun], Coroutine[Any, Any, None]]) -> None:
        """Do something with a run, after everything that was to be done with it before."""
        run = self._runs.by_number.get(number)
        if run is None:
            return
        before = self._chains.get(number)

        async def step() -> None:
            if before is not None:
                await asyncio.wait({before})
            try:
                await work(run)
            except (ThemisError, OSError) as error:
                # A run that is over cannot be renewed or killed; its end is on its way to us.
                _LOG.debug("run %s: %s", number, error)

        task = self._chains[number] = asyncio.create_task(step())
        task.add_done_callback(partial(self._unchain, number))

    def _unchain(self, number: int, task: "asyncio.Task[None]") -> None:
        if self._chains.get(number) is task:
            del self._chains[number]
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a command to run %s failed", number, exc_info=task.exception())

    async def begin(self, order: RunOrder, limits: ev.RunLimits, trouble: str) -> None:
        """Start a run, unless there is trouble already."""
        early = limits.until - limits.checkpoint_at
        gpus = ", ".join(map(str, order.gpus))
        _LOG.info("run %s: %s starts on GPUs %s", order.run, job_name(order), gpus)
        run = self._runs.add(NodeRun(order, early, limits.lease_end))
        self._begun.set()
        if not trouble:
            try:
                await asyncio.to_thread(self._disk.put, run.record)
            except OSError as error:
                trouble = f"the node cannot write to its disk: {error.strerror}"
        if trouble:
            self._ended(run, None, trouble)
        else:
            self.do(order.run, partial(self._start, limits=limits))

    async def _start(self, run: NodeRun, limits: ev.RunLimits) -> None:
        try:
            await self._engine.start(task_for(run.order, limits))
        except ConfigError as error:
            # Its owner's doing, wherever it is started: a failure, which has an end.
            self._ended(run, NO_PROGRAM_CODE, str(error))
        except ThemisError as error:
            self._ended(run, None, str(error))
        except OSError as error:
            self._ended(run, None, f"cannot be started here: {error}")

    async def renew(self, run: NodeRun, limits: ev.RunLimits) -> None:
        """Tell a run's supervisor other limits."""
        early = limits.until - limits.checkpoint_at
        await self._engine.renew(job_name(run.order), run.order.token, limits.until, early)
        moved = max(abs(limits.lease_end - run.lease_end), abs(early - run.early))
        if moved > _WORTH_WRITING:
            run.lease_end, run.early = limits.lease_end, early
            await asyncio.to_thread(self._disk.put, run.record, durable=False)

    def advance(self, number: int, heard: int) -> None:
        """Keep how far a run's points were heard."""
        run = self._runs.by_number.get(number)
        # Who begins again before that reads some of them anew, under the same numbers.
        if run is not None and run.trail.hear(heard) and self._now() >= run.noted + _NOTE_EVERY:
            run.noted = self._now()
            self.do(number, self._note)

    async def _note(self, run: NodeRun) -> None:
        await asyncio.to_thread(self._disk.put, run.record, durable=False)

    async def ask_to_save(self, run: NodeRun) -> None:
        """Ask a run to save and go."""
        _LOG.info("run %s: %s is asked to save and go", run.order.run, job_name(run.order))
        await self._engine.checkpoint(job_name(run.order), run.order.token)

    async def kill(self, run: NodeRun) -> None:
        """Kill all of a run."""
        _LOG.info("run %s: %s is killed", run.order.run, job_name(run.order))
        await self._engine.kill(job_name(run.order), run.order.token)

    async def forget(self, run: NodeRun) -> None:
        """Drop what is kept of a run."""
        number = run.order.run
        if self._runs.is_last(run):
            del self._runs.by_job[job_name(run.order)]
            await self._engine.forget(job_name(run.order), run.order.token)
        self._runs.by_number.pop(number, None)
        await asyncio.to_thread(self._disk.drop, number)

    def _ended(
        self, run: NodeRun, code: int | None, message: str, log: str = "", log_size: int = 0
    ) -> None:
        if run.over:
            return
        run.over = True
        _LOG.info("run %s: %s is over: %s", run.order.run, job_name(run.order), message)
        self._over(run)
        exited = partial(
            ev.RunExited,
            run=run.order.run,
            code=code,
            message=message[:MOST_MESSAGE],
            log=log,
            log_size=log_size,
        )
        self._put(exited)

    async def listen(self) -> None:
        """Take in what the engine tells; until cancelled."""
        async for event in self._engine.watch():
            run = self._runs.of_job(event.job)
            if run is None:
                self._hear_of_orphan(event)
                continue
            match event:
                case base.ProgramStarted():
                    run.began = self._now()
                    self._put(partial(ev.RunStarted, run=run.order.run))
                case base.ProgramExited():
                    await self._measure(run, alive=False)
                    await self._read_points(run)
                    tail, size = await last_words(self._engine, run.order)
                    told = event.reason + advice(event, tail)
                    self._ended(run, code_of(event), told, tail, size)
                case base.CouldNotKill():
                    _LOG.error("run %s does not die: %s", run.order.run, event.reason)
                    self._put(partial(ev.KillFailed, run=run.order.run, reason=event.reason))
                case _:
                    assert_never(event)

    def _hear_of_orphan(self, event: base.Event) -> None:
        if isinstance(event, base.ProgramExited) and event.job in self._runs.orphans:
            for gpu in self._runs.orphans.pop(event.job):
                self._put(partial(ev.GpuWell, gpu=gpu, fault=ev.Fault.ORPHAN))

    async def measure(self, every: float, live: Callable[[], Collection[int]]) -> None:
        """Read what runs report, so often in seconds; until cancelled."""
        looking: dict[int, asyncio.Task[None]] = {}
        try:
            while True:
                await asyncio.sleep(every)
                if not self._runs.by_number:
                    self._begun.clear()
                    await self._begun.wait()
                alive = live()
                for number, run in self._runs.by_number.items():
                    if number not in looking and (number in alive or run.trail.more):
                        look = self._look(run, alive=number in alive)
                        looking[number] = asyncio.create_task(look)
                # Together, so that the engine may go to their files in one trip. Who reads from a
                # file server that is down is waited for by nobody else.
                if looking:
                    await asyncio.wait(looking.values(), timeout=every)
                for number in [number for number, task in looking.items() if task.done()]:
                    looking.pop(number).result()
        finally:
            for task in looking.values():
                task.cancel()

    async def _look(self, run: NodeRun, *, alive: bool) -> None:
        if alive:
            await self._measure(run)
        await self._read_points(run)

    async def _read_points(self, run: NodeRun) -> None:
        """Read what a run has reported, as far as its agent has heard what was read before."""
        trail, number = run.trail, run.order.run
        async with trail.lock:
            before = (trail.more, trail.trouble)
            points: tuple[Point, ...] = ()
            if not self._runs.is_last(run):
                trail.more = False  # Its job was started again.
            elif trail.room > 0:
                found = await self._engine.points(job_name(run.order), trail.place, trail.room)
                points = trail.take(found)
            else:
                trail.more = True  # Perhaps not; but nobody must take its end for the end of them.
            if points or (trail.more, trail.trouble) != before:
                more, trouble = trail.more, trail.trouble
                self._put(
                    partial(ev.PointsRead, run=number, points=points, more=more, trouble=trouble)
                )

    async def _measure(self, run: NodeRun, *, alive: bool = True) -> None:
        if math.isnan(run.began):
            return  # What it has reported is read once, and is still there when it counts.
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
            _LOG.warning("run %s passed its limit of iterations", run.order.run)
            self.do(run.order.run, self.ask_to_save)
            loop = asyncio.get_running_loop()
            late = partial(self.do, run.order.run, self.kill)
            loop.call_later(run.order.program.grace or self._overrun, late)
