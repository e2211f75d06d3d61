"""What was, for the pages: who held which GPU, how apps stood from round to round, who is over.

    past.take(outcome.changes.events, outcome.commands, owner_of)   # as it happens
    past.remember(steps, owners)                                    # from before a restart

All of it is bounded and in memory; the store's log has it longer. Whose something was is kept with
it: a name may be somebody else's by now.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.records import RoundRecord
from themis.core.model import AppId, OwnerId
from themis.dashboard.app_history import Histories
from themis.dashboard.segment_columns import HeldSegment
from themis.service.persistence.round_history import Arrival, Steps, arrivals
from themis.service.retained_rows import EndedApp, EndedApps

MOST_SEGMENTS = 100_000
MOST_ENDED = 200
"""Apps that are over, in lists; the newest."""


@dataclass(frozen=True, slots=True)
class OwnedSegment:
    """A segment, and whose it was; None if nobody knows any more."""

    held: HeldSegment
    owner: OwnerId | None


class PageHistory:
    """What was. `changed` rises with everything that a page may show."""

    def __init__(self, departed: EndedApps, most: int = MOST_SEGMENTS) -> None:
        self.histories = Histories()
        self.changed = 0
        self.closed = 0
        """Segments so far, since the start."""
        self._segments: deque[OwnedSegment] = deque(maxlen=most)
        self._ended: OrderedDict[AppId, EndedApp] = OrderedDict()
        for app, ended in sorted(departed.all(), key=lambda item: item[1].at)[-MOST_ENDED:]:
            self._ended[app] = ended
        self._departed = departed
        self._since: list[RoundRecord | Arrival] | None = []
        """Rounds and arrivals since the start, until those from before it are known."""

    def take(
        self,
        events: Sequence[ev.Event],
        commands: Sequence[object],
        owner_of: Callable[[AppId], OwnerId | None],
    ) -> None:
        """Something happened, and is durable."""
        for arrival in arrivals(events, commands):
            self._begin(arrival)
        for command in commands:
            match command:
                case cmd.End(app=app, leases=leases, at=at):
                    owner = owner_of(app)
                    for lease in leases:
                        if lease.start < at:
                            self._add(lease.gpu, app, lease.start, at, str(lease.source), owner)
                case cmd.RecordRound(record=record):
                    self.histories.note(record.opened, record.apps)
                    if self._since is not None:
                        self._since.append(record)
                case cmd.RecordApp(record=over):
                    self._end(over.app)
                case _:
                    pass
        self.changed += 1

    def _begin(self, arrival: Arrival) -> None:
        """A name is used, perhaps anew."""
        self.histories.forget(arrival.app)
        self._ended.pop(arrival.app, None)
        if self._since is not None:
            self._since.append(arrival)

    def _end(self, app: AppId) -> None:
        ended = self._departed.find(app)
        if ended is not None:
            self._ended[app] = ended
            while len(self._ended) > MOST_ENDED:
                self._ended.popitem(last=False)

    def _add(
        self, gpu: int, app: str, start: float, end: float, source: str, owner: OwnerId | None
    ) -> None:
        self._segments.append(OwnedSegment(HeldSegment(gpu, app, start, end, source), owner))
        self.closed += 1

    def remember(self, steps: Steps, owners: Mapping[AppId, OwnerId]) -> None:
        """Take in what was before the start, in its order.

        Args:
            steps: What a part of the log says.
            owners: Of apps that are there, or over and not forgotten.
        """
        since = self._since or []
        arrived = {step.app for step in (*steps, *since) if isinstance(step, Arrival)}
        known = {app: owner for app, owner in owners.items() if app not in arrived}
        before: list[OwnedSegment] = []
        histories = Histories()
        for step in steps:
            if isinstance(step, Arrival):
                known[step.app] = step.owner
            if isinstance(step, cmd.End):
                for lease in step.leases:
                    if lease.start < step.at:
                        source = str(lease.source)
                        held = HeldSegment(lease.gpu, lease.app, lease.start, step.at, source)
                        before.append(OwnedSegment(held, known.get(lease.app)))
        for step in (*steps, *since):
            if isinstance(step, Arrival):
                histories.forget(step.app)
            elif isinstance(step, RoundRecord):
                histories.note(step.opened, step.apps)
        self._since = None
        self.histories = histories
        room = (self._segments.maxlen or 0) - len(self._segments)
        self._segments.extendleft(reversed(before[-room:] if room else []))
        self.changed += 1

    def segments(self, since: int | None = None) -> Iterator[OwnedSegment]:
        """Those that are over; with `since` only those closed after so many of them."""
        if since is None or since > self.closed:
            return iter(tuple(self._segments))
        count = min(self.closed - since, len(self._segments))
        return iter(tuple(islice(self._segments, len(self._segments) - count, None)))

    @property
    def kept(self) -> int:
        """How many segments are kept."""
        return len(self._segments)

    @property
    def oldest(self) -> OwnedSegment | None:
        """The first segment that is kept."""
        return self._segments[0] if self._segments else None

    def ended(self) -> Iterator[tuple[AppId, EndedApp]]:
        """Apps that are over, the newest first."""
        return iter(tuple(reversed(self._ended.items())))
