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
from themis.node.runs import EventAt, RunHandle, Runs
from themis.node.shared_folder import SharedFolder
from themis.ops.log_format import marked, report_id

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Intervals and timeouts of a node, in seconds."""

    measure_every: float = 1.0
    health_every: float = 10.0
    overrun: float = 30.0
    """For a run that passed its limit of iterations to save before it is killed."""
    kill_patience: float = 10.0


class Node:
    """Runs the jobs of one machine. Call `run` once."""

    def __init__(
        self,
        machine: Machine,
        engine: Engine,
        reporter: Reporter,
        disk: NodeDisk,
        *,
        storage: SharedFolder | None = None,
        trust_tenants: bool = False,
        refused: Refused | None = None,
        settings: NodeSettings | None = None,
        rng: random.Random | None = None,
        now: Callable[[], float] = boottime.now,
    ) -> None:
        """Bring the parts together.

        Args:
            machine: The machine and its GPUs.
            engine: Starts and kills jobs. `reattach` has not been called yet.
            reporter: Sends reports to the service.
            disk: The node's state on disk.
            storage: The shared folder for checkpoints, if there is one.
            trust_tenants: Whether jobs of all owners run as one user; reported to the service.
            refused: Whether the service's machine refuses connections, so that no service runs
                there. Then jobs run to the end of their leases; else only while liveness lasts.
            settings: Intervals and timeouts.
            rng: Spreads retries.
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
        """Serve until `stop` or an error; jobs go on."""
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
        """End soon."""
        self._inbox.put_nowait(None)

    async def drain(self, seconds: float) -> None:
        """Start no more runs, ask all runs to save, and return when they have or time is up."""
        self._draining = True
        busy = {gpu for number in self.live for gpu in self._gpus_of(number)}
        for gpu in range(len(self._core.memory.tokens)):
            # Busy GPUs follow when they are empty: the service revokes a failed GPU at once.
            if gpu not in busy:
                self._take_out(gpu)
        for number in self.live:
            self._runner.ask_to_save(number)
        deadline = self._now() + seconds
        while self.live and self._now() < deadline:  # noqa: ASYNC110 - no event marks the end
            await asyncio.sleep(0.1)
        for number in self.live:
            self._runner.kill(number)
        # So that the next report still tells the service.
        await asyncio.sleep(0.5)

    def _gpus_of(self, number: int) -> tuple[int, ...]:
        run = self._runs.by_number.get(number)
        return run.order.gpus if run is not None else ()

    def _note_end(self, run: RunHandle) -> None:
        if self._draining:
            for gpu in run.order.gpus:
                self._take_out(gpu)

    def _take_out(self, gpu: int) -> None:
        reason = "its node is being stopped"
        self._put(partial(ev.GpuFailed, gpu=gpu, reason=reason, fault=ev.Fault.LEAVING))

    @property
    def live(self) -> tuple[int, ...]:
        """Runs that may have living processes."""
        return self._core.live

    @property
    def epoch(self) -> int:
        """The epoch of the service that was heard last; 0 before the first."""
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
        """The id of the report that these orders answer, as in the service's log."""
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
                self._runner.renew(number, limits)
            case cmd.Checkpoint(run=number):
                self._runner.ask_to_save(number)
            case cmd.Kill(run=number):
                self._runner.kill(number)
            case cmd.Forget(run=number):
                self._runner.forget(number)
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
            # Renewals need no disk and go on; runs start again when the disk works.
            self._disk_trouble = f"the node cannot write to its disk: {error.strerror}"
            _LOG.error("%s", self._disk_trouble)
        else:
            self._disk_trouble = ""
