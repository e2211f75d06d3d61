"""Machines that an operator has retired: not shown and not counted any more.

GPUs have numbers that never change, so the cluster goes on knowing such a machine. A machine that
comes back all the same is shown again, and used.
"""

from themis.core.arbiter import events as ev
from themis.core.steward.commands import Outcome
from themis.core.steward.events import StewardEvent
from themis.service.persistence.commit_queue import DurableRows

_PREFIX = "retired/"


class RetiredMachines:
    """The names of retired machines."""

    def __init__(self, rows: DurableRows) -> None:
        self._rows = rows

    def __contains__(self, name: object) -> bool:
        return f"{_PREFIX}{name}" in self._rows

    def retire(self, name: str) -> None:
        """Retire a machine."""
        self._rows.keep({_PREFIX + name: ""})

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Forget machines that are back."""
        joined = [each for each in outcome.changes.events if isinstance(each, ev.MachineJoined)]
        back = {each.machine.name for each in joined if each.machine.name in self}
        self._rows.keep({_PREFIX + name: None for name in sorted(back)})
