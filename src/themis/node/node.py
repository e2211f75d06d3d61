"""The node: drives a `NodeCore` with a real clock, an engine, a disk and the service.

    node = Node(machine, engine, NodeClient(connection), disk)
    await node.run()            # until `stop`, or the task is cancelled; jobs go on

The core decides what is safe, and the node carries it out: `RunExecutor` on the engine,
`LogAnswers` for logs, `ServiceReporter` for reports, `Health` for GPUs and storage, `Adoption` for
the runs of an earlier start.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from themis import __version__
from themis.core.model import Machine
from themis.engines.base import Engine
from themis.engines.host import boottime
from themis.node.adoption import Adoption
from themis.node.core import commands as cmd
from themis.node.core import events as ev
from themis.node.core.node_core import NodeCore
from themis.node.disk import NodeDisk
from themis.node.health import Health
from themis.node.logs import LogAnswers
from themis.node.reporter import Refused, Reporter, ServiceReporter
from themis.node.run_executor import RunExecutor
from themis.node.runs import EventAt, NodeRun, Runs
from themis.node.shared_storage import SharedStorage
from themis.ops.log_format import marked, report_id

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How often a node looks, in seconds."""

    measure_every: float = 1.0
    health_every: float = 10.0
    overrun: float = 30.0
    """What a run that passed its limit of iterations gets to save before it is killed."""
    kill_patience: float = 10.0


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
        refused: Refused | None = None,
        settings: NodeSettings | None = None,
        rng: random.Random | None = None,
        now: Callable[[], float] = boottime.now,
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
            now: The clock of leases; a rehearsal has its own.
        """
        self._now = now
        self._name = machine.name
        self._disk = disk
        self._settings = settings or NodeSettings()
        self._core = NodeCore(
            machine,
            disk.memory,
            control=engine.capabilities.control,
            version=__version__,
            trust_tenants=trust_tenants,
            shared_dir=str(storage.root) if storage is not None else "",
            kill_patience=self._settings.kill_patience,
        )
        self._inbox: asyncio.Queue[EventAt | None] = asyncio.Queue()
        self._runs = Runs()
        self._adoption = Adoption(engine, disk, self._runs, now)
        self._runner = RunExecutor(
            engine,
            disk,
            self._runs,
            self._put,
            overrun=self._settings.overrun,
            over=self._note_end,
            now=now,
        )
        self._logs = LogAnswers(engine, lambda: self.live, self._put, now)
        self._talk = ServiceReporter(reporter, self._put, refused, rng or random.Random(), now)
        self._health = Health(engine, storage, self._put, self._settings.health_every)
        self._timer: asyncio.TimerHandle | None = None
        self._disk_trouble = ""
        self._draining = False

    # Life

    async def run(self) -> None:
        """Serve until `stop`. Whatever the reason for the end, jobs go on."""
        every = self._settings.measure_every
        async with asyncio.TaskGroup() as group:
            helpers = []
            try:
                found, later = await self._adoption.adopt()
                self._put(lambda at: ev.Adopted(at, found))
                for happened in later:
                    self._put(happened)
                helpers = [
                    group.create_task(self._runner.listen()),
                    group.create_task(self._runner.measure(every, lambda: self.live)),
                    group.create_task(self._logs.work()),
                    group.create_task(self._health.watch_gpus()),
                    group.create_task(self._health.watch_storage()),
                ]
                await self._work()
            finally:
                for task in helpers:
                    task.cancel()
                self._runner.cancel()
                self._talk.cancel()
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
            self._runner.do(number, self._runner.ask_to_save)
        deadline = self._now() + seconds
        while self.live and self._now() < deadline:  # noqa: ASYNC110 - others wake it, too
            await asyncio.sleep(0.1)
        for number in self.live:
            self._runner.do(number, self._runner.kill)
        # The service hears of it with the next report.
        await asyncio.sleep(0.5)

    def _gpus_of(self, number: int) -> tuple[int, ...]:
        run = self._runs.by_number.get(number)
        return run.order.gpus if run is not None else ()

    def _note_end(self, run: NodeRun) -> None:
        if self._draining:
            for gpu in run.order.gpus:
                self._take_out(gpu)

    def _take_out(self, gpu: int) -> None:
        reason = "its node is being stopped"
        self._put(partial(ev.GpuFailed, gpu=gpu, reason=reason, fault=ev.Fault.LEAVING))

    @property
    def live(self) -> tuple[int, ...]:
        """Runs of which something may be alive."""
        return self._core.live

    @property
    def epoch(self) -> int:
        """Of the service that was last heard; 0 before the first."""
        return self._core.epoch

    def _put(self, happened: EventAt) -> None:
        self._inbox.put_nowait(happened)

    async def _work(self) -> None:
        while (happened := await self._inbox.get()) is not None:
            event = happened(self._now())
            with marked(request=self._report_answered(event)):
                if isinstance(event, ev.OrdersCame):
                    self._talk.hear(event.orders.epoch, self.epoch)
                for command in self._core.handle(event):
                    await self._do(command)

    def _report_answered(self, event: ev.NodeEvent) -> str:
        """The id of the report whose answer this is: the service's log has it too."""
        if not isinstance(event, ev.OrdersCame):
            return ""
        return report_id(self._name, event.orders.boot, event.orders.answers)

    async def _do(self, command: cmd.NodeCommand) -> None:
        match command:
            case cmd.Remember(memory=memory):
                await self._remember(memory)
            case cmd.Send(report=report):
                self._talk.send(report)
            case cmd.StartRun(order=order, limits=limits):
                await self._runner.begin(order, limits, self._disk_trouble)
            case cmd.Renew(run=number, limits=limits):
                self._runner.do(number, partial(self._runner.renew, limits=limits))
            case cmd.Checkpoint(run=number):
                self._runner.do(number, self._runner.ask_to_save)
            case cmd.Kill(run=number):
                self._runner.do(number, self._runner.kill)
            case cmd.Forget(run=number):
                self._runner.do(number, self._runner.forget)
            case cmd.Advance(run=number, heard=heard):
                self._runner.advance(number, heard)
            case cmd.ReadLogs(wanted=wanted):
                self._logs.want(wanted)
            case cmd.LookAtStorage(nonce=nonce):
                self._health.expect(nonce)
            case cmd.TickMe(at=at):
                if self._timer is not None:
                    self._timer.cancel()
                wait = max(0.0, at - self._now())
                self._timer = asyncio.get_running_loop().call_later(wait, self._put, ev.Ticked)
            case _:
                assert_never(command)

    # The disk

    async def _remember(self, memory: cmd.NodeMemory) -> None:
        try:
            await asyncio.to_thread(self._disk.remember, memory)
        except OSError as error:
            # Renewals need no disk and go on; nothing is started before this works again.
            self._disk_trouble = f"the node cannot write to its disk: {error.strerror}"
            _LOG.error("%s", self._disk_trouble)
        else:
            self._disk_trouble = ""
