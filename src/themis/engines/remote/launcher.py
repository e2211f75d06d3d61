"""What a cluster's own scheduler does for a `RemoteEngine`: start supervisors, and end them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from themis.engines.base import Capabilities, Discovered


@dataclass(frozen=True, slots=True)
class RemoteTiming:
    """What an engine waits for, in seconds."""

    pending: float = 60.0
    """From a start until its supervisor has spoken; then it is called off, and never ran."""
    silence: float = 15.0
    """Without a sign of life of any supervisor that should be there, the machine is not well."""
    patience: float = 30.0
    """From calling a start off until it counts as one that cannot be ended."""
    beat: float = 1.0
    """Between signs of life of a supervisor."""
    look: float = 0.05
    """Between looks at pages while something starts or stops,"""
    idle: float = 0.5
    """and otherwise."""
    places: float = 2.0
    """Between questions to the scheduler where its jobs are."""
    settle: float = 10.0
    """What was launched and is not there after so long is gone."""


@dataclass(frozen=True, slots=True)
class LaunchStage:
    """Where a start is, as the scheduler has it."""

    state: Literal["waiting", "placed", "lost", "empty"]
    """waiting for its GPUs; placed on them; lost with its machine, perhaps alive there; empty: it
    has its GPUs, and nothing of it runs any more."""
    why: str = ""
    never: bool = False
    """It is known that nothing of it ever ran."""

    @staticmethod
    def is_gone(place: "LaunchStage | None") -> bool:
        """Whether nothing of a start is alive or to come."""
        return place is None or place.state == "empty"


class Launcher(Protocol):
    """How one machine's supervisors are started. Starts are told apart by their names."""

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do here, by way of this."""

    @property
    def gpu_variables(self) -> tuple[str, ...]:
        """Variables that tell a supervisor which GPUs it was given; the first one set counts."""

    async def discover(self, busy: Collection[int]) -> Discovered:
        """The machine and its GPUs as they are now; all in slots of one GPU each.

        Args:
            busy: Numbers that jobs of ours run under. What others use is the trouble of any of the
                rest: which one they use cannot be known, and does not matter.
        """

    async def launch(
        self, name: str, argv: Sequence[str], gpus: int, errors: Path, changed: Callable[[], None]
    ) -> None:
        """Ask for so many GPUs of the machine and run `argv` there; returns when that was asked.

        Args:
            name: How it is found again.
            argv: The supervisor.
            gpus: How many.
            errors: A file for what it says.
            changed: To be called when it has probably ended, if that can be known.

        Raises:
            UnavailableError: Not now; whatever was begun has been called off. It is tried again.
            RefusedError: Never: there is no such machine, the account may not, ...
        """

    async def places(self) -> Mapping[str, LaunchStage] | None:
        """All starts of this cluster's that are not over, by name; None if nobody can tell now."""

    async def cancel(self, name: str, *, hard: bool) -> None:
        """End a start and give back its GPUs; `hard`: by SIGKILL, else its supervisor is over.

        Raises:
            UnavailableError: The scheduler does not answer.
        """

    def address(self, machine: str) -> str:
        """Where jobs on other machines reach this one; its name if nobody knows better."""

    def argv(self, task_file: Path) -> list[str]:
        """The command that supervises a task, on the machine itself."""
