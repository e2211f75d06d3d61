"""Every reason of the closed list, brought about in a service and read wherever it is told."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.browsers import Live, live_service
from tests.support.scripted_world import Puppet, simple_app
from themis.cli import main
from themis.core.arbiter import Settings
from themis.core.arbiter import events as ev
from themis.core.explain import WORDS
from themis.core.model import (
    AppId,
    Bid,
    Chunk,
    Constraint,
    GpuId,
    JobId,
    LeaseSource,
    Machine,
    OwnerId,
    Row,
)  # fmt: skip
from themis.core.model.reasons import Reason
from themis.core.policies import Allotment, Notes, Plan
from themis.core.policies.base import AppStanding, View
from themis.core.steward.events import AgentSpoke, ReportCame
from themis.dashboard.reason_labels import REASONS
from themis.protocol.agent_messages import RunRequest, StopRequest
from themis.protocol.node_messages import (
    NodeReport,
    Program,
    RunReport,
    RunState,
    SlotReport,
    SlotState,
)
from themis.recording.codec import dumps
from themis.service import run_diagnostics as of_runs

APP, OTHER, J0 = AppId("sweep"), AppId("rival"), JobId("j0")
ONE = Machine("m0", "r0", (1,))
FOUR = Machine("m0", "r0", (2, 2))
QUICK = Settings(pooling=0.0, idle_after=0.0, heartbeat=1.0, guard=2.0, lease=2000.0)
NOT_COUNTED = {Reason.SERVED, Reason.ENDED, Reason.FAILED}
"""Of which metrics have no series: these apps want nothing."""


def gives(**gpus: tuple[int, ...]) -> Plan:
    return Plan(
        tuple(
            Allotment(AppId(app), tuple(map(GpuId, ids)), LeaseSource.DIRECT)
            for app, ids in gpus.items()
        )
    )


def notes(**given: Any) -> Callable[[View], Plan]:
    return lambda view: Plan((), (), Notes(**given))


def nothing(view: View) -> Plan:
    return Plan(())


def once(plan: Plan) -> Callable[[View], Plan]:
    """A plan for the first round, and nothing afterwards."""
    return lambda view: plan if view.round == 1 else Plan(())


def breaks(view: View) -> Plan:
    raise ZeroDivisionError("the policy has a mistake")


@dataclass
class Stage:
    """A service with a policy that does as it is told, and an app of ann's."""

    live: Live
    spec: dict[str, Any] = field(default_factory=dict)
    reports: int = 0

    def submit(self, name: str = APP, **spec: Any) -> None:
        app = json.loads(dumps(simple_app(name, owner="ann", **{**self.spec, **spec})))
        body = {"spec": app, "key": name}
        answer = self.live.do(self.live.http.call("ann", "POST", "/v1/apps", body))
        assert answer.status_code == 200, answer.text

    def call(self, who: str, method: str, path: str, body: Any = None) -> Any:
        answer = self.live.do(self.live.http.call(who, method, path, body))
        assert answer.status_code == 200, answer.text
        return answer.json() if "json" in answer.headers["content-type"] else answer.text

    def happens(self, event: Callable[[float], Any]) -> None:
        async def work() -> None:
            service = self.live.http.service
            service.loop.apply(event(service.now()))

        self.live.do(work())

    def learns(self, event: Callable[[float], Any]) -> None:
        """What the arbiter hears from the steward."""

        async def work() -> None:
            service = self.live.http.service
            service.steward._lifecycle.feed(event(service.now()))

        self.live.do(work())

    def reports_of(self, *runs: RunReport, epoch: int | None = None) -> None:
        self.reports += 1
        number, steward = self.reports, self.live.http.service.steward
        slot = SlotReport(0, 0, SlotState.RUNNING if runs else SlotState.EMPTY)
        heard = steward.epoch if epoch is None else epoch
        told = NodeReport("m0", 1, number, heard, 0, (slot,), runs, ONE)
        self.happens(lambda now: ReportCame(now, told))

    def runs(self, *, ends: int | None = None) -> None:
        """A job of the app begins on the one GPU of a machine that says so, and may end."""
        self.reports_of(epoch=0)
        self.reports_of()
        self.submit(iterations=100)
        request = RunRequest(J0, (GpuId(0),), Program(("train",)), "k", 100.0)
        self.happens(lambda now: AgentSpoke(now, APP, 0, request))
        if ends is not None:
            self.reports_of(RunReport(1, APP, J0, RunState.EXITED, ends, 0.0, 0.0, "it went wrong"))
            self.reports_of()

    def trains(self) -> None:
        self.runs()
        self.reports_of(RunReport(1, APP, J0, RunState.RUNNING, None, 0.0, 0.1))

    def until(self, reason: Reason) -> None:
        """Wait for what comes by itself."""
        last = time.monotonic() + 30.0
        while self.call("ann", "GET", f"/v1/apps/{APP}/explain")["reason"] != reason:
            assert time.monotonic() < last
            time.sleep(0.02)


@dataclass(frozen=True)
class Scene:
    """How a reason comes about."""

    play: Callable[[Stage], None]
    plan: Callable[[View], Plan] = nothing
    machines: tuple[Machine, ...] = (FOUR,)
    settings: Settings = QUICK
    says: str = ""
    """A number or name that the second line has."""


def ended(outcome: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.submit()
        stage.happens(lambda now: ev.AppEnded(now, APP, outcome))

    return play


def suspended(path: str, who: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.submit()
        stage.call(who, "POST", f"/v1/apps/{APP}/{path}")

    return play


def unreachable(stage: Stage) -> None:
    stage.submit()
    stage.happens(lambda now: ev.AppSuspended(now, APP, Reason.AGENT_UNREACHABLE))


def left(machine: str, **spec: Any) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.submit(**spec)
        stage.learns(lambda now: ev.MachineLeft(now, machine))

    return play


def small_quota(stage: Stage) -> None:
    stage.happens(lambda now: ev.QuotaChanged(now, OwnerId("ann"), 1))
    stage.submit(gpus=2, min_gpus=2)


def full_quota(stage: Stage) -> None:
    stage.happens(lambda now: ev.QuotaChanged(now, OwnerId("ann"), 1))
    stage.submit(OTHER)
    stage.submit()


def between_phases(stage: Stage) -> None:
    stage.submit(iterations=10)
    done = (ev.ProgressSample(J0, 10.0, 1.0),)
    stage.learns(lambda now: ev.ProgressMeasured(now, APP, done))


def too_late(stage: Stage) -> None:
    stage.submit(OTHER, jobs=4)
    stage.submit()


def lazy(stage: Stage) -> None:
    stage.submit()
    stage.until(Reason.IDLE_RECLAIMED)


def saving(stage: Stage) -> None:
    stage.trains()
    stage.happens(lambda now: AgentSpoke(now, APP, 0, StopRequest(1)))


def mine(view: View) -> Plan:
    return gives(sweep=(0,)) if any(app.app == APP for app in view.apps) else Plan(())


def lost(invited: bool) -> tuple[AppStanding, ...]:
    return (AppStanding(OTHER, 1.9, 1, invited=True), AppStanding(APP, 1.31, 2, invited=invited))


BID = Bid(APP, (Row((Chunk(0, 4),), 60.0),))
SCENES = {
    Reason.INVALID_SPEC: Scene(
        lambda stage: stage.runs(ends=127), mine, (), says="it went wrong"
    ),
    Reason.DEMAND_EXCEEDS_CLUSTER: Scene(
        left("m1", gpus=6, min_gpus=6), machines=(FOUR, Machine("m1", "r0", (4,))), says="6 GPUs"
    ),
    Reason.DEMAND_EXCEEDS_QUOTA: Scene(small_quota, says="2 GPUs, the quota of its owner is 1"),
    Reason.NO_MATCHING_GPU: Scene(
        left("m1", constraint=Constraint("v100")),
        machines=(FOUR, Machine("m1", "r0", (1,), gpu_model="v100")),
        says="v100",
    ),
    Reason.PAUSED_BY_USER: Scene(suspended("pause", "ann"), says="0 GPUs"),
    Reason.HELD_BY_ADMIN: Scene(suspended("hold", "root"), says="0 GPUs"),
    Reason.QUOTA_REACHED: Scene(full_quota, once(gives(rival=(0,))), says="1 GPU of 1"),
    Reason.AGENT_UNREACHABLE: Scene(unreachable, says="last heard"),
    Reason.CRASH_LOOP: Scene(
        lambda stage: stage.runs(ends=3), mine, (), says="job j0 failed once: it went wrong"
    ),
    Reason.NOT_IN_AUCTION: Scene(
        Stage.submit, notes(standings=lost(invited=False)), says="ranked 2 of 2"
    ),
    Reason.OUTBID: Scene(
        Stage.submit,
        notes(standings=lost(invited=True), bids=(BID,), won={OTHER: (GpuId(0), GpuId(1))}),
        says="it bid for up to 4 GPUs, and 2 GPUs went to 1 app",
    ),
    Reason.HIDDEN_PAYMENT: Scene(
        Stage.submit,
        notes(standings=lost(invited=True), bids=(BID,), won={APP: (GpuId(0),)},
              paid={APP: (GpuId(0),)}),
        says="won 1 and paid 1",
    ),
    Reason.NO_FREE_GPUS: Scene(Stage.submit, says="it wants 1 GPU"),
    Reason.PLACEMENT_TOO_SLOW: Scene(Stage.submit, notes(declined=(APP,)), says="too far apart"),
    Reason.IDLE_RECLAIMED: Scene(
        lazy,
        once(gives(sweep=(0,))),
        settings=Settings(pooling=0.0, idle_after=0.05),
        says="took them back",
    ),
    Reason.NO_METRICS: Scene(Stage.trains, mine, (), says="no iteration was reported"),
    Reason.WAITING_PHASE: Scene(between_phases, says="phase 1 of 1"),
    Reason.CHECKPOINTING: Scene(saving, mine, (), says="it holds 1 GPU"),
    Reason.STARTING: Scene(Stage.runs, mine, (), says="it holds 1 GPU"),
    Reason.ROUND_FAILED: Scene(Stage.submit, breaks, says="round 1 could not be settled"),
    Reason.PENDING_EVALUATION: Scene(
        too_late, once(gives(rival=(0, 1, 2, 3))), says="it wants 1 GPU"
    ),
    Reason.SERVED: Scene(Stage.submit, mine, says="1 GPU of 1"),
    Reason.PARTLY_SERVED: Scene(lambda stage: stage.submit(jobs=3), mine, says="1 GPU of 3"),
    Reason.ENDED: Scene(ended("finished"), says="finished"),
    Reason.FAILED: Scene(ended("failed: it exited with 3"), says="it exited with 3"),
}  # fmt: skip


def timeless(lines: Any) -> list[str]:
    """The same without times, which go on between two questions."""
    return [re.sub(r"less than a second|\d+ (second|minute)s?", "T", line) for line in lines]


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    reason: Reason = request.param
    if reason is Reason.NO_METRICS:
        monkeypatch.setattr(of_runs, "QUIET", 0.0)
    scene = SCENES[reason]
    with live_service(
        tmp_path, scene.machines, rule=Puppet(scene.plan), settings=scene.settings
    ) as live:
        token = tmp_path / "token"
        token.touch(0o600)
        token.write_text(live.http.tokens["ann"])
        monkeypatch.setenv("THEMIS_TOKEN_FILE", str(token))
        monkeypatch.setenv("THEMIS_SERVER", live.base)
        yield Stage(live)


def test_every_reason_has_a_scene_in_the_order_of_the_list() -> None:
    assert list(SCENES) == list(Reason)


@pytest.mark.parametrize(("stage", "reason"), [(each, each) for each in Reason], indirect=["stage"])
def test_reason_occurs_and_is_the_same_in_every_view(
    stage: Stage,
    reason: Reason,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cli(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["themis", *words])
        assert main() == 0
        return capsys.readouterr().out

    scene = SCENES[reason]
    scene.play(stage)

    said = stage.call("ann", "GET", f"/v1/apps/{APP}/explain")
    assert said["reason"] == reason, said
    assert said["what"] == f"{APP}: {WORDS[reason]}"
    assert scene.says in said["why"], said["why"]
    lines = timeless([said["what"], said["why"], said["then"]])

    over = reason in {Reason.ENDED, Reason.FAILED}
    listed = stage.call("ann", "GET", "/v1/apps?ended=true")
    assert [row["app"] for row in listed["ended"]] == ([APP] if over else [])
    status = stage.call("ann", "GET", f"/v1/apps/{APP}")
    if not over:
        (line,) = (row for row in listed["apps"] if row["app"] == APP)
        assert line["reason"] == status["reason"] == reason

    told = cli("explain", APP).splitlines()
    assert told[0].startswith(f"{reason}: {APP}: ")
    assert timeless([told[0].partition(": ")[2], told[1][7:], told[2][8:]]) == lines
    assert json.loads(cli("explain", APP, "--json"))["reason"] == reason
    assert over or reason in cli("ls")

    board = stage.call("ann", "GET", "/v1/board")
    (row,) = (row for row in board["apps"] if row["app"] == APP)
    assert row["reason"] == reason
    assert board["reasons"][reason]["label"] == REASONS[reason].label
    page = stage.call("ann", "GET", f"/v1/board/apps/{APP}")
    assert (page["row"]["reason"], page["reasons"][-1][1]) == (reason, reason)
    assert timeless(page["explanation"]) == lines

    metrics = stage.call("root", "GET", "/metrics")
    counted = dict(
        re.findall(r'^themis_unserved_apps\{reason="(\w+)"\} (\S+)$', metrics, re.MULTILINE)
    )
    assert set(counted) == {str(each) for each in Reason if each not in NOT_COUNTED}
    assert float(counted.get(reason, 0)) == (0 if reason in NOT_COUNTED else 1)
