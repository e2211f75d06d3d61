"""A service, nodes and agents as real processes on loopback, for benchmarks/live.py.

lab = Lab(folder, {"lease": 12})
lab.fill(apps_of(100), nodes=16)
with lab.service() as service, lab.crowd(agents_for(lab, apps), lab.nodes(16)):
    service.cpu_s()
"""

import asyncio
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import themis
from tests.support.load_clients import AgentPlan, NodePlan, Plan
from tests.support.scripted_world import simple_app
from themis.agent_host.session_client import SessionClient
from themis.config.addresses import Address
from themis.core.arbiter import Settings
from themis.core.arbiter.commands import RecordRound, Refuse
from themis.core.arbiter.events import AppArrived, MachineJoined
from themis.core.arbiter.records import RoundRecord
from themis.core.model import AppSpec, Machine
from themis.protocol.agent_messages import AgentStart, LeaseNews, RunRequest
from themis.protocol.node_messages import Program
from themis.recording.tags import TAG, TAG_OF
from themis.rpc.client import AgentClient, Connection, Credentials
from themis.security.token_files import write_secret
from themis.security.token_store import TokenStore
from themis.security.tokens import Role, create_token
from themis.service.persistence.log_entries import body_of, commands_in
from themis.service.persistence.recovery import CLUSTER, recover
from themis.service.persistence.start_parameters import StartParameters
from themis.service.persistence.store import Batch, LogEntry, open_store

OWN = 50
"""Apps of one owner, at most."""
THEMIS: tuple[str, ...] = (sys.executable, "-m", "themis")
ENVIRONMENT = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
"""Of all processes, which find compiled modules as after an installation (`keep_compiled`)."""
CROWD: tuple[str, ...] = (sys.executable, "-m", "tests.support.load_clients")

Line = dict[str, Any]


def keep_compiled(folder: Path) -> None:
    """Let processes keep compiled modules in a folder, and not beside the sources."""
    ENVIRONMENT["PYTHONPYCACHEPREFIX"] = str(folder)


@dataclass
class Lab:
    """A folder with a store, and what runs on it."""

    folder: Path
    settings: Mapping[str, object]
    rule: str = "themis"
    options: Mapping[str, object] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    grpc: Address = field(default_factory=lambda: Address("127.0.0.1", 0))
    http: str = ""
    """The URL that people call."""

    @property
    def url(self) -> str:
        """Of the store."""
        return f"sqlite:///{self.folder / 'store.sqlite'}"

    def fill(
        self,
        apps: list[AppSpec],
        nodes: int,
        gpus: int = 4,
        *,
        tenants: bool = True,
        owners: Iterable[str] = (),
    ) -> None:
        """Put apps, machines and tokens into a store of its own.

        Args:
            apps: What there is.
            nodes: How many machines.
            gpus: Of each machine.
            tenants: Whether the owners of the apps get tokens.
            owners: Who gets one besides.
        """
        settings = Settings(**self.settings)  # type: ignore[arg-type]  # checked where it is made
        with closing(open_store(self.url)) as store:
            parameters = StartParameters(self.rule, self.options, settings)
            state = recover(store, parameters, themis.__version__, seed=1)
            store.commit(Batch(kept=state.new_rows))
            for machine in machines(nodes, gpus):
                state.steward.arbiter.handle(MachineJoined(state.clock.now(), machine))
            if not apps:
                parts, leases, ended = state.changed()
                entry = LogEntry(state.clock.now(), body_of((), ()), parts)
                store.commit(Batch((entry,), leases, ended))
            for first in range(0, len(apps), 500):
                entries = []
                for app in apps[first : first + 500]:
                    event = AppArrived(state.clock.now(), app)
                    outcome = state.steward.handle(event)
                    assert not any(isinstance(item, Refuse) for item in outcome.commands)
                    body = body_of(outcome.changes.events, ())
                    entries.append(LogEntry(event.at, body))
                parts, leases, ended = state.changed()
                last = entries.pop()
                entries.append(LogEntry(last.at, last.body, parts))
                store.commit(Batch(tuple(entries), leases, ended))
            store.snapshot()
            token_store = TokenStore({}, lambda rows: store.commit(Batch(kept=rows)))
            for owner in sorted({*owners, *(app.owner for app in apps if tenants)}):
                self._token(token_store, Role.TENANT, owner)
            for number in range(nodes):
                self._token(token_store, Role.NODE, f"m{number}")

    def _token(self, token_store: TokenStore, role: Role, name: str) -> None:
        issued = create_token(token_store, role, name, now=time.time())
        write_secret(self.token_file(name), issued.token)

    def token_file(self, name: str) -> Path:
        """Where somebody's token is."""
        return self.folder / f"token-{name}"

    @contextmanager
    def service(self) -> Iterator["Process"]:
        """Run the service; its address is known once it answers."""
        settings = {**self.options, **self.settings}
        command = [*THEMIS, "serve", "--http", "127.0.0.1:0", "--grpc", str(self.grpc)]
        command += ["--state-dir", str(self.folder), "--store", self.url, "--policy", self.rule]
        command += [f"--set={key}={value}" for key, value in settings.items()]
        command += ["--log-level", "warning", *self.extra]
        with Process.running(command, self.folder / "serve.log") as process:
            process.began = time.time()
            for line in process.lines():
                if line.startswith("people: "):
                    self.http = line.removeprefix("people: ").strip()
                if line.startswith("nodes and agents: "):
                    host, _, port = line.removeprefix("nodes and agents: ").strip().rpartition(":")
                    self.grpc = Address(host, int(port))
                    break
            else:
                log = (self.folder / "serve.log").read_text(encoding="utf-8")
                raise RuntimeError(f"the service does not start: {log}")
            process.answered = time.time()
            yield process

    @contextmanager
    def crowd(
        self, agents: tuple[AgentPlan, ...] = (), nodes: tuple[NodePlan, ...] = ()
    ) -> Iterator["Process"]:
        """Run made-up agents and nodes."""
        plan = self.folder / "plan.json"
        plan.write_text(Plan(self.grpc.host, self.grpc.port, agents, nodes).text())
        with Process.running([*CROWD, str(plan)], self.folder / "crowd.log") as process:
            yield process

    @contextmanager
    def real_node(self, gpus: int = 1) -> Iterator["Process"]:
        """Run a node with pretend GPUs, that starts processes."""
        name = "m0"
        command = [*THEMIS, "node", "--server", str(self.grpc), "--name", name]
        command += ["--pretend", str(gpus), "--trust-tenants", "--log-level", "warning"]
        command += ["--token-file", str(self.token_file(name))]
        command += ["--state", str(self.folder / name)]
        with Process.running(command, self.folder / f"{name}.log") as process:
            yield process

    def nodes(self, count: int, gpus: int = 4) -> tuple[NodePlan, ...]:
        """Made-up machines."""
        return tuple(
            NodePlan(item.name, str(self.token_file(item.name)), item.slots, item.rack)
            for item in machines(count, gpus)
        )

    def rounds(self) -> list[RoundRecord]:
        """All rounds in the log, after the service has ended."""
        found = []
        with closing(open_store(self.url, read_only=True)) as store:
            for stored in store.entries():
                if f'"{TAG}":"{TAG_OF[RecordRound]}"' in stored.entry.body:
                    commands = commands_in(json.loads(stored.entry.body))
                    found += [item.record for item in commands if isinstance(item, RecordRound)]
        return found

    def zero(self) -> float:
        """The wall clock's time at the cluster's zero."""
        with closing(open_store(self.url, read_only=True)) as store:
            return float(json.loads(store.load().kept[CLUSTER])["zero"])

    def log_bytes(self) -> int:
        """What the log holds."""
        with closing(open_store(self.url, read_only=True)) as store:
            return store.usage().log_bytes


@dataclass
class Process:
    """A process that is ended with its context."""

    popen: "subprocess.Popen[str]"
    began: float = 0.0
    answered: float = 0.0

    @staticmethod
    @contextmanager
    def running(command: list[str], log: Path) -> Iterator["Process"]:
        """Start it, and end it."""
        with log.open("a", encoding="utf-8") as errors:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=ENVIRONMENT,
            )
            process = Process(popen)
            try:
                yield process
            finally:
                process.end()

    def lines(self) -> Iterator[str]:
        """What it says, until it ends."""
        assert self.popen.stdout is not None
        yield from self.popen.stdout

    def say_end(self) -> Line:
        """Close its input; returns its last line."""
        out, _ = self.popen.communicate(timeout=60)
        line: Line = json.loads(out.splitlines()[-1])
        return line

    def end(self) -> None:
        """As an operator does; then as one without patience."""
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            self.popen.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def kill(self) -> None:
        """Without a warning."""
        self.popen.kill()
        self.popen.wait()

    def memory_mb(self, key: str = "VmHWM") -> float:
        """The most resident memory that it had, or what it has (VmRSS)."""
        status = Path(f"/proc/{self.popen.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith(f"{key}:"))
        return int(line.split()[1]) / 1024

    def own_cpu_s(self) -> float:
        """CPU seconds without those of its children."""
        return _cpu(self.popen.pid)

    def cpu_s(self) -> float:
        """CPU seconds, those of its children that are alive included."""
        return sum(map(_cpu, [self.popen.pid, *_children(self.popen.pid)]))


def _cpu(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for task in tasks for word in task.read_text(encoding="ascii").split()]


def machines(count: int, gpus: int) -> list[Machine]:
    """As nodes with pretend GPUs announce them."""
    return [
        Machine(f"m{number}", f"r{number // 16}", (gpus,), "pretend") for number in range(count)
    ]


def apps_of(count: int, *, gpus: int = 1, jobs: int = 4) -> list[AppSpec]:
    """Equal apps of some owners."""
    return [
        simple_app(
            f"app-{number}",
            gpus=gpus,
            jobs=jobs,
            # They differ, so that auctions have something to decide.
            iterations=1000 + 37 * number % 1000,
            owner=f"owner-{number // OWN}",
        )
        for number in range(count)
    ]


def agents_for(lab: Lab, apps: list[AppSpec], *, runs: bool = False) -> tuple[AgentPlan, ...]:
    """An honest agent for each."""
    return tuple(
        AgentPlan(
            app.id,
            str(lab.token_file(app.owner)),
            jobs=len(app.jobs),
            work=sum(job.serial_iteration_time for job in app.jobs) * app.phases[0].iterations,
            runs=runs,
        )
        for app in apps
    )


class Agent:
    """Speaks for one app, and starts a job on each GPU that it is given."""

    def __init__(self, lab: Lab, spec: AppSpec, line: str, marks: Path) -> None:
        """Begin.

        Args:
            lab: Where the service is.
            spec: The app.
            line: What jobs run, for a shell: `$0` is the job's own path below `marks`.
            marks: A folder where anybody may write.
        """
        connection = Connection(lab.grpc, Credentials(lab.token_file(spec.owner)))
        self.link = SessionClient(AgentClient(connection), spec.id, random.Random(spec.id))
        self.heard = math.nan
        """When it last heard of leases."""
        self._free = [job.id for job in spec.jobs]
        self._marks = {job.id: marks / f"{spec.id}-{job.id}" for job in spec.jobs}
        self._line = line
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for item in self.link.news():
            self.hear(item)
            leases = item.leases if isinstance(item, AgentStart) else ()
            leases = item.granted if isinstance(item, LeaseNews) else leases
            self.heard = time.time() if leases else self.heard
            for lease in leases[: len(self._free)]:
                job = self._free.pop(0)
                program = Program(("sh", "-c", self._line, str(self._marks[job])))
                self.link.say(RunRequest(job, (lease.gpu,), program, f"run-{lease.token}"))

    def hear(self, item: object) -> None:
        """News of any kind; for others to do something with."""

    def marks(self) -> list[str]:
        """What jobs have written to their marks so far."""
        return [path.read_text(encoding="ascii") for path in self._marks.values() if path.exists()]


MARK = 'date +%s.%N > "$0.new" && mv "$0.new" "$0"'
"""For a shell: write down when it is. The mark is whole when it is there."""


def open_folder(path: Path) -> Path:
    """A new folder where jobs of anybody may write."""
    path.mkdir()
    path.chmod(0o777)
    return path


def wait(seconds: float, *processes: Process) -> None:
    """Let time pass, in which no process may end.

    Raises:
        RuntimeError: One has.
    """
    until = time.time() + seconds
    while time.time() < until:
        for process in processes:
            if process.popen.poll() is not None:
                raise RuntimeError(f"{process.popen.args!r} ended with {process.popen.returncode}")
        time.sleep(0.2)
