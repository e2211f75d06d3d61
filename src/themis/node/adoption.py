"""Adopts the runs of a node's earlier start: those that go on, those that ended, and orphans."""

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial

from themis.engines import base
from themis.engines.base import Engine
from themis.engines.host import boottime
from themis.node.core import events as ev
from themis.node.disk import NodeDisk, NodeRunRecord
from themis.node.metric_progress import MetricProgress
from themis.node.runs import (
    MOST_MESSAGE,
    EventAt,
    RunHandle,
    Runs,
    code_of,
    job_name,
    last_output,
)
from themis.protocol.node_messages import RunOrder, RunState

_LOG = logging.getLogger(__name__)

_STATES = {
    "starting": RunState.STARTING,
    "running": RunState.RUNNING,
    "stopping": RunState.STOPPING,
    "stuck": RunState.STOPPING,
    "exited": RunState.EXITED,
}


class Adoption:
    """Matches jobs that the engine finds with records on disk. Once, before anything else."""

    def __init__(
        self,
        engine: Engine,
        disk: NodeDisk,
        runs: Runs,
        now: Callable[[], float] = boottime.now,
    ) -> None:
        self._now = now
        self._engine = engine
        self._disk = disk
        self._runs = runs

    async def adopt(self) -> tuple[tuple[ev.FoundRun, ...], list[EventAt]]:
        """The runs of an earlier start of this node, and events for what is wrong with them."""
        later: list[EventAt] = []
        known = {item.job: item for item in await self._engine.reattach()}
        records = await asyncio.to_thread(self._disk.runs)
        found = []
        for record in reversed(records):  # The engine knows the last run of each job.
            item = known.get(job_name(record.order))
            if item is not None and item.token == record.order.token:
                del known[item.job]
                found.append(await self._take_over(record, item))
                if item.state == "stuck":
                    reason = "it could not be killed before this node was restarted"
                    later.append(partial(ev.KillFailed, run=record.order.run, reason=reason))
            else:
                self._runs.by_number[record.order.run] = RunHandle(
                    record.order, 0.0, 0.0, over=True
                )
                found.append(_never_ran(record.order))
        for item in known.values():
            later += await self._kill_orphan(item)
        if found:
            alive = sum(not item.state.over for item in found)
            _LOG.info("found %s runs of before, %s of them alive", len(found), alive)
        return tuple(reversed(found)), later

    async def _take_over(self, record: NodeRunRecord, item: base.FoundProgram) -> ev.FoundRun:
        order = record.order
        run = self._runs.add(RunHandle(order, record.early, record.lease_end))
        run.began = self._now() - item.age
        run.progress = MetricProgress(record.heard, record.place)
        run.progress.more = True
        state = _STATES[item.state]
        code: int | None = None
        message, log, log_size = "", "", 0
        if item.ended is not None:
            run.over = True
            log, log_size = await last_output(self._engine, order)
            code, message = code_of(item.ended), item.ended.reason
            state = RunState.EXITED if code is not None else RunState.LOST
        samples = await self._engine.measure(item.job)
        run.iterations = max((sample.iteration for sample in samples), default=0.0)
        limits = ev.RunLimits(max(record.lease_end, item.end), item.end - record.early, item.end)
        return ev.FoundRun(
            order,
            state,
            limits,
            code,
            run.iterations,
            item.age if samples else 0.0,
            message[:MOST_MESSAGE],
            record.heard,
            more=True,
            log=log,
            log_size=log_size,
        )

    async def _kill_orphan(self, item: base.FoundProgram) -> list[EventAt]:
        """Kill a job without a record: its owner and its lease are unknown."""
        if item.ended is not None:
            await self._engine.forget(item.job, item.token)
            return []
        _LOG.error("job %s runs and there is no record of it: it is killed", item.job)
        self._runs.orphans[item.job] = item.gpus
        await self._engine.kill(item.job, item.token)
        reason = f"job {item.job} runs without a record"
        failed = partial(ev.GpuFailed, reason=reason, fault=ev.Fault.ORPHAN)
        return [partial(failed, gpu=gpu) for gpu in item.gpus]


def _never_ran(order: RunOrder) -> ev.FoundRun:
    never = ev.RunLimits(-math.inf, -math.inf, -math.inf)
    return ev.FoundRun(
        order, RunState.LOST, never, message="its node was restarted before it began"
    )
