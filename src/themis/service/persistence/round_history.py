"""The last rounds, for people who ask why.

    rounds.take(event, outcome)
    rounds.remember(read_rounds(store, first, last))    # those from before a restart

The owners of a round's apps are kept with it: a name may have been another owner's then.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.records import RoundRecord
from themis.core.model import AppId, OwnerId
from themis.core.steward.commands import Outcome
from themis.core.steward.events import StewardEvent
from themis.errors import RefusedError
from themis.recording.codec import command_from, event_from, loads
from themis.recording.tags import TAG, TAG_OF
from themis.service.persistence.store.sql import Store

MOST = 500
MOST_BYTES = 64 << 20
"""About: a round of a thousand apps that bid takes some megabytes."""
_LEAST = 2
"""Rounds that are kept however large they are: the last, and the one it is compared with."""
REMEMBERED = 2000
"""Entries of the log that are read for rounds after a start."""

_WANTED = frozenset({TAG_OF[cmd.RecordRound], TAG_OF[cmd.Refuse], TAG_OF[cmd.End]})

Owners = Mapping[AppId, OwnerId]


@dataclass(frozen=True, slots=True)
class Arrival:
    """An app arrived: from here on its name is this owner's."""

    app: AppId
    owner: OwnerId


Steps = tuple[RoundRecord | Arrival | cmd.End, ...]
"""Rounds, arrivals and ended leases of a part of the log, in its order."""


class RoundHistory:
    """Rounds by number; the oldest are forgotten here, the store's log has them longer."""

    def __init__(
        self,
        owner_of: Callable[[AppId], OwnerId | None] = lambda _: None,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._owner_of = owner_of
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._rounds: OrderedDict[int, tuple[RoundRecord, Owners]] = OrderedDict()
        self._open: dict[int, tuple[set[AppId], dict[AppId, OwnerId]]] = {}
        """By remembered round: apps whose arrival is not found yet, and owners of the others."""
        self._arrived: set[AppId] = set()

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Keep the rounds that an outcome ends."""
        for command in outcome.commands:
            if isinstance(command, cmd.RecordRound):
                named = ((line.app, self._owner_of(line.app)) for line in command.record.apps)
                self.add(command.record, {app: owner for app, owner in named if owner is not None})

    def add(self, record: RoundRecord, owners: Owners) -> None:
        """Keep a round with the owners of its apps."""
        last = next(reversed(self._rounds), None)
        if last is not None and last not in self._open and self._rounds[last][1] == owners:
            owners = self._rounds[last][1]  # The same in most rounds, and needed once.
        self._bytes += size_of(record)
        self._rounds[record.round] = record, owners
        while self._too_much:
            number, (gone, _) = self._rounds.popitem(last=False)
            self._bytes -= size_of(gone)
            self._open.pop(number, None)

    @property
    def _too_much(self) -> bool:
        if len(self._rounds) > self._most:
            return True
        return self._bytes > self._most_bytes and len(self._rounds) > _LEAST

    @property
    def full(self) -> bool:
        """Whether there is no room for an earlier round."""
        return len(self._rounds) >= self._most or self._bytes >= self._most_bytes

    def remember(self, steps: Steps) -> None:
        """Keep rounds from before all that are there; call again with those from before these."""
        for step in reversed(steps):
            if isinstance(step, Arrival):
                self._arrived.add(step.app)
                self._name(step.app, step.owner)
            elif isinstance(step, cmd.End):
                continue
            elif not self.full and step.round not in self._rounds:
                self._bytes += size_of(step)
                owners: dict[AppId, OwnerId] = {}
                self._rounds[step.round] = step, owners
                self._rounds.move_to_end(step.round, last=False)
                self._open[step.round] = {line.app for line in step.apps}, owners

    def conclude(self, owners: Owners) -> None:
        """End remembering: `owners` are those of apps that arrived before all of it.

        Other apps have no owner, and only admins see them.
        """
        for app, owner in owners.items():
            if app not in self._arrived:
                self._name(app, owner)
        self._open.clear()
        self._arrived.clear()

    def _name(self, app: AppId, owner: OwnerId) -> None:
        for apps, owners in self._open.values():
            if app in apps:
                apps.remove(app)
                owners[app] = owner

    def numbers(self) -> list[int]:
        """The numbers of the rounds, the oldest first."""
        return list(self._rounds)

    def round(self, number: int) -> tuple[RoundRecord, RoundRecord | None]:
        """A round, and the one before it."""
        before = self._rounds.get(number - 1)
        return self._rounds[number][0], before[0] if before is not None else None

    def owners(self, number: int) -> Owners:
        """The owners of a round's apps."""
        return self._rounds[number][1]


def size_of(record: RoundRecord) -> int:
    """About how many bytes a round takes; from counts alone, as it is asked often."""
    notes = record.notes
    rows = sum(100 + 60 * len(row.chunks) for bid in notes.bids for row in bid.rows)
    table = sum(len(bid.table) for bid in notes.bids)
    given = [*record.allotments, *record.followups, *record.dropped]
    gpus = sum(len(item.gpus) for item in given) + len(record.idle)
    gpus += sum(map(len, notes.won.values())) + sum(map(len, notes.paid.values()))
    lines = len(record.apps) + len(notes.standings) + len(notes.bids) + len(given)
    words = sum(map(len, record.refused.values())) + len(record.failed)
    return 2000 + 250 * lines + rows + 80 * table + 16 * gpus + words


def arrivals(events: Iterable[ev.Event], commands: Iterable[object]) -> Iterator[Arrival]:
    """The apps that arrived with an outcome, without those that were refused."""
    refused = {item.who for item in commands if isinstance(item, cmd.Refuse)}
    for event in events:
        if isinstance(event, ev.AppArrived) and event.app.id not in refused:
            yield Arrival(event.app.id, event.app.owner)


def read_rounds(store: Store, first: int, last: int) -> Steps:
    """Read a part of the log. What cannot be read is left out: nothing depends on it."""
    steps: list[RoundRecord | Arrival | cmd.End] = []
    for stored in store.entries(first, last):
        with suppress(RefusedError, KeyError, TypeError):
            body: Any = loads(stored.entry.body)
            told = [command_from(item) for item in body["commands"] if item.get(TAG) in _WANTED]
            tag = TAG_OF[ev.AppArrived]
            came = [event_from(item) for item in body["events"] if item.get(TAG) == tag]
            steps.extend(arrivals(came, told))
            for item in told:
                if isinstance(item, cmd.RecordRound):
                    steps.append(item.record)
                elif isinstance(item, cmd.End):
                    steps.append(item)
    return tuple(steps)
