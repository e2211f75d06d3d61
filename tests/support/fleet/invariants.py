"""Invariants of a simulated cluster, checked after every event, whatever fault happens.

Each is checked where it can first be violated: when a process starts, when the service stores,
when it sends, when it restarts. So no violation between two events is missed, and an event that
changes nothing costs nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from tests.support.fleet.machines import Process, SimNode
from themis.core.arbiter import Arbiter, Ledger, check_ledger
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.cluster_state import GONE
from themis.core.model import AppId, GpuId, Lease
from themis.core.steward.commands import (
    AcceptRun,
    AcceptSession,
    AnswerReport,
    StewardCommand,
    TellPoints,
    TellRun,
)
from themis.core.steward.rows import ActiveRun, StewardRow
from themis.errors import InvariantError

if TYPE_CHECKING:
    from tests.support.fleet.simulation import FleetSim

_EPSILON = 1e-6


class Checker:
    """Knows the state of all parts of the cluster, as none of them can."""

    def __init__(self, sim: "FleetSim") -> None:
        self._sim = sim
        self.live: list[Process] = []
        self.starts = 0
        self.handovers = 0
        self._highest: dict[tuple[str, int], int] = {}
        """The highest token that each GPU has run under."""
        self._started: set[tuple[str, int]] = set()
        self._owners: dict[int, tuple[GpuId, AppId]] = {}
        """The GPU and app of each token."""
        self._last_given: dict[GpuId, int] = {}
        self._told_ends: dict[int, float] = {}
        """The latest end of each lease that was sent to a node."""
        self._accepted_apps: set[AppId] = set()
        self._ended: set[AppId] = set()
        self._accepted_runs: dict[int, AppId] = {}
        self._forgotten: set[int] = set()
        self._next_token = 0
        self._last_heard: dict[str, tuple[int, int]] = {}
        self._keys: dict[tuple[AppId, str], int] = {}
        self._fences: dict[AppId, int] = {}
        """The highest fence of each app that was sent to an agent."""
        self._askers: dict[tuple[AppId, str], int] = {}
        """The fence of the session that requested each run."""
        self._given_back: set[tuple[GpuId, int]] = set()
        self._reporting: dict[int, Process] = {}
        """By run: the process whose points reach the agent, unless they may be lost."""
        self._heard_points: dict[int, int] = {}
        self.points = 0

    def fail(self, what: str, *history: object) -> None:
        """An invariant is violated."""
        raise InvariantError(f"seed {self._sim.seed}, at {self._sim.now:.3f}: {what}", history)

    # Processes

    def started(self, process: Process) -> None:
        """A process starts: alone on its GPUs, alone for its job, under no old token."""
        order, node = process.order, process.node
        self.starts += 1
        for other in self.live:
            if other.node is node and not set(order.gpus).isdisjoint(other.order.gpus):
                self.fail("two processes on one GPU", other.order, order)
            same_job = (other.order.app, other.order.job) == (order.app, order.job)
            if same_job and other.order.run != order.run and not other.doomed:
                self.fail("two runs of one job are alive", other.order, order)
        for gpu, token in zip(order.gpus, order.tokens, strict=True):
            slot = (node.name, gpu)
            if token < self._highest.get(slot, 0):
                self.fail("a process starts under an old token", slot, order)
            self._highest[slot] = token
            if node.disk.tokens[gpu] < token:
                self.fail("a process runs under a token that its node may forget", order)
        if (node.name, order.run) in self._started:
            self.fail("a run is started twice", order)
        self._started.add((node.name, order.run))
        self.live.append(process)
        if order.rank == 0:
            self._reporting[order.run] = process
        self._match(process, self._sim.service.durable)

    def ended(self, process: Process) -> None:
        """A process has ended."""
        self.live.remove(process)

    def wiped(self, node: SimNode) -> None:
        """A node has a new disk, and may forget what it knew."""
        self._started = {item for item in self._started if item[0] != node.name}
        self._excuse_points(node.name)

    def _excuse_points(self, node: str) -> None:
        """The points on a machine are lost with it."""
        self._reporting = {
            run: process for run, process in self._reporting.items() if process.node.name != node
        }

    def agent_heard(self, command: TellPoints | TellRun) -> None:
        """An agent receives news of a run: every point, in order, and its end after all of them."""
        if command.app in self._ended:
            return
        heard = self._heard_points.get(command.run, 0)
        process = self._reporting.get(command.run)
        if isinstance(command, TellPoints):
            if command.first > heard + 1:
                self.fail(f"points {heard + 1} to {command.first - 1} of a run were not heard")
            if [point.iteration for point in command.points] != [
                command.first + n for n in range(len(command.points))
            ]:
                self.fail("points have wrong numbers", command)
            last = command.first + len(command.points) - 1
            self.points += max(0, last - heard)
            self._heard_points[command.run] = max(heard, last)
        elif command.state.over and process is not None and heard < process.reported:
            self.fail(f"{heard} of {process.reported} points were heard before the end", command)

    def cut_off(self, process: Process) -> None:
        """A process is stopped or killed because its node was cut off for too long."""
        if self._sim.only_service:
            self.fail("training is ended though only the service failed", process.order)

    def remembered(self, node: SimNode, epoch: int) -> None:
        """A node writes to its disk."""
        if epoch < node.disk.epoch:
            self.fail(f"{node.name} goes back from epoch {node.disk.epoch} to {epoch}")

    def heard(self, node: str, boot: int, number: int) -> None:
        """The service takes a report as the last one of a node."""
        last = self._last_heard.get(node, (0, 0))
        if (boot, number) < last:
            self.fail(f"{node}: report {boot}/{number} counts after {last[0]}/{last[1]}")
        self._last_heard[node] = (boot, number)

    def _match(self, process: Process, arbiter: Arbiter) -> None:
        """A process that may go on is the one that the ledger has on its GPUs."""
        if process.doomed:
            return
        ledger, topology = arbiter.ledger, arbiter.world.topology
        number = topology.number_of[process.node.name]
        for index, token in zip(process.order.gpus, process.order.tokens, strict=True):
            gpu = topology.gpus_of[number][index]
            lease = ledger.lease(gpu)
            if lease is None:
                reason = ledger.quarantine_reason(gpu)
                if reason is None or reason == GONE:
                    what = "given up" if reason else "free"
                    self.fail(f"GPU {gpu} is {what} with a process on it", process.order)
            elif lease.token > token:
                self.fail(
                    f"GPU {gpu} is leased anew with an old process on it", process.order, lease
                )
            elif lease.token < token:
                self.fail(f"a process on GPU {gpu} has a token that nobody gave", process.order)

    # The service

    def stored(self, arbiter: Arbiter, events: Iterable[ev.Event]) -> None:
        """Leases changed, durably."""
        ledger = arbiter.ledger
        for event in events:
            match event:
                case ev.AppEnded(app=app):
                    self._ended.add(app)
                case ev.MachineLeft(machine=name):
                    self._excuse_points(name)
                case ev.GpusVacated(gpus=slots):
                    self._check_empty(arbiter, [gpu for gpu, _ in slots])
                case ev.GpusReleased(gpus=gpus):
                    self._check_empty(arbiter, gpus)
                case ev.GpuRestored(gpu=gpu):
                    self._check_empty(arbiter, (gpu,))
                case ev.MachineJoined(machine=machine):
                    topology = arbiter.world.topology
                    joined = topology.gpus_of[topology.number_of[machine.name]]
                    reasons = ledger.quarantine_reason
                    self._check_empty(arbiter, [gpu for gpu in joined if reasons(gpu) is None])
                case _:
                    pass
        check_ledger(ledger)
        if ledger.next_token < self._next_token:
            self.fail("tokens fall")
        self._next_token = ledger.next_token
        for process in self.live:
            self._match(process, arbiter)
        self._compare_ends(ledger)

    def asked(self, app: AppId, key: str, fence: int) -> None:
        """An agent is about to request a run."""
        self._askers[app, key] = fence

    def gave_back(self, gpu: GpuId, token: int) -> None:
        """An agent is about to give a lease back."""
        self._given_back.add((gpu, token))

    def released(self, events: Iterable[ev.Event], commands: Iterable[StewardCommand]) -> None:
        """Leases that end as released are those that their agent gave back."""
        released = {
            (event.app, gpu)
            for event in events
            if isinstance(event, ev.GpusReleased)
            for gpu in event.gpus
        }
        for command in commands if released else ():
            match command:
                case cmd.End(leases=leases) | cmd.Assign(revoked=leases):
                    for lease in leases:
                        given = (lease.gpu, lease.token) in self._given_back
                        if (lease.app, lease.gpu) in released and not given:
                            self.fail("a lease ends that nobody gave back", lease)
                case _:
                    pass

    def _check_empty(self, arbiter: Arbiter, gpus: Collection[GpuId]) -> None:
        """GPUs that are taken as empty are empty, even of processes about to die."""
        topology, ledger = arbiter.world.topology, arbiter.ledger
        for process in self.live:
            number = topology.number_of.get(process.node.name)
            if number is None:
                continue
            for index, token in zip(process.order.gpus, process.order.tokens, strict=True):
                gpu = topology.gpus_of[number][index]
                lease = ledger.lease(gpu)
                # Of a GPU that is still leased, a promise for later was given back.
                if gpu in gpus and (lease is None or lease.token != token):
                    self.fail(f"GPU {gpu} is taken as empty with a process on it", process.order)

    def _compare_ends(self, ledger: Ledger) -> None:
        for lease in ledger.leases():
            if lease.end < self._told_ends.get(lease.token, lease.end) - _EPSILON:
                self.fail("a lease is shorter than its node was told", lease)

    def told(self, command: StewardCommand) -> None:
        """A command takes effect."""
        match command:
            case cmd.Assign(granted=granted):
                for lease in granted:
                    self._granted(lease)
            case AcceptSession(app=app, fence=fence):
                if fence < self._fences.get(app, 0):
                    self.fail(f"{app}: session {fence} begins after {self._fences[app]}")
                self._fences[app] = fence
            case AcceptRun(app=app, key=key, run=run):
                if self._askers[app, key] < self._fences[app]:
                    self.fail(f"{app}: an agent is heard that was replaced", key)
                self._accepted_runs[run] = app
                if self._keys.setdefault((app, key), run) != run:
                    self.fail(f"one request of {app} was taken as two", key)
            case cmd.End(leases=leases):
                self.handovers += len(leases)
            case cmd.RecordRound(record=record):
                if record.failed.startswith("the plan makes no sense"):
                    self.fail(record.failed)
            case _:
                pass

    def _granted(self, lease: Lease) -> None:
        owner = self._owners.setdefault(lease.token, (lease.gpu, lease.app))
        if owner != (lease.gpu, lease.app):
            self.fail(f"token {lease.token} is given twice", owner, lease)
        if lease.token <= self._last_given.get(lease.gpu, 0):
            self.fail(f"tokens of GPU {lease.gpu} do not rise", lease)
        self._last_given[lease.gpu] = lease.token

    def answered(self, answer: AnswerReport) -> None:
        """Orders are sent to a node."""
        self._forgotten.update(answer.orders.forget)
        received = self._sim.now  # At the earliest a heartbeat ago, so that this is a bound.
        for lease in answer.orders.leases:
            held_at = self._sim.service.steward.nodes[answer.node].held_at
            end = min(received, held_at) + lease.remaining
            self._told_ends[lease.token] = max(self._told_ends.get(lease.token, end), end)

    def accepted(self, app: AppId) -> None:
        """A user was told that an app is accepted."""
        self._accepted_apps.add(app)

    def recovered(self, arbiter: Arbiter, rows: Mapping[str, StewardRow]) -> None:
        """A service starts: everything that was ever sent must be stored."""
        self._last_heard.clear()
        for app in sorted(self._accepted_apps - self._ended):
            if app not in arbiter.world.apps:
                self.fail(f"{app} was accepted and is lost")
        if self._owners and arbiter.ledger.next_token <= max(self._owners):
            self.fail("a lease was told and is lost")
        self._compare_ends(arbiter.ledger)
        known = {**dict.fromkeys(arbiter.world.apps)}
        for run, app in self._accepted_runs.items():
            if app in known and f"run/{run}" not in rows and f"result/{run}" not in rows:
                self.fail(f"run {run} was accepted and is lost")
            if run in self._forgotten and app in known and f"result/{run}" not in rows:
                row = rows.get(f"run/{run}")
                if not (isinstance(row, ActiveRun) and row.ended_on):
                    self.fail(f"the result of run {run} is lost")
