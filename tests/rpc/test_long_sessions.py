"""Apps of many jobs, with much to say: no message gets longer than the other side takes."""

import asyncio
import json
import random
from dataclasses import replace

import pytest

from tests.support.scripted_world import simple_app
from themis.agent_host.host import AgentRunner
from themis.agent_host.session_client import MOST_TEXT, SessionClient
from themis.apps import parse_app, plan_app
from themis.core.model import AppId, GpuId, JobId, Lease, LeaseSource, OwnerId, Topology
from themis.core.model.presets import preset
from themis.protocol.agent_messages import (
    MOST_BODY,
    AgentReport,
    AgentRequest,
    AgentStart,
    AppEndNews,
    EndApp,
    HostedApps,
    News,
    RunNews,
    RunRequest,
    SubmittedApp,
    TrialParams,
)
from themis.protocol.node_messages import Program, RunState
from themis.rpc.methods import NODE_BYTES
from themis.rpc.wire import Bounds, from_bytes, to_bytes
from themis.service.outbox import AgentOutbox

APP = AppId("sweep")
ENV = tuple((f"VARIABLE_{number}", "x" * 100) for number in range(20))


class Taking:
    """A service that takes what it is sent, if a real one would."""

    def __init__(self) -> None:
        self.said: list[AgentRequest] = []

    async def exchange(self, report: AgentReport) -> News:
        taken = from_bytes(AgentReport, to_bytes(report), Bounds())
        self.said.extend(taken.requests)
        over = any(isinstance(each, EndApp) for each in taken.requests)
        items = (AppEndNews("finished"),) if over else ()
        return News(1, report.number, 0.0, 1, items, fence=5)


def said_of(*said: AgentRequest) -> list[AgentRequest]:
    async def work() -> list[AgentRequest]:
        service = Taking()
        link = SessionClient(service, APP, random.Random(1))
        link.say(*said, EndApp("finished"))
        assert [item async for item in link.news()] == [AppEndNews("finished")]
        return service.said[:-1]

    return asyncio.run(work())


def run_of(job: int, program: Program) -> RunRequest:
    return RunRequest(JobId(str(job)), (GpuId(job),), program, f"s-{job}", 10.0)


def test_many_runs_with_large_environments_take_several_reports() -> None:
    program = Program(("python", "train.py"), ENV, "/home/ann")
    runs = [run_of(job, program) for job in range(250)]
    assert len(to_bytes(AgentReport(APP, "s", 1, 1, 0, tuple(runs), 5))) > Bounds().size
    assert said_of(*runs) == runs


def test_a_program_longer_than_a_share_of_a_report_goes_alone() -> None:
    long = Program(("train", "x" * (MOST_TEXT - 1000), "y" * 2000))
    runs = [run_of(job, long) for job in range(3)]
    assert said_of(*runs) == runs


def test_many_long_parameters_take_several_reports() -> None:
    trials = [TrialParams(JobId(str(job)), f'{{"q": "{"x" * 5000}"}}') for job in range(100)]
    assert len(to_bytes(AgentReport(APP, "s", 1, 1, 0, tuple(trials), 5))) > Bounds().size
    assert said_of(*trials) == trials


class Restarting:
    """A service that ends and begins again when it has heard the first of several reports."""

    def __init__(self, sheet: SubmittedApp) -> None:
        self.asked: list[RunRequest] = []
        self._plan = plan_app(parse_app(json.loads(sheet.body)), APP, sheet.owner, sheet.seed)
        self._epoch = 1
        self._told = 0

    async def exchange(self, report: AgentReport) -> News:
        self.asked += [each for each in report.requests if isinstance(each, RunRequest)]
        if report.requests and self._epoch == 1:
            self._epoch = 2
        if self._told < self._epoch:
            self._told = self._epoch
            return News(self._epoch, report.number, 0.0, 1, (self._standing(),), fence=5)
        if not report.requests and len(self.asked) >= len(self._plan.spec.jobs):
            return News(self._epoch, report.number, 0.0, 2, (AppEndNews("cancelled"),), fence=5)
        return News(self._epoch, report.number, 0.0, 2, (), fence=5)

    def _standing(self) -> AgentStart:
        gpus = range(len(self._plan.spec.jobs))
        leases = (Lease(GpuId(gpu), APP, gpu + 1, 0.0, 600.0, LeaseSource.AUCTION) for gpu in gpus)
        runs = (
            RunNews(number, run.job, run.gpus, run.key, RunState.STARTING)
            for number, run in enumerate(self.asked, 1)
        )
        topology = preset("demo16")
        return AgentStart(self._plan.spec, topology, tuple(leases), tuple(runs), 0, ())

    async def hosted(self, revision: int) -> HostedApps:
        raise NotImplementedError

    async def sheet(self, app: AppId) -> SubmittedApp:
        raise NotImplementedError


def test_agent_messages_pending_at_a_restart_are_sent_once() -> None:
    app = {
        "name": "sweep",
        "command": ["train", "{q}"],
        "env": {"DATA": "x" * 30_000},
        "search": {"method": "grid", "params": {"q": list(range(12))}},
        "stop": {"max_iterations": 10},
    }
    sheet = SubmittedApp(APP, OwnerId("ann"), json.dumps(app), 7)

    async def work() -> None:
        service = Restarting(sheet)
        assert await AgentRunner.of_sheet(service, sheet, random.Random(1)).run() == "cancelled"
        jobs = [each.job for each in service.asked]
        assert len(jobs) == len(set(jobs)) == 12

    asyncio.run(asyncio.wait_for(work(), 60.0))


class Failing(Restarting):
    """Each run ends at once, in the same way, and then the app does."""

    async def exchange(self, report: AgentReport) -> News:
        news = await super().exchange(report)
        if not self.asked:
            return news
        ended = tuple(
            RunNews(at, run.job, run.gpus, run.key, RunState.EXITED, 127, message="no such \x1b")
            for at, run in enumerate(self.asked, 1)
        )
        return replace(news, items=(*news.items, *ended, AppEndNews("failed")))


def test_launch_error_is_logged_once_by_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    app = {
        "name": "sweep",
        "command": ["trian", "{q}"],
        "search": {"method": "grid", "params": {"q": [1, 2, 3]}},
        "stop": {"max_iterations": 10},
    }
    sheet = SubmittedApp(APP, OwnerId("ann"), json.dumps(app), 7)
    running = AgentRunner.of_sheet(Failing(sheet), sheet, random.Random(1)).run()
    asyncio.run(asyncio.wait_for(running, 60.0))
    told = [line.getMessage() for line in caplog.records if "failed" in line.getMessage()]
    assert told == ["job 0 of sweep failed: no such \ufffd"]


def test_last_lines_of_many_runs_come_in_several_answers() -> None:
    outbox = AgentOutbox(APP, 1, 0.0)
    outbox.receive(AgentReport(APP, "s", 1, 0, 0), 0.0, 1)
    outbox.start(AgentStart(simple_app("sweep", gpus=1, jobs=1), Topology(()), (), (), 0, ()))
    for run in range(900):
        outbox.put(RunNews(run, JobId("j0"), (), f"s-{run}", RunState.EXITED, 1, log="é" * 4096))
    heard, number = 0, 1
    while heard < 901:
        news = outbox.news(0.0)
        assert news.items, "there is always something, else it would be asked for at once again"
        assert len(to_bytes(news)) < NODE_BYTES / 4
        heard = news.first + len(news.items) - 1
        number += 1
        outbox.receive(AgentReport(APP, "s", number, 1, heard), 0.0, 1)


def test_a_long_app_file_and_long_parameters_travel() -> None:
    body = json.dumps({"name": "sweep", "env": {"DATA": "x" * (MOST_BODY - 100)}})
    sheet = SubmittedApp(APP, OwnerId("ann"), body, 7)
    bounds = Bounds(size=NODE_BYTES)
    assert from_bytes(SubmittedApp, to_bytes(sheet), bounds) == sheet
    trial = TrialParams(JobId("0"), json.dumps({f"p{n}": "x" * 1000 for n in range(100)}))
    report = AgentReport(APP, "s", 1, 1, 0, (trial,), 5)
    assert from_bytes(AgentReport, to_bytes(report)) == report
