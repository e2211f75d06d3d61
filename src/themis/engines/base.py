"""The interface of engines, which start, watch and kill training processes on machines.

An engine carries out the node's decisions and makes none. By itself it only holds leases: every job
runs under a supervisor (`themis exec`) that kills it at the end of its lease even if node, engine
and network are gone.

    await engine.reattach()                     # once, before anything else
    await engine.start(task)
    async for event in engine.watch(): ...

`themis.testing.engines.EngineContract` has the tests that every engine must pass. An engine
declares its limits in `Capabilities`, which the service takes into account.
"""

import math
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

from themis.core.model import Machine
from themis.engines.attempt.lease_timing import RESUMABLE_CODE
from themis.engines.host.accounts import Owners
from themis.engines.metrics.points import MetricSample, SampleBatch
from themis.engines.task import Task
from themis.errors import ConfigError

Outcome = Literal["finished", "resumable", "failed", "never-ran", "lost"]
"""How a start of a job ended.

finished    exit code 0
resumable   exit code 75, or any but 0 after a checkpoint was asked for, or Themis killed it: it can
            go on from its last checkpoint
failed      any other exit code or signal
never-ran   refused, or not possible here; no process of it was started
lost        its supervisor died, so its exit code is unknown; it is dead now
"""

MOST_ARGUMENTS = 128 << 10
"""Bytes of command line and environment together; the kernel has a limit too."""
MOST_TAG = 1024
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can and cannot do."""

    engine: str
    chooses_indices: bool
    """Whether a task names the GPUs that it gets; if not, `ProgramStarted` names them."""
    control: str
    """How processes are held: cgroup, namespace, tree, or the engine's own way."""
    control_reasons: tuple[str, ...] = ()
    """Why a better one is not used."""
    separates_owners: bool = False
    """Jobs of different owners run as different users."""
    asks_before_kill: bool = True
    """A job gets SIGTERM and its grace period before it is killed."""
    outlives_node: bool = True
    """Jobs go on while the node restarts."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of a machine, as the engine numbers it."""

    index: int
    device: str = ""
    """Its UUID, for CUDA_VISIBLE_DEVICES; empty for a pretend one."""
    model: str = ""
    trouble: str = ""
    """Why it must not be used, if so."""


@dataclass(frozen=True, slots=True)
class Discovered:
    """A machine and its GPUs, in the order of the machine's slots."""

    machine: Machine
    gpus: tuple[Gpu, ...]
    notes: tuple[str, ...] = ()
    """Oddities, for people."""


FROM_AGENTS = frozenset(
    {"THEMIS_PARAMS", "THEMIS_CHECKPOINT_EVERY", "THEMIS_GPU_COUNT", "THEMIS_LEVEL"}
)
"""Variables that agents set for their jobs; the node sets the others."""


def check_task(task: Task) -> None:
    """Let a task pass that makes sense on some machine.

    Raises:
        ConfigError: Its program, its GPUs or its lease cannot be.
    """
    if not task.job or len(task.job) > 255 or "\0" in task.job:
        raise ConfigError("job", task.job[:80], "1 to 255 characters")
    if not task.argv or not task.argv[0]:
        raise ConfigError(f"argv of {task.job}", task.argv, "a program and its arguments")
    if len(task.tag) > MOST_TAG:
        raise ConfigError(f"tag of {task.job}", "more", f"{MOST_TAG} characters")
    _check_program(task)
    if task.tokens and len(task.tokens) != len(task.gpus):
        raise ConfigError(f"tokens of {task.job}", task.tokens, f"{len(task.gpus)} of them")
    if len(set(task.gpus)) != len(task.gpus) or any(gpu < 0 for gpu in task.gpus):
        raise ConfigError(f"gpus of {task.job}", task.gpus, "different numbers from 0")
    if not (math.isfinite(task.end) and math.isfinite(task.grace) and task.grace >= 0):
        raise ConfigError(f"lease of {task.job}", (task.end, task.grace), "finite numbers")


def _check_program(task: Task) -> None:
    texts = [*task.argv, *task.env, *task.env.values(), task.workdir, task.checkpoint_dir]
    if any("\0" in text for text in texts):
        raise ConfigError(f"argv and env of {task.job}", "a NUL character", "text without it")
    if sum(len(text) for text in texts) > MOST_ARGUMENTS:
        raise ConfigError(f"argv and env of {task.job}", "more", f"{MOST_ARGUMENTS} characters")
    for name in task.env:
        check_variable(name)
    for key, path in (("workdir", task.workdir), ("checkpoint_dir", task.checkpoint_dir)):
        if path and not path.startswith("/"):
            raise ConfigError(key, path, "an absolute path")


def check_variable(name: str) -> str:
    """Return the name of an environment variable that a user may set.

    Raises:
        ConfigError: It is no name, or Themis sets this variable itself.
    """
    if not _VARIABLE.match(name):
        raise ConfigError("env", name[:80], "letters, digits and _, not starting with a digit")
    if name in FROM_AGENTS:
        return name
    if name.startswith("THEMIS_") or name == "CUDA_VISIBLE_DEVICES":
        raise ConfigError("env", name, "other names: Themis sets this one itself")
    return name


@dataclass(frozen=True, slots=True)
class ProgramStarted:
    """The job's program runs."""

    job: str
    token: int
    gpus: tuple[str, ...]
    """The GPUs it got, as its supervisor reports them."""


@dataclass(frozen=True, slots=True)
class ProgramExited:
    """It has ended and none of its processes is alive: its GPUs are empty."""

    job: str
    token: int
    outcome: Outcome
    code: int | None
    """Its exit code; negative: the signal it died of; None where there is none."""
    reason: str

    @property
    def counts_as(self) -> int:
        """The exit code to act on: 0: done; 75: start it again; any other: failed."""
        if self.outcome == "failed" and self.code is not None:
            return self.code if self.code >= 0 else 128 - self.code
        return 0 if self.outcome == "finished" else RESUMABLE_CODE


@dataclass(frozen=True, slots=True)
class CouldNotKill:
    """A process of it survived SIGKILL. The engine retries; `ProgramExited` may follow."""

    job: str
    token: int
    reason: str


Event = ProgramStarted | ProgramExited | CouldNotKill


@dataclass(frozen=True, slots=True)
class FoundProgram:
    """A job of an earlier engine: it runs, or its end has not been reported."""

    job: str
    owner: str
    token: int
    gpus: tuple[int, ...]
    end: float
    """The end of its lease, as its supervisor knows it."""
    state: Literal["starting", "running", "stopping", "stuck", "exited"]
    ended: ProgramExited | None = None
    """Its end, with the state `exited` only; then no event follows. For all other states
    `ProgramExited` follows, also if the supervisor was found dead and the job is being killed
    (`stopping`)."""
    age: float = 0.0
    """Seconds since its program started."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Part of the output of a start, at an offset in all bytes that it ever printed."""

    offset: int
    """Where it begins; later than the wanted offset if those bytes were dropped."""
    text: str
    next: int
    size: int
    """Of the whole output, so far."""
    over: bool
    """Whether the job has ended: nothing follows `size`."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A machine of a cluster, as the cluster's scheduler sees it now."""

    machine: Machine
    trouble: str = ""
    """Why it cannot be used, if so: it is down, drained, or does not answer."""


class Cluster(Protocol):
    """The machines that an engine reaches, each with an engine of its own.

    `themis.node.bridge.bridge` runs a node for each healthy machine and stops the node of a machine
    that is not healthy; leases there expire as on a machine that fell silent.
    """

    async def look(self) -> tuple[Sighting, ...]:
        """All machines, in a lasting order.

        Raises:
            UnavailableError: The scheduler does not answer. Then nothing changes: supervisors hold
                leases without it.
        """

    async def open(self, machine: str, owners: Owners) -> "Engine":
        """The engine of a machine that `look` has listed; close it before opening it again.

        Raises:
            UnavailableError: The machine cannot be used now.
        """

    async def close(self) -> None:
        """Release all resources. Jobs run on."""


class Engine(Protocol):
    """Starts jobs under leases. Methods may be called concurrently."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do on this machine."""

    async def discover(self) -> tuple[Discovered, ...]:
        """Its machines, with the state of their GPUs now."""

    async def reattach(self) -> tuple[FoundProgram, ...]:
        """Take over jobs of an earlier engine: running ones, and ends that were not forgotten."""

    async def start(self, task: Task) -> None:
        """Start a job; `ProgramStarted` or `ProgramExited` follow.

        Raises:
            RefusedError: A stale token, a GPU in use, a job that runs already, an unknown owner.
            UnavailableError: This machine cannot start it now (a full disk, no more processes).
        """

    async def renew(self, job: str, token: int, end: float, grace: float | None = None) -> None:
        """Move the end of a job's lease, and set its grace period.

        The process is not touched. Without `grace` the grace period stays.

        Raises:
            RefusedError: No such job runs with this token.
        """

    async def checkpoint(self, job: str, token: int) -> None:
        """Ask for a checkpoint: SIGTERM, once, even if called again."""

    async def kill(self, job: str, token: int) -> None:
        """Kill all its processes: `ProgramExited` once they were seen dead, else `CouldNotKill`."""

    def watch(self) -> AsyncIterator[Event]:
        """Events as they happen, for one listener, until `close`."""

    async def measure(self, job: str) -> tuple[MetricSample, ...]:
        """New samples of the job since the last call."""

    async def points(self, job: str, since: int, most: int) -> SampleBatch:
        """Samples of its latest start, the oldest first; also after it ended, until `forget`.

        Args:
            job: The job.
            since: Where a batch or a sample ended; 0 for the beginning.
            most: How many at most.
        """

    async def tail(self, job: str, limit: int = 4096) -> str:
        """The last lines of its output, also after it ended."""

    async def output(self, tag: str, offset: int, most: int) -> LogPiece | None:
        """Output of the start with this tag, also after `forget`; None if it is not kept."""

    async def forget(self, job: str, token: int) -> None:
        """The service has stored its end: `reattach` need not report it again."""

    async def close(self) -> None:
        """Release all resources. Jobs run on."""
