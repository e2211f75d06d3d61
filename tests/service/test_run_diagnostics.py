"""Why an app with GPUs does not train, as its runs tell."""

from dataclasses import dataclass, field

import pytest

from tests.support.scripted_world import Puppet, simple_app
from themis.core.arbiter import Arbiter, Settings
from themis.core.arbiter import events as ev
from themis.core.explain import explain
from themis.core.model import AppId, GpuId, JobId, LeaseSource, Machine, Topology
from themis.core.model.reasons import Reason
from themis.core.policies import Allotment, Plan
from themis.core.steward.events import AgentSpoke, ReportCame
from themis.core.steward.steward import Steward
from themis.protocol.agent_messages import RunRequest, StopRequest
from themis.protocol.node_messages import (
    NodeReport,
    Point,
    Program,
    RunReport,
    RunState,
    SlotReport,
    SlotState,
)
from themis.service.explanations import facts_of
from themis.service.http.serializers import app_in_full
from themis.service.persistence.round_history import RoundHistory
from themis.service.run_diagnostics import QUIET, reason_of, runs_by_app, trouble_of

A, J0 = AppId("a"), JobId("j0")
MACHINE = Machine("m0", "r0", (1,))
SETTINGS = Settings(lease=2000.0, grace=10.0, heartbeat=1.0, guard=2.0, pooling=0.0, idle_after=0.0)


@dataclass
class Scene:
    """An app with one run on one GPU."""

    limit: float = 100.0
    number: int = 0
    steward: Steward = field(init=False)
    book: RoundHistory = field(default_factory=RoundHistory)

    def seen(self, app: AppId) -> float | None:
        return 0.0

    def __post_init__(self) -> None:
        policy = Puppet(lambda view: Plan((Allotment(A, (GpuId(0),), LeaseSource.DIRECT),)))
        arbiter = Arbiter(Topology(()), policy, SETTINGS, seed=1)
        self.steward = Steward(arbiter, epoch=1, at=0.0, node_ttl=20.0)
        self.report(0.0, epoch=0)
        self.report(0.1)
        self.steward.handle(ev.AppArrived(1.0, simple_app(A, gpus=1, iterations=100)))
        request = AgentSpoke(
            2.0, A, 0, RunRequest(J0, (GpuId(0),), Program(("train",)), "k", self.limit)
        )
        self.steward.handle(request)

    def report(self, at: float, *runs: RunReport, epoch: int = 1) -> None:
        self.number += 1
        slot = SlotReport(0, 0, SlotState.RUNNING if runs else SlotState.EMPTY)
        told = NodeReport("m0", 1, self.number, epoch, 0, (slot,), runs, MACHINE)
        self.steward.handle(ReportCame(at, told))

    def train(self, at: float, iterations: float = 0.0, trouble: str = "") -> None:
        run = RunReport(1, A, J0, RunState.RUNNING, None, iterations, at, trouble=trouble)
        self.report(at, run)

    def end(
        self, at: float, run: int, code: int, *, done: float = 0.0, interrupted: bool = False
    ) -> None:
        """A run exits, and nothing is left of it."""
        ended = RunReport(
            run, A, J0, RunState.EXITED, code, done, done, f"exit {code}", interrupted=interrupted
        )
        self.report(at, ended)
        self.report(at + 0.1)

    def again(self, at: float) -> None:
        """Its agent asks for another run."""
        request = AgentSpoke(
            at, A, 0, RunRequest(J0, (GpuId(0),), Program(("train",)), f"k{at}", self.limit)
        )
        self.steward.handle(request)

    def reason(self, at: float) -> Reason:
        state = self.steward.arbiter.world.apps[A]
        return reason_of(self.steward, state, runs_by_app(self.steward).get(A, ()), at)

    def trouble(self, at: float) -> str:
        return trouble_of(self.steward, self.steward.runs[1], at)


def test_an_app_whose_processes_do_not_run_yet_is_starting() -> None:
    scene = Scene()
    assert scene.reason(2.5) is Reason.STARTING
    scene.train(3.0)
    assert scene.reason(3.5) is Reason.SERVED


def test_an_app_all_of_whose_runs_save_is_checkpointing() -> None:
    scene = Scene()
    scene.train(3.0, 5.0)
    scene.steward.handle(AgentSpoke(4.0, A, 0, StopRequest(1)))
    assert scene.reason(4.5) is Reason.CHECKPOINTING


def test_a_job_without_iterations_for_five_minutes_has_no_metrics() -> None:
    scene = Scene()
    for at in (3.0, 4.0, 5.0):
        scene.train(at, min(at, 4.0))
    assert scene.reason(4.0 + QUIET - 1.0) is Reason.SERVED
    assert scene.trouble(4.0 + QUIET - 1.0) == ""
    assert scene.reason(4.0 + QUIET) is Reason.NO_METRICS
    assert "no iteration for 5 min: nothing was found" in scene.trouble(4.0 + QUIET)
    scene.train(4.0 + QUIET, 5.0)
    assert scene.reason(5.0 + QUIET) is Reason.SERVED


def test_how_long_a_job_reports_nothing_counts_over_its_runs() -> None:
    scene = Scene()
    scene.train(3.0)
    for run, at in ((1, 103.0), (2, 203.0)):  # Its GPU is taken and given back.
        scene.end(at, run, 75, interrupted=True)
        scene.again(at + 0.2)
        scene.report(at + 0.3, RunReport(run + 1, A, J0, RunState.RUNNING, None))
    assert scene.reason(301.0) is Reason.SERVED
    assert scene.reason(303.0 + 0.7) is Reason.NO_METRICS
    scene.report(304.0, RunReport(3, A, J0, RunState.RUNNING, None, 1.0, 100.0))
    assert scene.reason(305.0) is Reason.SERVED
    scene.end(310.0, 3, 75, done=1.0, interrupted=True)
    scene.again(310.2)
    scene.report(310.3, RunReport(4, A, J0, RunState.RUNNING, None))
    assert scene.reason(310.3 + QUIET - 7.0) is Reason.SERVED


def test_a_job_that_need_not_count_iterations_is_not_missed() -> None:
    scene = Scene(limit=0.0)
    scene.train(3.0)
    assert scene.reason(3.0 + 2 * QUIET) is Reason.SERVED


def test_a_suspended_app_is_suspended_whatever_its_runs_do() -> None:
    scene = Scene()
    scene.train(3.0, 5.0)
    scene.steward.handle(ev.AppSuspended(4.0, A, Reason.HELD_BY_ADMIN))
    assert scene.reason(4.5) is Reason.HELD_BY_ADMIN


def test_unreadable_metrics_are_shown_with_their_job() -> None:
    scene = Scene()
    scene.train(3.0, trouble="a line is no sample")
    sheet = app_in_full(scene.steward, A, 4.0)
    assert [job["trouble"] for job in sheet["jobs"] if job["job"] == J0] == ["a line is no sample"]
    assert sheet["reason"] is Reason.SERVED
    told = scene.trouble(3.0 + QUIET)
    assert told == "no iteration for 5 min: a line is no sample"


def test_app_whose_jobs_all_fail_repeatedly_is_in_a_crash_loop() -> None:
    scene = Scene()
    scene.train(3.0)
    scene.end(4.0, 1, 3)
    assert scene.reason(5.0) is Reason.CRASH_LOOP
    scene.again(6.0)
    assert scene.reason(6.5) is Reason.STARTING, "it is tried again"
    scene.end(7.0, 2, 3)
    (job,) = app_in_full(scene.steward, A, 8.0)["jobs"]
    assert (job["failures"], job["message"]) == (2, "exit 3")


def test_crash_loop_is_explained_by_the_jobs_output() -> None:
    scene = Scene()
    scene.train(3.0)
    scene.end(4.0, 1, 3)
    scene.again(6.0)
    scene.end(7.0, 2, 3)
    said = explain(facts_of(scene.steward, scene.book, A, 8.0, None))
    assert said.reason is Reason.CRASH_LOOP
    assert said.why == "job j0 failed 2 times: exit 3"
    assert "retry" not in said.then, "that is for apps that are over"


def test_job_exiting_with_0_too_early_is_a_crash_loop_with_advice() -> None:
    scene = Scene()
    point = Point(40.0, None, (("loss", 0.5),))
    scene.report(3.0, RunReport(1, A, J0, RunState.RUNNING, None, 40.0, 1.0, points=(point,)))
    scene.end(4.0, 1, 0, done=40.0)
    scene.again(6.0)
    scene.end(7.0, 2, 0)
    said = explain(facts_of(scene.steward, scene.book, A, 8.0, None))
    assert said.reason is Reason.CRASH_LOOP
    assert said.why.startswith("job j0 failed 2 times: it exited with 0 at iteration 40 of 100")
    assert "must report its iteration before it exits" in said.why


def test_job_without_progress_reports_is_done_when_it_exits_with_0() -> None:
    scene = Scene()
    scene.train(3.0)
    scene.end(4.0, 1, 0)
    assert scene.reason(5.0) is not Reason.CRASH_LOOP


def test_an_app_that_gave_its_gpus_back_is_not_served() -> None:
    scene = Scene()
    scene.train(3.0, 5.0)
    scene.end(4.0, 1, 75, done=5.0)
    ledger = scene.steward.arbiter.ledger
    ledger.vacate(GpuId(0), ledger.holdings(A)[GpuId(0)].token, 5.0)
    assert not ledger.holdings(A)
    assert scene.reason(6.0) is Reason.PENDING_EVALUATION


def test_an_app_that_has_no_gpu_any_more_is_not_served() -> None:
    scene = Scene()
    scene.train(3.0, 5.0)
    scene.end(4.0, 1, 75, done=5.0)
    assert scene.reason(4.5) is Reason.SERVED
    scene.steward.handle(ev.GpuQuarantined(5.0, GpuId(0), "it is broken"))
    assert not scene.steward.arbiter.ledger.holdings(A)
    assert scene.steward.arbiter.world.apps[A].reason is Reason.SERVED, "as of the last round"
    assert scene.reason(6.0) is Reason.DEMAND_EXCEEDS_CLUSTER


def test_job_stopped_on_request_has_not_crashed() -> None:
    for code in (75, -15, -9, 1):
        scene = Scene()
        scene.train(3.0, 5.0)
        scene.steward.handle(AgentSpoke(4.0, A, 0, StopRequest(1)))
        scene.end(5.0, 1, code)
        assert scene.reason(6.0) is Reason.SERVED
        (job,) = app_in_full(scene.steward, A, 8.0)["jobs"]
        assert (job["failures"], job["message"]) == (0, "")
        (past,) = scene.steward.job_pasts(A, 8.0)
        assert past.failures == 0


@pytest.mark.parametrize(
    ("code", "done", "told", "failures"),
    [
        pytest.param(3, 5.0, False, 1, id="a crash"),
        pytest.param(-9, 5.0, False, 1, id="killed by somebody else, for want of memory perhaps"),
        pytest.param(143, 5.0, False, 1, id="by another signal"),
        pytest.param(0, 5.0, False, 1, id="done before its end"),
        pytest.param(0, 100.0, False, 0, id="done"),
        pytest.param(0, 0.0, False, 0, id="done without a word"),
        pytest.param(75, 0.0, False, 1, id="saved before it got anywhere"),
        pytest.param(75, 5.0, False, 0, id="saved"),
        pytest.param(75, 0.0, True, 0, id="told to save"),
    ],
)
def test_the_next_agent_counts_the_failures_that_its_predecessor_saw(
    code: int, done: float, told: bool, failures: int
) -> None:
    scene = Scene()
    scene.train(3.0)
    scene.end(4.0, 1, code, done=done, interrupted=told)
    (past,) = scene.steward.job_pasts(A, 8.0)
    assert past.failures == failures


def test_job_repeatedly_claiming_to_be_done_is_in_a_crash_loop() -> None:
    scene = Scene()
    scene.train(3.0)
    scene.end(4.0, 1, 0, done=5.0)
    assert scene.reason(5.0) is Reason.CRASH_LOOP
    (job,) = app_in_full(scene.steward, A, 8.0)["jobs"]
    assert job["failures"] == 1
    assert job["message"].startswith("it exited with 0 at iteration 5 of 100;")


def test_failures_of_runs_outlast_the_agent_of_their_app() -> None:
    scene = Scene()
    scene.train(3.0)
    scene.end(12.0, 1, 3)
    scene.again(20.0)
    steward = Steward(
        scene.steward.arbiter, epoch=2, at=25.0, node_ttl=20.0, saved=scene.steward.rows
    )
    for each in (scene.steward, steward):
        (past,) = each.job_pasts(A, 25.0)
        assert (past.job, past.failures) == (J0, 1)
        assert past.seconds == pytest.approx(15.0, abs=0.5), "from 2 to 12, and from 20 to 25"


def test_people_see_how_far_a_job_is_before_a_round_needs_it() -> None:
    scene = Scene()
    point = Point(7.0, None, (("loss", 0.5),))
    scene.report(5.0, RunReport(1, A, J0, RunState.RUNNING, None, 7.0, 3.0, points=(point,)))
    assert scene.steward.arbiter.world.apps[A].jobs[J0].done == 0.0, "no round has needed it"
    [job] = app_in_full(scene.steward, A, 6.0)["jobs"]
    assert (job["iterations"], job["metric"]) == (7.0, 0.5)
