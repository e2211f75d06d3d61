"""Machines and GPUs of a cluster that Themis must not use for a while."""

import re
from collections.abc import Callable, Collection

from themis.engines.base import Gpu
from themis.engines.remote.engine import RemoteEngine

_AWAY = 60.0
"""Seconds that a machine is not used after its supervisors fell silent; doubled each time."""
_LONGEST_AWAY = 600.0


class MachineBackoff:
    """Backs off from machines that the scheduler lists as up while their supervisors are silent."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._engines: dict[str, RemoteEngine] = {}
        self._away: dict[str, tuple[float, float]] = {}
        """End and length of the latest back-off of each machine."""

    def opened(self, machine: str, engine: RemoteEngine) -> None:
        """Watch the supervisors of a machine through its engine."""
        self._engines[machine] = engine

    def is_down(self, machine: str) -> None:
        """The scheduler lists the machine as down: no back-off when it comes up again."""
        self._away.pop(machine, None)
        self._engines.pop(machine, None)  # its silence was before that

    def backs_off(self, machine: str) -> bool:
        """Whether the machine must not be used now."""
        now = self._now()
        until, length = self._away.get(machine, (0.0, _AWAY / 2))
        engine = self._engines.get(machine)
        if engine is not None and engine.quiet and now >= until:
            until, length = self._away[machine] = now + 2 * length, min(2 * length, _LONGEST_AWAY)
            del self._engines[machine]
        return now < until


class ForeignGpus:
    """How many GPUs of each machine other users of the scheduler have."""

    def __init__(self, scheduler: str) -> None:
        self._reason = f"used by jobs of {scheduler}'s that are not Themis's"
        self._seen: dict[str, int] = {}

    def troubles(self, machine: str, used: int) -> list[str]:
        """The reason, once for each GPU that others use."""
        # Both numbers come from different moments: two looks must agree.
        before, self._seen[machine] = self._seen.get(machine, 0), max(0, used)
        return [self._reason] * min(before, self._seen[machine])


def gpus_with_troubles(
    count: int, model: str, troubles: Collection[str], busy: Collection[int]
) -> list[Gpu]:
    """The GPUs of a machine; troubles go to the last GPUs that we do not use.

    The scheduler does not say which GPUs others use, and it does not matter.
    """
    left, trouble = list(troubles), dict[int, str]()
    for index in reversed(range(count)):
        if left and index not in busy:
            trouble[index] = left.pop()
    return [Gpu(index, model=model, trouble=trouble.get(index, "")) for index in range(count)]


def themis_name(text: str) -> str:
    """A scheduler's name, reduced to characters that Themis allows."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63] or "x"
