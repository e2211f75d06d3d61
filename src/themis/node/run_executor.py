"""Carries out the core's commands on the engine, and turns engine events into the core's."""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import assert_never

from themis.engines import base
from themis.engines.base import Engine
from themis.engines.host import boottime
from themis.errors import ConfigError, ThemisError
from themis.node.command_queue import CommandQueue
from themis.node.core import events as ev
from themis.node.disk import NodeDisk
from themis.node.run_meter import RunMeter
from themis.node.runs import (
    MOST_MESSAGE,
    NO_PROGRAM_CODE,
    Put,
    RunHandle,
    Runs,
    advice,
    code_of,
    job_name,
    last_output,
    task_for,
)
from themis.protocol.node_messages import RunOrder

_LOG = logging.getLogger(__name__)

_WORTH_WRITING = 1.0
"""Seconds by which the limits of a run must move to be written down; a restart may lose less."""

_NOTE_EVERY = 30.0
"""Seconds between notes of the points of a run that its agent has acknowledged."""


class RunExecutor:
    """Starts, watches and ends runs."""

    def __init__(
        self,
        engine: Engine,
        disk: NodeDisk,
        runs: Runs,
        put: Put,
        *,
        overrun: float,
        over: Callable[[RunHandle], None],
        now: Callable[[], float] = boottime.now,
    ) -> None:
        """Bring the parts together.

        Args:
            engine: Starts and kills jobs.
            disk: Keeps the records of runs.
            runs: All runs of the node.
            put: Takes events for the core.
            overrun: Seconds that a run which passed its limit of iterations gets to save.
            over: Called when a run has ended, before its event is put.
            now: The clock of leases.
        """
        self._engine = engine
        self._disk = disk
        self._runs = runs
        self._put = put
        self._overrun = overrun
        self._over = over
        self._now = now
        self._queue = CommandQueue(runs)
        self._meter = RunMeter(engine, runs, put, self._end_overrun, now)

    def cancel(self) -> None:
        """Cancel all commands; jobs go on."""
        self._queue.cancel()

    # Commands

    async def begin(self, order: RunOrder, limits: ev.RunLimits, trouble: str) -> None:
        """Start a run, unless the disk is in trouble already."""
        early = limits.until - limits.checkpoint_at
        gpus = ", ".join(map(str, order.gpus))
        _LOG.info("run %s: %s starts on GPUs %s", order.run, job_name(order), gpus)
        run = self._runs.add(RunHandle(order, early, limits.lease_end))
        self._meter.wake()
        if not trouble:
            try:
                await asyncio.to_thread(self._disk.put, run.record)
            except OSError as error:
                trouble = f"the node cannot write to its disk: {error.strerror}"
        if trouble:
            self._ended(run, None, trouble)
        else:
            self._queue.put(order.run, partial(self._start, limits=limits))

    async def _start(self, run: RunHandle, limits: ev.RunLimits) -> None:
        try:
            await self._engine.start(task_for(run.order, limits))
        except ConfigError as error:
            # Its owner must fix it, and it fails on any machine: an ordinary failure.
            self._ended(run, NO_PROGRAM_CODE, str(error))
        except ThemisError as error:
            self._ended(run, None, str(error))
        except OSError as error:
            self._ended(run, None, f"cannot be started here: {error}")

    def renew(self, number: int, limits: ev.RunLimits) -> None:
        """Give a run's supervisor other limits."""
        self._queue.put(number, partial(self._renew, limits=limits))

    async def _renew(self, run: RunHandle, limits: ev.RunLimits) -> None:
        early = limits.until - limits.checkpoint_at
        await self._engine.renew(job_name(run.order), run.order.token, limits.until, early)
        moved = max(abs(limits.lease_end - run.lease_end), abs(early - run.early))
        if moved > _WORTH_WRITING:
            run.lease_end, run.early = limits.lease_end, early
            await self._note(run)

    def advance(self, number: int, heard: int) -> None:
        """An agent has acknowledged the points of a run up to this number."""
        run = self._runs.by_number.get(number)
        # A node that restarts before the next note reads some of them again, with the same numbers.
        if run is not None and run.progress.hear(heard) and self._now() >= run.noted + _NOTE_EVERY:
            run.noted = self._now()
            self._queue.put(number, self._note)

    async def _note(self, run: RunHandle) -> None:
        await asyncio.to_thread(self._disk.put, run.record, durable=False)

    def ask_to_save(self, number: int) -> None:
        """Ask a run to save and exit."""
        self._queue.put(number, self._ask_to_save)

    async def _ask_to_save(self, run: RunHandle) -> None:
        _LOG.info("run %s: %s is asked to save and go", run.order.run, job_name(run.order))
        await self._engine.checkpoint(job_name(run.order), run.order.token)

    def kill(self, number: int) -> None:
        """Kill all processes of a run."""
        self._queue.put(number, self._kill)

    async def _kill(self, run: RunHandle) -> None:
        _LOG.info("run %s: %s is killed", run.order.run, job_name(run.order))
        await self._engine.kill(job_name(run.order), run.order.token)

    def forget(self, number: int) -> None:
        """Drop all records of a run."""
        self._queue.put(number, self._forget)

    async def _forget(self, run: RunHandle) -> None:
        number = run.order.run
        if self._runs.is_last(run):
            del self._runs.by_job[job_name(run.order)]
            await self._engine.forget(job_name(run.order), run.order.token)
        self._runs.by_number.pop(number, None)
        await asyncio.to_thread(self._disk.drop, number)

    def _end_overrun(self, run: RunHandle) -> None:
        """End a run that passed its limit: it may save, and is killed after that."""
        number = run.order.run
        _LOG.warning("run %s passed its limit of iterations", number)
        self.ask_to_save(number)
        patience = run.order.program.grace or self._overrun
        asyncio.get_running_loop().call_later(patience, self.kill, number)

    # Events

    async def measure(self, every: float, live: Callable[[], Collection[int]]) -> None:
        """Read what runs report each `every` seconds; until cancelled."""
        await self._meter.work(every, live)

    async def listen(self) -> None:
        """Take the engine's events; until cancelled."""
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
                    await self._meter.finish(run)
                    tail, size = await last_output(self._engine, run.order)
                    message = event.reason + advice(event, tail)
                    self._ended(run, code_of(event), message, tail, size)
                case base.CouldNotKill():
                    _LOG.error("run %s does not die: %s", run.order.run, event.reason)
                    self._put(partial(ev.KillFailed, run=run.order.run, reason=event.reason))
                case _:
                    assert_never(event)

    def _hear_of_orphan(self, event: base.Event) -> None:
        if isinstance(event, base.ProgramExited) and event.job in self._runs.orphans:
            for gpu in self._runs.orphans.pop(event.job):
                self._put(partial(ev.GpuWell, gpu=gpu, fault=ev.Fault.ORPHAN))

    def _ended(
        self, run: RunHandle, code: int | None, message: str, log: str = "", log_size: int = 0
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
