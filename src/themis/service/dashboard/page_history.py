"""The past that the pages show: closed segments, rho from round to round, ended apps.

    past.take(event, outcome)           # as it happens
    past.remember(steps, owners)        # from before a restart

It is bounded and in memory; the log in the store reaches back further. Each segment keeps its
owner, because another owner may use the name of its app by now.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from themis.core.arbiter import commands as cmd
from themis.core.arbiter.records import RoundRecord
from themis.core.model import AppId, OwnerId
from themis.core.steward.commands import Outcome
from themis.core.steward.events import StewardEvent
from themis.dashboard.app_history import AppHistories
from themis.dashboard.timeline_columns import HeldSegment, held_segment
from themis.service.persistence.round_history import Arrival, Steps, arrivals
from themis.service.retained_rows import EndedApp, EndedApps

MOST_SEGMENTS = 100_000
MOST_ENDED = 200
"""Ended apps in lists, the newest."""


@dataclass(frozen=True, slots=True)
class OwnedSegment:
    """A segment and its owner; None if the owner is not known any more."""

    held: HeldSegment
    owner: OwnerId | None


class PageHistory:
    """The past of a service. `changed` rises with everything that a page may show."""

    def __init__(
        self,
        ended: EndedApps,
        owner_of: Callable[[AppId], OwnerId | None],
        most: int = MOST_SEGMENTS,
    ) -> None:
        self.histories = AppHistories()
        self.changed = 0
        self.closed = 0
        """Segments that have closed since the start."""
        self._segments: deque[OwnedSegment] = deque(maxlen=most)
        self._ended = ended
        self._owner_of = owner_of
        self._since: list[RoundRecord | Arrival] | None = []
        """Rounds and arrivals since the start, until those from before it are known."""

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Note what an outcome changes for the pages."""
        for arrival in arrivals(outcome.changes.events, outcome.commands):
            self._begin(arrival)
        for command in outcome.commands:
            match command:
                case cmd.End(app=app, leases=leases, at=at):
                    owner = self._owner_of(app)
                    for lease in leases:
                        if lease.start < at:
                            self.add(held_segment(lease, at), owner)
                case cmd.RecordRound(record=record):
                    self.histories.note_round(record)
                    if self._since is not None:
                        self._since.append(record)
                case _:
                    pass
        self.changed += 1

    def _begin(self, arrival: Arrival) -> None:
        """An app arrived, perhaps with the name of an ended one."""
        self.histories.forget(arrival.app)
        if self._since is not None:
            self._since.append(arrival)

    def add(self, held: HeldSegment, owner: OwnerId | None) -> None:
        """Take in a segment that has closed."""
        self._segments.append(OwnedSegment(held, owner))
        self.closed += 1

    def remember(self, steps: Steps, owners: Mapping[AppId, OwnerId]) -> None:
        """Take in what happened before the start of the service.

        Args:
            steps: What a part of the log says, in its order.
            owners: Of active apps, and of ended ones that are not forgotten.
        """
        since = self._since or []
        arrived = {step.app for step in (*steps, *since) if isinstance(step, Arrival)}
        known = {app: owner for app, owner in owners.items() if app not in arrived}
        before: list[OwnedSegment] = []
        histories = AppHistories()
        for step in steps:
            if isinstance(step, Arrival):
                known[step.app] = step.owner
            if isinstance(step, cmd.End):
                before += [
                    OwnedSegment(held_segment(lease, step.at), known.get(lease.app))
                    for lease in step.leases
                    if lease.start < step.at
                ]
        for step in (*steps, *since):
            if isinstance(step, Arrival):
                histories.forget(step.app)
            elif isinstance(step, RoundRecord):
                histories.note_round(step)
        self._since = None
        self.histories = histories
        room = (self._segments.maxlen or 0) - len(self._segments)
        self._segments.extendleft(reversed(before[-room:] if room else []))
        self.changed += 1

    def segments(self, since: int | None = None) -> Iterator[OwnedSegment]:
        """The closed segments; with `since` only those that closed after the first `since`."""
        if since is None or since > self.closed:
            return iter(tuple(self._segments))
        count = min(self.closed - since, len(self._segments))
        return iter(tuple(islice(self._segments, len(self._segments) - count, None)))

    @property
    def kept(self) -> int:
        """How many closed segments are kept."""
        return len(self._segments)

    @property
    def oldest(self) -> OwnedSegment | None:
        """The first closed segment that is kept."""
        return self._segments[0] if self._segments else None

    def ended(self) -> Iterator[tuple[AppId, EndedApp]]:
        """Ended apps, the newest first."""
        return islice(self._ended.all(), MOST_ENDED)
