"""The node's driver with an engine and a service of the test's own: order, disk, odd findings."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.grpc_service import until
from themis.core.model import AppId, JobId, Machine, OwnerId
from themis.engines import base
from themis.engines.base import Capabilities, Discovered, FoundProgram, Gpu, LogPiece
from themis.engines.host import boottime
from themis.engines.metrics.points import MetricSample, SampleBatch
from themis.engines.task import Task
from themis.errors import (
    ConfigError,
    CorruptLogError,
    DeniedError,
    RefusedError,
    UnavailableError,
)
from themis.node.core.commands import NodeMemory
from themis.node.core.events import RunLimits
from themis.node.disk import NodeDisk, NodeRunRecord
from themis.node.node import Node, NodeSettings
from themis.node.runs import NO_PROGRAM_CODE, RESUMABLE_CODE, advice, task_for
from themis.node.shared_folder import SharedFolder
from themis.ops.log_format import Marks, report_id
from themis.protocol.node_messages import (
    MOST_POINTS,
    LeaseOrder,
    LeaseTerms,
    NodeReport,
    Orders,
    Program,
    RunOrder,
    RunReport,
    RunState,
    SlotState,
)

MACHINE = Machine("m0", "r0", (2,))
TERMS = LeaseTerms(heartbeat=0.05, node_ttl=20.0, grace=1.0)


def order(run: int = 1, **changes: Any) -> RunOrder:
    made = RunOrder(
        run, AppId("sweep"), OwnerId("ann"), JobId("j0"), (0,), (7,), Program(("train",))
    )
    return replace(made, **changes)


@dataclass
class FakeEngine:
    """Notes what it is told; the test says what happens."""

    log: list[tuple[Any, ...]] = field(default_factory=list)
    found: tuple[FoundProgram, ...] = ()
    trouble: str = ""
    refusal: Exception | None = None
    samples: list[MetricSample] = field(default_factory=list)
    reported: list[float] = field(default_factory=list)
    """Losses, one in each line of ten bytes."""
    printed: dict[str, str] = field(default_factory=dict)
    """What starts have printed, by tag."""
    ended: set[str] = field(default_factory=set)
    """Tags of starts that are over."""
    events: asyncio.Queue[base.Event] = field(default_factory=asyncio.Queue)
    on_start: Callable[[], None] = lambda: None
    gate: asyncio.Event | None = None
    """If there is one, starts wait for it."""

    capabilities = Capabilities("fake", chooses_indices=True, control="cgroup")

    async def discover(self) -> tuple[Discovered, ...]:
        return (Discovered(MACHINE, (Gpu(0, trouble=self.trouble), Gpu(1))),)

    async def reattach(self) -> tuple[FoundProgram, ...]:
        return self.found

    async def start(self, task: Task) -> None:
        self.on_start()
        base.check_task(task)
        if self.gate is not None:
            await self.gate.wait()
        self.log.append(("start", task.job, task.token, task.tokens))
        if self.refusal is not None:
            raise self.refusal
        self.events.put_nowait(base.ProgramStarted(task.job, task.token, ()))

    async def renew(self, job: str, token: int, end: float, grace: float | None = None) -> None:
        self.log.append(("renew", job, token))

    async def checkpoint(self, job: str, token: int) -> None:
        self.log.append(("checkpoint", job, token))
        self.events.put_nowait(base.ProgramExited(job, token, "resumable", -15, "saved"))

    async def kill(self, job: str, token: int) -> None:
        self.log.append(("kill", job, token))
        self.events.put_nowait(base.ProgramExited(job, token, "resumable", -9, "killed"))

    async def watch(self) -> AsyncIterator[base.Event]:
        while True:
            yield await self.events.get()

    async def measure(self, job: str) -> tuple[MetricSample, ...]:
        taken, self.samples = tuple(self.samples), []
        return taken

    async def points(self, job: str, since: int, most: int) -> SampleBatch:
        self.log.append(("points", since, most))
        first = since // 10
        losses = self.reported[first : first + most]
        samples = tuple(
            MetricSample(float(n), loss, None, (), 10 * n)
            for n, loss in enumerate(losses, first + 1)
        )
        end = samples[-1].end if samples else since
        return SampleBatch(samples, end, more=end < 10 * len(self.reported))

    async def tail(self, job: str, limit: int = 4096) -> str:
        return "last words"

    async def output(self, tag: str, offset: int, most: int) -> LogPiece | None:
        if tag not in self.printed:
            return None
        text = self.printed[tag]
        begin = min(offset, len(text))
        piece = text[begin : begin + most]
        return LogPiece(begin, piece, begin + len(piece), len(text), tag in self.ended)

    async def forget(self, job: str, token: int) -> None:
        self.log.append(("forget", job, token))

    async def close(self) -> None:
        pass

    def told(self, what: str) -> list[tuple[Any, ...]]:
        return [entry for entry in self.log if entry[0] == what]


@dataclass
class FakeService:
    """Answers every report with what is wanted."""

    runs: tuple[RunOrder, ...] = ()
    forget: tuple[int, ...] = ()
    heard: tuple[tuple[int, int], ...] = ()
    nonce: str = ""
    reports: list[NodeReport] = field(default_factory=list)
    error: Exception | None = None

    async def report(self, report: NodeReport) -> Orders:
        self.reports.append(report)
        await asyncio.sleep(0.005)
        if self.error is not None:
            raise self.error
        leases = tuple(
            LeaseOrder(gpu, run.app, run.owner, token, 600.0)
            for run in self.runs
            for gpu, token in zip(run.gpus, run.tokens, strict=True)
        )
        orders = Orders(1, report.boot, report.number, 1, leases, self.runs, TERMS, self.forget)
        return replace(orders, heard=self.heard, nonce=self.nonce)

    def run(self, number: int = 1) -> RunReport | None:
        return next((run for run in self.reports[-1].runs if run.run == number), None)

    def state(self, number: int = 1) -> RunState | None:
        run = self.run(number) if self.reports else None
        return run.state if run else None


Scene = Callable[[Node, FakeEngine, FakeService, NodeDisk], Coroutine[Any, Any, None]]


def play(
    folder: Path,
    scene: Scene,
    prepare: Callable[[FakeEngine, FakeService, NodeDisk], None] = lambda *_: None,
    make: type[FakeEngine] = FakeEngine,
    **settings: Any,
) -> None:
    async def inside() -> None:
        engine, service = make(), FakeService()
        quick = NodeSettings(measure_every=0.01, health_every=0.01, overrun=0.05)
        with NodeDisk.open(folder / "state", "m0") as disk:
            prepare(engine, service, disk)
            node = Node(MACHINE, engine, service, disk, settings=quick, **settings)
            running = asyncio.create_task(node.run())
            try:
                await scene(node, engine, service, disk)
            finally:
                node.stop()
                await running

    asyncio.run(asyncio.wait_for(inside(), 60.0))


def test_a_run_is_remembered_before_it_is_started(tmp_path: Path) -> None:
    seen: list[tuple[NodeMemory, tuple[NodeRunRecord, ...]]] = []

    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(),)
        engine.on_start = lambda: seen.append((_memory_on(tmp_path), disk.runs()))

    async def scene(_: Node, engine: FakeEngine, service: FakeService, __: NodeDisk) -> None:
        await until(lambda: service.state() is RunState.RUNNING)
        assert engine.told("start") == [("start", "sweep/j0", 7, (7,))]

    play(tmp_path, scene, prepare)
    ((memory, records),) = seen
    assert memory.tokens == (7, 0)
    assert [record.order for record in records] == [order()]


def test_the_line_of_a_start_names_the_report_that_was_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(),)

    async def scene(_: Node, engine: FakeEngine, service: FakeService, __: NodeDisk) -> None:
        await until(lambda: service.state() is RunState.RUNNING)
        sent = {report_id("m0", report.boot, report.number) for report in service.reports}
        starts = [item for item in caplog.records if "starts on GPUs" in item.getMessage()]
        assert [vars(item)["request"] in sent for item in starts] == [True]

    caplog.handler.addFilter(Marks())
    with caplog.at_level(logging.INFO, logger="themis"):
        play(tmp_path, scene, prepare)


def _memory_on(folder: Path) -> NodeMemory:
    """What is on the disk now, as another process would find it."""
    copy = folder / f"copy-{os.urandom(4).hex()}"
    copy.mkdir()
    (copy / "node.json").write_bytes((folder / "state" / "node.json").read_bytes())
    with NodeDisk.open(copy, "m0") as disk:
        return disk.memory


def test_a_disk_that_cannot_be_written_to_starts_nothing_and_ends_nothing(tmp_path: Path) -> None:
    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(),)

    async def scene(_: Node, engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        await until(lambda: service.state() is RunState.RUNNING)

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        disk.remember = full  # type: ignore[method-assign]  # the disk is full
        service.runs = (order(), order(2, job=JobId("j1"), gpus=(1,), tokens=(8,)))
        await until(lambda: service.state(2) is RunState.LOST)
        found = service.run(2)
        assert found is not None
        assert "No space left" in found.message
        assert len(engine.told("start")) == 1
        assert service.state(1) is RunState.RUNNING
        assert not engine.told("kill")

    play(tmp_path, scene, prepare)


def test_a_start_that_is_refused_is_reported_with_its_reason(tmp_path: Path) -> None:
    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(),)
        engine.refusal = RefusedError("ann", "it has no account here")

    async def scene(_: Node, __: FakeEngine, service: FakeService, ___: NodeDisk) -> None:
        await until(lambda: service.state() is RunState.LOST)
        found = service.run()
        assert found is not None
        assert found.message == "ann: it has no account here"
        assert service.reports[-1].slots[0].state is SlotState.EMPTY

    play(tmp_path, scene, prepare)


def test_a_program_that_cannot_be_is_a_failure_of_its_owner(tmp_path: Path) -> None:
    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(program=Program(("train",), env=(("A=B", "1"),))),)

    async def scene(_: Node, engine: FakeEngine, service: FakeService, ___: NodeDisk) -> None:
        await until(lambda: service.state() is RunState.EXITED)
        found = service.run()
        assert found is not None
        assert found.code == NO_PROGRAM_CODE
        assert found.message.startswith("env: got 'A=B'")
        assert not engine.told("start")

    play(tmp_path, scene, prepare)


def test_a_slow_start_does_not_hold_up_a_kill(tmp_path: Path) -> None:
    async def scene(_: Node, engine: FakeEngine, service: FakeService, ___: NodeDisk) -> None:
        service.runs = (order(),)
        await until(lambda: service.state() is RunState.RUNNING)
        engine.gate = asyncio.Event()
        service.runs = (order(2, job=JobId("j1"), gpus=(1,), tokens=(8,)),)
        # The lease of run 1 is gone, so it is killed while run 2 is still being started.
        await until(lambda: service.state(1) is RunState.EXITED)
        assert service.state(2) is RunState.STARTING
        # What is to be done with run 2 waits its turn.
        service.runs = ()
        await until(lambda: service.state(2) is RunState.STOPPING)
        assert not [entry for entry in engine.told("kill") if entry[1] == "sweep/j1"]
        engine.gate.set()
        await until(lambda: service.state(2) is RunState.EXITED)
        mine = [entry[0] for entry in engine.log if entry[1] == "sweep/j1"]
        assert mine.index("start") < mine.index("kill")

    play(tmp_path, scene)


def test_interrupted_run_may_be_resumed_and_is_forgotten_once_stored(tmp_path: Path) -> None:
    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(),)

    async def scene(_: Node, engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        await until(lambda: service.state() is RunState.RUNNING)
        service.runs = (order(stop=True),)
        await until(lambda: service.state() is RunState.EXITED)
        found = service.run()
        assert found is not None
        assert (found.code, found.message, found.log) == (RESUMABLE_CODE, "saved", "last words")
        service.runs, service.forget = (), (1,)
        await until(lambda: engine.told("forget"))
        await until(lambda: not disk.runs())
        assert service.state() is None

    play(tmp_path, scene, prepare)


def test_progress_is_measured_and_a_run_past_its_limit_is_stopped(tmp_path: Path) -> None:
    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(limit=10.0),)

    async def scene(_: Node, engine: FakeEngine, service: FakeService, ___: NodeDisk) -> None:
        await until(lambda: service.state() is RunState.RUNNING)
        engine.samples = [MetricSample(9.0, None, None), MetricSample(10.0, None, None)]
        await until(lambda: (run := service.run()) is not None and run.iterations == 10.0)
        assert not engine.told("checkpoint"), "it has reached its limit, not passed it"
        engine.samples = [MetricSample(11.0, None, None)]
        await until(lambda: service.state() is RunState.EXITED)
        assert engine.told("checkpoint")
        found = service.run()
        assert found is not None
        assert found.iterations == 11.0
        assert found.seconds > 0.0

    play(tmp_path, scene, prepare)


def test_reports_before_the_start_is_acknowledged_are_kept(tmp_path: Path) -> None:
    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(),)
        engine.gate = asyncio.Event()
        engine.samples = [MetricSample(5.0, 0.5, None)]

    async def scene(_: Node, engine: FakeEngine, service: FakeService, __: NodeDisk) -> None:
        await until(lambda: len(engine.told("points")) >= 2)  # It has been looked at meanwhile.
        assert engine.gate is not None
        engine.gate.set()
        await until(lambda: (run := service.run()) is not None and run.iterations == 5.0)

    play(tmp_path, scene, prepare)


def test_run_with_unresponsive_files_blocks_no_other_reader(tmp_path: Path) -> None:
    class Hanging(FakeEngine):
        async def measure(self, job: str) -> tuple[MetricSample, ...]:
            self.log.append(("measure", job))
            if job.endswith("j0"):
                await asyncio.Event().wait()
            return await super().measure(job)

    async def scene(node: Node, engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(1), order(2, job=JobId("j1"), gpus=(1,), tokens=(8,)))
        await until(lambda: service.state(1) == service.state(2) == RunState.RUNNING)
        await until(lambda: any(entry[1].endswith("j0") for entry in engine.told("measure")))
        for iteration in (5.0, 9.0):
            engine.samples.append(MetricSample(iteration, None, None, (), 10))
            await until(partial(has_reached, service, 2, iteration))
        asked = [entry[1] for entry in engine.told("measure") if entry[1].endswith("j0")]
        assert len(asked) == 1, "it is not asked again while it does not answer"

    play(tmp_path, scene, make=Hanging)


def has_reached(service: FakeService, number: int, iterations: float) -> bool:
    run = service.run(number)
    return run is not None and run.iterations == iterations


def test_how_far_a_run_is_is_read_by_one_at_a_time(tmp_path: Path) -> None:
    inside, most = [0], [0]

    async def slowly(job: str) -> tuple[MetricSample, ...]:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        await asyncio.sleep(0.02)
        inside[0] -= 1
        return ()

    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(),)
        engine.measure = slowly  # type: ignore[method-assign]  # a slow disk

    async def scene(_: Node, engine: FakeEngine, service: FakeService, __: NodeDisk) -> None:
        await until(lambda: inside[0] == 1)
        engine.events.put_nowait(base.ProgramExited("sweep/j0", 7, "finished", 0, "done"))
        await until(lambda: service.state() is RunState.EXITED)
        assert most == [1]

    play(tmp_path, scene, prepare)


def test_a_sick_gpu_is_quarantined_until_it_is_well(tmp_path: Path) -> None:
    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        engine.trouble = "it smokes"

    def slot(service: FakeService) -> tuple[SlotState, str]:
        first = service.reports[-1].slots[0]
        return first.state, first.reason

    async def scene(_: Node, engine: FakeEngine, service: FakeService, ___: NodeDisk) -> None:
        await until(lambda: service.reports)
        await until(lambda: slot(service) == (SlotState.QUARANTINED, "it smokes"))
        engine.trouble = ""
        await until(lambda: slot(service) == (SlotState.EMPTY, ""))

    play(tmp_path, scene, prepare)


# After a restart


def test_running_jobs_are_adopted_and_unstarted_ones_lost(tmp_path: Path) -> None:
    end = boottime.now() + 100.0

    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        disk.put(NodeRunRecord(order(1), end + 50.0, 1.0))
        disk.put(NodeRunRecord(order(2, job=JobId("j1"), gpus=(1,), tokens=(8,)), end, 1.0))
        engine.found = (FoundProgram("sweep/j0", "ann", 7, (0,), end, "running", age=12.0),)
        service.runs = (order(1),)

    async def scene(node: Node, engine: FakeEngine, service: FakeService, _: NodeDisk) -> None:
        await until(lambda: service.reports)
        first = service.reports[0]
        assert {run.run: run.state for run in first.runs} == {
            1: RunState.RUNNING,
            2: RunState.LOST,
        }
        assert [slot.state for slot in first.slots] == [SlotState.RUNNING, SlotState.EMPTY]
        assert [slot.token for slot in first.slots] == [7, 8]
        await until(lambda: engine.told("renew"))
        assert not engine.told("start")
        assert node.live == (1,)

    play(tmp_path, scene, prepare)


def test_unacknowledged_end_is_reported(tmp_path: Path) -> None:
    ended = base.ProgramExited("sweep/j0", 7, "failed", 3, "exited with 3")

    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        disk.put(NodeRunRecord(order(1), 10.0, 1.0))
        engine.found = (FoundProgram("sweep/j0", "ann", 7, (0,), 10.0, "exited", ended),)

    async def scene(_: Node, __: FakeEngine, service: FakeService, ___: NodeDisk) -> None:
        await until(lambda: service.reports)
        run = service.reports[0].runs[0]
        assert (run.state, run.code, run.message) == (RunState.EXITED, 3, "exited with 3")

    play(tmp_path, scene, prepare)


def test_job_without_a_record_is_killed_before_its_gpu_is_used(tmp_path: Path) -> None:
    async def scene(_: Node, engine: FakeEngine, service: FakeService, ___: NodeDisk) -> None:
        await until(lambda: service.reports)
        states = [[slot.state for slot in report.slots] for report in service.reports]
        assert states[0][1] is not SlotState.RUNNING
        assert engine.told("kill") == [("kill", "other/j9", 5)]
        await until(lambda: service.reports[-1].slots[1].state is SlotState.EMPTY)

    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        end = boottime.now() + 100.0
        engine.found = (FoundProgram("other/j9", "ann", 5, (1,), end, "running"),)

    play(tmp_path, scene, prepare)


def test_latest_run_of_a_job_is_the_running_one(tmp_path: Path) -> None:
    end = boottime.now() + 100.0

    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        disk.put(NodeRunRecord(order(1), end, 1.0))
        disk.put(NodeRunRecord(order(2), end, 1.0))  # under the same lease
        engine.found = (FoundProgram("sweep/j0", "ann", 7, (0,), end, "running"),)
        service.runs = (order(2),)

    async def scene(node: Node, __: FakeEngine, service: FakeService, ___: NodeDisk) -> None:
        await until(lambda: service.reports)
        states = {run.run: run.state for run in service.reports[0].runs}
        assert states == {1: RunState.LOST, 2: RunState.RUNNING}
        assert node.live == (2,)

    play(tmp_path, scene, prepare)


# The way to the service


def test_a_service_that_refuses_is_tried_again_and_nothing_is_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(),)

    async def scene(_: Node, engine: FakeEngine, service: FakeService, ___: NodeDisk) -> None:
        await until(lambda: service.state() is RunState.RUNNING)
        service.error = DeniedError("node m0", "its certificate is missing")
        count = len(service.reports)
        await until(lambda: len(service.reports) > count + 3)
        service.error = None
        await until(lambda: service.state() is RunState.RUNNING)
        assert not engine.told("kill")

    play(tmp_path, scene, prepare)
    told = [record.getMessage() for record in caplog.records]
    refusals = [text for text in told if "is refused by the service" in text]
    assert len(refusals) == 1, "once is enough"


def test_a_service_that_is_not_there_keeps_liveness_up(tmp_path: Path) -> None:
    asked = []

    async def refused() -> bool:
        asked.append(boottime.now())
        return True

    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(),)

    async def scene(_: Node, engine: FakeEngine, service: FakeService, ___: NodeDisk) -> None:
        await until(lambda: service.state() is RunState.RUNNING)
        service.error = UnavailableError("connection refused")
        await until(lambda: len(asked) > 1)
        count = len(engine.told("renew"))
        await until(lambda: len(engine.told("renew")) > count)

    play(tmp_path, scene, prepare, refused=refused)


# The disk


def test_a_folder_has_one_node_at_a_time(tmp_path: Path) -> None:
    with (
        NodeDisk.open(tmp_path, "m0"),
        pytest.raises(UnavailableError, match=f"process {os.getpid()}"),
    ):
        NodeDisk.open(tmp_path, "m0")
    NodeDisk.open(tmp_path, "m0").close()


def test_a_folder_belongs_to_one_name(tmp_path: Path) -> None:
    with NodeDisk.open(tmp_path, "m0") as disk:
        disk.remember(NodeMemory(3, 2, (7, 9)))
    with pytest.raises(ConfigError, match="m0, whose folder this is"):
        NodeDisk.open(tmp_path, "m1")
    with NodeDisk.open(tmp_path, "m0") as disk:
        assert disk.memory == NodeMemory(3, 2, (7, 9))


def test_a_damaged_memory_is_refused_and_not_taken_for_none(tmp_path: Path) -> None:
    with NodeDisk.open(tmp_path, "m0") as disk:
        disk.remember(NodeMemory(3, 2, (7, 9)))
    (tmp_path / "node.json").write_text('{"name": "m0"')
    with pytest.raises(CorruptLogError, match="move it away"):
        NodeDisk.open(tmp_path, "m0")


def test_half_a_record_hides_no_other(tmp_path: Path) -> None:
    with NodeDisk.open(tmp_path, "m0") as disk:
        disk.put(NodeRunRecord(order(4), 1.0, 0.5))
        (tmp_path / "runs" / "5.json").write_text("{")
        (tmp_path / "runs" / "6.new").write_text("{}")
        assert [record.order.run for record in disk.runs()] == [4]


def test_a_task_has_the_tokens_of_all_its_leases(tmp_path: Path) -> None:
    wanted = order(
        20_003,
        gpus=(0, 1),
        tokens=(5, 9),
        limit=10.5,
        rank=1,
        world=2,
        rendezvous="m7",
        program=Program(("train", "-v"), (("SEED", "1"),), "/work"),
    )
    task = task_for(wanted, RunLimits(100.0, 95.0, 99.0))
    assert (task.token, task.tokens, task.gpus) == (9, (5, 9), (0, 1))
    assert (task.end, task.grace, task.max_iterations) == (99.0, 4.0, 10)
    assert (task.rank, task.world, task.rendezvous) == (1, 2, "m7:20003")
    assert (task.env, task.workdir) == ({"SEED": "1"}, "/work")
    assert task.number == 20_003, "on all machines of the run"


# What people are told of runs that fail


@pytest.mark.parametrize(
    ("ended", "tail", "told"),
    [
        ((1, "exited with 1"), "ModuleNotFoundError: No module named 'themis'\n", "module themis"),
        ((1, "exited with 1"), "ImportError: something else\n", ""),
        ((127, "program python: [Errno 2] No such file"), "", "its whole path in `command`"),
        ((127, "working directory: [Errno 2] No such file"), "", ""),
        ((0, "exited with 0"), "ModuleNotFoundError: No module named 'themis'\n", ""),
    ],
)
def test_owner_lacking_a_program_or_module_learns_the_search_path(
    ended: tuple[int, str], tail: str, told: str
) -> None:
    code, reason = ended
    said = advice(
        base.ProgramExited("a/0", 7, "failed" if code else "finished", code, reason), tail
    )
    assert (said != "") == (told != "")
    assert told in said
    assert not said or "Which Python" in said
    guide = (Path(__file__).parents[2] / "docs/guides/jobs.md").read_text()
    assert "\n## Which Python\n" in guide


# Points


def losses(service: FakeService) -> list[float]:
    run = service.run() if service.reports else None
    return [value for point in run.points for _, value in point.values] if run else []


def test_run_points_are_sent_in_parts_until_acknowledged(tmp_path: Path) -> None:
    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.runs = (order(),)
        engine.reported = [float(n) for n in range(1, 301)]

    async def scene(_: Node, engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        await until(lambda: len(losses(service)) == MOST_POINTS)
        found = service.run()
        assert found is not None
        assert (found.first, found.more) == (1, True)
        # It ends with points that nobody has room for.
        engine.events.put_nowait(base.ProgramExited("sweep/j0", 7, "finished", 0, "exited with 0"))
        await until(lambda: service.state() is RunState.EXITED)
        found = service.run()
        assert found is not None
        assert found.more
        service.heard = ((1, MOST_POINTS),)
        await until(lambda: losses(service) == [float(n) for n in range(257, 301)])
        found = service.run()
        assert found is not None
        assert (found.first, found.more) == (257, False)
        # Written down beside, so that it may be a moment later.
        await until(lambda: [(it.heard, it.place) for it in disk.runs()] == [(256, 2560)])

    play(tmp_path, scene, prepare)


def test_restarted_node_reads_on_after_acknowledged_points(tmp_path: Path) -> None:
    end = boottime.now() + 100.0

    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        disk.put(NodeRunRecord(order(1), end, 1.0, heard=3, place=30))
        engine.found = (FoundProgram("sweep/j0", "ann", 7, (0,), end, "running", age=12.0),)
        engine.reported = [1.0, 2.0, 3.0, 4.0, 5.0]
        service.runs = (order(1),)

    async def scene(_: Node, engine: FakeEngine, service: FakeService, ___: NodeDisk) -> None:
        await until(lambda: service.reports)
        first = service.reports[0].runs[0]
        assert (first.first, first.points, first.more) == (4, (), True)
        await until(lambda: losses(service) == [4.0, 5.0])
        found = service.run()
        assert found is not None
        assert (found.first, found.more) == (4, False)
        assert engine.told("points")[0][1] == 30

    play(tmp_path, scene, prepare)


def test_shared_folder_findings_of_a_node_are_reported(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()

    def prepare(engine: FakeEngine, service: FakeService, disk: NodeDisk) -> None:
        service.nonce = "aa"

    async def scene(_: Node, engine: FakeEngine, service: FakeService, ___: NodeDisk) -> None:
        await until(lambda: service.reports and service.reports[-1].mark.startswith("aa.m0."))
        assert service.reports[-1].shared_dir == str(shared)
        shared.rename(tmp_path / "gone")
        await until(lambda: "is it mounted" in service.reports[-1].storage_trouble)
        assert service.reports[-1].mark == ""

    play(tmp_path, scene, prepare, storage=SharedFolder(shared, "m0"))
