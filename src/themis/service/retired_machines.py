"""Machines that are gone for good, as an operator said.

    service.keep(service.removed.note("gpu-07"))

GPUs have numbers that never change, so the cluster goes on knowing such a machine; it is only not
shown and not counted any more. One that comes back all the same is shown again, and used.
"""

from collections.abc import Iterable, Mapping

from themis.core.arbiter import events as ev

_PREFIX = "removed/"


class RetiredMachines:
    """Their names."""

    def __init__(self, kept: Mapping[str, str]) -> None:
        self._names = {key.removeprefix(_PREFIX) for key in kept if key.startswith(_PREFIX)}

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def note(self, name: str) -> dict[str, str | None]:
        """A machine is gone for good; the rows to keep."""
        self._names.add(name)
        return {_PREFIX + name: ""}

    def hear(self, events: Iterable[ev.Event]) -> dict[str, str | None]:
        """Forget those that are back; the rows to keep."""
        if not self._names:
            return {}
        joined = {each.machine.name for each in events if isinstance(each, ev.MachineJoined)}
        back = sorted(joined & self._names)
        self._names.difference_update(back)
        return {_PREFIX + name: None for name in back}
