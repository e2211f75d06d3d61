"""Machines of a simulated cluster: a node's core, its disk, its clock, and fake processes."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from themis.core.model import Machine
from themis.node.core import commands as cmd
from themis.node.core import events as ev
from themis.node.core.events import RunLimits
from themis.node.core.node_core import NodeCore
from themis.protocol.node_messages import Orders, Point, RunOrder, RunState

if TYPE_CHECKING:
    from tests.support.fleet.simulation import FleetSim

KILL_PATIENCE = 3.0
WINDOW = 3
"""Points that a node reads before they are acknowledged; few, so that others often wait."""


@dataclass(slots=True, eq=False)
class Process:
    """A training process with its supervisor; it lives from `start` until `end`."""

    order: RunOrder
    limits: RunLimits
    node: "SimNode"
    start: float
    deaf: bool
    undead: bool
    end: float = math.inf
    alive: bool = True
    told: bool = False
    doomed: bool = False
    """Whether it was killed, though it may not be dead yet."""
    watched_at: float = math.inf
    code: int | None = None
    lasts: float = math.inf
    heard: int = 0
    """Points that its node may drop, as its disk has it."""
    read: int = 0

    @property
    def reported(self) -> int:
        """How many points it has written: one a second."""
        return math.floor(min(self.end, self.node.sim.now) - self.start)

    def found(self) -> ev.FoundRun:
        """The run as its supervisor's files describe it."""
        state = RunState.RUNNING if self.alive else RunState.EXITED
        if not self.alive and self.code is None:
            state = RunState.LOST
        seconds = min(self.end, self.node.sim.now) - self.start
        return ev.FoundRun(
            self.order,
            state,
            self.limits,
            self.code,
            seconds,
            seconds,
            heard=self.heard,
            more=True,
        )


@dataclass(slots=True, eq=False)
class SimNode:
    """One machine. `sim.now` is true time; the node only ever sees its own clock."""

    sim: "FleetSim"
    machine: Machine
    rng: random.Random
    rate: float
    make: Callable[[Machine, cmd.NodeMemory], NodeCore]
    offset: float = 0.0
    disk: cmd.NodeMemory = field(default_factory=cmd.NodeMemory)
    core: NodeCore | None = None
    paused: bool = False
    backlog: list[Callable[[], None]] = field(default_factory=list)
    life: int = 0
    """Rises whenever the daemon dies, so that what was meant for it is not given to the next."""
    processes: dict[int, Process] = field(default_factory=dict)
    """With records of those that are over, until forgotten."""
    cut_out: bool = False
    """Whether its reports do not get through."""
    cut_in: bool = False
    """Whether orders do not get through."""
    failed: set[int] = field(default_factory=set)
    ticks: int = 0

    @property
    def name(self) -> str:
        """Of the machine."""
        return self.machine.name

    def local(self, at: float) -> float:
        """A true time on this machine's clock."""
        return self.offset + self.rate * at

    def true(self, local: float) -> float:
        """When this machine's clock shows a time."""
        return (local - self.offset) / self.rate

    @property
    def clock(self) -> float:
        """What it shows now."""
        return self.offset + self.rate * self.sim.now

    # The daemon

    def boot(self) -> None:
        """Start the daemon, which finds its disk and the runs of its supervisors."""
        if self.core is not None:
            return
        self.core = self.make(self.machine, self.disk)
        found = tuple(process.found() for process in self.processes.values())
        self._take(ev.Adopted(self.clock, self.sim.broken.adopts(found)))
        for process in self.processes.values():
            process.read = process.heard
            self.sim.later(0.5, self._read_often, process, self.life)
        for gpu in sorted(self.failed):
            self.take(ev.GpuFailed, gpu, "it fell off the bus")

    def crash(self) -> None:
        """The daemon dies; its processes and their supervisors go on."""
        self.core = None
        self.paused = False
        self.backlog.clear()
        self.life += 1

    def reboot(self, *, wiped: bool) -> None:
        """The machine goes down with all on it."""
        self.crash()
        for process in self.processes.values():
            if process.alive:
                process.alive, process.end = False, self.sim.now
                self.sim.checker.ended(process)
        self.offset = self.rng.uniform(0.0, 100.0) - self.rate * self.sim.now
        if wiped:
            self.disk = cmd.NodeMemory()
            self.processes.clear()

    def pause(self) -> None:
        """Stop the daemon, not its processes."""
        self.paused = self.core is not None

    def resume(self) -> None:
        """Let it go on: everything that came meanwhile comes now."""
        self.paused = False
        waiting, self.backlog = self.backlog, []
        for each in waiting:
            each()

    def take(self, make: Callable[..., ev.NodeEvent], *args: object) -> None:
        """An event reaches the daemon, now or when it runs again."""
        if self.core is None:
            return
        if self.paused:
            self.backlog.append(lambda: self.take(make, *args))
            return
        self._take(make(self.clock, *args))

    def take_of_life(self, life: int, make: Callable[..., ev.NodeEvent], *args: object) -> None:
        """The same, if the daemon is the one it is meant for."""
        if life == self.life:
            self.take(make, *args)

    def receive(self, life: int, orders: Orders) -> None:
        """An answer arrives; that for a daemon that has died is lost with its connection."""
        if life == self.life and not self.cut_in:
            self.take(ev.OrdersCame, orders)

    def tick(self, life: int, number: int) -> None:
        """A time it asked for has come."""
        if life == self.life and number == self.ticks:
            self.take(ev.Ticked)

    def _take(self, event: ev.NodeEvent) -> None:
        core, sim = self.core, self.sim
        if core is None:
            return
        for command in core.handle(event):
            if sim.weather.torn and self.rng.random() < sim.weather.torn:
                self.crash()
                sim.later(self.rng.uniform(0.1, 4.0), self.boot)
                return
            self._carry_out(command)

    def _carry_out(self, command: cmd.NodeCommand) -> None:
        match command:
            case cmd.Send(report=report):
                self.sim.network.report(self, report)
            case cmd.Remember(memory=memory):
                self.sim.checker.remembered(self, memory.epoch)
                self.disk = memory
            case cmd.TickMe(at=at):
                self.ticks += 1
                self.sim.at(self.true(at) + 1e-9, self.tick, self.life, self.ticks)
            case cmd.StartRun():
                self._start(command)
            case cmd.Renew(run=run, limits=limits):
                process = self.processes.get(run)
                if process is not None and process.alive:
                    process.limits = limits
                    self._watch(process)
            case cmd.Checkpoint(run=run):
                self._terminate(self.processes.get(run))
            case cmd.Kill(run=run):
                self._kill(self.processes.get(run))
            case cmd.Forget(run=run):
                self.processes.pop(run, None)
            case cmd.Advance(run=run, heard=heard):
                if run in self.processes:
                    self.processes[run].heard = heard
            case cmd.LookAtStorage() | cmd.ReadLogs():
                pass  # Simulated machines never look at their shared_dir, and print nothing.
            case _:
                assert_never(command)

    # Processes

    def _start(self, command: cmd.StartRun) -> None:
        rng, sim = self.rng, self.sim
        run = command.order.run
        process = Process(
            command.order,
            command.limits,
            self,
            sim.now,
            deaf=rng.random() < sim.weather.deaf,
            undead=rng.random() < sim.weather.undead,
        )
        self.processes[run] = process
        sim.checker.started(process)
        process.lasts = rng.expovariate(1 / 25.0)
        sim.later(rng.uniform(0.01, 0.4), self._is_up, process)
        sim.later(1.0, self._read_often, process, self.life)
        sim.later(process.lasts, self._end, process, 0 if rng.random() < 0.7 else 1)
        self._watch(process)

    def _is_up(self, process: Process) -> None:
        if process.alive:
            self.take(ev.RunStarted, process.order.run)
            self.sim.later(4.0, self._measure, process)

    def _read_often(self, process: Process, life: int) -> None:
        known = self.processes.get(process.order.run) is process
        if known and life == self.life and self._read(process, life):
            self.sim.later(1.0, self._read_often, process, life)

    def _read(self, process: Process, life: int) -> bool:
        """Read points as far as there is room; whether to look again."""
        count = min(process.reported, process.heard + WINDOW)
        points = tuple(Point(float(n)) for n in range(process.read + 1, count + 1))
        process.read = max(process.read, count)
        more = process.read < process.reported
        self.take_of_life(life, ev.PointsRead, process.order.run, points, more)
        return process.alive or more

    def _measure(self, process: Process) -> None:
        if process.alive and self.core is not None:
            seconds = self.sim.now - process.start
            self.take(ev.RunMeasured, process.order.run, seconds, seconds)

    def _watch(self, process: Process) -> None:
        """Let the supervisor look when its limits come; later ones are seen when it looks."""
        limits = process.limits
        when = limits.until if process.told else min(limits.checkpoint_at, limits.until)
        if when < process.watched_at:
            process.watched_at = when
            self.sim.at(self.true(when) + 1e-9, self._supervise, process, when)

    def _supervise(self, process: Process, when: float) -> None:
        if not process.alive or process.doomed or when != process.watched_at:
            return
        process.watched_at = math.inf
        clock, limits = self.clock, process.limits
        if limits.until <= clock:
            self._kill(process)
            return
        if limits.checkpoint_at <= clock:
            self._terminate(process)
        self._watch(process)

    def _terminate(self, process: Process | None) -> None:
        if process is None or not process.alive or process.told:
            return
        self._note_cut_off(process)
        process.told = True
        if not process.deaf:
            self.sim.later(self.rng.uniform(0.0, 1.0), self._end, process, 75)

    def _kill(self, process: Process | None) -> None:
        if process is None or not process.alive or process.doomed:
            return
        self._note_cut_off(process)
        process.doomed = True
        longest = 8.0 if process.undead else 0.3
        self.sim.later(self.rng.uniform(0.0, longest), self._end, process, -9)

    def _note_cut_off(self, process: Process) -> None:
        limits = process.limits
        if limits.until < limits.lease_end and limits.checkpoint_at <= self.clock:
            self.sim.checker.cut_off(process)

    def _end(self, process: Process, code: int) -> None:
        if not process.alive or (process.undead and process.doomed and code != -9):
            return
        process.alive, process.end, process.code = False, self.sim.now, code
        self.sim.checker.ended(process)
        self.sim.later(self.rng.uniform(0.0, 0.1), self._tell_end, process, code, self.life)

    def _tell_end(self, process: Process, code: int, life: int) -> None:
        if life == self.life and self.core is not None:
            self._read(process, life)
            self.take(ev.RunExited, process.order.run, code)
