"""Starts and ends supervisors on one machine of a Ray cluster."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from themis.engines.base import Capabilities, Discovered
from themis.engines.host.detached_thread import in_own_thread
from themis.engines.ray.cluster import CAPABILITIES, RayCluster
from themis.engines.remote.launcher import LaunchStage
from themis.engines.supervisor.spawn import ENVIRONMENT, command
from themis.errors import UnavailableError

_LOG = logging.getLogger(__name__)


class RayLauncher:
    """Placement groups on one machine, and the actors in them that hold supervisors.

    The node of each start is kept on disk: a machine that comes back is a new node, and starts that
    were lost with the former one are not known to be dead.
    """

    gpu_variables = ("CUDA_VISIBLE_DEVICES",)

    def __init__(self, cluster: RayCluster, machine: str, folder: Path) -> None:
        self._cluster = cluster
        self._machine = machine
        self._file = folder / "starts.json"
        self._nodes: dict[str, str] = _read(self._file)
        self._writing = asyncio.Lock()
        self._launching: set[str] = set()
        self._ended: dict[str, str] = {}
        """Starts that their holder reported as ended, and why they never ran."""

    @property
    def capabilities(self) -> Capabilities:
        """What Ray can do."""
        return CAPABILITIES

    async def discover(self, busy: Collection[int]) -> Discovered:
        """The machine."""
        return await self._cluster.discover(self._machine, busy)

    async def launch(
        self, name: str, argv: Sequence[str], gpus: int, errors: Path, changed: Callable[[], None]
    ) -> None:
        """Make a group, and a holder in it."""
        cluster, node = self._cluster, self._cluster.node(self._machine)
        settings = cluster.settings
        self._launching.add(name)
        self._ended.pop(name, None)  # of an earlier try
        try:
            await self._remember(name, node)
            cluster.line.when_ended(name, lambda why: self._heard(name, why, changed))
            trouble = await cluster.line.call(
                "launch",
                settings.pending + 20.0,
                name=name,
                node=node,
                gpus=gpus,
                cpus=settings.cpus * max(1, gpus),
                argv=list(argv),
                env=ENVIRONMENT,
                errors=str(errors),
                patience=settings.pending,
            )
            if trouble:
                raise UnavailableError(trouble)
        except BaseException:
            with contextlib.suppress(UnavailableError):
                await self.cancel(name, hard=True)
            raise
        finally:
            self._launching.discard(name)

    async def places(self) -> Mapping[str, LaunchStage] | None:
        """The stage of each start of this machine."""
        seen = await self._cluster.starts()
        if seen is None:
            return None
        found: dict[str, LaunchStage] = {}
        for name in {*self._nodes, *seen.groups}:
            node = self._nodes.get(name, "")
            place = seen.place(name, node, launching=name in self._launching)
            if name in self._ended:
                why = self._ended[name]
                place = LaunchStage("empty", why, never=bool(why))
            elif node and LaunchStage.is_gone(place):
                # Its supervisor notices that the holder is gone and ends the job, but not at once
                # and unseen.
                place = LaunchStage("lost", "its end was not seen")
            if place is not None:
                found[name] = place
        return found

    def _heard(self, name: str, why: str | None, changed: Callable[[], None]) -> None:
        """A holder has ended; `why` is None if it did not report."""
        if why is not None:
            self._ended[name] = why
        if why:
            _LOG.warning("%s cannot be started: %s", name, why)
        self._cluster.look_again()
        changed()

    async def cancel(self, name: str, *, hard: bool) -> None:
        """Remove the group of a start; `hard`: after its holder has killed its job."""
        sure = await self._cluster.line.call("cancel", name=name, hard=hard)
        if sure or name in self._ended:
            self._cluster.line.forget(name)
            self._ended.pop(name, None)
            await self._remember(name, "")
        self._cluster.look_again()

    async def _remember(self, name: str, node: str) -> None:
        if node:
            self._nodes[name] = node
        elif self._nodes.pop(name, None) is None:
            return
        try:
            async with self._writing:
                await in_own_thread(_write, self._file, dict(self._nodes))
        except OSError as error:
            raise UnavailableError(f"{self._file} cannot be written: {error}") from error

    def address(self, machine: str) -> str:
        """Ray's address of a machine."""
        return self._cluster.address(machine)

    def argv(self, task_file: Path) -> list[str]:
        """A subreaper, run by this Python, which is on storage that all machines see."""
        return command("themis.engines.supervisor.subreaper", str(task_file))


def _read(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(node) for name, node in found.items()}


def _write(file: Path, starts: Mapping[str, str]) -> None:
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(starts), encoding="utf-8")
    draft.replace(file)
