"""News for one app's agent, kept until the agent acknowledges them.

outbox.put(OfferNews(...))
outbox.receive(report, at, fence)   # which of what was said is new
outbox.news(at)                     # what is not acknowledged yet
"""

from collections import deque

from themis.core.model import AppId
from themis.protocol.agent_messages import (
    AgentReport,
    AgentRequest,
    AgentStart,
    AppEndNews,
    News,
    NewsItem,
    OfferNews,
    PointsNews,
    ProgressNews,
    RunNews,
    TopologyNews,
)

MOST_ITEMS = 1000
"""News that wait; an agent that acknowledges none for so long begins again with `AgentStart`."""
MOST_VALUES = 1 << 12
"""Values of points in one answer, which take some 50 ms to write; the others come with the next."""
TEXT_AS_A_VALUE = 16
"""So many characters of a log count as one value."""


class AgentOutbox:
    """The state of the exchange with one app's agents."""

    def __init__(self, app: AppId, epoch: int, at: float, first: int = 1) -> None:
        self.app = app
        self.seen = at
        """When an agent of the app last called."""
        self.unreachable = False
        self.opened_at = 0
        """The number of the outcome that opened the session and tells of all runs again."""
        self.offer: OfferNews | None = None
        """What the app was asked and has not answered."""
        self.needs_start = True
        """Whether the agent must begin again, with `AgentStart`."""
        self._epoch = epoch
        self._fence = 0
        self._number = 0
        self._first = first
        self._items: deque[NewsItem] = deque()
        self._over: AppEndNews | None = None
        self._acknowledged: dict[int, int] = {}

    @property
    def pending(self) -> bool:
        """Whether there is something to tell."""
        return self.needs_start or bool(self._items)

    @property
    def ended(self) -> bool:
        """Whether the app is over."""
        return self._over is not None

    def put(self, item: NewsItem) -> None:
        """Keep news until they are acknowledged."""
        if self.needs_start or self.ended:
            return  # `AgentStart` will have it, or nothing more is to be said.
        if isinstance(item, TopologyNews):
            self._drop_topologies()
        self._items.append(item)
        if len(self._items) > MOST_ITEMS:
            self._begin_again()

    def _drop_topologies(self) -> None:
        """Only the last one counts, and hundreds of them would be too long for one message."""
        nothing = ProgressNews(())
        for index, item in enumerate(self._items):
            if isinstance(item, TopologyNews):
                self._items[index] = nothing  # Items are numbered: the others keep theirs.

    def start(self, start: AgentStart) -> None:
        """Put the whole state first."""
        self.needs_start = False
        self._items.appendleft(start)

    def end(self, over: AppEndNews) -> None:
        """The app is over; nothing more comes after this."""
        self.offer = None
        if self._over is None:
            self._over, self.needs_start = over, False
            self._items.append(over)

    def end_round(self, number: int) -> None:
        """The app answered an offer, or its round is over."""
        if self.offer is not None and self.offer.offer.round == number:
            self.offer = None

    def receive(self, report: AgentReport, at: float, fence: int) -> tuple[AgentRequest, ...]:
        """Drop what the agent acknowledges; returns what it says that is new.

        Args:
            report: What came.
            at: When.
            fence: The fence of its session, which is the one that speaks for the app.
        """
        self.seen = at
        if fence != self._fence:
            self._fence = fence
            self._number = 0
            self._begin_again()
        elif not self.needs_start and report.epoch == self._epoch:
            while self._items and self._first <= report.heard:
                item = self._items.popleft()
                self._first += 1
                if isinstance(item, PointsNews):
                    self._acknowledged[item.run] = item.first + len(item.points) - 1
        if report.number <= self._number:
            return ()
        self._number = report.number
        return report.requests

    def _begin_again(self) -> None:
        """Drop all news: the next is `AgentStart`, or that the app is over."""
        self._first += len(self._items)
        self._items.clear()
        if self._over is None:
            self.needs_start = True
        else:
            self._items.append(self._over)

    def acknowledged_points(self) -> tuple[tuple[int, int], ...]:
        """Runs with their last acknowledged point, of those that are new since last asked."""
        acknowledged, self._acknowledged = self._acknowledged, {}
        return tuple(acknowledged.items())

    def news(self, at: float) -> News:
        """What is not acknowledged yet; the first part of it where it is long."""
        items: list[NewsItem] = []
        weight = 0
        for item in self._items:
            if isinstance(item, PointsNews):
                weight += sum(point.weight for point in item.points)
            elif isinstance(item, RunNews):
                weight += len(item.log) // TEXT_AS_A_VALUE
            if items and weight > MOST_VALUES:
                break
            items.append(item)
        return News(self._epoch, self._number, at, self._first, tuple(items), self._fence)
