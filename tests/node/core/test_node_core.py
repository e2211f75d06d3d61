"""A node by itself: what it believes, what it starts, and when it ends things."""

from dataclasses import replace
from typing import Any

import pytest

from themis.core.model import AppId, JobId, Machine, OwnerId
from themis.node.core import commands as cmd
from themis.node.core import events as ev
from themis.node.core.commands import NodeMemory
from themis.node.core.node_core import NodeCore
from themis.protocol.node_messages import (
    MOST_PARTS,
    LeaseOrder,
    LeaseTerms,
    LogPart,
    LogWanted,
    NodeReport,
    Orders,
    Point,
    Program,
    RunOrder,
    RunState,
    SlotState,
)

APP, OWNER = AppId("a"), OwnerId("ann")
TERMS = LeaseTerms(heartbeat=1.0, node_ttl=10.0, grace=2.0)


def lease(token: int, remaining: float = 60.0, gpu: int = 0) -> LeaseOrder:
    return LeaseOrder(gpu, APP, OWNER, token, remaining)


def run(
    number: int, token: int, gpu: int = 0, *, stop: bool = False, grace: float = 0.0
) -> RunOrder:
    program = Program(("train",), grace=grace)
    return RunOrder(number, APP, OWNER, JobId("j0"), (gpu,), (token,), program, stop=stop)


class Bench:
    """A node with its wires in hand."""

    def __init__(self, memory: NodeMemory | None = None, *found: ev.FoundRun) -> None:
        self.core = NodeCore(Machine("m0", "r0", (2,)), memory or NodeMemory())
        self.last: NodeReport | None = None
        self.handle(ev.Adopted(0.0, found))

    def handle(self, event: ev.NodeEvent) -> list[cmd.NodeCommand]:
        commands = self.core.handle(event)
        for command in commands:
            if isinstance(command, cmd.Send):
                self.last = command.report
        return commands

    @property
    def report(self) -> NodeReport:
        assert self.last is not None
        return self.last

    def orders(
        self,
        *,
        leases: tuple[LeaseOrder, ...] = (),
        runs: tuple[RunOrder, ...] = (),
        epoch: int = 1,
        answers: int | None = None,
        forget: tuple[int, ...] = (),
    ) -> Orders:
        number = self.report.number if answers is None else answers
        return Orders(epoch, self.report.boot, number, 1, leases, runs, TERMS, forget)

    def tell(self, at: float, orders: Orders) -> list[cmd.NodeCommand]:
        return self.handle(ev.OrdersCame(at, orders))

    def started(self, at: float = 1.0, token: int = 5, remaining: float = 60.0) -> "Bench":
        """Run 1 runs on GPU 0."""
        self.tell(at, self.orders(leases=(lease(token, remaining),), runs=(run(1, token),)))
        self.handle(ev.RunStarted(at, 1))
        return self

    def slot(self, gpu: int = 0) -> tuple[SlotState, int]:
        slot = self.report.slots[gpu]
        return slot.state, slot.token


def kinds(commands: list[cmd.NodeCommand]) -> list[str]:
    return [type(command).__name__ for command in commands]


def test_the_boot_is_on_disk_before_the_first_report() -> None:
    core = NodeCore(Machine("m0", "r0", (2,)), NodeMemory(boot=6, epoch=3, tokens=(4, 9)))
    first, second, *_ = core.handle(ev.Adopted(0.0))
    assert first == cmd.Remember(NodeMemory(7, 3, (4, 9)))
    assert isinstance(second, cmd.Send)
    assert (second.report.boot, second.report.number, second.report.epoch) == (7, 1, 3)


def test_a_token_is_on_disk_before_its_process_starts() -> None:
    bench = Bench()
    commands = bench.tell(1.0, bench.orders(leases=(lease(5),), runs=(run(1, 5),)))
    names = kinds(commands)
    assert names.index("StartRun") > max(i for i, name in enumerate(names) if name == "Remember")
    assert cmd.Remember(NodeMemory(1, 1, (5, 0), TERMS)) in commands


def test_leases_and_liveness_count_from_when_the_report_was_sent() -> None:
    bench = Bench()
    commands = bench.tell(4.0, bench.orders(leases=(lease(5, 7.0),), runs=(run(1, 5),)))
    [start] = [command for command in commands if isinstance(command, cmd.StartRun)]
    assert start.limits == ev.RunLimits(lease_end=7.0, checkpoint_at=5.0, until=7.0)


def test_orders_after_liveness_expired_start_nothing() -> None:
    bench = Bench()
    commands = bench.tell(11.0, bench.orders(leases=(lease(5),), runs=(run(1, 5),)))
    assert "StartRun" not in kinds(commands)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"epoch": 2}, id="of an older epoch"),
        pytest.param({"answers": 0}, id="to an older report"),
        pytest.param({"boot": 0}, id="to an older boot"),
    ],
)
def test_other_orders_are_not_believed(change: dict[str, Any]) -> None:
    bench = Bench(NodeMemory(boot=1, epoch=3))
    orders = bench.orders(leases=(lease(5),), runs=(run(1, 5),), epoch=3)
    assert bench.tell(1.0, replace(orders, **change)) == []
    assert "StartRun" in kinds(bench.tell(1.0, orders))


def test_orders_count_once() -> None:
    bench = Bench()
    orders = bench.orders(leases=(lease(5),), runs=(run(1, 5),))
    assert "StartRun" in kinds(bench.tell(1.0, orders))
    assert bench.tell(1.1, orders) == []


def test_a_report_makes_answers_to_the_last_one_void() -> None:
    bench = Bench()
    late = bench.orders(leases=(lease(5),), runs=(run(1, 5),))
    bench.handle(ev.GpuFailed(0.5, 1, "error 79"))
    assert bench.report.number == 2
    assert bench.tell(1.0, late) == []


def test_lower_token_is_refused_with_a_message() -> None:
    bench = Bench(NodeMemory(boot=1, epoch=1, tokens=(8, 0)))
    commands = bench.tell(1.0, bench.orders(leases=(lease(5),), runs=(run(1, 5),)))
    assert "StartRun" not in kinds(commands)
    [told] = bench.report.runs
    assert told.state is RunState.LOST
    assert "older" in told.message


def test_ended_run_is_not_started_again() -> None:
    bench = Bench().started()
    bench.handle(ev.RunExited(2.0, 1, 0))
    assert bench.slot() == (SlotState.EMPTY, 5)
    again = bench.orders(leases=(lease(5),), runs=(run(1, 5),))
    assert "StartRun" not in kinds(bench.tell(3.0, again))
    assert [told.run for told in bench.report.runs] == [1]
    assert cmd.Forget(1) in bench.tell(4.0, bench.orders(leases=(lease(5),), forget=(1,)))
    assert bench.report.runs == ()


def test_a_slot_is_empty_only_when_its_process_is_dead() -> None:
    bench = Bench().started()
    assert bench.slot() == (SlotState.RUNNING, 5)
    commands = bench.tell(2.0, bench.orders())
    assert cmd.Kill(1) in commands
    assert bench.slot() == (SlotState.STOPPING, 5)
    bench.handle(ev.RunExited(2.2, 1, -9))
    assert bench.slot() == (SlotState.EMPTY, 5)


def test_nothing_starts_where_something_is_still_dying() -> None:
    bench = Bench().started()
    leases, runs = (lease(6),), (run(2, 6),)
    assert "StartRun" not in kinds(bench.tell(2.0, bench.orders(leases=leases, runs=runs)))
    bench.handle(ev.RunExited(2.5, 1, -9))
    assert "StartRun" in kinds(bench.tell(2.6, bench.orders(leases=leases, runs=runs)))


def test_a_renewed_lease_does_not_touch_the_process() -> None:
    bench = Bench().started()
    names = kinds(bench.tell(2.0, bench.orders(leases=(lease(5, 100.0),), runs=(run(1, 5),))))
    assert not {"Kill", "Checkpoint", "StartRun"} & set(names)
    assert "Renew" in names


def test_process_saves_before_its_lease_ends_and_is_killed_then() -> None:
    bench = Bench().started(remaining=8.0)
    assert cmd.Checkpoint(1) not in bench.handle(ev.Ticked(5.9))
    assert cmd.Checkpoint(1) in bench.handle(ev.Ticked(6.0))
    assert cmd.Kill(1) not in bench.handle(ev.Ticked(7.9))
    assert cmd.Kill(1) in bench.handle(ev.Ticked(8.0))


def test_a_node_that_is_cut_off_ends_everything_in_time() -> None:
    bench = Bench().started()  # Answered report 1, sent at 0: alive until 10.
    assert cmd.Checkpoint(1) in bench.handle(ev.Ticked(8.0))
    assert cmd.Kill(1) in bench.handle(ev.Ticked(10.0))


def test_a_service_that_is_down_does_not_end_training() -> None:
    bench = Bench().started()
    for at in range(2, 58, 4):
        names = kinds(bench.handle(ev.ServiceAbsent(float(at), tried_at=at - 0.1)))
        assert not {"Kill", "Checkpoint"} & set(names)
    assert cmd.Checkpoint(1) in bench.handle(ev.Ticked(58.0))  # Its lease ends at 60.


def test_a_node_that_does_not_know_the_terms_takes_absence_for_silence() -> None:
    limits = ev.RunLimits(lease_end=30.0, checkpoint_at=6.0, until=8.0)
    found = ev.FoundRun(run(1, 5), RunState.RUNNING, limits)
    assert kinds(Bench(None, found).handle(ev.ServiceAbsent(1.0, 0.9))).count("Renew") == 0
    known = NodeMemory(boot=1, epoch=1, terms=TERMS)
    assert kinds(Bench(known, found).handle(ev.ServiceAbsent(1.0, 0.9))).count("Renew") == 1


def test_a_stopped_run_gets_its_grace_and_no_more() -> None:
    bench = Bench().started()
    stop = bench.orders(leases=(lease(5),), runs=(run(1, 5, stop=True),))
    assert cmd.Checkpoint(1) in bench.tell(2.0, stop)
    assert cmd.Kill(1) in bench.handle(ev.Ticked(4.0))


@pytest.mark.parametrize(
    ("grace", "told"),
    [
        pytest.param(0.5, 7.5, id="it needs less than others"),
        # Before that nobody knows yet whether the lease is renewed.
        pytest.param(5.0, 6.0, id="it needs more than the service allows for"),
    ],
)
def test_run_with_its_own_grace_saves_that_long_before_expiry(grace: float, told: float) -> None:
    bench = Bench()
    orders = bench.orders(leases=(lease(5, 8.0),), runs=(run(1, 5, grace=grace),))
    [start] = [item for item in bench.tell(1.0, orders) if isinstance(item, cmd.StartRun)]
    assert start.limits.checkpoint_at == told
    assert cmd.Checkpoint(1) not in bench.handle(ev.Ticked(told - 0.1))
    assert cmd.Checkpoint(1) in bench.handle(ev.Ticked(told))


@pytest.mark.parametrize("grace", [0.5, 5.0])
def test_a_stopped_run_gets_the_grace_it_asked_for(grace: float) -> None:
    bench = Bench()
    leases = (lease(5),)
    bench.tell(1.0, bench.orders(leases=leases, runs=(run(1, 5, grace=grace),)))
    bench.tell(2.0, bench.orders(leases=leases, runs=(run(1, 5, stop=True, grace=grace),)))
    assert cmd.Kill(1) not in bench.handle(ev.Ticked(2.0 + grace - 0.1))
    assert cmd.Kill(1) in bench.handle(ev.Ticked(2.0 + grace))


def test_unkillable_process_quarantines_its_gpu_until_it_dies() -> None:
    bench = Bench().started()
    bench.tell(2.0, bench.orders())
    bench.handle(ev.Ticked(12.0))
    assert bench.slot()[0] is SlotState.QUARANTINED
    assert "does not die" in bench.report.slots[0].reason
    bench.handle(ev.RunExited(20.0, 1, -9))
    assert bench.slot() == (SlotState.EMPTY, 5)


def test_a_node_adopts_what_runs_with_its_tokens_and_limits() -> None:
    found = ev.FoundRun(run(1, 5), RunState.RUNNING, ev.RunLimits(30.0, 6.0, 8.0))
    bench = Bench(NodeMemory(boot=1, epoch=1), found)
    assert bench.slot() == (SlotState.RUNNING, 5)
    assert bench.core.memory.tokens == (5, 0)
    assert cmd.Checkpoint(1) in bench.handle(ev.Ticked(6.0))


def test_node_without_its_disk_continues_the_services_boot_count() -> None:
    bench = Bench()
    outdated = replace(bench.orders(), boot=7, outdated=True)
    commands = bench.tell(1.0, outdated)
    assert cmd.Remember(NodeMemory(8, 0, (0, 0))) in commands
    assert bench.report.boot == 8


def test_an_early_tick_is_asked_for_again() -> None:
    bench = Bench().started()
    ticks = [c.at for c in bench.handle(ev.Ticked(1.5)) if isinstance(c, cmd.TickMe)]
    assert ticks == [3.0]  # Two heartbeats after the last report.


def test_a_failed_gpu_takes_nothing() -> None:
    bench = Bench()
    bench.handle(ev.GpuFailed(0.5, 0, "error 79"))
    assert bench.slot()[0] is SlotState.QUARANTINED
    wanted = bench.orders(leases=(lease(5),), runs=(run(1, 5),))
    assert "StartRun" not in kinds(bench.tell(1.0, wanted))
    bench.handle(ev.GpuWell(1.5, 0))
    assert bench.slot()[0] is SlotState.EMPTY


@pytest.mark.parametrize(
    ("over", "left"),
    [
        pytest.param(ev.Fault.HARDWARE, "a job without a record", id="it is well, and not empty"),
        pytest.param(ev.Fault.ORPHAN, "error 79", id="it is empty, and not well"),
    ],
)
def test_gpu_with_two_faults_is_unusable_until_both_end(over: ev.Fault, left: str) -> None:
    bench = Bench()
    bench.handle(ev.GpuFailed(0.5, 0, "a job without a record", ev.Fault.ORPHAN))
    bench.handle(ev.GpuFailed(0.6, 0, "error 79"))
    bench.handle(ev.GpuWell(0.7, 0, over))
    assert bench.report.slots[0].state is SlotState.QUARANTINED
    assert bench.report.slots[0].reason == left
    wanted = bench.orders(leases=(lease(5),), runs=(run(1, 5),))
    assert "StartRun" not in kinds(bench.tell(1.0, wanted))
    for fault in ev.Fault:
        bench.handle(ev.GpuWell(1.5, 0, fault))
    assert bench.slot()[0] is SlotState.EMPTY


# Points


def points(first: int, last: int) -> tuple[Point, ...]:
    return tuple(Point(float(n), None, (("loss", 1.0 / n),)) for n in range(first, last + 1))


def told(bench: Bench, at: float) -> tuple[int, list[float], bool]:
    """What the next report has of run 1."""
    bench.tell(at, bench.orders(leases=(lease(5),), runs=(run(1, 5),)))
    [report] = bench.report.runs
    return report.first, [point.iteration for point in report.points], report.more


def test_points_are_in_every_report_until_acknowledged() -> None:
    bench = Bench().started()
    bench.handle(ev.PointsRead(2.0, 1, points(1, 3), more=True))
    assert told(bench, 2.1) == (1, [1.0, 2.0, 3.0], True)
    assert told(bench, 2.2) == (1, [1.0, 2.0, 3.0], True)
    orders = bench.orders(leases=(lease(5),), runs=(run(1, 5),))
    commands = bench.tell(2.3, replace(orders, heard=((1, 2),)))
    assert cmd.Advance(1, 2) in commands
    bench.handle(ev.PointsRead(2.4, 1, points(4, 5)))
    assert told(bench, 2.5) == (3, [3.0, 4.0, 5.0], False)


@pytest.mark.parametrize("heard", [0, 1, 4, 99])
def test_impossible_acknowledgement_changes_nothing(heard: int) -> None:
    bench = Bench().started()
    bench.handle(ev.PointsRead(2.0, 1, points(1, 3)))
    orders = bench.orders(leases=(lease(5),), runs=(run(1, 5),))
    bench.tell(2.1, replace(orders, heard=((1, 1), (7, 3))))
    orders = bench.orders(leases=(lease(5),), runs=(run(1, 5),))
    assert "Advance" not in kinds(bench.tell(2.2, replace(orders, heard=((1, heard),))))
    assert told(bench, 2.3) == (2, [2.0, 3.0], False)


def test_points_do_not_overtake_a_report_that_is_under_way() -> None:
    bench = Bench().started()
    number = bench.report.number
    assert "Send" not in kinds(bench.handle(ev.PointsRead(2.0, 1, points(1, 3), more=True)))
    assert bench.report.number == number


def test_points_wait_for_their_interval_and_for_an_overdue_answer() -> None:
    bench = Bench()
    calm = LeaseTerms(heartbeat=8.0, node_ttl=300.0, grace=2.0)
    orders = bench.orders(leases=(lease(5, 600.0),), runs=(run(1, 5),))
    bench.tell(1.0, replace(orders, terms=calm))
    bench.handle(ev.RunStarted(1.0, 1))
    sent = []
    for second in range(14):
        at = 2.0 + second
        before = bench.report.number
        bench.handle(ev.PointsRead(at, 1, points(second + 1, second + 1)))
        bench.handle(ev.Ticked(at))
        if bench.report.number > before:
            sent.append(at)
    assert sent == [4.0, 7.0]
    assert len(bench.report.runs[0].points) == 6
    orders = bench.orders(leases=(lease(5, 600.0),), runs=(run(1, 5),))
    bench.tell(16.0, replace(orders, terms=calm))
    number = bench.report.number
    bench.handle(ev.PointsRead(17.0, 1, points(15, 15)))
    bench.handle(ev.Ticked(19.0))
    assert bench.report.number == number + 1


def test_ended_run_still_reports_its_points() -> None:
    limits = ev.RunLimits(60.0, 50.0, 60.0)
    found = ev.FoundRun(run(1, 5), RunState.EXITED, limits, 0, heard=4, more=True)
    bench = Bench(None, found)
    [first] = bench.report.runs
    assert (first.first, first.points, first.more) == (5, (), True)
    bench.handle(ev.PointsRead(0.5, 1, points(5, 6)))
    bench.tell(1.0, bench.orders())
    [report] = bench.report.runs
    assert (report.first, report.last, report.more) == (5, 6, False)


def test_a_node_looks_at_its_shared_folder_when_the_service_says_how() -> None:
    core = NodeCore(
        Machine("m0", "r0", (2,)), NodeMemory(), trust_tenants=True, shared_dir="/shared"
    )
    report = next(c.report for c in core.handle(ev.Adopted(0.0)) if isinstance(c, cmd.Send))
    assert (report.trust_tenants, report.shared_dir, report.mark) == (True, "/shared", "")
    orders = Orders(1, report.boot, report.number, 1, (), (), TERMS, nonce="aa")
    commands = core.handle(ev.OrdersCame(1.0, orders))
    assert cmd.LookAtStorage("aa") in commands
    core.handle(ev.StorageSeen(1.1, "aa.m0.bb"))
    number = next(c.report.number for c in commands if isinstance(c, cmd.Send))
    again = core.handle(ev.OrdersCame(1.2, replace(orders, answers=number)))
    assert cmd.LookAtStorage("aa") not in again
    assert next(c.report.mark for c in again if isinstance(c, cmd.Send)) == "aa.m0.bb"


# Logs


def want(number: int, offset: int = 0) -> LogWanted:
    return LogWanted(1, APP, OWNER, JobId("j0"), offset, 100, number=number)


def part(number: int, text: str = "hello") -> LogPart:
    return LogPart(1, 0, len(text), text, len(text), number=number)


def asking(bench: Bench, *wanted: LogWanted) -> Orders:
    return replace(bench.orders(leases=(lease(5),), runs=(run(1, 5),)), logs=wanted)


def test_requested_log_is_read_once_and_sent_until_no_longer_requested() -> None:
    bench = Bench().started()
    assert cmd.ReadLogs((want(1),)) in bench.tell(2.0, asking(bench, want(1)))
    bench.handle(ev.LogsRead(2.1, ((want(1), part(1)),)))
    assert bench.report.logs == (part(1),)
    # The answer crossed it, or it was lost.
    assert "ReadLogs" not in kinds(bench.tell(2.2, asking(bench, want(1))))
    assert bench.report.logs == (part(1),)
    bench.tell(2.3, asking(bench))
    assert not bench.report.logs


def test_log_part_no_longer_requested_is_not_sent() -> None:
    bench = Bench().started()
    bench.tell(2.0, asking(bench, want(1)))
    assert cmd.ReadLogs(()) in bench.tell(2.1, asking(bench))
    number = bench.report.number
    bench.handle(ev.LogsRead(2.2, ((want(1), part(1)),)))
    assert bench.report.number == number


def test_many_parts_go_in_several_reports() -> None:
    bench = Bench().started()
    wants = tuple(want(number) for number in range(MOST_PARTS + 1))
    bench.tell(2.0, asking(bench, *wants))
    bench.handle(ev.LogsRead(2.1, tuple((item, part(item.number)) for item in wants)))
    assert [one.number for one in bench.report.logs] == list(range(MOST_PARTS))
    bench.tell(2.2, asking(bench, *wants[MOST_PARTS:]))
    assert [one.number for one in bench.report.logs] == [MOST_PARTS]


@pytest.mark.parametrize(
    ("at", "told"),
    [
        pytest.param(3.0, False, id="by itself"),
        pytest.param(9.0, True, id="its supervisor was the first to see that its lease ends"),
    ],
)
def test_a_report_says_whether_a_run_ended_by_itself(at: float, told: bool) -> None:
    bench = Bench().started(remaining=10.0)
    bench.handle(ev.RunExited(at, 1, 75))
    assert [each.interrupted for each in bench.report.runs] == [told]


def test_report_marks_a_run_that_its_node_interrupted() -> None:
    bench = Bench().started(remaining=10.0)
    assert "Checkpoint" in kinds(bench.handle(ev.Ticked(8.0)))
    # The round was late, and its lease goes on after all.
    bench.tell(8.1, bench.orders(leases=(lease(5, 60.0),), runs=(run(1, 5),)))
    bench.handle(ev.RunExited(8.5, 1, 75))
    assert [each.interrupted for each in bench.report.runs] == [True]


@pytest.mark.parametrize(("until", "told"), [(-1.0, True), (5.0, False)])
def test_run_that_ended_after_its_deadline_unobserved_counts_as_interrupted(
    until: float, told: bool
) -> None:
    limits = ev.RunLimits(until, until, until)
    bench = Bench(NodeMemory(), ev.FoundRun(run(1, 5), RunState.EXITED, limits, 75))
    assert [each.interrupted for each in bench.report.runs] == [told]
