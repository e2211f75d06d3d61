"""An agent's end of its talk: what it keeps in mind of runs."""

import asyncio
import random

from themis.agent_host.session_client import SessionClient
from themis.core.model import AppId, JobId
from themis.protocol.agent_messages import (
    AgentReport,
    AppEndNews,
    News,
    NewsItem,
    PointsNews,
    RunNews,
)
from themis.protocol.node_messages import Point, RunState

JOB = JobId("j0")
POINTS = PointsNews(7, JOB, 1, (Point(1.0), Point(2.0)))
ENDED = RunNews(7, JOB, (), "key", RunState.EXITED, 0)


class Telling:
    """A service that tells this, one item after the other."""

    def __init__(self, *items: NewsItem) -> None:
        self._items = iter(enumerate(items, 1))

    async def exchange(self, report: AgentReport) -> News:
        number, item = next(self._items)
        return News(1, report.number, 0.0, number, (item,), fence=5)


def test_points_come_once_and_are_forgotten_with_their_run() -> None:
    async def work() -> None:
        told = (POINTS, POINTS, ENDED, AppEndNews("finished"))
        link = SessionClient(Telling(*told), AppId("sweep"), random.Random(1))
        heard = [item async for item in link.news()]
        assert heard == [POINTS, ENDED, AppEndNews("finished")]
        assert not link._points, "what was heard of a run is kept after its end"

    asyncio.run(work())
