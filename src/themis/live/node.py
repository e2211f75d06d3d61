"""The node: drives a `NodeCore` with a real clock, an engine, a disk and the service.

    node = Node(machine, engine, NodeClient(connection), disk)
    await node.run()            # until `stop`, or the task is cancelled; jobs go on

What is safe and what is not is decided by the core; this only carries it out. Commands to one run
go to the engine in their order, those to different runs at the same time, so that a slow start does
not hold up a kill.
"""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, assert_never

from themis import __version__
from themis.engines import base, clock
from themis.engines.base import Engine, Task
from themis.errors import ThemisError, UnavailableError
from themis.fleet import NodeCore
from themis.fleet import commands as cmd
from themis.fleet import events as ev
from themis.fleet.messages import Orders, Point, Report, RunOrder, RunState
from themis.live.grpc_client import Backoff
from themis.live.node_disk import NodeDisk, RunRecord
from themis.live.node_points import Trail
from themis.live.node_storage import SharedStorage
from themis.model import Machine

_LOG = logging.getLogger(__name__)

RESUMABLE_CODE = 75
"""What a run that may go on counts as having exited with, also if it was killed by us."""
_MOST_MESSAGE = 600
_MOST_LOG = 4096
_PAUSES = (0.2, 2.0)
"""Between tries to bring a report to the service: at first and at most, in seconds, spread."""
_WORTH_WRITING = 1.0
"""Seconds by which limits of a run must move to be written down; a restart may lose less."""
_PORTS = (20000, 10000)
"""Where parts of jobs on several machines meet: the first port, and how many."""


class Reporter(Protocol):
    """Brings reports to the service, as `NodeClient` does."""

    async def report(self, report: Report) -> Orders:
        """Send a report; returns with the orders that answer it."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How often a node looks, in seconds."""

    measure_every: float = 1.0
    health_every: float = 10.0
    overrun: float = 30.0
    """What a run that passed its limit of iterations gets to save before it is killed."""
    kill_patience: float = 10.0


Happened = Callable[[float], ev.NodeEvent]
"""An event that gets its time when the core takes it."""


@dataclass(slots=True)
class _Run:
    """What the driver knows of a run."""

    order: RunOrder
    early: float
    """How long before its end it is told to save, as written down."""
    lease_end: float
    began: float = math.nan
    """When its program began, once that is known."""
    iterations: float = 0.0
    overran: bool = False
    over: bool = False
    trail: Trail = field(default_factory=Trail)

    @property
    def record(self) -> RunRecord:
        """What is kept of it on disk."""
        return RunRecord(self.order, self.lease_end, self.early, *self.trail.mark)


class Node:
    """One machine's executor. `run` once."""

    def __init__(
        self,
        machine: Machine,
        engine: Engine,
        reporter: Reporter,
        disk: NodeDisk,
        *,
        storage: SharedStorage | None = None,
        trust_tenants: bool = False,
        refused: Callable[[], Coroutine[Any, Any, bool]] | None = None,
        settings: NodeSettings | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Bring the parts together.

        Args:
            machine: What the node offers.
            engine: Starts and kills jobs. `reattach` has not been called yet.
            reporter: The way to the service.
            disk: The node's own memory.
            storage: Where jobs keep their checkpoints, if other nodes are to see it too.
            trust_tenants: Whether jobs of all owners run as one user; said to the service.
            refused: Whether the service's machine says that no service is running there. Then
                training goes on to the end of its leases; without, only as long as liveness lasts.
            settings: How often to look.
            rng: For spreading tries.
        """
        self._engine = engine
        self._reporter = reporter
        self._disk = disk
        self._storage = storage
        self._nonce = ""
        self._look_now = asyncio.Event()
        self._refused = refused
        self._settings = settings or NodeSettings()
        self._rng = rng or random.Random()
        self._core = NodeCore(
            machine,
            disk.memory,
            control=engine.capabilities.control,
            version=__version__,
            trust_tenants=trust_tenants,
            shared_dir=str(storage.root) if storage is not None else "",
            kill_patience=self._settings.kill_patience,
        )
        self._inbox: asyncio.Queue[Happened | None] = asyncio.Queue()
        self._runs: dict[int, _Run] = {}
        self._by_job: dict[str, int] = {}
        """The last run of each job, by the name that the engine knows it under."""
        self._orphans: dict[str, tuple[int, ...]] = {}
        """Jobs that the engine found and nobody has a record of, and their GPUs."""
        self._sick: dict[int, str] = {}
        self._chains: dict[int, asyncio.Task[None]] = {}
        self._sending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._disk_trouble = ""
        self._draining = False
        self._connection = ""
        """What was last said of the way to the service."""

    # Life

    async def run(self) -> None:
        """Serve until `stop`. Whatever the reason for the end, jobs go on."""
        async with asyncio.TaskGroup() as group:
            helpers = []
            try:
                found, later = await self._adopt()
                self._put(partial(_adopted, found=found))
                for happened in later:
                    self._put(happened)
                helpers = [
                    group.create_task(self._listen()),
                    group.create_task(self._measure_often()),
                    group.create_task(self._look_at_gpus_often()),
                    group.create_task(self._look_at_storage_often()),
                ]
                await self._work()
            finally:
                for task in (*helpers, *self._chains.values(), self._sending):
                    if task is not None:
                        task.cancel()
                if self._timer is not None:
                    self._timer.cancel()

    def stop(self) -> None:
        """Come to an end soon."""
        self._inbox.put_nowait(None)

    async def drain(self, seconds: float) -> None:
        """Take nothing new, ask all runs to save, and return when they have or time is up."""
        self._draining = True
        busy = {gpu for number in self.live for gpu in self._gpus_of(number)}
        for gpu in range(len(self._core.memory.tokens)):
            # Others when they are empty: the service takes a GPU away at once that is not well.
            if gpu not in busy:
                self._take_out(gpu)
        for number in self.live:
            self._on_engine(number, self._ask_to_save)
        deadline = clock.now() + seconds
        while self.live and clock.now() < deadline:  # noqa: ASYNC110 - others wake it, too
            await asyncio.sleep(0.1)
        for number in self.live:
            self._on_engine(number, self._kill)
        # The service hears of it with the next report.
        await asyncio.sleep(0.5)

    def _gpus_of(self, number: int) -> tuple[int, ...]:
        return self._runs[number].order.gpus if number in self._runs else ()

    def _take_out(self, gpu: int) -> None:
        self._put(partial(ev.GpuFailed, gpu=gpu, reason="its node is being stopped"))

    @property
    def live(self) -> tuple[int, ...]:
        """Runs of which something may be alive."""
        return self._core.live

    @property
    def epoch(self) -> int:
        """Of the service that was last heard; 0 before the first."""
        return self._core.epoch

    def _put(self, happened: Happened) -> None:
        self._inbox.put_nowait(happened)

    async def _work(self) -> None:
        while (happened := await self._inbox.get()) is not None:
            event = happened(clock.now())
            if isinstance(event, ev.OrdersCame):
                self._hear(event.orders.epoch)
            for command in self._core.handle(event):
                await self._do(command)

    def _hear(self, epoch: int) -> None:
        if epoch < self.epoch:
            text = f"does not obey a service of epoch {epoch}: it has heard one of {self.epoch}"
            self._note(f"{text}; was an old copy of the store put back without `themis restore`?")
        else:
            self._note(f"hears the service (epoch {epoch})")

    async def _do(self, command: cmd.NodeCommand) -> None:
        match command:
            case cmd.Remember(memory=memory):
                await self._remember(memory)
            case cmd.Send(report=report):
                if self._sending is not None:
                    self._sending.cancel()
                self._sending = asyncio.create_task(self._send(report))
            case cmd.Start(order=order, limits=limits):
                await self._begin(order, limits)
            case cmd.Renew(run=number, limits=limits):
                self._on_engine(number, partial(self._renew, limits=limits))
            case cmd.Checkpoint(run=number):
                self._on_engine(number, self._ask_to_save)
            case cmd.Kill(run=number):
                self._on_engine(number, self._kill)
            case cmd.Forget(run=number):
                self._on_engine(number, self._forget)
            case cmd.Advance(run=number, heard=heard):
                self._on_engine(number, partial(self._advance, heard=heard))
            case cmd.LookAtStorage(nonce=nonce):
                self._nonce = nonce
                self._look_now.set()
            case cmd.TickMe(at=at):
                if self._timer is not None:
                    self._timer.cancel()
                wait = max(0.0, at - clock.now())
                self._timer = asyncio.get_running_loop().call_later(wait, self._put, ev.Ticked)
            case _:
                assert_never(command)

    # The disk

    async def _remember(self, memory: cmd.Memory) -> None:
        try:
            await asyncio.to_thread(self._disk.remember, memory)
        except OSError as error:
            # Renewals need no disk and go on; nothing is started before this works again.
            self._disk_trouble = f"the node cannot write to its disk: {error.strerror}"
            _LOG.error("%s", self._disk_trouble)
        else:
            self._disk_trouble = ""

    # The service

    async def _send(self, report: Report) -> None:
        """Bring a report to the service; a broken connection is made again until it is there."""
        backoff = Backoff(self._rng, *_PAUSES)
        while True:
            try:
                orders = await self._reporter.report(report)
            except UnavailableError as error:
                self._note(f"does not reach the service: {error}")
            except ThemisError as error:
                self._note(f"is refused by the service: {error}")
                return  # The core tries again in its own time.
            else:
                self._put(partial(ev.OrdersCame, orders=orders))
                return
            await self._look_for_absence()
            await asyncio.sleep(backoff.failed())

    async def _look_for_absence(self) -> None:
        tried_at = clock.now()
        if self._refused is not None and await self._refused():
            self._put(partial(ev.ServiceAbsent, tried_at=tried_at))

    def _note(self, text: str) -> None:
        """Log how the connection is, when that changes."""
        if text != self._connection:
            self._connection = text
            _LOG.info("node %s", text)

    # Runs

    def _on_engine(self, number: int, work: Callable[[_Run], Coroutine[Any, Any, None]]) -> None:
        """Do something with a run, after everything that was to be done with it before."""
        run = self._runs.get(number)
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

    async def _begin(self, order: RunOrder, limits: ev.Limits) -> None:
        early = limits.until - limits.checkpoint_at
        _LOG.info("run %s: %s starts on GPUs %s", order.run, _job(order), _listed(order.gpus))
        run = self._runs[order.run] = _Run(order, early, limits.lease_end)
        self._by_job[_job(order)] = order.run
        trouble = self._disk_trouble
        if not trouble:
            try:
                await asyncio.to_thread(self._disk.put, run.record)
            except OSError as error:
                trouble = f"the node cannot write to its disk: {error.strerror}"
        if trouble:
            self._ended(run, None, trouble)
        else:
            self._on_engine(order.run, partial(self._start, limits=limits))

    async def _start(self, run: _Run, limits: ev.Limits) -> None:
        try:
            await self._engine.start(task_for(run.order, limits))
        except ThemisError as error:
            self._ended(run, None, str(error))
        except OSError as error:
            self._ended(run, None, f"cannot be started here: {error}")

    async def _renew(self, run: _Run, limits: ev.Limits) -> None:
        early = limits.until - limits.checkpoint_at
        await self._engine.renew(_job(run.order), run.order.token, limits.until, early)
        moved = max(abs(limits.lease_end - run.lease_end), abs(early - run.early))
        if moved > _WORTH_WRITING:
            run.lease_end, run.early = limits.lease_end, early
            await asyncio.to_thread(self._disk.put, run.record, durable=False)

    async def _advance(self, run: _Run, heard: int) -> None:
        if run.trail.hear(heard):
            await asyncio.to_thread(self._disk.put, run.record, durable=False)

    async def _ask_to_save(self, run: _Run) -> None:
        _LOG.info("run %s: %s is asked to save and go", run.order.run, _job(run.order))
        await self._engine.checkpoint(_job(run.order), run.order.token)

    async def _kill(self, run: _Run) -> None:
        _LOG.info("run %s: %s is killed", run.order.run, _job(run.order))
        await self._engine.kill(_job(run.order), run.order.token)

    async def _forget(self, run: _Run) -> None:
        number = run.order.run
        if self._by_job.get(_job(run.order)) == number:
            del self._by_job[_job(run.order)]
            await self._engine.forget(_job(run.order), run.order.token)
        self._runs.pop(number, None)
        await asyncio.to_thread(self._disk.drop, number)

    def _ended(self, run: _Run, code: int | None, message: str, log: str = "") -> None:
        if run.over:
            return
        run.over = True
        _LOG.info("run %s: %s is over: %s", run.order.run, _job(run.order), message)
        if self._draining:
            for gpu in run.order.gpus:
                self._take_out(gpu)
        exited = partial(
            ev.Exited,
            run=run.order.run,
            code=code,
            message=message[:_MOST_MESSAGE],
            log=log[-_MOST_LOG:],
        )
        self._put(exited)

    # The engine

    async def _listen(self) -> None:
        async for event in self._engine.watch():
            number = self._by_job.get(event.job)
            run = self._runs.get(number) if number is not None else None
            if run is None:
                self._hear_of_orphan(event)
                continue
            match event:
                case base.Started():
                    run.began = clock.now()
                    self._put(partial(ev.Started, run=run.order.run))
                case base.Exited():
                    await self._measure(run)
                    await self._read_points(run)
                    log = await self._engine.tail(event.job, _MOST_LOG)
                    self._ended(run, _code(event), event.reason, log)
                case base.CouldNotKill():
                    _LOG.error("run %s does not die: %s", run.order.run, event.reason)
                    self._put(partial(ev.KillFailed, run=run.order.run, reason=event.reason))
                case _:
                    assert_never(event)

    def _hear_of_orphan(self, event: base.Event) -> None:
        if isinstance(event, base.Exited) and event.job in self._orphans:
            for gpu in self._orphans.pop(event.job):
                self._put(partial(ev.GpuWell, gpu=gpu))

    async def _measure_often(self) -> None:
        while True:
            await asyncio.sleep(self._settings.measure_every)
            live = set(self.live)
            for number, run in list(self._runs.items()):
                if number in live:
                    await self._measure(run)
                if number in live or run.trail.more:
                    await self._read_points(run)

    async def _read_points(self, run: _Run) -> None:
        """Read what a run has reported, as far as its agent has heard what was read before."""
        trail, number = run.trail, run.order.run
        async with trail.lock:
            had_more = trail.more
            points: tuple[Point, ...] = ()
            if self._by_job.get(_job(run.order)) != number:
                trail.more = False  # Its job was started again.
            elif trail.room > 0:
                found = await self._engine.points(_job(run.order), trail.place, trail.room)
                points = trail.take(found)
            else:  # There may be others, and who says no is believed.
                trail.more = True
            if points or trail.more != had_more:
                self._put(partial(ev.PointsRead, run=number, points=points, more=trail.more))

    async def _measure(self, run: _Run) -> None:
        samples = await self._engine.measure(_job(run.order))
        if not samples or math.isnan(run.began):
            return
        run.iterations = max(sample.iteration for sample in samples)
        seconds = max(0.0, clock.now() - run.began)
        self._put(
            partial(ev.Measured, run=run.order.run, iterations=run.iterations, seconds=seconds)
        )
        if 0.0 < run.order.limit < run.iterations and not run.overran:
            run.overran = True
            _LOG.warning("run %s passed its limit of iterations", run.order.run)
            self._on_engine(run.order.run, self._ask_to_save)
            loop = asyncio.get_running_loop()
            late = partial(self._on_engine, run.order.run, self._kill)
            loop.call_later(self._settings.overrun, late)

    async def _look_at_gpus_often(self) -> None:
        while True:
            try:
                found = await self._engine.discover()
            except ThemisError as error:
                _LOG.warning("the GPUs cannot be looked at: %s", error)
            else:
                for gpu in (gpu for machine in found for gpu in machine.gpus):
                    self._see(gpu)
            await asyncio.sleep(self._settings.health_every)

    async def _look_at_storage_often(self) -> None:
        """Say what is in the shared folder, when that changes."""
        seen = ("", "")
        while self._storage is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.health_every):
                    await self._look_now.wait()
            self._look_now.clear()
            if not self._nonce:
                continue
            try:
                found = (await asyncio.to_thread(self._storage.look, self._nonce), "")
            except OSError as error:
                found = ("", f"{error.strerror} ({self._storage.root})"[:_MOST_MESSAGE])
            if found != seen:
                seen = found
                if found[1]:
                    _LOG.warning("the shared folder cannot be used: %s", found[1])
                self._put(partial(ev.StorageSeen, mark=found[0], trouble=found[1]))

    def _see(self, gpu: base.Gpu) -> None:
        before = self._sick.get(gpu.index, "")
        if gpu.trouble == before:
            return
        if gpu.trouble:
            self._sick[gpu.index] = gpu.trouble
            _LOG.warning("GPU %s must not be used: %s", gpu.index, gpu.trouble)
            self._put(partial(ev.GpuFailed, gpu=gpu.index, reason=gpu.trouble))
        else:
            del self._sick[gpu.index]
            _LOG.info("GPU %s is well again", gpu.index)
            self._put(partial(ev.GpuWell, gpu=gpu.index))

    # After a restart

    async def _adopt(self) -> tuple[tuple[ev.Found, ...], list[Happened]]:
        """What is there of an earlier start of this node, and what is wrong with it."""
        later: list[Happened] = []
        known = {item.job: item for item in await self._engine.reattach()}
        records = await asyncio.to_thread(self._disk.runs)
        found = []
        for record in reversed(records):  # A job's last run is the one that the engine knows.
            item = known.get(_job(record.order))
            if item is not None and item.token == record.order.token:
                del known[item.job]
                found.append(await self._take_over(record, item))
                if item.state == "stuck":
                    reason = "it could not be killed before this node was restarted"
                    later.append(partial(ev.KillFailed, run=record.order.run, reason=reason))
            else:
                self._runs[record.order.run] = _Run(record.order, 0.0, 0.0, over=True)
                found.append(_never_ran(record.order))
        for item in known.values():
            later += await self._put_down(item)
        if found:
            alive = sum(not item.state.over for item in found)
            _LOG.info("found %s runs of before, %s of them alive", len(found), alive)
        return tuple(reversed(found)), later

    async def _take_over(self, record: RunRecord, item: base.Found) -> ev.Found:
        order = record.order
        run = self._runs[order.run] = _Run(order, record.early, record.lease_end)
        run.began = clock.now() - item.age
        run.trail = Trail(record.heard, record.place)
        run.trail.more = True
        self._by_job[item.job] = order.run
        state = _STATES[item.state]
        code: int | None = None
        message = ""
        if item.ended is not None:
            run.over = True
            code, message = _code(item.ended), item.ended.reason
            state = RunState.EXITED if code is not None else RunState.LOST
        samples = await self._engine.measure(item.job)
        run.iterations = max((sample.iteration for sample in samples), default=0.0)
        limits = ev.Limits(max(record.lease_end, item.end), item.end - record.early, item.end)
        return ev.Found(
            order,
            state,
            limits,
            code,
            run.iterations,
            item.age if samples else 0.0,
            message[:_MOST_MESSAGE],
            record.heard,
            more=True,
        )

    async def _put_down(self, item: base.Found) -> list[Happened]:
        """Kill a job without a record: nobody knows for whom it runs."""
        if item.ended is not None:
            await self._engine.forget(item.job, item.token)
            return []
        _LOG.error("job %s runs and there is no record of it: it is killed", item.job)
        self._orphans[item.job] = item.gpus
        await self._engine.kill(item.job, item.token)
        reason = f"job {item.job} runs without a record"
        return [partial(ev.GpuFailed, gpu=gpu, reason=reason) for gpu in item.gpus]


_STATES = {
    "starting": RunState.STARTING,
    "running": RunState.RUNNING,
    "stopping": RunState.STOPPING,
    "stuck": RunState.STOPPING,
    "exited": RunState.EXITED,
}


def task_for(order: RunOrder, limits: ev.Limits) -> Task:
    """What the engine is told to start.

    Raises:
        ConfigError: Something of the order cannot be: a variable, a folder.
    """
    first, count = _PORTS
    several = order.world > 1
    return Task(
        job=_job(order),
        owner=order.owner,
        token=order.token,
        gpus=order.gpus,
        argv=order.program.argv,
        end=limits.until,
        grace=max(0.0, limits.until - limits.checkpoint_at),
        env=dict(order.program.env),
        workdir=order.program.workdir,
        max_iterations=math.floor(order.limit) if order.limit > 0.0 else None,
        rank=order.rank,
        world=order.world,
        rendezvous=f"{order.rendezvous}:{first + order.run % count}" if several else "",
        tokens=order.tokens,
    )


def _job(order: RunOrder) -> str:
    """A job as the engine knows it: the same in all its runs, so that checkpoints are found."""
    return f"{order.app}/{order.job}"


def _listed(gpus: tuple[int, ...]) -> str:
    return ", ".join(map(str, gpus))


def _code(event: base.Exited) -> int | None:
    if event.outcome == "resumable":
        return RESUMABLE_CODE
    return event.code if event.outcome in {"finished", "failed"} else None


def _never_ran(order: RunOrder) -> ev.Found:
    never = ev.Limits(-math.inf, -math.inf, -math.inf)
    return ev.Found(order, RunState.LOST, never, message="its node was restarted before it began")


def _adopted(at: float, found: tuple[ev.Found, ...]) -> ev.NodeEvent:
    return ev.Adopted(at, found)
