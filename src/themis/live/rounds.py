"""The last rounds, for who wants to know why."""

from collections import OrderedDict

from themis.arbiter.record import RoundRecord
from themis.model import AppId, OwnerId

MOST = 500


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

    def numbers(self) -> list[int]:
        """Which are there, the oldest first."""
        return list(self._rounds)

    def round(self, number: int) -> tuple[RoundRecord, RoundRecord | None]:
        """One of them, and the one before it."""
        return self._rounds[number], self._rounds.get(number - 1)
