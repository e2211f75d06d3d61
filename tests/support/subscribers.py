"""What subscribers of the service need in tests: rows without a store, and outcomes to take.

ended = EndedApps(rows_in_memory(), Convention.FAIR_SHARE)
give(ended, cmd.RecordApp(record))
"""

from typing import Any, cast

from themis.core.arbiter import events as ev
from themis.core.steward.commands import DurableChanges, Outcome, StewardCommand
from themis.core.steward.events import StewardEvent
from themis.service.persistence.commit_queue import CommitQueue, DurableRows
from themis.service.steward_loop import Subscriber


class _NoQueue:
    """Takes rows and stores nothing."""

    def add(self, **_: Any) -> None:
        """Do nothing: the rows themselves are in memory."""


def rows_in_memory(rows: dict[str, str] | None = None) -> DurableRows:
    """Rows that change in memory only."""
    return DurableRows({} if rows is None else rows, cast("CommitQueue", _NoQueue()))


def give(
    subscriber: Subscriber,
    *commands: StewardCommand,
    events: tuple[ev.Event, ...] = (),
    event: StewardEvent | None = None,
) -> None:
    """Let a subscriber take an outcome with these commands and arbiter events."""
    outcome = Outcome(DurableChanges(events), commands)
    subscriber.take(event or ev.Woken(0.0), outcome)
