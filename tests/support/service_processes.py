"""`themis serve` with local nodes as real processes that tests can kill, stop and cut off.

async with open_stage(folder, machines={"m0": 2}) as stage:
    app = await stage.submit("sweep", jobs=2)
    agent = stage.agent(app)
    await until(lambda: agent.running == 2)
    await stage.kill()          # as kill -9 does
    await stage.start()         # the same store, address and tokens
    assert not audit(stage.audit)

Everything that was started is ended with the stage, by process id.
"""

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import yaml

from tests.support.gpu_share_audit import TRAIN, Line, audit, read_lines, starts
from tests.support.toy_agent import ToyAgent
from themis.client import Client
from themis.config.addresses import Address, is_loopback
from themis.core.model import AppSpec
from themis.engines.supervisor import processes
from themis.errors import InvariantError, ThemisError
from themis.node.disk import make_passable
from themis.protocol.node_messages import Program
from themis.recording.codec import dumps
from themis.rpc.client import Connection, Credentials
from themis.security.certificate_authority import make_authority, make_server
from themis.security.token_files import write_secret
from themis.security.tokens import Secret

OWNER = "ann"
SHORT = {
    "lease": 8.0, "grace": 1.0, "heartbeat": 0.5, "bid_deadline": 1.0, "solve_budget": 1.0,
    "guard": 3.0, "pooling": 1.0,
}  # fmt: skip
"""Leases that a test can outlast. The guard leaves time to kill on a machine that is busy."""
_STARTED = "nodes and agents"
_PATIENCE = 300.0


class Stage:
    """A service, its nodes and agents, in one folder."""

    def __init__(
        self,
        folder: Path,
        machines: Mapping[str, int],
        *,
        settings: Mapping[str, float] = SHORT,
        flags: Sequence[str] = (),
        node_ttl: float = 6.0,
        policy: str = "themis",
        host: str = "127.0.0.1",
        engine: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._env = dict(env or {})
        self.engine = engine
        """Of a cluster, whose machines are then named here; `env` says how it is reached."""
        self.state = folder / "state"
        self.audit = folder / "audit"
        self.mark = secrets.token_hex(8)
        self.address = Address(host, 0)
        self.ca: Path | None = None
        """Of a service that others than this machine can reach."""
        self.http = ""
        self.agents: list[ToyAgent] = []
        self._settings = settings
        self._flags = (*flags, "--policy", policy, "--node-ttl", f"{node_ttl:g}s")
        self._process: asyncio.subprocess.Process | None = None
        self._said: asyncio.Task[None] | None = None
        self._strays: list[asyncio.subprocess.Process] = []
        if not is_loopback(host):
            self._make_certificates(host)
        self.audit.mkdir()
        self.audit.chmod(0o777)
        self.nodes = tuple(machines)
        if engine:
            # Jobs find the name of their machine behind `-nodes/`, as on machines of our own.
            shared, files = folder / "shared", folder / "engine-nodes"
            make_passable(shared)
            self._flags += ("--engine", engine, "--shared-dir", str(shared))
            self._flags += ("--engine-dir", str(files))
        elif machines:
            lines = [{"name": name, "slots": [gpus]} for name, gpus in machines.items()]
            cluster = {"racks": [{"name": "r0", "machines": lines}]}
            file = folder / "cluster.yaml"
            file.write_text(yaml.safe_dump(cluster), encoding="utf-8")
            self._flags += ("--local-nodes", str(file))

    def _make_certificates(self, host: str) -> None:
        folder = self.folder / "tls"
        folder.mkdir()
        self.ca = make_authority(folder, now=time.time()).cert
        server = make_server(folder, ["127.0.0.1", host], now=time.time())
        self._flags += ("--tls-cert", str(server.cert), "--tls-key", str(server.key))

    # The service

    async def start(self, *, wait: bool = True) -> None:
        """Start the service, and wait until it says where it is."""
        pairs = [f"{name}={value:g}" for name, value in self._settings.items()]
        with (self.folder / "service.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "themis", "serve", "--trust-tenants"),
                *("--state-dir", str(self.state)),
                *("--grpc", str(self.address), "--http", self.http or "127.0.0.1:0"),
                *(word for pair in pairs for word in ("--set", pair)),
                *self._flags,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self.environment,
            )
        self._said = asyncio.create_task(self._listen(self._process))
        if wait:
            await self._said

    @property
    def environment(self) -> dict[str, str]:
        """Of everything that the stage starts."""
        path = os.pathsep.join(sys.path)
        return {**os.environ, **self._env, "PYTHONPATH": path, "STAGE": self.mark}

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        said: dict[str, str] = {}
        assert process.stdout is not None
        async with asyncio.timeout(_PATIENCE):
            while _STARTED not in said:
                line = (await process.stdout.readline()).decode()
                if not line:
                    raise InvariantError(f"the service ended: {self.log()[-2000:]}")
                name, _, value = line.strip().partition(": ")
                said[name] = value
        host, _, port = said[_STARTED].rpartition(":")
        self.address = Address(host, int(port))
        self.http = said["people"].partition("://")[2]

    async def up(self) -> None:
        """Wait until the service that was started says where it is."""
        assert self._said is not None
        await self._said

    @property
    def pid(self) -> int:
        """The service's process."""
        assert self._process is not None
        return self._process.pid

    async def kill(self, number: int = signal.SIGKILL) -> int:
        """End the service, at once unless told otherwise; returns its exit code."""
        assert self._process is not None
        assert self._said is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(_PATIENCE):
            await self._process.wait()
        self._said.cancel()
        await asyncio.gather(self._said, return_exceptions=True)
        assert self._process.returncode is not None
        return self._process.returncode

    async def ended(self) -> int:
        """Wait until the service has ended by itself; returns its exit code."""
        assert self._process is not None
        async with asyncio.timeout(_PATIENCE):
            return await self._process.wait()

    def log(self) -> str:
        """What the service has logged."""
        return (self.folder / "service.log").read_text(encoding="utf-8", errors="replace")

    def node_log(self, name: str) -> str:
        """What a node has logged; those of a bridge, together."""
        path = self.node_folder(".bridge" if self.engine else name) / "node.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    # People

    def client(self, *, tries: int = 3) -> Client:
        """A client for the admin."""
        token = (self.state / "admin.token").read_text(encoding="utf-8").strip()
        scheme = "https" if self.ca else "http"
        return Client(f"{scheme}://{self.http}", token, self.ca, tries=tries, timeout=10.0)

    async def tenant(self) -> Path:
        """The file of a token of the owner of all apps, made when first asked for."""
        path = self.folder / "tenant.token"
        if not path.exists():
            made = await asyncio.to_thread(self.client().create_token, "tenant", OWNER)
            write_secret(path, Secret(made["token"]))
        return path

    async def submit(self, spec: AppSpec, key: str = "", *, tries: int = 3) -> None:
        """Submit an app.

        Raises:
            ThemisError: It was not acknowledged.
        """
        client = self.client(tries=tries)
        await asyncio.to_thread(client.declare, json.loads(dumps(spec)), key or str(spec.id))

    async def joined(self, count: int | None = None) -> None:
        """Wait until so many nodes, or all, count."""
        wanted = len(self.nodes) if count is None else count
        async with asyncio.timeout(_PATIENCE):
            while True:
                with suppress(ThemisError):
                    nodes = (await asyncio.to_thread(self.client().nodes))["nodes"]
                    if sum(node["present"] for node in nodes) == wanted:
                        return
                await asyncio.sleep(0.1)

    # Nodes

    def node_folder(self, name: str) -> Path:
        """Where a node keeps what it keeps."""
        return self.folder / "state-nodes" / name

    def node_pid(self, name: str) -> int:
        """A node's process."""
        return int((self.node_folder(name) / "node.lock").read_text(encoding="ascii"))

    async def add_node(self, name: str, gpus: int, inside: Sequence[str] = ()) -> None:
        """Start a node that is not the service's own, by a command that comes before it."""
        folder = self.node_folder(name)
        make_passable(folder)
        token = folder / "token"
        made = await asyncio.to_thread(self.client().create_token, "node", name)
        write_secret(token, Secret(made["token"]))
        with (folder / "node.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(*inside, sys.executable, "-m", "themis", "node", "--trust-tenants"),
                *("--server", str(self.address), "--token-file", str(token), "--name", name),
                *("--pretend", str(gpus), "--state", str(folder)),
                *(("--ca", str(self.ca)) if self.ca else ()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
            )
        self._strays.append(process)
        self.nodes += (name,)

    def signal_node(self, name: str, number: int) -> None:
        """Signal a node's own process."""
        os.kill(self.node_pid(name), number)

    async def restart_node(self, name: str, *, after: float = 0.0) -> None:
        """Kill a node's own process, and start it again as it was; jobs go on meanwhile."""
        pid = self.node_pid(name)
        command = _words(pid)
        self.signal_node(name, signal.SIGKILL)
        while processes.start_time(pid) is not None:
            await asyncio.sleep(0.02)
        await asyncio.sleep(after)
        with (self.node_folder(name) / "node.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.environment,
            )
        self._strays.append(process)
        async with asyncio.timeout(_PATIENCE):
            # A service that was started meanwhile may have been quicker.
            while processes.start_time(self.node_pid(name)) is None:
                await asyncio.sleep(0.02)

    # Agents and jobs

    def program(self, most: int = 0, script: str = TRAIN) -> Program:
        """A job that writes about itself, for so many iterations (0: for ever)."""
        env = (("AUDIT", str(self.audit)), ("STAGE", self.mark), ("MOST", str(most)))
        return Program(("/bin/sh", "-c", script), env)

    async def agent(self, spec: AppSpec, most: int = 0, script: str = TRAIN) -> ToyAgent:
        """Let an agent look after an app."""
        shown = Credentials(await self.tenant(), self.ca)
        agent = ToyAgent(Connection(self.address, shown), spec, self.program(most, script))
        self.agents.append(agent)
        agent.start()
        return agent

    def jobs_alive(self, audit: Path | None = None) -> list[int]:
        """Processes of jobs that write to this folder, or to that of the stage."""
        return processes.marked(f"AUDIT={audit or self.audit}")

    def hosts(self) -> list[int]:
        """Processes of agent hosts below the service."""
        return [pid for pid in self._working_here() if b"agents" in _words(pid)]

    def lines(self) -> dict[str, tuple[Line, ...]]:
        """What jobs wrote, by GPU."""
        return read_lines(self.audit)

    def starts(self) -> dict[str, str]:
        """Every start of a job's process, and the job."""
        return starts(self.lines())

    def check(self) -> None:
        """Fail if a GPU was ever shared.

        Raises:
            InvariantError: It was.
        """
        wrong = audit(self.audit, chosen=not self.engine)
        if wrong:
            raise InvariantError("; ".join(wrong))

    async def end(self) -> None:
        """End everything that was started here."""
        for agent in self.agents:
            await agent.close()
        if self._process is not None:
            await self.kill()
        async with asyncio.timeout(_PATIENCE):
            while left := self._left():
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.1)
        for process in self._strays:
            await process.wait()

    def _left(self) -> list[int]:
        """Processes of this stage: by their mark, and supervisors by the folder they work in."""
        return [*processes.marked(f"STAGE={self.mark}"), *self._working_here()]

    def _working_here(self) -> list[int]:
        folder = os.fsencode(self.folder)
        everybody = [pid for pid in processes.all_processes() if pid != os.getpid()]
        return [pid for pid in everybody if any(folder in word for word in _words(pid))]


def _words(pid: int) -> list[bytes]:
    """The command line of a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []


@asynccontextmanager
async def open_stage(
    folder: Path, machines: Mapping[str, int], **settings: object
) -> AsyncIterator[Stage]:
    """A running service whose nodes have joined; all of it is ended at the end."""
    stage = Stage(folder, machines, **settings)  # type: ignore[arg-type] # passed on as they are
    try:
        await stage.start()
        await stage.joined()
        yield stage
    except BaseException:
        sys.stderr.write(stage.log()[-8000:])
        for name in stage.nodes[:1] if stage.engine else stage.nodes:
            sys.stderr.write(f"--- {name}\n{stage.node_log(name)[-4000:]}")
        raise
    finally:
        await stage.end()
