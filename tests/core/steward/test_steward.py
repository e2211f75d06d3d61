"""The steward as a whole: what reports prove, what it sends, and what it stores."""

from dataclasses import replace
from operator import sub

import pytest

from tests.support.scripted_world import Puppet, simple_app
from themis.core.arbiter import Arbiter, GpuState, Settings
from themis.core.arbiter import commands as arbiter_commands
from themis.core.arbiter import events as ev
from themis.core.fairness.loads import total_work
from themis.core.model import AppId, GpuId, JobId, LeaseSource, Machine, OwnerId, Phase, Topology
from themis.core.policies import Allotment, Plan
from themis.core.policies.base import View
from themis.core.steward.commands import (
    AcceptRun,
    Outcome,
    RefuseRun,
    RefuseSession,
    TellPoints,
    TellRun,
)
from themis.core.steward.events import (
    AgentSpoke,
    AppForgotten,
    LogsWanted,
    PointsAcknowledged,
    ReportCame,
    SessionOpened,
    StewardEvent,
)
from themis.core.steward.job_logs import MOST_RUNS, shortened
from themis.core.steward.rows import ActiveRun, LoggedRun, LogsRow, RunEnd, StewardRow
from themis.core.steward.steward import DISPLACED, Steward
from themis.errors import ConfigError
from themis.protocol.agent_messages import (
    News,
    Reached,
    ReleaseRequest,
    RunRequest,
    StopRequest,
    TrialParams,
)
from themis.protocol.node_messages import (
    LogPart,
    LogWanted,
    NodeReport,
    Orders,
    Point,
    Program,
    RunReport,
    RunState,
    SlotReport,
    SlotState,
)
from themis.rpc.wire import from_bytes, to_bytes
from themis.rpc.wire.convert import DOWN

MACHINE = Machine("m0", "r0", (2,))
A, B, J0 = AppId("a"), AppId("b"), JobId("j0")
TRAIN = Program(("train",))
SETTINGS = Settings(lease=100.0, grace=10.0, heartbeat=1.0, guard=2.0, pooling=0.0, idle_after=0.0)


class Desk:
    """A steward, a hand-written node, and a policy that follows a script."""

    def __init__(self, epoch: int = 1) -> None:
        self.owners: dict[int, AppId] = {}
        self.policy = Puppet(self._plan)
        arbiter = Arbiter(Topology(()), self.policy, SETTINGS, seed=1)
        self.steward = Steward(arbiter, epoch=epoch, at=0.0, node_ttl=20.0)
        self.rows: dict[str, StewardRow] = {}
        self.number = 0
        self.wake: float | None = None

    def _plan(self, view: View) -> Plan:
        given = [
            Allotment(owner, (GpuId(gpu),), LeaseSource.DIRECT)
            for gpu, owner in sorted(self.owners.items())
            if GpuId(gpu) in view.offer
        ]
        return Plan(tuple(given))

    def take(self, event: StewardEvent) -> Outcome:
        outcome = self.steward.handle(event)
        self.wake = outcome.wake
        for key, row in (outcome.changes.rows or {}).items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        assert self.rows == self.steward.rows
        return outcome

    def wait(self, until: float) -> list[Outcome]:
        """Let time pass, with a driver that wakes the steward when it asked for it."""
        outcomes = []
        while self.wake is not None and self.wake <= until:
            outcomes.append(self.take(ev.Woken(self.wake)))
        return outcomes

    def report(
        self,
        at: float,
        *runs: RunReport,
        busy: dict[int, SlotState] | None = None,
        epoch: int = 1,
        number: int | None = None,
        boot: int = 1,
        revision: int | None = None,
    ) -> Outcome:
        self.number = self.number + 1 if number is None else number
        states = busy or {}
        slots = tuple(
            SlotReport(gpu, 0, states.get(gpu, SlotState.EMPTY), "hot" if gpu in states else "")
            for gpu in range(2)
        )
        node = self.steward.nodes.get("m0")
        known = node.revision if node is not None and revision is None else revision or 0
        report = NodeReport("m0", boot, self.number, epoch, known, slots, runs, MACHINE)
        return self.take(ReportCame(at, report))

    def ready(self, *owners: AppId) -> "Desk":
        """The machine is in, and its GPUs are leased to these apps."""
        self.report(0.0, epoch=0)
        self.report(0.1)
        self.owners = dict(enumerate(owners))
        for app in dict.fromkeys(owners):
            self.take(ev.AppArrived(1.0, simple_app(app, gpus=2, jobs=2)))
        return self

    def state(self, gpu: int = 0) -> GpuState:
        return self.steward.arbiter.ledger.state(GpuId(gpu))

    def token(self, gpu: int = 0) -> int:
        lease = self.steward.arbiter.ledger.lease(GpuId(gpu))
        assert lease is not None
        return lease.token

    def ask(self, at: float, *gpus: int, key: str = "k", app: AppId = A) -> Outcome:
        wanted = tuple(map(GpuId, gpus))
        return self.take(AgentSpoke(at, app, 0, RunRequest(J0, wanted, TRAIN, key)))


def orders_in(outcome: Outcome) -> Orders:
    [answer] = outcome.answers
    return answer.orders


def running(run: int = 1, state: RunState = RunState.RUNNING, code: int | None = None) -> RunReport:
    return RunReport(run, A, J0, state, code, 3.0, 3.0)


ON_0 = {0: SlotState.RUNNING}


def test_a_machine_joins_when_it_listens_to_this_service_and_is_empty() -> None:
    desk = Desk()
    first = desk.report(0.0, epoch=0)
    assert orders_in(first).leases == ()
    assert not first.changes.events
    busy = desk.report(0.1, running(), busy=ON_0)
    assert not any(isinstance(event, ev.MachineJoined) for event in busy.changes.events)
    joined = desk.report(0.2)
    assert ev.MachineJoined(0.2, MACHINE) in joined.changes.events


def test_leases_are_sent_as_time_left_since_the_report() -> None:
    desk = Desk().ready(A)
    desk.report(2.0)
    told = desk.take(ev.Woken(3.0))  # The hold is over.
    [lease] = orders_in(told).leases
    end = desk.steward.arbiter.ledger.lease(GpuId(0))
    assert end is not None
    assert (lease.gpu, lease.app, lease.remaining) == (0, A, end.end - 2.0)


def test_a_report_is_kept_for_a_heartbeat_when_there_is_no_news() -> None:
    desk = Desk().ready(A)
    kept = desk.report(5.0)
    assert kept.answers == ()
    assert kept.wake is not None
    assert kept.wake <= 6.0
    assert orders_in(desk.take(ev.Woken(6.0))).answers == desk.number


def test_news_answer_a_kept_report_at_once() -> None:
    desk = Desk().ready(A)
    desk.report(5.0)
    told = desk.ask(5.2, 0)
    [order] = orders_in(told).runs
    assert (order.run, order.gpus, order.job) == (1, (0,), J0)
    assert AcceptRun(A, "k", 1) in told.commands
    assert any(isinstance(event, ev.JobStarted) for event in told.changes.events)
    assert isinstance(desk.rows["run/1"], ActiveRun)


def test_the_same_request_twice_is_one_run() -> None:
    desk = Desk().ready(A)
    desk.ask(5.0, 0)
    again = desk.ask(6.0, 0)
    assert again.commands == (AcceptRun(A, "k", 1),)
    assert list(desk.steward.runs) == [1]


@pytest.mark.parametrize(
    ("gpus", "app", "why"),
    [
        pytest.param((1,), A, "does not hold", id="somebody else's GPU"),
        pytest.param((), A, "does not hold", id="no GPU"),
        pytest.param((0,), AppId("nobody"), "no such app", id="no app"),
    ],
)
def test_a_run_that_cannot_be_is_refused(gpus: tuple[int, ...], app: AppId, why: str) -> None:
    desk = Desk().ready(A, B)
    [refusal] = desk.ask(5.0, *gpus, app=app).commands
    assert isinstance(refusal, RefuseRun)
    assert why in refusal.reason
    assert not desk.steward.runs


def test_a_node_does_not_end_the_runs_of_others() -> None:
    desk = Desk().ready(A)
    desk.ask(5.0, 0)
    desk.report(5.5, running(), busy=ON_0)
    lie = running(state=RunState.EXITED, code=1)
    slots = (SlotReport(0, 0, SlotState.EMPTY),)
    for number in (1, 2, 3):
        desk.take(ReportCame(6.0, NodeReport("m1", 1, number, 1, 0, slots, (lie,))))
    run = desk.steward.runs[1]
    assert (run.stop, run.ended_on, run.code) == (False, (), None)


def test_an_old_report_proves_nothing() -> None:
    desk = Desk().ready(A)
    desk.ask(5.0, 0)
    desk.report(5.5, running(), busy=ON_0)
    desk.report(6.0, running(), busy=ON_0)
    desk.take(ev.AppEnded(6.5, A))
    assert desk.state() is GpuState.FENCING
    desk.report(7.0, number=2)
    assert desk.state() is GpuState.FENCING


def test_a_report_to_an_older_epoch_proves_nothing() -> None:
    desk = Desk().ready(A)
    desk.ask(5.0, 0)
    desk.report(5.5, running(), busy=ON_0)
    desk.take(ev.AppEnded(6.0, A))
    steward = Steward(desk.steward.arbiter, epoch=2, at=6.5, node_ttl=20.0, saved=desk.rows)
    desk.steward = steward
    desk.report(7.0, epoch=1)
    assert desk.state() is GpuState.FENCING
    desk.report(7.5, epoch=2)
    assert desk.state() is GpuState.FREE


def test_a_report_that_was_answered_proves_nothing() -> None:
    desk = Desk().ready(A)
    desk.report(4.0)
    assert desk.ask(5.0, 0).answers  # Orders to start it are under way now.
    desk.take(ev.AppEnded(5.1, A))
    assert desk.state() is GpuState.FENCING


def test_a_slot_is_handed_over_when_its_process_is_reported_gone() -> None:
    desk = Desk().ready(A)
    desk.ask(5.0, 0)
    desk.report(6.0, running(), busy=ON_0)
    told = desk.take(ev.AppEnded(6.5, A))
    assert orders_in(told).runs[0].stop
    desk.report(7.1, running(state=RunState.STOPPING), busy={0: SlotState.STOPPING})
    assert desk.state() is GpuState.FENCING
    over = desk.report(8.0, running(state=RunState.EXITED, code=75))
    assert desk.state() is GpuState.FREE
    assert any(isinstance(event, ev.GpusVacated) for event in over.changes.events)
    assert orders_in(over).forget == (1,)


def test_a_result_is_stored_before_the_node_may_forget_it() -> None:
    desk = Desk().ready(A)
    desk.ask(5.0, 0)
    desk.report(6.0, running(), busy=ON_0)
    over = desk.report(8.0, running(state=RunState.EXITED, code=0))
    assert orders_in(over).forget == (1,)
    kept = over.changes.rows
    assert kept is not None
    assert isinstance(kept["result/1"], RunEnd)
    assert kept["run/1"] is None
    [told] = [command for command in over.commands if isinstance(command, TellRun)]
    assert (told.state, told.code, told.iterations) == (RunState.EXITED, 0, 3.0)


def test_silent_machine_is_lost_after_its_ttl_and_guard() -> None:
    desk = Desk().ready(A)
    desk.ask(5.0, 0)
    desk.report(6.0, running(), busy=ON_0)
    desk.wait(27.9)
    assert desk.state() is GpuState.LEASED
    [gone] = desk.wait(28.0)
    assert ev.MachineLeft(28.0, "m0") in gone.changes.events
    assert not desk.steward.runs
    back = desk.report(29.0, running(), busy=ON_0, revision=-1)
    assert not orders_in(back).leases
    assert not orders_in(back).runs
    assert desk.state() is GpuState.QUARANTINED
    desk.report(30.0)
    assert desk.state() is not GpuState.QUARANTINED


def test_a_service_that_was_held_up_does_not_blame_its_nodes() -> None:
    desk = Desk().ready(A)
    desk.report(6.0)
    late = desk.take(ev.Woken(60.0))
    assert not any(isinstance(event, ev.MachineLeft) for event in late.changes.events)


def test_a_restarted_service_waits_for_its_nodes() -> None:
    desk = Desk().ready(A)
    desk.report(6.0)
    desk.steward = Steward(desk.steward.arbiter, epoch=2, at=80.0, node_ttl=20.0, saved=desk.rows)
    desk.take(ev.Woken(80.0))
    assert desk.steward.nodes["m0"].present
    desk.wait(101.9)
    assert desk.steward.nodes["m0"].present
    desk.wait(102.0)
    assert not desk.steward.nodes["m0"].present


def test_restarted_service_waits_for_the_ttl_of_its_nodes() -> None:
    desk = Desk().ready(A)
    desk.report(6.0)
    shorter = Steward(desk.steward.arbiter, epoch=2, at=80.0, node_ttl=10.0, saved=desk.rows)
    desk.steward = shorter
    desk.take(ev.Woken(80.0))
    desk.wait(101.9)
    assert shorter.nodes["m0"].present
    desk.report(101.95, epoch=2, boot=2)  # From now on the node goes by the shorter time.
    desk.wait(113.94)
    assert shorter.nodes["m0"].present
    desk.wait(113.96)
    assert not shorter.nodes["m0"].present


def test_runs_are_numbered_above_all_that_a_lost_store_may_have_given() -> None:
    desk = Desk().ready(A)
    desk.take(ev.ServiceRestarted(2.0, token_floor=1000))
    accepted = [item for item in desk.ask(3.0, 0).commands if isinstance(item, AcceptRun)]
    assert [item.run for item in accepted] == [1001]


def test_a_time_to_live_of_few_heartbeats_is_refused() -> None:
    arbiter = Arbiter(Topology(()), Desk().policy, SETTINGS, seed=1)
    with pytest.raises(ConfigError, match="5 heartbeats"):
        Steward(arbiter, epoch=1, at=0.0, node_ttl=4.0)
    outcome = Desk().take(ev.SettingsChanged(1.0, replace(SETTINGS, heartbeat=5.0)))
    assert isinstance(outcome.commands[0], arbiter_commands.Refuse)


def test_gpu_released_by_an_agent_is_not_trusted_to_be_empty() -> None:
    desk = Desk().ready(A)
    desk.ask(5.0, 0)
    desk.report(6.0, running(), busy=ON_0)
    given = desk.take(AgentSpoke(6.5, A, 0, ReleaseRequest((GpuId(0),), (desk.token(),))))
    assert desk.state() is GpuState.LEASED
    assert given.changes.rows is not None
    assert "release/0" in given.changes.rows
    [refusal] = desk.ask(6.6, 0, key="again").commands
    assert isinstance(refusal, RefuseRun)
    desk.owners = {}
    desk.report(7.0, running(state=RunState.EXITED, code=75))
    assert desk.state() is GpuState.FREE
    assert "release/0" not in desk.rows


def test_a_late_release_does_not_give_back_what_was_granted_since() -> None:
    desk = Desk().ready(A)
    old = desk.token()
    desk.take(AgentSpoke(6.0, A, 0, ReleaseRequest((GpuId(0),), (old,))))
    desk.report(6.5)
    assert desk.state() is GpuState.FREE
    at = 7.0
    while desk.state() is GpuState.FREE:
        at += 1.0
        assert at < 300.0
        desk.report(at)
    assert desk.token() > old
    desk.take(AgentSpoke(at + 0.1, A, 0, ReleaseRequest((GpuId(0),), (old,))))
    assert "release/0" not in desk.rows
    desk.report(at + 0.2)
    assert desk.state() is GpuState.LEASED


def test_a_release_that_does_not_name_its_leases_is_refused() -> None:
    desk = Desk().ready(A)
    outcome = desk.take(AgentSpoke(6.0, A, 0, ReleaseRequest((GpuId(0),), ())))
    assert isinstance(outcome.commands[0], arbiter_commands.Refuse)
    assert not outcome.changes.any


def test_job_restarts_only_after_its_last_run_ended() -> None:
    desk = Desk().ready(A, A)
    desk.ask(5.0, 0)
    desk.report(6.0, running(), busy=ON_0)
    desk.take(AgentSpoke(6.5, A, 0, StopRequest(1)))
    desk.ask(6.6, 1, key="again")
    assert not desk.steward.runs[2].dispatched
    desk.report(7.0, running(state=RunState.STOPPING), busy={0: SlotState.STOPPING})
    assert not desk.steward.runs[2].dispatched
    told = desk.report(8.0, running(state=RunState.EXITED, code=75))
    [order] = orders_in(told).runs
    assert (order.run, order.gpus) == (2, (1,))


def test_undelivered_run_has_ended_when_it_is_stopped() -> None:
    desk = Desk().ready(A)
    desk.report(4.0)
    desk.ask(5.0, 0)  # Told, but the answer is lost.
    desk.take(AgentSpoke(5.5, A, 0, StopRequest(1)))
    assert list(desk.steward.runs) == [1]
    desk.report(6.0)
    assert not desk.steward.runs


def test_app_name_stays_taken_while_its_last_app_is_alive() -> None:
    desk = Desk().ready(A)
    desk.ask(1.5, 0)
    desk.report(2.0)
    desk.report(2.5, running(), busy=ON_0)
    desk.take(ev.AppEnded(3.0, A, "cancelled"))
    desk.report(3.5, running(state=RunState.STOPPING), busy={0: SlotState.QUARANTINED})
    assert A not in desk.steward.arbiter.world.apps
    another = ev.AppArrived(4.0, simple_app(A, gpus=2, jobs=2, owner="bob"))
    [refusal] = desk.take(another).commands
    assert isinstance(refusal, arbiter_commands.Refuse)
    assert "still alive" in refusal.reason
    # It dies at last, and nothing of it is left for whoever has the name next.
    desk.report(5.0, running(state=RunState.EXITED, code=0))
    desk.take(replace(another, at=6.0))
    assert A in desk.steward.arbiter.world.apps
    assert desk.steward.last_runs(A) == ()
    assert AcceptRun(A, "k", 1) not in desk.ask(7.0, 0).commands


def test_refusal_beside_an_event_does_not_refuse_it() -> None:
    desk = Desk().ready(A)
    desk.ask(1.5, 0)
    desk.report(2.0)
    desk.report(2.5, running(), busy=ON_0)
    odd = replace(running(), iterations=-5.0, seconds=4.0)
    for at in range(3, 80, 10):
        desk.report(float(at), odd, busy=ON_0)
    # A round has been due for a moment, and what the node says of the run is told first.
    outcome = desk.take(AgentSpoke(90.0, B, 0, StopRequest(7)))
    [refusal] = [c for c in outcome.commands if isinstance(c, arbiter_commands.Refuse)]
    assert "iterations of a/j0" in refusal.who
    assert outcome.refusal is None
    again = desk.take(ev.AppArrived(90.5, simple_app(A, gpus=2)))
    assert again.refusal == arbiter_commands.Refuse(A, "a: an app of this name is running")


def test_progress_of_an_ended_app_is_not_reported_to_the_arbiter() -> None:
    desk = Desk().ready(A)
    desk.ask(1.5, 0)
    desk.report(2.0)
    desk.report(2.5, running(), busy=ON_0)
    desk.take(ev.AppEnded(3.0, A, "cancelled"))
    gone = desk.report(3.5, running(state=RunState.EXITED, code=0))
    assert not [c for c in gone.commands if isinstance(c, arbiter_commands.Refuse)]
    [told] = [c for c in gone.commands if isinstance(c, TellRun)]
    assert told.iterations == 3.0


@pytest.mark.parametrize(("code", "counts"), [(0, 3.0), (75, 2.0), (-15, 2.0)])
def test_job_that_failed_at_its_target_may_get_gpus_again(code: int, counts: float) -> None:
    desk = Desk().ready(A)
    desk.take(AgentSpoke(1.5, A, 0, RunRequest(J0, (GpuId(0),), TRAIN, "k", 3.0)))
    desk.report(2.0)
    desk.report(2.5, running(), busy=ON_0)
    desk.report(3.5, running(state=RunState.EXITED, code=code))
    job = desk.steward.arbiter.world.apps[A].jobs[J0]
    assert job.done == counts
    desk.take(AgentSpoke(4.0, A, 0, Reached(J0, 3.0, 0.5)))
    assert job.done == 3.0, "its agent says that it has ended well since"


def test_job_without_limit_is_done_by_exit_and_not_by_iterations() -> None:
    desk = Desk().ready()
    desk.owners = {0: A}
    desk.take(ev.AppArrived(1.0, simple_app(A, iterations=1)))
    desk.ask(1.5, 0)
    desk.report(2.0)
    further = replace(running(), iterations=59.0)
    desk.report(2.5, further, busy=ON_0)
    desk.report(3.5, replace(further, state=RunState.EXITED, code=75, interrupted=True))
    state = desk.steward.arbiter.world.apps[A]
    assert state.runnable == 1, "it saved and went, and has to go on"
    desk.take(AgentSpoke(4.0, A, 0, Reached(J0, 59.0, 0.5)))
    assert state.runnable == 0


def test_progress_of_a_job_is_capped_at_its_target() -> None:
    desk = Desk().ready()
    desk.owners = {0: A}
    desk.take(ev.AppArrived(1.0, simple_app(A, iterations=3)))
    desk.take(AgentSpoke(1.5, A, 0, RunRequest(J0, (GpuId(0),), TRAIN, "k", 3.0)))
    desk.report(2.0)
    further = replace(running(), iterations=5.0)
    desk.report(2.5, further, busy=ON_0)
    desk.report(3.5, replace(further, state=RunState.EXITED, code=75))
    job = desk.steward.arbiter.world.apps[A].jobs[J0]
    assert job.done == 2.0
    desk.take(AgentSpoke(4.0, A, 0, Reached(J0, 5.0, 0.5)))
    assert job.done == 3.0, "else the next phase would be too far from there"


def test_absurd_iteration_counts_do_not_affect_the_speed() -> None:
    desk = Desk().ready()
    desk.owners = {0: A}
    guessed = replace(simple_app(A, iterations=100), estimated=True)
    desk.take(ev.AppArrived(1.0, guessed))
    state = desk.steward.arbiter.world.apps[A]
    work = total_work(state.whole)
    desk.take(AgentSpoke(1.5, A, 0, RunRequest(J0, (GpuId(0),), TRAIN, "k", 100.0)))
    desk.report(2.0)
    for at, iterations in ((2.5, 1.0), (3.5, 2.0), (4.5, 999999999.0)):
        desk.report(at, replace(running(), iterations=iterations, seconds=at), busy=ON_0)
        desk.wait(at + 0.4)
    desk.report(
        6.0, replace(running(), iterations=999999999.0, seconds=6.0, state=RunState.EXITED, code=75)
    )
    assert total_work(state.whole) == pytest.approx(work)


def test_a_report_of_a_job_of_another_phase_is_stored() -> None:
    desk = Desk().ready()
    desk.take(ev.AppArrived(1.0, simple_app(A, jobs=2, phases=(Phase(1, 10), Phase(1, 10)))))
    desk.take(AgentSpoke(2.0, A, 0, Reached(JobId("j1"), 1.0, 0.5)))
    assert [reached.job for reached in desk.steward.trials.reached(A)] == ["j1"]


def test_trials_are_sent_in_the_order_of_choosing_also_after_a_restart() -> None:
    jobs = [JobId(f"j{number}") for number in (2, 10, 1, 11, 0)]
    desk = Desk().ready()
    desk.take(ev.AppArrived(1.0, simple_app(A, jobs=12)))
    for job in jobs:
        desk.take(AgentSpoke(2.0, A, 0, TrialParams(job, "{}")))
    saved = dict(sorted(desk.rows.items()))
    again = Steward(desk.steward.arbiter, epoch=2, at=9.0, saved=saved)
    for steward in (desk.steward, again):
        told, _, _ = steward.trials.for_agent(A)
        assert [trial.job for trial in told] == jobs


def test_the_reports_of_a_job_that_are_stored_are_limited() -> None:
    desk = Desk().ready(A)
    outcomes = [desk.take(AgentSpoke(2.0, A, 0, Reached(J0, 0.5, float(n)))) for n in range(20)]
    assert len(desk.steward.trials.reached(A)) == 8
    assert outcomes[7].refusal is None
    assert outcomes[8].refusal is not None
    assert desk.take(AgentSpoke(3.0, A, 0, Reached(J0, 0.5, 1.0))).refusal is None, (
        "it was said before"
    )
    assert desk.take(AgentSpoke(3.0, A, 0, Reached(JobId("j1"), 0.5, 1.0))).refusal is None


def test_quarantine_follows_the_node() -> None:
    desk = Desk().ready(A)
    desk.report(5.0, busy={1: SlotState.QUARANTINED})
    assert desk.state(1) is GpuState.QUARANTINED
    assert desk.steward.arbiter.ledger.quarantine_reason(GpuId(1)) == "node: hot"
    refused = desk.take(ev.GpuRestored(5.5, GpuId(1)))
    assert isinstance(refused.commands[0], arbiter_commands.Refuse)
    desk.report(6.0)
    assert desk.state(1) is GpuState.FREE


def test_events_that_follow_from_reports_are_refused_from_outside() -> None:
    desk = Desk().ready(A)
    outcome = desk.take(ev.GpusVacated(5.0, ((GpuId(0), 1),)))
    assert isinstance(outcome.commands[0], arbiter_commands.Refuse)
    assert not outcome.changes.any
    assert desk.state() is GpuState.LEASED


def test_node_without_its_disk_is_marked_outdated() -> None:
    desk = Desk().ready(A)
    desk.report(5.0, boot=4)
    told = orders_in(desk.report(5.5, number=1, boot=1))
    assert told.outdated
    assert told.boot == 4


def test_a_heartbeat_stores_nothing() -> None:
    desk = Desk().ready(A)
    for at in (2.0, 3.0, 4.0):
        assert not desk.report(at).changes.any


IDLE = tuple(SlotReport(gpu, 0, SlotState.EMPTY) for gpu in range(2))


def gang() -> tuple[Desk, Outcome]:
    """Run 1 of app A is ordered on machines m0 and m1."""
    desk = Desk().ready()
    other = replace(MACHINE, name="m1")
    for number, epoch in ((1, 0), (2, 1)):
        desk.take(ReportCame(0.2, NodeReport("m1", 1, number, epoch, 1, IDLE, (), other)))
    desk.owners = {1: A, 2: A}
    desk.take(ev.AppArrived(1.0, simple_app("a", gpus=2)))
    desk.report(2.0, revision=-1)
    desk.take(
        ReportCame(2.0, NodeReport("m1", 1, 3, 1, desk.steward.nodes["m1"].revision, IDLE, ()))
    )
    desk.number += 1
    return desk, desk.ask(2.5, 1, 2)


def test_a_gang_over_two_machines_knows_its_ranks() -> None:
    _, told = gang()
    by_node = {answer.node: answer.orders.runs[0] for answer in told.answers}
    assert by_node["m1"].rank == 1
    assert by_node["m1"].world == 2
    assert by_node["m1"].rendezvous == "m0"
    assert by_node["m1"].gpus == (0,)


@pytest.mark.parametrize(
    ("codes", "counts"),
    [
        pytest.param((1, 75), 1, id="one failed, and the other was stopped for it"),
        pytest.param((75, 1), 75, id="one saved, and the other missed it"),
        pytest.param((0, 1), 1, id="one was done, and the other failed"),
        pytest.param((0, 0), 0, id="both were done"),
    ],
)
def test_first_trouble_of_a_gang_counts(codes: tuple[int, int], counts: int) -> None:
    desk, _ = gang()
    first, second = (running(state=RunState.EXITED, code=code) for code in codes)
    desk.report(3.0, first)
    known = desk.steward.nodes["m1"].revision
    desk.take(ReportCame(3.1, NodeReport("m1", 1, 4, 1, known, IDLE, (second,))))
    result = desk.rows["result/1"]
    assert isinstance(result, RunEnd)
    assert result.code == counts


def test_a_gang_that_failed_is_not_interrupted_because_its_other_processes_were() -> None:
    desk, _ = gang()
    desk.report(3.0, running(state=RunState.EXITED, code=1))
    known = desk.steward.nodes["m1"].revision
    second = replace(running(state=RunState.EXITED, code=75), interrupted=True)
    desk.take(ReportCame(3.1, NodeReport("m1", 1, 4, 1, known, IDLE, (second,))))
    result = desk.rows["result/1"]
    assert isinstance(result, RunEnd)
    assert result.failed


def test_agent_learns_that_its_node_interrupted_the_run() -> None:
    desk = training()
    ended = replace(running(state=RunState.EXITED, code=75), interrupted=True)
    [told] = [c for c in desk.report(6.0, ended).commands if isinstance(c, TellRun)]
    assert told.interrupted


# Points


def saying(
    first: int, last: int, state: RunState = RunState.RUNNING, *, more: bool = False
) -> RunReport:
    """Run 1 with these points that were not heard."""
    code = 0 if state.over else None
    points = tuple(Point(float(n)) for n in range(first, last + 1))
    return RunReport(1, A, J0, state, code, 3.0, 3.0, "", "", first, points, more)


def told(outcome: Outcome) -> list[object]:
    """Iterations that the agent is told, and ends of runs."""
    found: list[object] = []
    for command in outcome.commands:
        if isinstance(command, TellPoints):
            found += [point.iteration for point in command.points]
        if isinstance(command, TellRun) and command.state.over:
            found.append(command.state)
    return found


def training() -> Desk:
    desk = Desk().ready(A)
    desk.report(4.0)
    desk.ask(5.0, 0)
    desk.report(5.5, running(), busy=ON_0)
    return desk


def test_agent_gets_each_point_once_and_its_node_the_acknowledgement() -> None:
    desk = training()
    assert told(desk.report(6.0, saying(1, 2), busy=ON_0)) == [1.0, 2.0]
    assert told(desk.report(6.1, saying(1, 4), busy=ON_0)) == [3.0, 4.0]
    desk.take(PointsAcknowledged(6.2, A, 0, ((1, 3),)))
    [answered] = [outcome for outcome in desk.wait(8.0) if outcome.answers]
    assert orders_in(answered).heard == ((1, 3),)
    desk.take(PointsAcknowledged(8.1, A, 0, ((1, 99),)))
    desk.report(8.2, saying(4, 4), busy=ON_0)
    assert orders_in(desk.take(ev.Woken(9.2))).heard == ((1, 4),), "more than was told"


def test_node_gets_one_answer_for_all_points_acknowledged_at_once() -> None:
    desk, j1 = Desk().ready(A, A), JobId("j1")
    desk.report(4.0)
    desk.ask(5.0, 0)
    desk.take(AgentSpoke(5.1, A, 0, RunRequest(j1, (GpuId(1),), TRAIN, "other")))
    first = saying(1, 2, more=True)
    both = (first, replace(first, run=2, job=j1))
    desk.report(6.0, *both, busy=dict.fromkeys((0, 1), SlotState.RUNNING))
    answer = desk.take(PointsAcknowledged(6.5, A, 0, ((1, 2), (2, 1))))
    assert orders_in(answer).heard == ((1, 2), (2, 1))


def test_end_of_a_run_is_sent_after_all_its_points() -> None:
    desk = training()
    assert told(desk.report(6.0, saying(1, 2, RunState.EXITED, more=True))) == [1.0, 2.0]
    assert not desk.steward.runs, "its GPUs are free"
    row = desk.rows["result/1"]
    assert isinstance(row, RunEnd)
    assert row.points_on == "m0"
    desk.report(6.2, saying(1, 2, RunState.EXITED, more=True))
    answer = desk.take(PointsAcknowledged(6.5, A, 0, ((1, 2),)))
    assert (orders_in(answer).heard, orders_in(answer).forget) == (((1, 2),), ())
    last = desk.report(7.0, saying(3, 3, RunState.EXITED))
    assert told(last) == [3.0, RunState.EXITED]
    assert not told(desk.report(7.2, saying(3, 3, RunState.EXITED)))
    assert orders_in(desk.take(PointsAcknowledged(7.5, A, 0, ((1, 3),)))).forget == (1,)
    row = desk.rows["result/1"]
    assert isinstance(row, RunEnd)
    assert row.points_on == ""


def test_points_that_an_agent_lost_are_sent_again_with_the_end() -> None:
    desk = training()
    desk.report(6.0, saying(1, 3, RunState.EXITED))
    desk.report(6.05, saying(1, 3, RunState.EXITED))
    desk.take(PointsAcknowledged(6.1, A, 0, ((1, 1),)))
    # By the next agent, and by one that lost what waited for it.
    for at in (6.2, 6.3):
        assert told(desk.take(SessionOpened(at, A, "s2"))) == [2.0, 3.0, RunState.EXITED]
    assert told(desk.take(SessionOpened(6.4, B, "s1"))) == []


def test_a_new_session_is_sent_points_that_a_late_acknowledgement_names() -> None:
    desk = training()
    desk.take(SessionOpened(5.6, A, "s1"))
    old = desk.steward.fence_of(A)
    desk.report(6.0, saying(1, 3), busy=ON_0)
    assert told(desk.take(SessionOpened(6.1, A, "s2"))) == [1.0, 2.0, 3.0]
    late = desk.take(PointsAcknowledged(6.2, A, old, ((1, 3),)))
    assert late.commands == (RefuseSession(A, DISPLACED),)
    assert told(desk.take(SessionOpened(6.3, A, "s2"))) == [1.0, 2.0, 3.0]
    mine = desk.steward.fence_of(A)
    desk.take(PointsAcknowledged(6.4, A, mine, ((1, 2),)))
    assert told(desk.take(SessionOpened(6.5, A, "s2"))) == [3.0]


def test_agents_are_numbered_as_the_wire_allows_after_a_restore() -> None:
    in_2100 = 4_102_444_800  # A store that was brought back counts epochs from the time of day.
    desk = Desk(in_2100)
    desk.report(0.0, epoch=0)
    desk.report(0.1, epoch=in_2100)
    desk.take(ev.AppArrived(1.0, simple_app(A)))
    desk.take(SessionOpened(5.6, A, "s1"))
    news = News(in_2100, 1, 5.6, 1, (), desk.steward.fence_of(A))
    assert from_bytes(News, to_bytes(news), DOWN) == news
    assert news.fence > 0


def test_next_service_sends_unacknowledged_messages() -> None:
    desk = training()
    desk.report(6.0, saying(1, 3, RunState.EXITED))
    arbiter = desk.steward.arbiter
    desk.steward = Steward(arbiter, epoch=2, at=7.0, node_ttl=20.0, saved=desk.rows)
    desk.number = 0
    desk.report(7.1, saying(1, 3, RunState.EXITED), epoch=1, boot=2)
    again = desk.report(7.2, saying(1, 3, RunState.EXITED), epoch=2, boot=2)
    assert told(again) == [1.0, 2.0, 3.0, RunState.EXITED]


def test_end_is_sent_when_the_machine_with_points_is_gone() -> None:
    desk = training()
    desk.report(6.0, saying(1, 2, RunState.EXITED, more=True))
    outcomes = desk.wait(60.0)
    assert [item for outcome in outcomes for item in told(outcome)] == [RunState.EXITED]


def test_a_node_may_drop_points_of_an_app_that_ended() -> None:
    desk = training()
    desk.report(6.0, saying(1, 2), busy=ON_0)
    desk.take(ev.AppEnded(6.1, A))
    gone = desk.report(7.0, saying(1, 3, RunState.EXITED))
    answers = [*gone.answers, *desk.report(8.0, saying(1, 3, RunState.EXITED)).answers]
    assert (1, 3) in [item for answer in answers for item in answer.orders.heard]
    assert any(1 in answer.orders.forget for answer in answers)


# Shared storage


def two_machines(*storage: tuple[str, str, str]) -> Desk:
    """Machines m0 and m1 that report these folders, marks and troubles; A holds a GPU of each."""
    desk = Desk()
    desk.owners = {0: A, 2: A}
    slots = tuple(SlotReport(gpu, 0, SlotState.EMPTY) for gpu in range(2))
    number = 0
    for epoch in (0, 1):
        for name, (folder, mark, trouble) in zip(("m0", "m1"), storage, strict=True):
            number += 1
            machine = replace(MACHINE, name=name)
            report = NodeReport(name, 1, number, epoch, 0, slots, (), machine)
            told = replace(report, shared_dir=folder, mark=mark, storage_trouble=trouble)
            orders = desk.take(ReportCame(0.1 * number, told)).answers
            assert all(answer.orders.nonce == "e1" for answer in orders)
    desk.take(ev.AppArrived(1.0, simple_app(A, gpus=2, jobs=2)))
    return desk


SAME = ("/shared", "e1.m0.aa", "")


@pytest.mark.parametrize(
    ("second", "sharing", "why"),
    [
        pytest.param(SAME, "shared", "", id="the same storage"),
        pytest.param(("/shared", "", ""), "unseen", "", id="not looked at yet"),
        pytest.param(("/shared", "e0.m1.bb", ""), "unseen", "", id="of an earlier service"),
        pytest.param(
            ("/shared", "e1.m1.bb", ""), "apart", "do not see the same storage", id="another one"
        ),
        pytest.param(("", "", ""), "none", "m1 has no shared_dir", id="none"),
        pytest.param(
            ("/shared", "", "Stale file handle"), "trouble", "Stale file handle", id="trouble"
        ),
    ],
)
def test_a_run_on_two_machines_needs_storage_that_both_see(
    second: tuple[str, str, str], sharing: str, why: str
) -> None:
    desk = two_machines(SAME, second)
    assert desk.steward.storage_of(desk.steward.nodes["m1"]) == sharing
    [answer] = [
        command
        for command in desk.ask(5.0, 0, 2).commands
        if isinstance(command, AcceptRun | RefuseRun)
    ]
    assert isinstance(answer, RefuseRun) is bool(why)
    assert why in (answer.reason if isinstance(answer, RefuseRun) else "")


def test_without_any_shared_folder_nothing_is_refused_for_it() -> None:
    desk = two_machines(("", "", ""), ("", "", ""))
    assert any(isinstance(command, AcceptRun) for command in desk.ask(5.0, 0, 2).commands)


def trained_on_m0(desk: Desk, shared: str = "/shared") -> Desk:
    """A run on machine m0 has left checkpoints."""
    desk.ask(5.0, 0)
    slots = tuple(SlotReport(gpu, 0, SlotState.EMPTY) for gpu in range(2))
    ended = RunReport(1, A, J0, RunState.EXITED, 75, 3.0, 3.0)
    for number in (11, 12):
        report = NodeReport("m0", 1, number, 1, 0, slots, (ended,), shared_dir=shared)
        mark = "e1.m0.aa" if shared else ""
        desk.take(ReportCame(6.0 + 0.01 * number, replace(report, mark=mark)))
    assert not desk.steward.runs
    return desk


def test_job_does_not_move_to_a_machine_without_its_checkpoints() -> None:
    desk = trained_on_m0(two_machines(SAME, ("/shared", "e1.m1.bb", "")))
    [refusal] = desk.ask(7.0, 2, key="k2").commands
    assert isinstance(refusal, RefuseRun)
    assert "it can go on on m0" in refusal.reason
    assert any(isinstance(command, AcceptRun) for command in desk.ask(7.1, 0, key="k3").commands)


def test_a_job_moves_where_its_checkpoints_are_seen() -> None:
    desk = trained_on_m0(two_machines(SAME, SAME))
    assert any(isinstance(command, AcceptRun) for command in desk.ask(7.0, 2, key="k2").commands)


NONE = ("", "", "")


def answer_to(outcome: Outcome) -> AcceptRun | RefuseRun:
    kinds = AcceptRun | RefuseRun
    [answer] = [command for command in outcome.commands if isinstance(command, kinds)]
    return answer


def test_without_shared_storage_job_resumes_at_its_checkpoints_with_a_message() -> None:
    desk = trained_on_m0(two_machines(NONE, NONE), "")
    refusal = answer_to(desk.ask(7.0, 2, key="k2"))
    assert isinstance(refusal, RefuseRun)
    assert refusal.home == "m0"
    assert "its checkpoints are on m0 alone" in refusal.reason
    assert desk.steward.waits_for_machine(A, J0) == refusal.reason
    assert isinstance(answer_to(desk.ask(7.1, 0, key="k3")), AcceptRun)
    assert not desk.steward.waits_for_machine(A, J0)


def bound_to_m0() -> Desk:
    desk = trained_on_m0(two_machines(NONE, NONE), "")
    desk.ask(7.0, 2, key="k2")
    assert desk.steward.waits_for_machine(A, J0)
    return desk


def test_a_job_waits_for_no_machine_that_is_gone() -> None:
    desk = bound_to_m0()
    slots = (SlotReport(0, 0, SlotState.EMPTY),) * 2
    for number in range(13, 60):
        desk.take(ReportCame(float(number), NodeReport("m1", 1, number, 1, 0, slots, ())))
    assert not desk.steward.waits_for_machine(A, J0)


def test_a_job_waits_for_no_machine_once_others_may_see_its_checkpoints() -> None:
    desk = bound_to_m0()
    slots = (SlotReport(0, 0, SlotState.EMPTY),) * 2
    desk.take(ReportCame(8.0, NodeReport("m0", 1, 13, 1, 0, slots, (), shared_dir="/shared")))
    assert not desk.steward.waits_for_machine(A, J0)


def test_finished_or_failed_job_waits_for_no_machine() -> None:
    desk = bound_to_m0()
    desk.take(ev.TargetsRevised(8.0, A, ((J0, 3.0),)))
    assert not desk.steward.waits_for_machine(A, J0)
    desk = bound_to_m0()
    desk.take(AgentSpoke(8.0, A, 0, Reached(J0, 3.0, None, "it failed")))
    assert not desk.steward.waits_for_machine(A, J0)


def test_job_on_several_machines_is_led_by_its_first_gpus_machine() -> None:
    desk = two_machines(NONE, NONE)
    # As on m1: whose first process saves there.
    accepted = answer_to(desk.ask(5.0, 2, 0, 2))
    assert isinstance(accepted, AcceptRun)
    assert desk.steward.runs[accepted.run].gpus == (2, 0)
    slots = (SlotReport(0, 0, SlotState.EMPTY),) * 2
    orders = [
        orders_in(desk.take(ReportCame(6.0, NodeReport(name, 1, 11, 1, 0, slots, ()))))
        for name in ("m0", "m1")
    ]
    assert [told.runs[0].rank for told in orders] == [1, 0]
    assert {told.runs[0].rendezvous for told in orders} == {"m1"}


def test_without_shared_storage_job_grows_if_its_home_leads() -> None:
    desk = trained_on_m0(two_machines(NONE, NONE), "")
    assert isinstance(answer_to(desk.ask(7.0, 2, 0, key="k2")), RefuseRun)
    assert isinstance(answer_to(desk.ask(7.1, 0, 2, key="k3")), AcceptRun)


@pytest.mark.parametrize("heard", ["", "m0", "m1"])
def test_fresh_service_starts_no_job_where_checkpoints_may_be_missing(heard: str) -> None:
    desk = trained_on_m0(two_machines(NONE, NONE), "")
    arbiter = desk.steward.arbiter
    desk.steward = Steward(arbiter, epoch=2, at=7.0, node_ttl=20.0, saved=desk.rows)
    slots = tuple(SlotReport(gpu, 0, SlotState.EMPTY) for gpu in range(2))
    if heard:
        desk.take(ReportCame(7.1, NodeReport(heard, 1, 20, 1, 0, slots, ())))
    refusal = answer_to(desk.ask(7.2, 2, key="k2"))
    assert isinstance(refusal, RefuseRun)
    assert not refusal.home
    assert "has just begun" in refusal.reason
    assert isinstance(answer_to(desk.ask(7.3, 0, key="k3")), AcceptRun), "home is home"


def test_without_shared_storage_job_stays_where_it_is_saving() -> None:
    desk = two_machines(NONE, NONE)
    desk.ask(5.0, 0)
    slots = (SlotReport(0, 1, SlotState.RUNNING), SlotReport(1, 0, SlotState.EMPTY))
    desk.take(ReportCame(6.0, NodeReport("m0", 1, 11, 1, 0, slots, (running(),))))
    desk.take(AgentSpoke(6.1, A, 0, StopRequest(1)))
    refusal = answer_to(desk.ask(6.2, 2, key="k2"))
    assert isinstance(refusal, RefuseRun)
    assert refusal.home == "m0"


def test_job_of_a_lost_machine_restarts_from_scratch_with_a_message() -> None:
    desk = trained_on_m0(two_machines(NONE, NONE), "")
    slots = tuple(SlotReport(gpu, 0, SlotState.EMPTY) for gpu in range(2))
    for number in range(13, 60):
        desk.take(ReportCame(float(number), NodeReport("m1", 1, number, 1, 0, slots, ())))
    assert not desk.steward.nodes["m0"].present
    accepted = answer_to(desk.ask(60.0, 2, key="k2"))
    assert isinstance(accepted, AcceptRun)
    assert "its checkpoints are on m0, which is gone" in desk.steward.runs[accepted.run].note


# Logs


BUSY = (SlotReport(0, 0, SlotState.RUNNING), SlotReport(1, 0, SlotState.EMPTY))
WANT = LogWanted(1, A, OwnerId("ann"), J0, 0, 100, number=1)


def test_a_wanted_log_is_ordered_at_once_and_nothing_is_stored() -> None:
    desk = Desk().ready(A)
    desk.report(5.0)
    told = desk.take(LogsWanted(5.1, "m0", (WANT,)))
    assert orders_in(told).logs == (WANT,)
    assert not told.changes.any
    # Again in every answer until it is wanted no more.
    desk.report(5.2)
    assert orders_in(desk.take(ev.Woken(7.3))).logs == (WANT,)
    desk.take(LogsWanted(7.4, "m0", ()))
    desk.report(7.5)
    assert orders_in(desk.take(ev.Woken(9.6))).logs == ()


def test_log_requested_during_a_report_is_in_the_answer() -> None:
    desk = Desk().ready(A)
    desk.report(5.0, revision=-1)
    known = desk.steward.nodes["m0"].revision
    assert desk.take(LogsWanted(5.1, "m0", (WANT,))).answers == ()
    assert orders_in(desk.report(5.2, revision=known)).logs == (WANT,)


def test_the_logs_of_a_jobs_runs_are_one_and_outlast_its_app() -> None:
    desk = Desk().ready(A)
    desk.ask(5.0, 0)
    desk.report(5.5, running(), busy=ON_0)
    read = LogPart(1, 0, 70, "x" * 70, 80, number=1)
    node = desk.steward.nodes["m0"]
    report = NodeReport(
        "m0", 1, desk.number + 1, 1, node.revision, BUSY, (running(),), logs=(read,)
    )
    desk.number += 1
    desk.take(ReportCame(6.0, report))
    row = desk.steward.log_of(A, J0)
    assert row is not None
    assert row.runs == (LoggedRun(1, "m0", 80, over=False),)
    ended = replace(running(state=RunState.EXITED, code=75), log="bye\n", log_size=100)
    desk.report(7.0, ended)
    desk.ask(7.5, 0, key="k2")
    row = desk.steward.log_of(A, J0)
    assert row is not None
    assert [(run.run, run.size, run.over, run.tail) for run in row.runs] == [
        (1, 100, True, "bye\n"),
        (2, 0, False, ""),
    ]
    assert row.begins() == [0, 100]
    desk.take(ev.AppEnded(8.0, A))
    for number in range(6):
        desk.report(8.1 + number / 10)
    assert A not in desk.steward.arbiter.world.apps
    row = desk.steward.log_of(A, J0)
    assert row is not None
    assert [(run.run, run.node, run.size) for run in row.runs][:1] == [(1, "m0", 100)]
    assert isinstance(desk.rows[f"logs/{A}/{J0}"], LogsRow)
    # Another app of this name may be somebody else's.
    desk.take(ev.AppArrived(9.0, simple_app(A, gpus=2, jobs=2)))
    assert desk.steward.log_of(A, J0) is None
    assert f"logs/{A}/{J0}" not in desk.rows


def test_next_service_knows_logs_of_an_ended_app_until_it_is_forgotten() -> None:
    desk = Desk().ready(A)
    row = LogsRow(A, J0, (LoggedRun(1, "m0", 5),))
    saved = {**desk.rows, "logs/b/j0": replace(row, app=B)}
    steward = Steward(desk.steward.arbiter, epoch=2, at=9.0, saved=saved)
    assert steward.log_of(B, J0) == replace(row, app=B)
    outcome = steward.handle(AppForgotten(9.0, B))
    assert outcome.changes.rows is not None
    assert outcome.changes.rows["logs/b/j0"] is None
    assert steward.log_of(B, J0) is None


def test_latest_runs_are_kept_with_stable_offsets() -> None:
    runs = tuple(LoggedRun(n, "m0", 10, tail=f"{n}") for n in range(1, MOST_RUNS + 4))
    row = shortened(LogsRow(A, J0, runs))
    assert len(row.runs) == MOST_RUNS
    assert row.begins()[0] == 30
    assert row.size == 10 * len(runs)
    assert [run.tail for run in row.runs][-2:] == ["", f"{MOST_RUNS + 3}"]


class Watching(Desk):
    """Notes at every round what the arbiter knows of the jobs that run."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[dict[AppId, float]] = []

    def _plan(self, view: View) -> Plan:
        apps = self.steward.arbiter.world.apps
        self.known.append({app: state.jobs[J0].done for app, state in apps.items()})
        return super()._plan(view)

    def run(self, *apps: AppId) -> "Watching":
        """A run of each of these apps, with more iterations for the later ones."""
        self.ready(*apps)
        for gpu, app in enumerate(apps):
            self.ask(2.0, gpu, app=app)
        self.tell(3.0, *apps)
        assert self.steward.arbiter.world.apps[A].jobs[J0].done == 0.0, "no round needs it yet"
        self.known.clear()
        return self

    def tell(self, at: float, *apps: AppId) -> None:
        runs = [replace(running(n), app=app, iterations=n + 2.0) for n, app in enumerate(apps, 1)]
        self.report(at, *runs, busy=dict.fromkeys(range(len(apps)), SlotState.RUNNING))


def test_a_round_that_an_arrival_opens_knows_how_far_jobs_are() -> None:
    desk = Watching().run(A)
    desk.take(ev.AppArrived(4.0, simple_app("c")))
    assert [known[A] for known in desk.known] == [3.0]


def test_a_round_at_a_beat_knows_how_far_all_jobs_are() -> None:
    desk = Watching().run(A, B)
    for at in range(5, 100, 5):
        desk.wait(float(at))
        desk.tell(float(at), A, B)
    assert [(known[A], known[B]) for known in desk.known] == [(3.0, 4.0)]


def test_progress_is_known_before_an_event_that_comes_late_opens_a_round() -> None:
    desk = Watching().run(A, B)
    # Nobody woke the steward at the beat: what comes next rings the alarm.
    desk.take(ev.WeightChanged(150.0, 2.0, app=A))
    assert [(known[A], known[B]) for known in desk.known] == [(3.0, 4.0)]


def test_late_round_opened_by_an_arrival_knows_progress_of_all_jobs() -> None:
    desk = Watching().run(A, B)
    desk.take(ev.AppArrived(150.0, simple_app("c")))
    assert (desk.known[0][A], desk.known[0][B]) == (3.0, 4.0)


def test_run_end_at_a_beat_opens_no_round_before_progress_is_known() -> None:
    desk = Watching().run(A, B)
    beat = desk.steward.arbiter.next_round
    assert beat is not None
    ended = replace(running(1, RunState.EXITED, 0), iterations=5.0, seconds=5.0)
    going_on = replace(running(2), app=B, iterations=6.0, seconds=6.0)
    desk.report(beat, ended, going_on, busy={1: SlotState.RUNNING})
    assert [(known[A], known[B]) for known in desk.known] == [(5.0, 6.0)]


def test_beat_round_does_not_count_a_job_done_after_a_failed_end() -> None:
    desk = Watching()
    desk.ready(A, B)
    desk.take(AgentSpoke(2.0, A, 0, RunRequest(J0, (GpuId(0),), TRAIN, "k", 5.0)))
    desk.ask(2.0, 1, app=B)
    desk.tell(3.0, A, B)
    desk.known.clear()
    beat = desk.steward.arbiter.next_round
    assert beat is not None
    failed = replace(running(1, RunState.EXITED, 1), iterations=5.0, seconds=5.0)
    going_on = replace(running(2), app=B, iterations=6.0, seconds=6.0)
    desk.report(beat, failed, going_on, busy={1: SlotState.RUNNING})
    assert [(known[A], known[B]) for known in desk.known] == [(4.0, 6.0)]


def test_job_report_at_a_beat_opens_no_round_before_progress_is_known() -> None:
    desk = Watching().run(A, B)
    beat = desk.steward.arbiter.next_round
    assert beat is not None
    desk.take(AgentSpoke(beat, A, 0, Reached(J0, 1.0, None, "")))
    assert [known[B] for known in desk.known] == [4.0]


def born_of(outcome: Outcome) -> str:
    [order] = orders_in(outcome).runs
    return order.born


def test_later_app_of_the_same_name_gets_no_old_checkpoints() -> None:
    desk = Desk().ready(A)
    desk.report(5.0)
    first = born_of(desk.ask(5.2, 0))
    assert first
    desk.report(6.0, running(state=RunState.EXITED, code=1))
    desk.report(7.0)
    assert born_of(desk.ask(7.2, 0, key="again")) == first, "a job that failed finds its own"
    desk.report(8.0, running(2, RunState.EXITED, 0))
    desk.take(ev.AppEnded(8.5, A))
    desk.report(9.0)
    desk.take(ev.AppArrived(10.0, simple_app(A, gpus=2, jobs=2)))
    desk.report(11.0)
    second = born_of(desk.ask(11.2, 0, key="anew"))
    assert second not in {"", first}


def test_start_time_of_a_job_is_not_taken_for_iterations() -> None:
    desk = Desk().ready(A)
    desk.ask(1.5, 0)
    desk.report(2.0)
    desk.report(2.5, replace(running(), iterations=0.0, seconds=0.0), busy=ON_0)
    # It trains after 35 s, an iteration a second; two of them are over when they are first seen.
    told = []
    for at in range(40, 60, 2):
        went = replace(running(), iterations=at - 38.0, seconds=at - 2.5)
        desk.report(float(at), went, busy=ON_0)
        if at % 10 == 0:  # A round may open, and has to know how far it is.
            arrival = ev.AppArrived(at + 0.5, simple_app(f"late-{at}", gpus=2))
            events = desk.take(arrival).changes.events
            measured = [event for event in events if isinstance(event, ev.ProgressMeasured)]
            told += [sample for event in measured for sample in event.samples]
    assert told[0] == ev.ProgressSample(JobId("j0"), 2.0, 0.0)
    assert told[-1] == ev.ProgressSample(JobId("j0"), 12.0, 10.0)
    assert sum(sample.seconds for sample in told) == 10.0


def test_a_node_whose_reports_overtake_each_other_is_answered_within_a_heartbeat() -> None:
    desk = Desk().ready(A)
    answered = []
    for part in range(1, 33):
        at = 10.0 + SETTINGS.heartbeat * part / 8.0
        answered += [at for outcome in (*desk.wait(at), desk.report(at)) if outcome.answers]
    assert len(answered) >= 3
    assert max(map(sub, answered[1:], answered)) <= SETTINGS.heartbeat * 9.0 / 8.0
