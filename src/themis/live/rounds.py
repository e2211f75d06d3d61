"""The last rounds, for who wants to know why.

book = RoundBook()
remember(book, store.entries(first), owners)      # those from before a restart
"""

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from themis.arbiter import commands as cmd
from themis.arbiter import events as ev
from themis.arbiter.record import RoundRecord
from themis.errors import RefusedError
from themis.live.store.base import Store
from themis.model import AppId, OwnerId
from themis.records.codec import TAG, command_from, event_from, loads

MOST = 500
REMEMBERED = 2000
"""Entries of the log that are looked through for rounds after a start."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds from the log, the oldest first, and whose the apps are that arrived meanwhile."""

    records: tuple[RoundRecord, ...]
    owners: Mapping[AppId, OwnerId]


class RoundBook:
    """Rounds by number; the oldest are forgotten here, the store's log has them longer."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._rounds: OrderedDict[int, RoundRecord] = OrderedDict()
        self.owners: dict[AppId, OwnerId] = {}
        """Of all apps in these rounds."""

    def add(self, record: RoundRecord, owners: dict[AppId, OwnerId]) -> None:
        """Keep a round, and whose its apps are."""
        self._rounds[record.round] = record
        self.owners.update(owners)
        while len(self._rounds) > self._most:
            self._rounds.popitem(last=False)
            if len(self.owners) > 100 * self._most:
                named = {line.app for kept in self._rounds.values() for line in kept.apps}
                self.owners = {app: who for app, who in self.owners.items() if app in named}

    def knows(self, owners: Mapping[AppId, OwnerId]) -> None:
        """Keep whose apps are, unless that is known already: the last who had a name counts."""
        self.owners = {**owners, **self.owners}

    @property
    def full(self) -> bool:
        """Whether an earlier round has no room any more."""
        return len(self._rounds) >= self._most

    def remember(self, found: Rounds) -> None:
        """Keep rounds from before all that are there.

        Apps whose arrival was not found are sealed for everybody but admins.
        """
        self.knows(found.owners)
        for record in reversed(found.records):
            if not self.full and record.round not in self._rounds:
                self._rounds[record.round] = record
                self._rounds.move_to_end(record.round, last=False)

    def numbers(self) -> list[int]:
        """Which are there, the oldest first."""
        return list(self._rounds)

    def round(self, number: int) -> tuple[RoundRecord, RoundRecord | None]:
        """One of them, and the one before it."""
        return self._rounds[number], self._rounds.get(number - 1)


def read_rounds(store: Store, first: int, last: int) -> Rounds:
    """Look through a part of the log. What cannot be read is left out: nothing depends on it."""
    owners: dict[AppId, OwnerId] = {}
    records: list[RoundRecord] = []
    for stored in store.entries(first, last):
        with suppress(RefusedError, KeyError, TypeError):
            body: Any = loads(stored.entry.body)
            for item in body["events"]:
                if item.get(TAG) == ev.AppArrived.__name__:
                    event = event_from(item)
                    if isinstance(event, ev.AppArrived):
                        owners[event.app.id] = event.app.owner
            for item in body["commands"]:
                if item.get(TAG) == cmd.Report.__name__:
                    command = command_from(item)
                    if isinstance(command, cmd.Report):
                        records.append(command.record)
    return Rounds(tuple(records), owners)
