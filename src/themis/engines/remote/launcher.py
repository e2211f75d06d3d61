"""How a cluster's own scheduler starts and ends supervisors for a `RemoteEngine`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from themis.engines.base import Capabilities, Discovered


@dataclass(frozen=True, slots=True)
class RemoteTiming:
    """Intervals and timeouts of a remote engine, in seconds."""

    pending: float = 60.0
    """From a start until its supervisor writes a page; later it is called off, and never ran."""
    silence: float = 15.0
    """After which a machine with only silent supervisors is unhealthy."""
    patience: float = 30.0
    """From calling a start off until it counts as unkillable."""
    beat: float = 1.0
    """Between beats of a supervisor."""
    look: float = 0.05
    """Between looks at pages while something starts or stops,"""
    idle: float = 0.5
    """and otherwise."""
    places: float = 2.0
    """Between queries of the scheduler's jobs."""
    settle: float = 10.0
    """After which a launched start that the scheduler does not list is gone."""


@dataclass(frozen=True, slots=True)
class LaunchStage:
    """The state of a start in the scheduler."""

    state: Literal["waiting", "placed", "lost", "empty"]
    """waiting for its GPUs; placed on them; lost with its machine, perhaps alive there; empty: it
    holds its GPUs and no process of it runs."""
    why: str = ""
    never: bool = False
    """It is certain that no process of it ever ran."""

    @staticmethod
    def is_gone(place: "LaunchStage | None") -> bool:
        """Whether no process of a start is alive or to come."""
        return place is None or place.state == "empty"


class Launcher(Protocol):
    """Starts supervisors on one machine, each under a name."""

    @property
    def capabilities(self) -> Capabilities:
        """What an engine can do through this launcher."""

    @property
    def gpu_variables(self) -> tuple[str, ...]:
        """Variables that tell a supervisor which GPUs it was given; the first one set counts."""

    async def discover(self, busy: Collection[int]) -> Discovered:
        """The machine and its GPUs as they are now; all in slots of one GPU each.

        Args:
            busy: The numbers of GPUs that our jobs have. GPUs of others are reported as troubles of
                any other numbers: the scheduler does not say which ones they are.
        """

    async def launch(
        self, name: str, argv: Sequence[str], gpus: int, errors: Path, changed: Callable[[], None]
    ) -> None:
        """Request GPUs of the machine and run `argv` there; returns when that is requested.

        Args:
            name: The name of the start.
            argv: The command line of the supervisor.
            gpus: The number of GPUs.
            errors: The file for its stderr.
            changed: Called when it has probably ended, if the launcher hears of that.

        Raises:
            UnavailableError: Not now; the engine retries. Nothing is left of the attempt.
            RefusedError: Never: no such machine, the account may not use it, ...
        """

    async def places(self) -> Mapping[str, LaunchStage] | None:
        """All starts of the cluster that hold GPUs, by name; None: the scheduler is away."""

    async def cancel(self, name: str, *, hard: bool) -> None:
        """End a start and give back its GPUs; `hard`: by SIGKILL, else its supervisor has ended.

        Raises:
            UnavailableError: The scheduler does not answer.
        """

    def address(self, machine: str) -> str:
        """The address of a machine for jobs on other machines; its name if none is known."""

    def argv(self, task_file: Path) -> list[str]:
        """The command that supervises a task, on the machine itself."""
