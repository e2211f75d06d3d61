"""Apps of many jobs, with much to say: no message gets longer than the other side takes."""

import asyncio
import json
import random

from themis.fleet.messages import Program, RunState
from themis.fleet.talk import (
    MOST_BODY,
    AgentReport,
    EndSaid,
    News,
    OverNews,
    RunNews,
    RunSaid,
    Said,
    Sheet,
    Standing,
    TrialSaid,
)
from themis.live.agent_link import MOST_TEXT, AgentLink
from themis.live.desk import Desk
from themis.live.rpcs import NODE_BYTES
from themis.live.wire import Bounds, from_bytes, to_bytes
from themis.model import AppId, GpuId, JobId, OwnerId, Topology
from themis.testing.world import simple_app

APP = AppId("sweep")
ENV = tuple((f"VARIABLE_{number}", "x" * 100) for number in range(20))


class Taking:
    """A service that takes what it is sent, if a real one would."""

    def __init__(self) -> None:
        self.said: list[Said] = []

    async def exchange(self, report: AgentReport) -> News:
        taken = from_bytes(AgentReport, to_bytes(report), Bounds())
        self.said.extend(taken.said)
        over = any(isinstance(each, EndSaid) for each in taken.said)
        items = (OverNews("finished"),) if over else ()
        return News(1, report.number, 0.0, 1, items, fence=5)


def said_of(*said: Said) -> list[Said]:
    async def work() -> list[Said]:
        service = Taking()
        link = AgentLink(service, APP, random.Random(1))
        link.say(*said, EndSaid("finished"))
        assert [item async for item in link.news()] == [OverNews("finished")]
        return service.said[:-1]

    return asyncio.run(work())


def run_of(job: int, program: Program) -> RunSaid:
    return RunSaid(JobId(str(job)), (GpuId(job),), program, f"s-{job}", 10.0)


def test_many_runs_with_much_in_their_environment_are_asked_for_in_several_reports() -> None:
    program = Program(("python", "train.py"), ENV, "/home/ann")
    runs = [run_of(job, program) for job in range(250)]
    assert len(to_bytes(AgentReport(APP, "s", 1, 1, 0, tuple(runs), 5))) > Bounds().size
    assert said_of(*runs) == runs


def test_a_program_longer_than_a_share_of_a_report_goes_alone() -> None:
    long = Program(("train", "x" * (MOST_TEXT - 1000), "y" * 2000))
    runs = [run_of(job, long) for job in range(3)]
    assert said_of(*runs) == runs


def test_last_lines_of_many_runs_come_in_several_answers() -> None:
    desk = Desk(APP, 1, 0.0)
    desk.take(AgentReport(APP, "s", 1, 0, 0), 0.0, 1)
    desk.stand(Standing(simple_app("sweep", gpus=1, jobs=1), Topology(()), (), (), 0, ()))
    for run in range(900):
        desk.put(RunNews(run, JobId("j0"), (), f"s-{run}", RunState.EXITED, 1, log="é" * 4096))
    heard, number = 0, 1
    while heard < 901:
        news = desk.news(0.0)
        assert news.items, "there is always something, else it would be asked for at once again"
        assert len(to_bytes(news)) < NODE_BYTES / 4
        heard = news.first + len(news.items) - 1
        number += 1
        desk.take(AgentReport(APP, "s", number, 1, heard), 0.0, 1)


def test_a_long_app_file_and_long_parameters_travel() -> None:
    body = json.dumps({"name": "sweep", "env": {"DATA": "x" * (MOST_BODY - 100)}})
    sheet = Sheet(APP, OwnerId("ann"), body, 7)
    bounds = Bounds(size=NODE_BYTES)
    assert from_bytes(Sheet, to_bytes(sheet), bounds) == sheet
    trial = TrialSaid(JobId("0"), json.dumps({f"p{n}": "x" * 1000 for n in range(100)}))
    report = AgentReport(APP, "s", 1, 1, 0, (trial,), 5)
    assert from_bytes(AgentReport, to_bytes(report)) == report
