"""Why an app with GPUs does not train, as its runs tell."""

from dataclasses import dataclass, field

import pytest

from themis.arbiter import Arbiter, Settings
from themis.arbiter import events as ev
from themis.explain import explain
from themis.fleet import Steward
from themis.fleet.events import ReportCame, RunRequested, StopRequested
from themis.fleet.messages import Point, Program, Report, RunReport, RunState, SlotReport, SlotState
from themis.live.explaining import facts_of
from themis.live.reasons import QUIET, reason_of, runs_by_app, trouble_of
from themis.live.rounds import RoundBook
from themis.live.views import app_sheet
from themis.model import AppId, GpuId, JobId, Machine, Source, Topology
from themis.model.reasons import Reason
from themis.policies import Allotment, Plan
from themis.testing.world import Puppet, simple_app

A, J0 = AppId("a"), JobId("j0")
MACHINE = Machine("m0", "r0", (1,))
SETTINGS = Settings(lease=2000.0, grace=10.0, heartbeat=1.0, guard=2.0, pooling=0.0, idle_after=0.0)


@dataclass
class Scene:
    """An app with one run on one GPU."""

    limit: float = 100.0
    number: int = 0
    steward: Steward = field(init=False)
    book: RoundBook = field(default_factory=RoundBook)

    def seen(self, app: AppId) -> float | None:
        return 0.0

    def __post_init__(self) -> None:
        policy = Puppet(lambda view: Plan((Allotment(A, (GpuId(0),), Source.DIRECT),)))
        arbiter = Arbiter(Topology(()), policy, SETTINGS, seed=1)
        self.steward = Steward(arbiter, epoch=1, at=0.0, node_ttl=20.0)
        self.report(0.0, epoch=0)
        self.report(0.1)
        self.steward.handle(ev.AppArrived(1.0, simple_app(A, gpus=1, iterations=100)))
        request = RunRequested(2.0, A, J0, (GpuId(0),), Program(("train",)), "k", self.limit)
        self.steward.handle(request)

    def report(self, at: float, *runs: RunReport, epoch: int = 1) -> None:
        self.number += 1
        slot = SlotReport(0, 0, SlotState.RUNNING if runs else SlotState.EMPTY)
        told = Report("m0", 1, self.number, epoch, 0, (slot,), runs, MACHINE)
        self.steward.handle(ReportCame(at, told))

    def train(self, at: float, iterations: float = 0.0, trouble: str = "") -> None:
        run = RunReport(1, A, J0, RunState.RUNNING, None, iterations, at, trouble=trouble)
        self.report(at, run)

    def end(self, at: float, run: int, code: int) -> None:
        """A run exits, and nothing is left of it."""
        self.report(at, RunReport(run, A, J0, RunState.EXITED, code, 0.0, 0.0, f"exit {code}"))
        self.report(at + 0.1)

    def again(self, at: float) -> None:
        """Its agent asks for another run."""
        request = RunRequested(at, A, J0, (GpuId(0),), Program(("train",)), f"k{at}", self.limit)
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
    scene.steward.handle(StopRequested(4.0, A, 1))
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


def test_a_job_that_need_not_count_iterations_is_not_missed() -> None:
    scene = Scene(limit=0.0)
    scene.train(3.0)
    assert scene.reason(3.0 + 2 * QUIET) is Reason.SERVED


def test_a_suspended_app_is_suspended_whatever_its_runs_do() -> None:
    scene = Scene()
    scene.train(3.0, 5.0)
    scene.steward.handle(ev.AppSuspended(4.0, A, Reason.HELD_BY_ADMIN))
    assert scene.reason(4.5) is Reason.HELD_BY_ADMIN


def test_what_cannot_be_read_of_metrics_is_shown_with_its_job() -> None:
    scene = Scene()
    scene.train(3.0, trouble="a line is no sample")
    sheet = app_sheet(scene.steward, A, 4.0)
    assert [job["trouble"] for job in sheet["jobs"] if job["job"] == J0] == ["a line is no sample"]
    assert sheet["reason"] is Reason.SERVED
    told = scene.trouble(3.0 + QUIET)
    assert told == "no iteration for 5 min: a line is no sample"


def test_an_app_all_of_whose_jobs_fail_again_and_again_is_in_a_crash_loop() -> None:
    scene = Scene()
    scene.train(3.0)
    scene.end(4.0, 1, 3)
    assert scene.reason(5.0) is Reason.CRASH_LOOP
    scene.again(6.0)
    assert scene.reason(6.5) is Reason.STARTING, "it is tried again"
    scene.end(7.0, 2, 3)
    (job,) = app_sheet(scene.steward, A, 8.0)["jobs"]
    assert (job["failures"], job["message"]) == (2, "exit 3")


def test_a_crash_loop_is_explained_by_what_the_job_said() -> None:
    scene = Scene()
    scene.train(3.0)
    scene.end(4.0, 1, 3)
    scene.again(6.0)
    scene.end(7.0, 2, 3)
    said = explain(facts_of(scene, A, 8.0))
    assert said.reason is Reason.CRASH_LOOP
    assert said.why == "job j0 failed 2 times: exit 3"
    assert "retry" not in said.then, "that is for apps that are over"


def test_a_job_that_was_told_to_go_has_not_crashed() -> None:
    for code in (75, -15, -9, 1):
        scene = Scene()
        scene.train(3.0, 5.0)
        scene.steward.handle(StopRequested(4.0, A, 1))
        scene.end(5.0, 1, code)
        assert scene.reason(6.0) is Reason.SERVED
        (job,) = app_sheet(scene.steward, A, 8.0)["jobs"]
        assert (job["failures"], job["message"]) == (0, "")
        (past,) = scene.steward.pasts(A, 8.0)
        assert past.failures == 0


def test_what_counts_of_runs_outlasts_those_who_spoke_for_their_app() -> None:
    scene = Scene()
    scene.train(3.0)
    scene.end(12.0, 1, 3)
    scene.again(20.0)
    steward = Steward(
        scene.steward.arbiter, epoch=2, at=25.0, node_ttl=20.0, saved=scene.steward.kept
    )
    for each in (scene.steward, steward):
        (past,) = each.pasts(A, 25.0)
        assert (past.job, past.failures) == (J0, 1)
        assert past.seconds == pytest.approx(15.0, abs=0.5), "from 2 to 12, and from 20 to 25"


def test_people_see_how_far_a_job_is_before_a_round_needs_it() -> None:
    scene = Scene()
    point = Point(7.0, None, (("loss", 0.5),))
    scene.report(5.0, RunReport(1, A, J0, RunState.RUNNING, None, 7.0, 3.0, points=(point,)))
    assert scene.steward.arbiter.world.apps[A].jobs[J0].done == 0.0, "no round has needed it"
    [job] = app_sheet(scene.steward, A, 6.0)["jobs"]
    assert (job["iterations"], job["metric"]) == (7.0, 0.5)
