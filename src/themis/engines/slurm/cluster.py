"""A Slurm cluster: its machines, and the way to each.

    cluster = SlurmCluster(folder, SlurmSettings(partition="gpu"))
    for seen in await cluster.look(): ...
    engine = await cluster.open("n0", owners)

A start is one allocation (`salloc --no-shell`) and one step in it (`srun --jobid`), under the name
of the start: by that it is found again. `sbatch` is not used: Slurm takes up to three seconds to
begin a batch job where it begins an allocation at once.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from themis.core.model import Machine
from themis.engines.attempt.layout import EngineLimits
from themis.engines.base import Capabilities, Discovered, Sighting
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.remote.backoff import (
    ForeignGpus,
    MachineBackoff,
    gpus_with_troubles,
    themis_name,
)
from themis.engines.remote.engine import RemoteEngine
from themis.engines.remote.launcher import LaunchStage, RemoteTiming
from themis.engines.slurm.commands import Commands
from themis.engines.slurm.hostlists import expand
from themis.engines.slurm.parsers import (
    JOB_FORMAT,
    JobFacts,
    NodeFacts,
    jobs_from,
    nodes_from_json,
    nodes_from_text,
    racks_from,
    steps_from,
)
from themis.errors import RefusedError, UnavailableError

_LOG = logging.getLogger(__name__)

_FRESH = 0.5
"""How long an answer of Slurm stays valid, in seconds."""
_GRANTED = re.compile(r"[Gg]ranted job allocation (\d+)")
_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "RESV_DEL_HOLD", "REQUEUE_HOLD", "SPECIAL_EXIT"}
_PLACED = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"}
_LOST = {"NODE_FAIL", "BOOT_FAIL"}


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """The part of the cluster that Themis may use, and the options of its requests."""

    partition: str = ""
    nodes: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    memory: str = ""
    """For each GPU."""
    cpus: int = 1
    """For each GPU."""
    pending: float = 60.0
    """Seconds that Slurm may keep a start waiting."""
    patience: float = 30.0
    """Seconds for one command, and for a job that was called off to end."""
    silence: float = 15.0
    """Seconds after which a machine with only silent supervisors is unhealthy."""

    def options(self, gpus: int) -> list[str]:
        """Options of `salloc` for a number of GPUs on one machine."""
        named = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "reservation": self.reservation,
            "mem-per-gpu" if gpus else "mem": self.memory,
            "gres": f"gpu:{gpus}" if gpus else "",
            "cpus-per-task": str(self.cpus * max(1, gpus)),
        }
        return [f"--{name}={value}" for name, value in named.items() if value]


class SlurmCluster:
    """Slurm's machines with GPUs that the settings allow."""

    def __init__(
        self,
        folder: Path,
        settings: SlurmSettings | None = None,
        *,
        commands: Commands | None = None,
        times: RemoteTiming | None = None,
        limits: EngineLimits | None = None,
        checkpoints: Path | None = None,
        now: Callable[[], float] = boottime.now,
    ) -> None:
        """Check the commands; Slurm is not queried yet.

        Args:
            folder: Where engines keep their files, on storage that all machines share.
            settings: The part of the cluster to use.
            commands: Slurm's.
            times: Intervals and timeouts of engines.
            limits: Sizes and timeouts of engines.
            checkpoints: Where jobs that name no folder keep theirs.
            now: The clock of leases.

        Raises:
            ConfigError: One of Slurm's commands is not there, or `nodes` is no list of names.
        """
        self.settings = settings or SlurmSettings()
        self.commands = commands or Commands(limit=self.settings.patience)
        self.commands.check()
        self._folder = folder
        self._times = replace(
            times or RemoteTiming(),
            pending=self.settings.pending,
            patience=self.settings.patience,
            silence=self.settings.silence,
        )
        self._limits = limits
        self._checkpoints = checkpoints
        self._now = now
        self._only = frozenset(expand(self.settings.nodes))
        self._nodes: dict[str, NodeFacts] = {}
        """By Themis's name."""
        self._nodes_at = self._jobs_at = -1e9
        self._jobs: dict[str, JobFacts] = {}
        self._stepless: frozenset[str] = frozenset()
        """Allocations without a running step, by name."""
        self._warned = False
        self._racks: dict[str, str] | None = None
        self._asking = asyncio.Lock()
        self._foreign = ForeignGpus("Slurm")
        self._backoff = MachineBackoff(now)

    # Machines

    async def look(self) -> tuple[Sighting, ...]:
        """All machines, with the trouble of those that are down or whose supervisors are silent."""
        nodes = await self.nodes()
        return tuple(Sighting(self.machine(name), self._trouble(name)) for name in nodes)

    async def open(self, machine: str, owners: Owners) -> RemoteEngine:
        """The engine of one machine."""
        from themis.engines.slurm.launcher import SlurmLauncher  # noqa: PLC0415 - it knows us

        engine = await RemoteEngine.open(
            self._folder / machine,
            SlurmLauncher(self, machine),
            owners,
            times=self._times,
            limits=self._limits,
            checkpoints=self._checkpoints,
            now=self._now,
        )
        self._backoff.opened(machine, engine)
        return engine

    async def close(self) -> None:
        """Nothing to release: jobs in Slurm run on."""

    def _trouble(self, name: str) -> str:
        facts = self._nodes[name]
        if facts.down:
            self._backoff.is_down(name)
            return facts.down
        if self._backoff.backs_off(name):
            return "its supervisors are silent, and Slurm gives no reason"
        return ""

    async def nodes(self) -> dict[str, NodeFacts]:
        """Usable machines with GPUs, by Themis's names.

        Raises:
            UnavailableError: Slurm does not answer.
        """
        async with self._asking:
            if self._now() - self._nodes_at > _FRESH:
                if self._racks is None:
                    self._racks = await self._topology()
                found = await self._ask_nodes()
                self._nodes = {
                    themis_name(facts.name): facts for facts in found if self._takes(facts)
                }
                self._nodes_at = self._now()
                self._warn_if_none()
            return self._nodes

    def _warn_if_none(self) -> None:
        """Warn once if no machine can be used: a name may be misspelt."""
        if not self._nodes and not self._warned:
            given = (("partition", self.settings.partition), ("nodes", self.settings.nodes))
            inside = "".join(f", {name} {value}" for name, value in given if value)
            _LOG.warning("Slurm has no machine with GPUs%s", inside)
        self._warned = not self._nodes

    def _takes(self, facts: NodeFacts) -> bool:
        settings = self.settings
        inside = not settings.partition or settings.partition in facts.partitions
        return bool(facts.gpus) and inside and (not self._only or facts.name in self._only)

    async def _ask_nodes(self) -> tuple[NodeFacts, ...]:
        for argv in (("scontrol", "show", "nodes", "--json"), ("sinfo", "--json")):
            with contextlib.suppress(RefusedError, ValueError):
                text, _ = await self.commands.run(*argv)
                return nodes_from_json(text)
        try:
            text, _ = await self.commands.run("scontrol", "show", "nodes", "--oneliner")
        except RefusedError as error:
            raise UnavailableError(str(error)) from error
        return nodes_from_text(text)

    async def _topology(self) -> dict[str, str]:
        try:
            text, _ = await self.commands.run("scontrol", "show", "topology")
            return racks_from(text)
        except (RefusedError, ValueError):  # without a topology plugin there is none
            return {}

    def machine(self, name: str) -> Machine:
        """A machine in Themis's terms; each GPU is a slot, because Slurm chooses them."""
        facts = self._nodes[name]
        rack = themis_name((self._racks or {}).get(facts.name, "r0"))
        return Machine(name, rack, (1,) * facts.gpus, themis_name(facts.model or "gpu"))

    def node(self, name: str) -> str:
        """Slurm's name of a machine."""
        return self._nodes[name].name

    def address(self, name: str) -> str:
        """The network name of a machine."""
        return self._nodes[name].name if name in self._nodes else name

    async def discover(self, name: str, busy: Collection[int]) -> Discovered:
        """A machine with its GPUs; other users of Slurm may have some of them."""
        nodes = await self.nodes()
        if name not in nodes:
            raise UnavailableError(f"Slurm has no machine {name} with GPUs any more")
        facts, machine = nodes[name], self.machine(name)
        if facts.closed:
            troubles = [facts.closed] * machine.gpus
        else:
            ours = await self._ours_on(facts.name)
            others = facts.used - ours if ours is not None else 0
            troubles = self._foreign.troubles(name, others)
        return Discovered(
            machine, tuple(gpus_with_troubles(machine.gpus, facts.model, troubles, busy))
        )

    async def _ours_on(self, node: str) -> int | None:
        jobs = await self.jobs()
        if jobs is None:
            return None
        gone = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"} | _LOST
        return sum(job.gpus for job in jobs.values() if job.node == node and job.state not in gone)

    # Allocations

    async def jobs(self) -> Mapping[str, JobFacts] | None:
        """Our allocations by name, recently ended ones too; None: Slurm does not answer."""
        async with self._asking:
            if self._now() - self._jobs_at > _FRESH:
                user = f"--user={self.commands.user}"
                try:
                    steps, _ = await self.commands.run("squeue", "-h", user, "--steps", "-o", "%i")
                    text, _ = await self.commands.run(
                        "squeue", "-h", user, "--states=all", "-o", JOB_FORMAT
                    )
                except (UnavailableError, RefusedError) as error:
                    _LOG.debug("squeue: %s", error)
                    return None
                found = [job for job in jobs_from(text) if job.name.startswith("themis-")]
                alive = steps_from(steps)
                self._jobs = {job.name: job for job in found}
                self._stepless = frozenset(job.name for job in found if job.number not in alive)
                self._jobs_at = self._now()
            return self._jobs

    async def places(self, launching: Collection[str]) -> Mapping[str, LaunchStage] | None:
        """The stage of each start. One without a step is empty, unless it is being launched."""
        jobs = await self.jobs()
        if jobs is None:
            return None
        found = {}
        for name, job in jobs.items():
            if job.state in _LOST:
                found[name] = LaunchStage("lost", f"Slurm: {job.state}")
            elif job.state in _WAITING:
                found[name] = LaunchStage("waiting", job.why)
            elif job.state in _PLACED:
                alive = name not in self._stepless or name in launching
                found[name] = LaunchStage("placed" if alive else "empty", job.state)
        return found


def granted(text: str) -> str:
    """The number of the allocation, from the output of `salloc`.

    Raises:
        UnavailableError: The output has none.
    """
    found = _GRANTED.search(text)
    if found is None:
        raise UnavailableError(f"salloc named no allocation: {text[-200:]}")
    return found[1]


CAPABILITIES = Capabilities(
    engine="slurm",
    chooses_indices=False,
    control="tree",
    control_reasons=("processes that escape it are ended by Slurm's own tracking",),
)
