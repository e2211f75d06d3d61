"""What clusters of other schedulers have in common: machines that rest, GPUs that others use."""

import re
from collections.abc import Callable, Collection

from themis.engines.base import Gpu
from themis.engines.remote.engine import RemoteEngine

_AWAY = 60.0
"""Seconds that a machine rests whose supervisors fell silent; twice as long each time."""
_LONGEST_AWAY = 600.0


class MachineBackoff:
    """Machines whose scheduler calls them well, and whose supervisors are silent all the same."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._engines: dict[str, RemoteEngine] = {}
        self._away: dict[str, tuple[float, float]] = {}
        """Until when they rest, and for how long."""

    def opened(self, machine: str, engine: RemoteEngine) -> None:
        """It has an engine now, which hears its supervisors."""
        self._engines[machine] = engine

    def is_down(self, machine: str) -> None:
        """The scheduler knows: when it has it up again, it is."""
        self._away.pop(machine, None)
        self._engines.pop(machine, None)  # What that one heard was before.

    def rests(self, machine: str) -> bool:
        """Whether it is not to be used now."""
        now = self._now()
        until, length = self._away.get(machine, (0.0, _AWAY / 2))
        engine = self._engines.get(machine)
        if engine is not None and engine.quiet and now >= until:
            until, length = self._away[machine] = now + 2 * length, min(2 * length, _LONGEST_AWAY)
            del self._engines[machine]
        return now < until


class ForeignGpus:
    """How many GPUs of each machine are in the hands of others."""

    def __init__(self, scheduler: str) -> None:
        self._told = f"used by jobs of {scheduler}'s that are not Themis's"
        self._seen: dict[str, int] = {}

    def troubles(self, machine: str, used: int) -> list[str]:
        """One for each GPU that others use."""
        # Two questions are not one moment: what counts is what two looks agree on.
        before, self._seen[machine] = self._seen.get(machine, 0), max(0, used)
        return [self._told] * min(before, self._seen[machine])


def gpus_with_troubles(
    count: int, model: str, troubles: Collection[str], busy: Collection[int]
) -> list[Gpu]:
    """The GPUs of a machine. Which ones have trouble cannot be known, and does not matter.

    They are the last ones that we do not use.
    """
    left, trouble = list(troubles), dict[int, str]()
    for index in reversed(range(count)):
        if left and index not in busy:
            trouble[index] = left.pop()
    return [Gpu(index, model=model, trouble=trouble.get(index, "")) for index in range(count)]


def themis_name(text: str) -> str:
    """A name of a scheduler's as Themis can have it."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63] or "x"
