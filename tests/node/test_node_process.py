"""Service, wire, node and real processes on one machine, with an auditor over what jobs write.

Jobs write a line with the mark of their start into one file per GPU, again and again. Lines of two
starts that alternate mean that both were on the GPU at once.
"""

import asyncio
import json
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.support.grpc_service import QUICK, open_world, until
from tests.support.scripted_world import simple_app
from themis.agent_host.session_client import SessionClient
from themis.config.addresses import Address
from themis.core.model import AppId, Bid, GpuId, JobId, Lease
from themis.engines.supervisor import processes
from themis.protocol.agent_messages import (
    AgentStart,
    BidReply,
    EndApp,
    LeaseNews,
    NewsItem,
    OfferNews,
    PointsNews,
    RunNews,
    RunRequest,
    StopRequest,
)
from themis.protocol.node_messages import Program, RunState
from themis.recording.codec import dumps
from themis.rpc.client import AgentClient, Connection, Credentials
from themis.security.token_files import write_secret
from themis.security.tokens import Role, Secret

PATIENT = replace(QUICK, lease=24.0)
"""A busy machine may take seconds to start a node again."""
TRAIN = """
say() { for gpu in $(echo "$THEMIS_GPUS" | tr , ' '); do
    echo "$THEMIS_RUN $1 $THEMIS_JOB_ID" >> "$AUDIT/gpu-$gpu"; done; }
trap 'say saved; exit 75' TERM
n=0
while :; do
    n=$((n + 1)); echo "{\\"it\\": $n}" >> "$THEMIS_METRICS"; say "$n"; sleep 0.05 & wait $!
done
"""


@dataclass
class Stage:
    """A service, a place for nodes and their jobs, and what is seen there."""

    world: Any
    place: Path
    mark: str
    nodes: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def program(self) -> Program:
        env = (("AUDIT", str(self.place / "audit")), ("MARK", self.mark))
        return Program(("/bin/sh", "-c", TRAIN), env)

    async def start_node(self, *flags: str, gpus: int = 2) -> asyncio.subprocess.Process:
        with (self.place / "out").open("ab") as out:
            node = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "themis",
                "node",
                *("--server", str(self.world.address)),
                *("--token-file", str(self.world.token_file(Role.NODE, "m0"))),
                *("--name", "m0", "--pretend", str(gpus), "--trust-tenants"),
                *("--state", str(self.place / "m0")),
                *flags,
                stdout=out,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        self.nodes.append(node)
        return node

    def output(self) -> str:
        return (self.place / "out").read_text()

    def joined(self) -> bool:
        return bool(self.world.service.steward.arbiter.world.topology.machines)

    def alive(self) -> list[int]:
        """Processes of this test's jobs."""
        return processes.marked(f"MARK={self.mark}")

    def lines(self) -> dict[str, list[list[str]]]:
        files = sorted((self.place / "audit").iterdir())
        return {
            file.name: [line.split() for line in file.read_text().splitlines()] for file in files
        }

    def starts(self) -> dict[str, str]:
        """The mark of each start that was ever seen, and its job."""
        return {line[0]: line[2] for lines in self.lines().values() for line in lines}

    def audit(self) -> None:
        for gpu, lines in self.lines().items():
            order = [mark for mark, _ in groupby(line[0] for line in lines)]
            assert len(order) == len(set(order)), f"two at once on {gpu}: {order}"

    async def end(self) -> None:
        for node in self.nodes:
            if node.returncode is None:
                node.kill()
            await node.wait()
        for pid in self.alive():
            os.kill(pid, signal.SIGKILL)
        # Supervisors see to the rest, and end themselves.
        await until(lambda: not self.alive())


@pytest.fixture
def place() -> Iterator[Path]:
    # Not tmp_path, whose parents only root may enter: jobs run as another user.
    folder = Path(tempfile.mkdtemp(prefix="themis-node-"))
    folder.chmod(0o755)
    (folder / "audit").mkdir()
    (folder / "audit").chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def on_stage(tmp_path: Path, place: Path, **settings: Any) -> AsyncIterator[Stage]:
    async with open_world(tmp_path, **settings) as world:
        stage = Stage(world, place, os.urandom(8).hex())
        try:
            yield stage
        except BaseException:
            print(stage.output() if (place / "out").exists() else "no node was started")
            raise
        finally:
            await stage.end()


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 300.0))


class Served:
    """`themis serve` as a process that can be killed; stands in for a `World`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = Address("127.0.0.1", 0)
        self.http = ""
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        # A lease that no restart outlasts, however busy the machine is.
        settings = ("lease=90", "grace=1", "heartbeat=0.5", "bid_deadline=0.5", "solve_budget=0.5")
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "themis", "serve", "--policy", "fifo"),
            *("--state-dir", str(self.folder), "--grpc", str(self.address)),
            *("--http", "127.0.0.1:0", "--node-ttl", "12s"),
            *(part for each in (*settings, "guard=0.5") for part in ("--set", each)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self.process.stdout is not None
        said: dict[str, str] = {}
        while "nodes and agents" not in said:
            line = (await self.process.stdout.readline()).decode()
            assert line, "the service ended"
            name, _, value = line.strip().partition(": ")
            said[name] = value
        self.http = said["people"]
        host, _, port = said["nodes and agents"].rpartition(":")
        self.address = Address(host, int(port))

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.communicate()

    async def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        token = (self.folder / "admin.token").read_text().strip()
        request = urllib.request.Request(
            f"{self.http}{path}",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )

        def send() -> dict[str, Any]:
            with urllib.request.urlopen(request, timeout=20) as answer:
                found: dict[str, Any] = json.load(answer)
                return found

        return await asyncio.to_thread(send)

    async def make_token(self, role: Role, subject: str) -> None:
        made = await self.ask("/v1/tokens", {"role": str(role), "subject": subject})
        write_secret(self.token_file(role, subject), Secret(made["token"]))

    def token_file(self, role: Role, subject: str) -> Path:
        return self.folder / f"{role}-{subject}.token"

    def agent(self, owner: str) -> AgentClient:
        credentials = Credentials(self.token_file(Role.TENANT, owner))
        return AgentClient(Connection(self.address, credentials))


@dataclass
class Agent:
    """Keeps one job on each GPU that its app holds."""

    stage: Stage
    app: AppId
    jobs: list[JobId]
    held: dict[GpuId, Lease] = field(default_factory=dict)
    runs: dict[int, RunNews] = field(default_factory=dict)
    over: list[RunNews] = field(default_factory=list)
    asked: dict[JobId, GpuId] = field(default_factory=dict)
    standings: int = 0
    count: int = 0
    points: dict[int, list[float]] = field(default_factory=dict)
    """By run: the iterations that it told of."""
    task: asyncio.Task[None] | None = None
    session: str = field(default_factory=lambda: secrets.token_hex(8))

    def start(self) -> None:
        client, rng = self.stage.world.agent("ann"), random.Random(1)
        self.link = SessionClient(client, self.app, rng, session=self.session)
        self.task = asyncio.create_task(self._listen())

    async def end(self) -> None:
        self.link.say(EndApp())
        assert self.task is not None
        await asyncio.wait_for(self.task, 30.0)

    async def _listen(self) -> None:
        async for item in self.link.news():
            self._take(item)
            self._place()

    def _take(self, item: NewsItem) -> None:
        match item:
            case AgentStart():
                self.standings += 1
                self.held = {lease.gpu: lease for lease in item.leases}
                alive = [run for run in item.runs if not run.state.over]
                self.runs = {run.run: run for run in alive}
                self.asked = {run.job: run.gpus[0] for run in alive}
            case LeaseNews():
                self.held.update((lease.gpu, lease) for lease in (*item.granted, *item.renewed))
                for lease in item.revoked:
                    self.held.pop(lease.gpu, None)
            case RunNews():
                self.runs[item.run] = item
                if item.state.over:
                    self.over.append(self.runs.pop(item.run))
                    self.asked.pop(item.job, None)
            case PointsNews():
                told = self.points.setdefault(item.run, [])
                assert item.run not in {run.run for run in self.over}, "its end was told before"
                told += [point.iteration for point in item.points]
            case OfferNews():
                self.link.say(BidReply(item.offer.round, Bid(self.app)))
            case _:
                pass

    def _place(self) -> None:
        free = [gpu for gpu in sorted(self.held) if gpu not in self.asked.values()]
        idle = [job for job in self.jobs if job not in self.asked]
        for gpu, job in zip(free, idle, strict=False):
            self.count += 1
            self.asked[job] = gpu
            key = f"{self.session}-{self.count}"
            self.link.say(RunRequest(job, (gpu,), self.stage.program, key))

    async def renewed(self) -> None:
        """Wait for the next beat, until the node has passed it on to supervisors."""
        last = max(lease.end for lease in self.held.values())
        await until(lambda: self.held and min(x.end for x in self.held.values()) > last)
        # The agent may hear of it first. A node reports again when it has done what it was told:
        # the report after the next is one of after this.
        nodes = self.stage.world.service.steward.nodes
        known = {name: (node.boot, node.number) for name, node in nodes.items()}
        await until(
            lambda: all(
                (node.boot, node.number) > (known[name][0], known[name][1] + 2)
                for name, node in nodes.items()
            )
        )

    def stands(self, count: int) -> bool:
        return self.standings == count and self.running() == 2

    def running(self) -> int:
        return sum(run.state is RunState.RUNNING for run in self.runs.values())


async def submit(stage: Stage, name: str, jobs: int) -> Agent:
    spec = simple_app(name, gpus=1, jobs=jobs, iterations=10**6, seconds=1.0, owner="ann")
    await stage.world.service.submissions.submit(spec, name)
    agent = Agent(stage, spec.id, [job.id for job in spec.jobs])
    agent.start()
    return agent


def progress(stage: Stage) -> float:
    """Iterations of all runs, as the service knows them."""
    steward = stage.world.service.steward
    return float(sum(steward.progress(run)[0] for run in steward.runs))


@pytest.mark.slow
def test_training_outlives_restarts_of_service_and_node(tmp_path: Path, place: Path) -> None:
    async def scene() -> None:
        async with on_stage(tmp_path, place, settings=PATIENT, node_ttl=60.0) as stage:
            node = await stage.start_node()
            await until(stage.joined)
            agent = await submit(stage, "sweep", jobs=2)
            await until(lambda: agent.running() == 2 and len(stage.starts()) == 2)
            await until(lambda: progress(stage) > 4.0)
            before = stage.starts()
            assert len(before) == 2
            # The service is away for a while, and is not missed.
            await stage.world.stop()
            await asyncio.sleep(1.5)
            await stage.world.start()
            await until(lambda: agent.standings == 2)
            # The node dies without a word; its successor finds everything. Not shortly before a
            # lease ends: nobody could tell the supervisors that it is renewed.
            await agent.renewed()
            node.kill()
            await node.wait()
            node = await stage.start_node()
            seen = len(stage.lines()["gpu-0"])
            await until(lambda: "2 of them alive" in stage.output())
            await until(lambda: progress(stage) > 10.0)
            # Longer than a lease: what goes on was renewed.
            await agent.renewed()
            await until(lambda: len(stage.lines()["gpu-0"]) > seen + 20)
            assert stage.starts() == before, "training was started again"
            stage.audit()
            # A node that is told to stop leaves its jobs alone and says so.
            node.terminate()
            assert await asyncio.wait_for(node.wait(), 10.0) == 0
            assert "2 runs go on" in stage.output()
            assert stage.alive()
            node = await stage.start_node()
            await until(lambda: stage.output().count("2 of them alive") == 2)
            await agent.end()
            await until(lambda: not stage.alive())
            assert stage.starts() == before
            stage.audit()

    play(scene())


@pytest.mark.slow
def test_every_log_line_arrives_once_despite_restarts_with_shared_checkpoints(
    tmp_path: Path, place: Path
) -> None:
    async def scene() -> None:
        async with on_stage(tmp_path, place, settings=PATIENT, node_ttl=60.0) as stage:
            shared = place / "shared"
            shared.mkdir()
            shared.chmod(0o711)
            flags = ("--shared-dir", str(shared))
            node = await stage.start_node(*flags)
            await until(stage.joined)
            agent = await submit(stage, "sweep", jobs=1)
            await until(lambda: sum(map(len, agent.points.values())) > 10)
            await stage.world.stop()
            await stage.world.start()
            await until(lambda: agent.standings == 2)
            await agent.renewed()
            node.kill()
            await node.wait()
            await stage.start_node(*flags)
            await until(lambda: "1 of them alive" in stage.output())
            (run,) = agent.runs
            before = len(agent.points[run])
            await until(lambda: len(agent.points[run]) > before + 20)
            agent.link.say(StopRequest(run))
            await until(lambda: [ended.run for ended in agent.over] == [run])
            heard = agent.points[run]
            assert heard == [float(n) for n in range(1, len(heard) + 1)]
            written = [line[1] for line in stage.lines()["gpu-0"] if line[1] != "saved"]
            again = written.index("1", 1) if "1" in written[1:] else len(written)
            assert len(heard) >= int(written[again - 1]), "the last lines were not heard"
            [folder] = (shared / "ann" / "sweep").glob("*/j0")
            assert folder.is_dir()
            assert (shared / "ann").stat().st_mode & 0o777 == 0o700
            steward = stage.world.service.steward
            assert steward.storage_of(steward.nodes["m0"]) == "shared"
            await agent.end()
            await until(lambda: not stage.alive())

    play(scene())


@pytest.mark.slow
def test_training_outlives_a_service_that_is_killed_again_and_again(
    tmp_path: Path, place: Path
) -> None:
    async def scene() -> None:
        served = Served(tmp_path)
        stage = Stage(served, place, os.urandom(8).hex())
        await served.start()
        try:
            await served.make_token(Role.NODE, "m0")
            await served.make_token(Role.TENANT, "ann")
            await stage.start_node()
            spec = simple_app("sweep", gpus=1, jobs=2, iterations=10**6, seconds=1.0, owner="ann")
            body = {"spec": json.loads(dumps(spec)), "key": "k"}
            while True:
                try:
                    await served.ask("/v1/apps", body)
                    break
                except urllib.error.HTTPError:  # the node has not joined yet
                    await asyncio.sleep(0.1)
            agent = Agent(stage, spec.id, [job.id for job in spec.jobs])
            agent.start()
            await until(lambda: agent.running() == 2 and len(stage.starts()) == 2)
            before = stage.starts()
            for count in range(2, 4):
                await served.kill()
                await served.start()
                await until(partial(agent.stands, count))
            assert stage.starts() == before
            await agent.end()
            await until(lambda: not stage.alive())
            stage.audit()
        finally:
            print(stage.output() if (place / "out").exists() else "no node was started")
            await served.kill()
            await stage.end()

    play(scene())


@pytest.mark.slow
def test_a_gpu_is_handed_over_and_never_shared(tmp_path: Path, place: Path) -> None:
    async def scene() -> None:
        async with on_stage(tmp_path, place, rule="equal-share") as stage:
            await stage.start_node()
            await until(stage.joined)
            first = await submit(stage, "first", jobs=2)
            await until(lambda: first.running() == 2 and len(stage.starts()) == 2)
            second = await submit(stage, "second", jobs=2)
            await until(lambda: second.running() == 1 and first.running() == 1)
            saved = [line for lines in stage.lines().values() for line in lines if "saved" in line]
            assert [line[2] for line in saved] in (["first/j0"], ["first/j1"])
            await until(lambda: [run.code for run in first.over] == [75])
            await first.end()
            await until(lambda: second.running() == 2)
            stage.audit()
            await second.end()
            await until(lambda: not stage.alive())
            stage.audit()

    play(scene())


@pytest.mark.slow
def test_without_a_node_jobs_end_and_restart_with_one(tmp_path: Path, place: Path) -> None:
    async def scene() -> None:
        async with on_stage(tmp_path, place) as stage:
            node = await stage.start_node(gpus=1)
            await until(stage.joined)
            agent = await submit(stage, "sweep", jobs=1)
            await until(lambda: agent.running() == 1 and stage.starts())
            node.kill()
            await node.wait()
            await until(lambda: not stage.alive())
            assert any("saved" in line for line in stage.lines()["gpu-0"]), "it was not asked"
            await until(lambda: [run.state for run in agent.over] == [RunState.LOST])
            await stage.start_node(gpus=1)
            await until(lambda: agent.running() == 1 and len(stage.starts()) == 2)
            stage.audit()
            await agent.end()
            await until(lambda: not stage.alive())

    play(scene())


@pytest.mark.slow
def test_a_second_node_is_refused_and_draining_empties_the_first(
    tmp_path: Path, place: Path
) -> None:
    async def scene() -> None:
        async with on_stage(tmp_path, place) as stage:
            node = await stage.start_node("--drain-on-exit", gpus=1)
            await until(stage.joined)
            agent = await submit(stage, "sweep", jobs=1)
            await until(lambda: agent.running() == 1 and stage.starts())
            other = await stage.start_node(gpus=1)
            assert await asyncio.wait_for(other.wait(), 30.0) != 0
            assert f"another node has this folder (process {node.pid})" in stage.output()
            node.terminate()
            assert await asyncio.wait_for(node.wait(), 30.0) == 0
            assert not stage.alive()
            assert "nothing runs here" in stage.output()
            assert any("saved" in line for line in stage.lines()["gpu-0"])
            await agent.end()

    play(scene())


@pytest.mark.slow
def test_a_service_that_is_away_for_longer_than_liveness_ends_no_training(
    tmp_path: Path, place: Path
) -> None:
    async def scene() -> None:
        long = replace(QUICK, lease=60.0)
        async with on_stage(tmp_path, place, settings=long, node_ttl=2.5) as stage:
            await stage.start_node(gpus=1)
            await until(stage.joined)
            agent = await submit(stage, "sweep", jobs=1)
            await until(lambda: agent.running() == 1 and stage.starts())
            before = stage.starts()
            await stage.world.stop()
            seen = len(stage.lines()["gpu-0"])
            # A line every 0.05 s: three times the liveness.
            await until(lambda: len(stage.lines()["gpu-0"]) > seen + 120)
            await stage.world.start()
            await until(lambda: agent.standings == 2 and progress(stage) > 100.0)
            assert stage.starts() == before
            stage.audit()
            await agent.end()
            await until(lambda: not stage.alive())

    play(scene())


@pytest.mark.slow
def test_node_stopped_for_longer_than_a_lease_finds_gpus_empty(tmp_path: Path, place: Path) -> None:
    async def scene() -> None:
        async with on_stage(tmp_path, place) as stage:
            node = await stage.start_node(gpus=1)
            await until(stage.joined)
            agent = await submit(stage, "sweep", jobs=1)
            await until(lambda: agent.running() == 1 and stage.starts())
            node.send_signal(signal.SIGSTOP)
            await until(lambda: not stage.alive())
            await until(lambda: [run.state for run in agent.over] == [RunState.LOST])
            node.send_signal(signal.SIGCONT)
            await until(lambda: agent.running() == 1 and len(stage.starts()) == 2)
            stage.audit()
            await agent.end()
            await until(lambda: not stage.alive())

    play(scene())
