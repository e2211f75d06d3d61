"""How quick the live service is: real processes on loopback, one JSON line for each case.

python benchmarks/live.py                          # all cases, three runs of each
python benchmarks/live.py --case round hostile --runs 1

change    From the end of one app to the running process of the next on the same GPU, with a real
          node: the old process is told to go (and goes), the lease moves, the next agent hears of
          it and starts its job. `heard_s` is the part until that agent heard.
round     1,000 agents, each with its own connection; all are asked (policy themis, f=0).
          `round_s` is from the opening of a round until its plan is made, `told_s` until the last
          agent has heard; `rss_mb` is the most that the service's process ever had.
hostile   2,000 agents, 30 % dead, 10 % slow, 10 % hostile: `over_s` is by how much rounds end later
          than their deadline, which is that of the bids plus the solver's budget; 99th percentile.
          `lost` and `lost_reports` are calls of agents and of nodes that nobody answered (they were
          cancelled, or took too long); `flood_lost` those that hostile agents make besides, with
          two seconds of patience. `--verbose` tells how calls of each kind ended.
restart   A service with 10,000 apps is killed and started again: `first_s` until its first round
          is open and it answers (`answer_s`); `cpu_s` is what it used until then.
idle      CPU of a service with 16 nodes and nothing to do.
growth    What the store grows by in a day with 100 apps whose jobs train, at the default beat.

Figures are medians of the runs. Made-up agents and nodes (themis.testing.crowd) are one process;
`calib_ms` is a fixed piece of Python before each run, `calib_cpu_ms` the processor's part of it:
what else the machine does is the difference.
Exits 1 when a bar is missed.
"""

import argparse
import asyncio
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import themis
from themis.arbiter import Settings
from themis.arbiter.commands import Refuse, Report
from themis.arbiter.events import AppArrived, MachineJoined
from themis.arbiter.record import RoundRecord
from themis.fleet.messages import Program
from themis.fleet.talk import EndSaid, LeaseNews, RunSaid, Standing
from themis.live.agent_link import AgentLink
from themis.live.config import Address
from themis.live.credentials import Role, create_token
from themis.live.entries import body_of, commands_in
from themis.live.grpc_client import AgentClient, Connection, Credentials
from themis.live.memory import CLUSTER, recall
from themis.live.store import Batch, LogEntry, open_store
from themis.live.tokenfile import write_secret
from themis.live.vault import KeptVault
from themis.model import AppSpec, JobId, Machine
from themis.policies import policy
from themis.records.codec import TAG
from themis.testing.crowd import AgentPlan, NodePlan, Plan
from themis.testing.world import simple_app

DAY = 86400.0
OWN = 50
"""Apps of one owner, at most."""
SERVE: tuple[str, ...] = (sys.executable, "-m", "themis", "serve")
NODE: tuple[str, ...] = (sys.executable, "-m", "themis", "node")
CROWD: tuple[str, ...] = (sys.executable, "-m", "themis.testing.crowd")

LOST = {
    "lost": "UnavailableError",
    "lost_reports": "node UnavailableError",
    "flood_lost": "flood UnavailableError",
}
"""Figures, and how what they count begins in what the crowd saw."""

Line = dict[str, Any]


# A service and its surroundings


@dataclass
class Lab:
    """A folder with a store, and what runs on it."""

    folder: Path
    settings: Mapping[str, object]
    rule: str = "themis"
    options: Mapping[str, object] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    grpc: Address = field(default_factory=lambda: Address("127.0.0.1", 0))

    @property
    def url(self) -> str:
        """Of the store."""
        return f"sqlite:///{self.folder / 'store.sqlite'}"

    def fill(self, apps: list[AppSpec], nodes: int, gpus: int = 4, *, tenants: bool = True) -> None:
        """Put apps, machines and everybody's tokens into a store of its own."""
        settings = Settings(**self.settings)  # type: ignore[arg-type]  # checked where it is made
        with closing(open_store(self.url)) as store:
            rule = policy(self.rule, **self.options)
            memory = recall(store, rule, settings, themis.__version__, seed=1)
            store.commit(Batch(kept=dict(memory.kept)))
            for machine in machines(nodes, gpus):
                memory.steward.arbiter.handle(MachineJoined(memory.clock.now(), machine))
            if not apps:
                parts, leases, ended = memory.changed()
                entry = LogEntry(memory.clock.now(), "MachineJoined", body_of((), ()), parts)
                store.commit(Batch((entry,), leases, ended))
            for first in range(0, len(apps), 500):
                entries = []
                for app in apps[first : first + 500]:
                    event = AppArrived(memory.clock.now(), app)
                    outcome = memory.steward.handle(event)
                    assert not any(isinstance(item, Refuse) for item in outcome.commands)
                    body = body_of(outcome.changes.events, ())
                    entries.append(LogEntry(event.at, "AppArrived", body))
                parts, leases, ended = memory.changed()
                last = entries.pop()
                entries.append(LogEntry(last.at, last.kind, last.body, parts))
                store.commit(Batch(tuple(entries), leases, ended))
            store.snapshot()
            vault = KeptVault({}, lambda rows: store.commit(Batch(kept=rows)))
            for owner in sorted({app.owner for app in apps} if tenants else ()):
                self._token(vault, Role.TENANT, owner)
            for number in range(nodes):
                self._token(vault, Role.NODE, f"m{number}")

    def _token(self, vault: KeptVault, role: Role, name: str) -> None:
        issued = create_token(vault, role, name, now=time.time())
        write_secret(self.token_file(name), issued.token)

    def token_file(self, name: str) -> Path:
        """Where somebody's token is."""
        return self.folder / f"token-{name}"

    @contextmanager
    def service(self) -> Iterator["Process"]:
        """Run the service; its address is known once it answers."""
        settings = {**self.options, **self.settings}
        command = [*SERVE, "--http", "127.0.0.1:0", "--grpc", str(self.grpc)]
        command += ["--state-dir", str(self.folder), "--store", self.url, "--policy", self.rule]
        command += [f"--set={key}={value}" for key, value in settings.items()]
        command += ["--log-level", "warning", *self.extra]
        with Process.running(command, self.folder / "serve.log") as process:
            process.began = time.time()
            for line in process.lines():
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
    def real_nodes(self, count: int) -> Iterator[None]:
        """Run nodes with one pretend GPU each, that start processes."""
        with ExitStack() as stack:
            for number in range(count):
                name = f"m{number}"
                command = [*NODE, "--server", str(self.grpc), "--name", name, "--pretend", "1"]
                command += ["--token-file", str(self.token_file(name)), "--trust-tenants"]
                command += ["--state", str(self.folder / name), "--log-level", "warning"]
                stack.enter_context(Process.running(command, self.folder / f"{name}.log"))
            yield

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
                if f'"{TAG}":"Report"' in stored.entry.body:
                    commands = commands_in(json.loads(stored.entry.body))
                    found += [item.record for item in commands if isinstance(item, Report)]
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


def hostile_mix(agents: tuple[AgentPlan, ...]) -> tuple[AgentPlan, ...]:
    """Of ten, three dead, one slow and one hostile."""
    kinds = (
        "dead",
        "honest",
        "slow",
        "honest",
        "dead",
        "honest",
        "hostile",
        "honest",
        "dead",
        "honest",
    )
    return tuple(replace(agent, kind=kinds[number % 10]) for number, agent in enumerate(agents))


# Cases


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured, and by what it is judged: no figure above its bar."""

    measure: Callable[[Path, argparse.Namespace], dict[str, float]]
    bars: Mapping[str, float]


def change(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Leases that move."""
    return asyncio.run(_changes(folder, args.changes))


async def _changes(folder: Path, count: int) -> dict[str, float]:
    marks = folder / "marks"
    marks.mkdir()
    marks.chmod(0o777)
    # A GPU that comes free is dealt at once, not together with others.
    lab = Lab(folder, {"pooling": 0, "idle_after": 0}, "equal-share")
    specs = apps_of(count + 1, jobs=1)
    lab.fill(specs, nodes=1, gpus=1)
    took, heard = [], []
    with lab.service() as service, lab.real_nodes(1):
        waiting = [_App(lab, spec, marks) for spec in specs]
        ended = math.nan
        try:
            while waiting:
                app = await _next_running(waiting)
                took.append(app.running() - ended)
                heard.append(app.heard - ended)
                waiting.remove(app)
                ended = time.time()
                app.link.say(EndSaid())
                await app.task
        finally:
            for app in waiting:
                app.task.cancel()
        memory = service.memory_mb()
    # The first one had nobody to take over from.
    return {
        "change_s": statistics.median(took[1:]),
        "worst_s": max(took[1:]),
        "heard_s": statistics.median(heard[1:]),
        "rss_mb": memory,
    }


class _App:
    """An agent that starts its one job on whatever it is given."""

    def __init__(self, lab: Lab, spec: AppSpec, marks: Path) -> None:
        connection = Connection(lab.grpc, Credentials(lab.token_file(spec.owner)))
        self.link = AgentLink(AgentClient(connection), spec.id, random.Random(spec.id))
        self.mark = marks / spec.id
        self.heard = math.nan
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for item in self.link.news():
            leases = item.leases if isinstance(item, Standing) else ()
            leases = item.granted if isinstance(item, LeaseNews) else leases
            if leases:
                self.heard = time.time()
                # The mark is whole when it is there.
                line = 'date +%s.%N > "$0.new" && mv "$0.new" "$0" && exec sleep 600'
                program = Program(("sh", "-c", line, str(self.mark)))
                gpus = tuple(lease.gpu for lease in leases)
                self.link.say(RunSaid(JobId("j0"), gpus, program, f"run-{leases[0].token}"))

    def running(self) -> float:
        """When its job began, by the wall clock; infinite before."""
        try:
            return float(self.mark.read_text(encoding="ascii"))
        except FileNotFoundError:
            return math.inf


async def _next_running(apps: list[_App]) -> _App:
    async with asyncio.timeout(60):
        while True:
            for app in apps:
                if app.running() < math.inf:
                    return app
                if app.task.done():
                    app.task.result()
            await asyncio.sleep(0.005)


def full_round(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """A thousand honest agents."""
    settings = {"lease": 12, "grace": 1, "bid_deadline": 4, "solve_budget": 0.5, "idle_after": 0}
    lab = Lab(folder, settings, options={"f": 0, "guard_rounds": 0})
    specs = apps_of(args.agents or 1000)
    seen = _rounds(lab, specs, agents_for(lab, specs), args)
    return {
        "round_s": statistics.median(seen.took),
        "worst_s": max(seen.took),
        "told_s": statistics.median(seen.told),
        "bids_s": statistics.median(seen.bids),
        "rounds": len(seen.took),
        "failed": seen.failed,
        "asked": seen.asked,
        "rss_mb": seen.rss_mb,
        "cpu_s": seen.cpu_s,
        **seen.lost,
    }


def hostile(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Two thousand, half of them no good."""
    settings = {"lease": 12, "grace": 1, "bid_deadline": 2, "solve_budget": 1, "idle_after": 0}
    lab = Lab(folder, settings, options={"f": 0, "guard_rounds": 0})
    specs = apps_of(args.agents or 2000)
    seen = _rounds(lab, specs, hostile_mix(agents_for(lab, specs)), args)
    over = [took - 3.0 for took in seen.took]
    return {
        "over_s": sorted(over)[math.ceil(0.99 * len(over)) - 1],
        "over_median_s": statistics.median(over),
        "rounds": len(over),
        "failed": seen.failed,
        "asked": seen.asked,
        "rss_mb": seen.rss_mb,
        "cpu_s": seen.cpu_s,
        **seen.lost,
    }


@dataclass(frozen=True, slots=True)
class _Seen:
    took: list[float]
    told: list[float]
    bids: list[float]
    failed: int
    asked: float
    rss_mb: float
    cpu_s: float
    """Of the service and its solver, from beat to beat."""
    lost: Mapping[str, int]
    """Calls that came back without an answer."""


def _rounds(
    lab: Lab, specs: list[AppSpec], agents: tuple[AgentPlan, ...], args: argparse.Namespace
) -> _Seen:
    """Let so many rounds pass; the first ones, when not everybody is there yet, do not count."""
    count = 16 if args.agents and args.agents < 200 else 64
    lab.fill(specs, nodes=count)
    lease = float(str(lab.settings["lease"]))
    with lab.service() as service, lab.crowd(agents, lab.nodes(count)) as crowd:
        # Everybody has begun after two beats.
        _wait(service, crowd, 2 * lease + 3.0)
        ready, used = time.time(), service.cpu_s()
        _wait(service, crowd, args.rounds * lease)
        memory, cpu = service.memory_mb(), service.cpu_s() - used
        sights = crowd.say_end()
    if args.verbose:
        print(json.dumps(sights["counts"]), file=sys.stderr)
    zero = lab.zero()
    rounds = [
        item for item in lab.rounds() if item.trigger == "beat" and zero + item.opened > ready
    ]
    told = [
        max((at for at in sights["leases"] if 0 <= at - zero - item.opened < lease), default=0.0)
        - zero
        - item.opened
        for item in rounds
    ]
    bids = [sights["bid"].get(str(item.round), 0.0) - zero - item.opened for item in rounds]
    if args.verbose:
        for item in rounds:
            print(
                item.round, item.settled - item.opened, item.failed, item.offered, file=sys.stderr
            )
    return _Seen(
        [item.settled - item.opened for item in rounds],
        told,
        bids,
        sum(bool(item.failed) for item in rounds),
        statistics.median(map(_asked, rounds)),
        memory,
        cpu / args.rounds,
        {
            name: sum(count for end, count in sights["counts"].items() if end.startswith(words))
            for name, words in LOST.items()
        },
    )


def _asked(record: RoundRecord) -> int:
    return sum(line.invited for line in record.apps)


def _wait(service: Process, crowd: Process, seconds: float) -> None:
    until = time.time() + seconds
    while time.time() < until:
        for process in (service, crowd):
            if process.popen.poll() is not None:
                raise RuntimeError(f"{process.popen.args!r} ended with {process.popen.returncode}")
        time.sleep(0.2)


def restart(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Ten thousand apps, and a service that begins again."""
    settings = {"lease": 15, "grace": 1, "idle_after": 0}
    lab = Lab(folder, settings)
    lab.fill(apps_of(args.agents or 10_000), nodes=16, tenants=False)
    lease = float(settings["lease"])
    with lab.service() as service, lab.crowd(nodes=lab.nodes(16)) as crowd:
        # Long enough for a round.
        _wait(service, crowd, lease + 5.0)
        service.kill()
        # Over the opening of the next: it is due when the service is back.
        time.sleep(lease)
        with lab.service() as again:
            used = again.cpu_s()
            _wait(again, crowd, lease)
            memory = again.memory_mb()
    zero = lab.zero()
    opened = min(
        (zero + item.opened for item in lab.rounds() if zero + item.opened > again.began),
        default=math.inf,
    )
    return {
        # A round that is due is dated before its service answers anybody.
        "first_s": max(opened, again.answered) - again.began,
        "answer_s": again.answered - again.began,
        "cpu_s": used,
        "rss_mb": memory,
    }


def idle(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Nothing to do."""
    lab = Lab(folder, {})
    specs = apps_of(args.agents)
    lab.fill(specs, nodes=16)
    with lab.service() as service, lab.crowd(agents_for(lab, specs), lab.nodes(16)) as crowd:
        _wait(service, crowd, 10.0)
        before, began = service.cpu_s(), time.time()
        _wait(service, crowd, args.seconds)
        share = (service.cpu_s() - before) / (time.time() - began)
        memory = service.memory_mb("VmRSS")
    return {"cpu_percent": 100.0 * share, "rss_mb": memory}


def growth(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """What the log holds after some rounds more, and after some minutes without any."""
    settings = {"lease": 12, "grace": 1, "bid_deadline": 2, "solve_budget": 1}
    lab = Lab(folder, settings)
    specs = apps_of(args.agents or 100)
    lab.fill(specs, nodes=16)
    lease, held = float(settings["lease"]), []
    with lab.service() as service:
        plans = agents_for(lab, specs, runs=True)
        with lab.crowd(plans, lab.nodes(16)) as crowd:
            _wait(service, crowd, 2 * lease)
            for _ in range(2):
                held.append((lab.log_bytes(), len(lab.rounds())))
                _wait(service, crowd, args.rounds * lease)
            held.append((lab.log_bytes(), len(lab.rounds())))
    (first, rounds), (last, later) = held[0], held[-1]
    each = (last - first) / max(1, later - rounds)
    return {"round_kb": each / 1e3, "day_mb": each * DAY / Settings().lease / 1e6}


CASES: Mapping[str, Case] = {
    "change": Case(change, {"change_s": 0.3}),
    "round": Case(full_round, {"round_s": 1.5, "rss_mb": 200.0}),
    "hostile": Case(hostile, {"over_s": 0.25}),
    "restart": Case(restart, {"first_s": 5.0}),
    "idle": Case(idle, {"cpu_percent": 2.0}),
    "growth": Case(growth, {}),
}


def main() -> int:
    """Measure, print, and judge by the bars."""
    args = _arguments()
    # Ended from outside, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    missed = False
    for name in args.case:
        case = CASES[name]
        runs = []
        for _ in range(args.runs):
            calibration = calibrate()
            runs.append({**_measure(case, args), **calibration})
        line = summary(name, runs, case.bars)
        print(json.dumps(line), flush=True)
        missed = missed or not line["met"]
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--agents", type=int, default=0, help="others than each case's own number")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each run")
    parser.add_argument("--changes", type=int, default=10, help="leases that move, in each run")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to be idle")
    parser.add_argument("--folder", help="where stores are put: on the disk to be measured")
    parser.add_argument("--verbose", action="store_true", help="tell more, to standard error")
    return parser.parse_args()


def _measure(case: Case, args: argparse.Namespace) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="themis-live-", dir=args.folder))
    # A job under another user must get to its mark.
    folder.chmod(0o755)
    try:
        return case.measure(folder, args)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def calibrate() -> dict[str, float]:
    """Milliseconds for a fixed piece of work, by the clock and of the processor."""
    began, used = time.perf_counter(), time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number * number % 7
    assert total > 0
    took, cpu = time.perf_counter() - began, time.process_time() - used
    return {"calib_ms": 1e3 * took, "calib_cpu_ms": 1e3 * cpu}


def summary(name: str, runs: list[dict[str, float]], bars: Mapping[str, float]) -> Line:
    """The medians, and whether they are within the bars."""
    medians = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    return {
        "benchmark": "live",
        "case": name,
        "runs": len(runs),
        **{key: round(value, 3) for key, value in medians.items()},
        "bars": dict(bars),
        "met": all(medians[key] <= bar for key, bar in bars.items()),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    sys.exit(main())
