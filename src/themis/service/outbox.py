"""One app's mailbox: news wait here until its agent says that it has heard them.

desk.put(OfferNews(...))
desk.take(report, at, fence)    # which of what was said is new
desk.news(at)                   # what is not heard yet
"""

from collections import deque

from themis.core.model import AppId
from themis.protocol.agent_messages import (
    AgentReport,
    AgentStart,
    News,
    NewsItem,
    OverNews,
    PointsNews,
    ProgressNews,
    RunNews,
    Said,
    TopologyNews,
)

MOST_ITEMS = 1000
"""News that wait; an agent that hears nothing for so long begins again with its standing."""
MOST_VALUES = 1 << 12
"""Values of points in one answer, which take some 50 ms to write; the others come with the next."""
TEXT_AS_A_VALUE = 16
"""So many characters of a log count as one value."""


class AgentOutbox:
    """The state of the talk with one agent."""

    def __init__(self, app: AppId, epoch: int, at: float, first: int = 1) -> None:
        self.app = app
        self._epoch = epoch
        self.seen = at
        """When its agent was last heard."""
        self.unreachable = False
        self.began = 0
        """Which outcome of the steward tells of runs from the beginning; those before it do not."""
        self._fence = 0
        self._number = 0
        self._first = first
        self._items: deque[NewsItem] = deque()
        self._stale = True
        """Whether the agent must begin again with its standing."""
        self._over: OverNews | None = None
        self._heard: dict[int, int] = {}

    @property
    def answers(self) -> int:
        """The number of the report that is being answered."""
        return self._number

    @property
    def needs_standing(self) -> bool:
        """Whether nothing can be told but the whole."""
        return self._stale

    @property
    def pending(self) -> bool:
        """Whether there is something to tell."""
        return self._stale or bool(self._items)

    def put(self, item: NewsItem) -> None:
        """Keep news until they are heard."""
        if self._stale or self._over is not None:
            return  # The standing will have it, or nothing more is to be said.
        if isinstance(item, TopologyNews):
            self._forget_topologies()
        self._items.append(item)
        if len(self._items) > MOST_ITEMS:
            self.begin_again()

    def _forget_topologies(self) -> None:
        """Only the last one counts, and hundreds of them would be too long for one message."""
        nothing = ProgressNews(())
        for index, item in enumerate(self._items):
            if isinstance(item, TopologyNews):
                self._items[index] = nothing  # Items are numbered: the others keep theirs.

    def conclude(self, over: OverNews) -> None:
        """The app is over; nothing more will come after this, whoever asks for it."""
        if self._over is None:
            self._over, self._stale = over, False
            self._items.append(over)

    def begin_again(self) -> None:
        """Forget what was to be told: the next news is a standing, or that there is none."""
        self._first += len(self._items)
        self._items.clear()
        if self._over is None:
            self._stale = True
        else:
            self._items.append(self._over)

    def take(self, report: AgentReport, at: float, fence: int) -> tuple[Said, ...]:
        """Note what the agent has heard; returns what it says that is new.

        Args:
            report: What came.
            at: When.
            fence: The session that it is of, which is the one that speaks for the app.
        """
        self.seen = at
        if fence != self._fence:
            self._fence = fence
            self._number = 0
            self.begin_again()
        elif not self._stale and report.epoch == self._epoch:
            while self._items and self._first <= report.heard:
                item = self._items.popleft()
                self._first += 1
                if isinstance(item, PointsNews):
                    self._heard[item.run] = item.first + len(item.points) - 1
        if report.number <= self._number:
            return ()
        self._number = report.number
        return report.said

    def heard_points(self) -> tuple[tuple[int, int], ...]:
        """Runs with the number of the last point heard, of those that are new since last asked."""
        heard, self._heard = self._heard, {}
        return tuple(heard.items())

    def stand(self, standing: AgentStart) -> None:
        """Put the whole first."""
        self._stale = False
        self._items.appendleft(standing)

    def news(self, at: float) -> News:
        """What is not heard yet, the first part of it where it is long."""
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
        told = tuple(items)
        return News(self._epoch, self._number, at, self._first, told, self._fence)
