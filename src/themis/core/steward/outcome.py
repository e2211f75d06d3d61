"""Collects what one event leads to, until it is the `Outcome`."""

from collections.abc import Iterable, Mapping

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.steward.commands import AnswerReport, DurableChanges, Outcome, StewardCommand
from themis.core.steward.events import StewardEvent
from themis.core.steward.rows import RowChanges, StewardRow


class OutcomeBuilder:
    """The outcome of the event that is being handled, and all rows as stored."""

    def __init__(self, rows: Mapping[str, StewardRow], at: float) -> None:
        self.now = at
        self.event: StewardEvent | None = None
        self.refusal: cmd.Refuse | None = None
        """Why that event itself is refused."""
        self._rows = dict(rows)
        self._changes: RowChanges = {}
        self._events: list[ev.Event] = []
        self._commands: list[StewardCommand] = []
        self._answers: list[AnswerReport] = []

    @property
    def rows(self) -> Mapping[str, StewardRow]:
        """All rows; read only."""
        return self._rows

    @property
    def changes_anything(self) -> bool:
        """Whether there is something to store."""
        return bool(self._events or self._changes)

    def begin(self, event: StewardEvent) -> None:
        """Another event is being handled."""
        self.event, self.refusal = event, None
        self.now = max(self.now, event.at)
        self._events, self._commands, self._answers = [], [], []

    def store(self, changes: RowChanges) -> None:
        """Store rows before anything of this outcome leaves the service."""
        for key, row in changes.items():
            if row is not None:
                self._rows[key] = row
            elif self._rows.pop(key, None) is None:
                continue  # It was never written.
            self._changes[key] = row

    def record(self, event: ev.Event) -> None:
        """The arbiter took an event."""
        self._events.append(event)

    def tell(self, *commands: StewardCommand | None) -> None:
        """Carry out these commands."""
        self._commands += [command for command in commands if command is not None]

    def refuse(self, who: str, reason: str) -> None:
        """The event itself is refused."""
        self.refusal = cmd.Refuse(who, reason)
        self.tell(self.refusal)

    def answer(self, answers: Iterable[AnswerReport]) -> None:
        """Answer reports of nodes."""
        self._answers += answers

    def build(self, wake: float | None) -> Outcome:
        """The whole of it."""
        changes = DurableChanges(tuple(self._events), self._changes or None)
        self._changes = {}
        return Outcome(changes, tuple(self._commands), tuple(self._answers), wake, self.refusal)
