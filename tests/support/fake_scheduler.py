"""A cluster whose scheduler is a Python object, for tests of what engines of clusters share.

    scheduler = PretendScheduler({"m0": 4, "m1": 4})
    cluster = PretendCluster(scheduler, folder)

Supervisors and jobs are real processes of this machine; the scheduler gives each the GPUs that are
free, takes its time or does not answer, and loses machines, as a test wants it to.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from themis.core.model import Machine
from themis.engines.base import Capabilities, Discovered, Gpu, Sighting
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.remote.engine import RemoteEngine
from themis.engines.remote.launcher import LaunchStage, RemoteTiming
from themis.engines.supervisor import processes
from themis.engines.supervisor.spawn import ENVIRONMENT, command
from themis.errors import UnavailableError

QUICK = RemoteTiming(
    pending=60.0, silence=5.0, beat=0.2, look=0.02, idle=0.1, places=0.1, settle=2.0
)


@dataclass
class _Held:
    machine: str
    gpus: tuple[int, ...]
    process: "subprocess.Popen[bytes] | None" = None


@dataclass
class PretendScheduler:
    """Who has which GPUs, by the names of starts. Outlives the engines that use it."""

    machines: Mapping[str, int]
    held: dict[str, _Held] = field(default_factory=dict)
    absent: bool = False
    """It does not answer."""
    asked: int = 0
    """How often it was asked something."""
    full: bool = False
    """It starts nothing, and says that it will."""
    down: dict[str, str] = field(default_factory=dict)
    """Machines that it finds unwell, and why."""
    started: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def free(self, machine: str) -> list[int]:
        """The GPUs of a machine that nobody has."""
        used = {gpu for held in self.held.values() if held.machine == machine for gpu in held.gpus}
        return [gpu for gpu in reversed(range(self.machines[machine])) if gpu not in used]

    def kill(self, machine: str) -> None:
        """Cut a machine's power; nobody has noticed yet."""
        for held in self.held.values():
            if held.machine == machine and held.process is not None:
                _kill_tree(held.process)

    def end(self) -> None:
        """Kill all supervisors: their jobs die with them."""
        for process in self.started:
            _kill_tree(process)
        self.held.clear()

    def check(self) -> None:
        """Raise where it does not answer."""
        self.asked += 1
        if self.absent:
            raise UnavailableError("the scheduler does not answer")


def _spawn(argv: Sequence[str], env: Mapping[str, str], errors: Path) -> "subprocess.Popen[bytes]":
    with errors.open("ab") as out:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=out,
            start_new_session=True,
            env=env,
        )


def _kill_tree(process: "subprocess.Popen[bytes]") -> None:
    # The supervisor first: on a busy machine it would live to tell that its job was killed.
    for pid in (process.pid, *processes.descendants(process.pid)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


class PretendLauncher:
    """The way to one machine."""

    gpu_variables = ("CUDA_VISIBLE_DEVICES",)

    def __init__(self, scheduler: PretendScheduler, machine: str) -> None:
        self._scheduler = scheduler
        self._machine = machine

    @property
    def capabilities(self) -> Capabilities:
        """Like those of real ones."""
        return Capabilities(engine="pretend", chooses_indices=False, control="tree")

    async def discover(self, busy: Collection[int]) -> Discovered:
        """The machine, always well."""
        self._scheduler.check()
        machine = machine_of(self._machine, self._scheduler.machines[self._machine])
        return Discovered(machine, tuple(Gpu(index) for index in range(machine.gpus)))

    async def launch(
        self, name: str, argv: Sequence[str], gpus: int, errors: Path, changed: Callable[[], None]
    ) -> None:
        """Start it on GPUs that are free, from the last one on."""
        self._scheduler.check()
        free = self._scheduler.free(self._machine)
        if len(free) < gpus:
            raise UnavailableError(f"{self._machine} has no {gpus} GPUs")
        given = tuple(sorted(free[:gpus]))
        held = self._scheduler.held[name] = _Held(self._machine, given)
        if self._scheduler.full:
            return
        env = ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ",".join(map(str, given))}
        held.process = await asyncio.to_thread(_spawn, argv, env, errors)
        self._scheduler.started.append(held.process)

    async def places(self) -> Mapping[str, LaunchStage] | None:
        """Where starts are; those whose process has ended are gone."""
        if self._scheduler.absent:
            return None
        found = {}
        for name, held in list(self._scheduler.held.items()):
            if held.process is None:
                found[name] = LaunchStage("waiting", "Resources")
            elif held.machine in self._scheduler.down:
                found[name] = LaunchStage("lost", "the machine is down")
            elif held.process.poll() is None:
                found[name] = LaunchStage("placed")
        return found

    async def cancel(self, name: str, *, hard: bool) -> None:
        """End it; its GPUs are free."""
        self._scheduler.check()
        held = self._scheduler.held.pop(name, None)
        if held is None or held.process is None:
            return
        if hard:
            await asyncio.to_thread(_kill_tree, held.process)
        else:
            await asyncio.to_thread(held.process.wait)

    def address(self, machine: str) -> str:
        """Its name: all of them are here."""
        return machine

    def argv(self, task_file: Path) -> list[str]:
        """A supervisor of this machine."""
        return command("themis.engines.supervisor.supervisor", str(task_file))


class PretendCluster:
    """The cluster of a pretended scheduler."""

    def __init__(
        self,
        scheduler: PretendScheduler,
        folder: Path,
        *,
        times: RemoteTiming = QUICK,
        now: Callable[[], float] = boottime.now,
        boot: str = "",
    ) -> None:
        """Make it.

        Args:
            scheduler: Who decides.
            folder: Where engines keep their files.
            times: What engines wait for.
            now: The engines' clock, and
            boot: the name of that; other than this machine's, they are on another machine.
        """
        self._scheduler = scheduler
        self._folder = folder
        self._times = times
        self._now = now
        self._boot = boot
        self._engines: dict[str, RemoteEngine] = {}

    async def look(self) -> tuple[Sighting, ...]:
        """All machines."""
        self._scheduler.check()
        down = self._scheduler.down
        quiet = {name for name, engine in self._engines.items() if engine.quiet}
        return tuple(
            Sighting(machine_of(name, gpus), down.get(name, "silent" if name in quiet else ""))
            for name, gpus in self._scheduler.machines.items()
        )

    async def open(self, machine: str, owners: Owners) -> RemoteEngine:
        """The engine of one of them."""
        engine = self._engines[machine] = await RemoteEngine.open(
            self._folder / machine,
            PretendLauncher(self._scheduler, machine),
            owners,
            times=self._times,
            now=self._now,
            boot=self._boot,
        )
        return engine

    async def close(self) -> None:
        """Nothing to let go of."""


def machine_of(name: str, gpus: int) -> Machine:
    """A machine whose GPUs nobody chooses: each a slot of its own."""
    return Machine(name, "r0", (1,) * gpus, "pretend")
