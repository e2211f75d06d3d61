"""Logs for people: over HTTP, and from real jobs on a node to whoever reads."""

import asyncio
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.grpc_service import QUICK, World, open_world, until
from tests.support.http_service import http_service
from tests.support.scripted_world import simple_app
from themis.agent_host.session_client import SessionClient
from themis.core.model import AppId, JobId, OwnerId
from themis.core.steward.commands import DurableChanges, Outcome
from themis.core.steward.events import LogsWanted, StewardEvent
from themis.core.steward.steward import Steward
from themis.engines.attempt.layout import EngineLimits
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.errors import LimitError, UnavailableError
from themis.node.disk import NodeDisk
from themis.node.node import Node, NodeSettings
from themis.protocol.agent_messages import (
    AgentStart,
    EndApp,
    LeaseNews,
    RunNews,
    RunRequest,
    StopRequest,
)
from themis.protocol.node_messages import LogPart, LogWanted, Program
from themis.service import log_requests
from themis.service.steward_loop import StewardLoop

ANN, SWEEP, J0 = OwnerId("ann"), AppId("sweep"), JobId("j0")
LONG = replace(QUICK, lease=120.0)
PATH = "/v1/apps/sweep/jobs/j0/log"


def test_logs_are_their_owners_to_read(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            await http.submit("ann", "sweep", "ann")
            for who in ("ann", "root"):
                found = (await http.call(who, "GET", PATH)).json()
                assert found == {
                    "job": "j0", "run": None, "offset": 0, "next": 0, "text": "", "over": False
                }  # fmt: skip
            theirs = await http.call("bob", "GET", PATH)
            nowhere = await http.call("bob", "GET", "/v1/apps/nothing/jobs/j0/log")
            assert theirs.status_code == nowhere.status_code == 403
            assert theirs.json()["reason"] == nowhere.json()["reason"]
            assert (await http.call("ann", "GET", "/v1/apps/sweep/jobs/j9/log")).status_code == 404
            assert (await http.call("ann", "POST", "/v1/apps/sweep/cancel")).status_code == 200
            ended = await http.call("ann", "GET", PATH)
            assert ended.status_code == 404  # it never ran, and nothing is kept of it

    asyncio.run(work())


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("offset=x", "offset"),
        ("offset=--1", "offset"),
        ("offset=" + "9" * 20, "offset"),
        ("limit=-1", "limit"),
        ("wait=nan", "wait"),
        ("wait=-1", "wait"),
        ("wait=inf", "wait"),
    ],
)
def test_nonsense_is_refused_by_its_name(tmp_path: Path, query: str, named: str) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            await http.submit("ann", "sweep", "ann")
            answer = await http.call("ann", "GET", f"{PATH}?{query}")
            assert (answer.status_code, answer.json()["who"]) == (422, named)

    asyncio.run(work())


# For real


@pytest.fixture
def place() -> Iterator[Path]:
    # Not tmp_path, whose parents only root may enter: jobs run as another user.
    folder = Path(tempfile.mkdtemp(prefix="themis-logs-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Stage:
    """A service, a node with one pretend GPU, and an app whose agent does what the test says."""

    world: World
    place: Path
    link: SessionClient
    gpu: list[int] = field(default_factory=list)
    runs: dict[str, RunNews] = field(default_factory=dict)

    async def listen(self) -> None:
        async for item in self.link.news():
            match item:
                case AgentStart(leases=leases) | LeaseNews(granted=leases):
                    self.gpu += [lease.gpu for lease in leases]
                case RunNews():
                    self.runs[item.key] = item
                case _:
                    pass

    def start(self, key: str, script: str) -> None:
        program = Program(("/bin/sh", "-c", script), (("PLACE", str(self.place)),), str(self.place))
        self.link.say(RunRequest(J0, (self.gpu[0],), program, key))  # type: ignore[arg-type]  # a GpuId

    async def ended(self, key: str) -> None:
        await until(lambda: key in self.runs and self.runs[key].state.over)

    async def read(self, offset: int = 0, wait: float = 30.0, limit: int = 65536) -> dict[str, Any]:
        return await self.world.service.logs.read(
            ANN, SWEEP, J0, offset=offset, limit=limit, wait=wait, caller="t"
        )

    async def follow(self, offset: int, wanted: str) -> int:
        """Read on until all of this was read, and nothing else; where that ends."""
        read = ""
        while read != wanted:
            piece = await self.read(offset)
            assert piece["next"] > offset
            read, offset = read + piece["text"], piece["next"]
            assert wanted.startswith(read)
        return offset


@asynccontextmanager
async def on_stage(folder: Path, place: Path, **limits: Any) -> AsyncIterator[Stage]:
    owners = Owners.trusting("nobody" if os.geteuid() == 0 else "")
    async with open_world(folder, settings=LONG, node_ttl=20.0) as world:
        engine = await LocalEngine.open(
            place / "engine", PretendGpus("m0", slots=(1,)), owners, limits=EngineLimits(**limits)
        )
        (found,) = await engine.discover()
        tasks = []
        with NodeDisk.open(place / "state", "m0") as disk:
            quick = NodeSettings(measure_every=0.05)
            node = Node(found.machine, engine, world.node("m0"), disk, settings=quick)
            tasks.append(asyncio.create_task(node.run()))
            try:
                await until(lambda: world.service.steward.arbiter.world.topology.machines)
                spec = simple_app("sweep", gpus=1, jobs=1, iterations=10**6, owner="ann")
                await world.service.submissions.submit(spec, "k")
                stage = Stage(
                    world, place, SessionClient(world.agent("ann"), SWEEP, random.Random(1))
                )
                tasks.append(asyncio.create_task(stage.listen()))
                await until(lambda: stage.gpu)
                yield stage
            finally:
                await node.drain(0.0)
                node.stop()
                for task in tasks[1:]:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await engine.close()


FIRST = "echo one; trap 'echo saved; exit 75' TERM; while :; do sleep 0.05 & wait $!; done"
SECOND = "echo two; while [ ! -e go ]; do sleep 0.05; done; echo three"


def play(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, 120.0))


def test_log_is_followed_across_runs_and_after_its_app_ends(tmp_path: Path, place: Path) -> None:
    async def work() -> None:
        async with on_stage(tmp_path, place) as stage:
            stage.start("r1", FIRST)
            end = await stage.follow(0, "one\n")
            # Nothing more for now: answered at once, or when it comes.
            nothing = await stage.read(end, wait=0.0)
            assert (nothing["text"], nothing["next"], nothing["over"]) == ("", end, False)
            later = asyncio.create_task(stage.follow(end, "saved\ntwo\n"))
            stage.link.say(StopRequest(0, "r1"))
            await stage.ended("r1")
            stage.start("r2", SECOND)
            end = await later
            piece = await stage.read(4, wait=0.0)
            assert (piece["text"], piece["run"]) == ("saved\n", stage.runs["r1"].run)
            tail = await stage.read(-8, wait=0.0)
            assert (tail["offset"], tail["text"], tail["next"]) == (6, "ved\n", 10)
            assert (await stage.read(10, wait=0.0, limit=64))["run"] == stage.runs["r2"].run
            (place / "go").touch()
            end = await stage.follow(end, "three\n")
            await stage.ended("r2")
            stage.link.say(EndApp())
            steward = stage.world.service.steward
            await until(lambda: SWEEP not in steward.arbiter.world.apps)
            over = await stage.read(end)
            assert (over["text"], over["next"], over["over"]) == ("", end, True)
            assert (await stage.read(0))["text"] == "one\nsaved\n"
            last = await stage.read(-6)
            assert (last["text"], last["over"]) == ("three\n", True)

    play(work())


def test_last_lines_remain_of_a_log_its_node_dropped(tmp_path: Path, place: Path) -> None:
    async def work() -> None:
        async with on_stage(tmp_path, place, kept_logs=0) as stage:
            stage.start("r1", "seq 1 5000")
            await stage.ended("r1")
            await until(lambda: not list((place / "engine" / "ended").iterdir()))
            await until(lambda: not list((place / "engine" / "tasks").iterdir()))
            whole = "".join(f"{n}\n" for n in range(1, 5001))
            piece = await stage.read(0, wait=0.0)
            assert piece["next"] == len(whole)
            assert whole.endswith(piece["text"])
            assert len(piece["text"]) > 1000
            stage.start("r2", FIRST)
            assert await stage.follow(len(whole), "one\n") == len(whole) + 4

    play(work())


def test_log_part_that_was_not_requested_is_ignored(tmp_path: Path, place: Path) -> None:
    async def work() -> None:
        async with on_stage(tmp_path, place) as stage:
            stage.start("r1", FIRST)
            end = await stage.follow(0, "one\n")
            http = stage.world.service.logs
            waiting = asyncio.create_task(stage.read(end, wait=5.0))
            await until(lambda: any(http._waiting.values()))
            (want,) = http._waiting["m0"]
            lie = LogPart(want.run, want.offset, 99, "lies", 99, number=want.number)
            others = replace(lie, number=want.number + 1), replace(lie, run=want.run + 1)
            for node, lies in (("m1", (lie,)), ("m0", others)):
                http.receive(node, lies)
            stage.link.say(StopRequest(0, "r1"))
            assert (await waiting)["text"] == "saved\n"

    play(work())


@dataclass
class Quiet:
    """A service whose nodes say nothing."""

    asked: list[LogsWanted] = field(default_factory=list)

    @property
    def steward(self) -> Steward:
        raise AssertionError("nobody asks for it")

    def now(self) -> float:
        return 0.0

    def apply(self, event: StewardEvent) -> Outcome:
        assert isinstance(event, LogsWanted)
        self.asked.append(event)
        return Outcome(DurableChanges())


def test_no_owner_keeps_others_from_reading_the_logs_on_a_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_requests, "MOST_WAITING", 4)

    async def work() -> None:
        host = Quiet()
        http = log_requests.LogRequests(cast("StewardLoop", host))

        def ask(owner: str) -> asyncio.Task[LogPart | None]:
            want = LogWanted(1, SWEEP, OwnerId(owner), J0, 0, 64, number=http.number())
            return asyncio.create_task(http.ask("m0", want, 60.0))

        greedy = [ask("ann") for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(LimitError, match="4 calls wait"):
            await greedy.pop()
        others = [ask("bob"), ask("bob")]
        for first in greedy[:2]:
            with pytest.raises(LimitError, match="4 calls wait"):
                await first
        with pytest.raises(LimitError, match="4 calls wait"):
            await ask("bob")
        others.append(ask("eve"))
        with pytest.raises(LimitError, match="4 calls wait"):
            await greedy[2]
        shares = {"ann": 1, "bob": 2, "eve": 1}
        await until(lambda: Counter(want.owner for want in host.asked[-1].wanted) == shares)
        assert max(len(each.wanted) for each in host.asked) == 4
        assert not any(each.done() for each in (greedy[3], *others))
        http.stop()
        for each in (greedy[3], *others):
            with pytest.raises(UnavailableError):
                await each

    asyncio.run(work())


def test_readers_are_bounded_and_end_with_the_service(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_requests, "MOST_READERS", 2)

    async def work() -> None:
        async with on_stage(tmp_path, place) as stage:
            stage.start("r1", FIRST)
            end = await stage.follow(0, "one\n")
            waiting = [asyncio.create_task(stage.read(end)) for _ in range(2)]
            await until(lambda: len(stage.world.service.logs._waiting["m0"]) == 2)
            with pytest.raises(LimitError, match="2 calls for logs"):
                await stage.read(end)
            stage.world.service.logs.stop()
            for each in waiting:
                with pytest.raises(UnavailableError):
                    await each
            with suppress(UnavailableError):
                await stage.read(end)

    play(work())
