"""Starts and ends supervisors on one machine of a Slurm cluster."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from themis.engines.base import Capabilities, Discovered
from themis.engines.host.detached_thread import in_own_thread
from themis.engines.remote.launcher import LaunchStage
from themis.engines.slurm.cluster import CAPABILITIES, SlurmCluster, granted
from themis.engines.supervisor.spawn import command
from themis.errors import RefusedError, UnavailableError

_LOG = logging.getLogger(__name__)


class SlurmLauncher:
    """Allocations and steps on one machine."""

    # The first two have the GPUs' own numbers even where jobs see theirs numbered from 0.
    gpu_variables = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")

    def __init__(self, cluster: SlurmCluster, machine: str) -> None:
        self._cluster = cluster
        self._machine = machine
        self._launching: set[str] = set()
        """Starts whose step may not exist yet, or whose `srun` is our child."""
        self._numbers: dict[str, str] = {}

    @property
    def capabilities(self) -> Capabilities:
        """What Slurm can do."""
        return CAPABILITIES

    async def discover(self, busy: Collection[int]) -> Discovered:
        """The machine."""
        return await self._cluster.discover(self._machine, busy)

    async def launch(
        self, name: str, argv: Sequence[str], gpus: int, errors: Path, changed: Callable[[], None]
    ) -> None:
        """An allocation, and a step in it."""
        cluster, node = self._cluster, self._cluster.node(self._machine)
        settings = cluster.settings
        self._launching.add(name)
        try:
            _, said = await cluster.commands.run(
                "salloc", "--no-shell", f"--job-name={name}", f"--nodelist={node}", "--nodes=1",
                "--ntasks=1", "--no-bell", *settings.options(gpus), limit=settings.pending,
            )  # fmt: skip
            number = self._numbers[name] = granted(said)
            line = [
                "srun", f"--jobid={number}", "--nodes=1", "--ntasks=1", "--chdir=/", "--mpi=none",
                "--cpu-bind=none", "--kill-on-bad-exit=0", "--quiet", f"--job-name={name}", *argv,
            ]  # fmt: skip
            pid = await in_own_thread(cluster.commands.spawn, line, errors)
        except BaseException:
            self._launching.discard(name)
            with contextlib.suppress(UnavailableError, RefusedError):
                await self.cancel(name, hard=True)
            raise
        self._watch(pid, name, changed)

    def _watch(self, pid: int, name: str, changed: Callable[[], None]) -> None:
        """Notice the end of a step when its `srun` ends."""
        loop = asyncio.get_running_loop()
        handle = os.pidfd_open(pid)

        def ended() -> None:
            loop.remove_reader(handle)
            os.close(handle)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            self._launching.discard(name)
            changed()

        loop.add_reader(handle, ended)

    async def places(self) -> Mapping[str, LaunchStage] | None:
        """The stage of each start."""
        return await self._cluster.places(self._launching)

    async def cancel(self, name: str, *, hard: bool) -> None:
        """End the allocation of a start; `hard`: kill its step first."""
        run, user = self._cluster.commands.run, f"--user={self._cluster.commands.user}"
        number = self._numbers.pop(name, "")
        which = [number] if number else [f"--name={name}", user]
        for words in ([["--signal=KILL"]] if hard else []) + [[]]:
            try:
                await run("scancel", "--quiet", *words, *which)
            except RefusedError as error:  # it has ended already
                _LOG.debug("scancel: %s", error)

    def address(self, machine: str) -> str:
        """Slurm's name of a machine."""
        return self._cluster.address(machine)

    def argv(self, task_file: Path) -> list[str]:
        """A supervisor, run by this Python, which is on storage that all machines see."""
        return command("themis.engines.supervisor.supervisor", str(task_file))
