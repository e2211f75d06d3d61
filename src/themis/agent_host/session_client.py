"""Exactly-once messages between one agent and the service.

    client = SessionClient(AgentClient(connection), AppId("sweep"), random.Random())
    client.say(RunRequest(...))
    async for item in client.news():      # AgentStart first, and again after a service restart
        ...

A call that fails is retried with the same number, after a backoff with full jitter: the service
takes a message that it knows only once.
"""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Protocol

from themis.core.model import AppId
from themis.errors import LimitError, RefusedError, StaleAnswerError, UnavailableError
from themis.protocol.agent_messages import (
    AgentReport,
    AgentRequest,
    AppEndNews,
    News,
    NewsItem,
    PointsNews,
    RunNews,
    RunRequest,
    TrialParams,
)
from themis.rpc.client import Backoff
from themis.rpc.methods import MOST_SAID

MOST_TEXT = 128 << 10
"""Bytes of programs and parameters in a report: the service takes 256 KiB by default."""


class ExchangeService(Protocol):
    """Carries reports to the service, as `AgentClient` does."""

    async def exchange(self, report: AgentReport) -> News:
        """Send a report; returns the news that answer it."""


class SessionClient:
    """The agent's end of its session with the service."""

    def __init__(
        self,
        client: ExchangeService,
        app: AppId,
        rng: random.Random,
        *,
        session: str = "",
        longest_wait: float = 10.0,
    ) -> None:
        self._client = client
        self._app = app
        self._backoff = Backoff(rng, most=longest_wait)
        self._outbox: list[AgentRequest] = []
        self._has_more = asyncio.Event()
        self.at = 0.0
        """The cluster's time of the last news."""
        self._begin(session or secrets.token_hex(8))

    def _begin(self, session: str) -> None:
        self._session = session
        self._fence = 0
        """The number of the session; 0 until the service has given one."""
        self._number = 0
        self._epoch = 0
        self._heard = 0
        self._points: dict[int, int] = {}
        """By run: the number of the last point heard."""

    def say(self, *said: AgentRequest) -> None:
        """Send messages as soon as possible."""
        self._outbox.extend(said)
        self._has_more.set()

    def cancel_pending(self) -> None:
        """Drop messages that were not sent yet: an agent that begins again decides again."""
        self._outbox.clear()

    async def news(self) -> AsyncIterator[NewsItem]:
        """Yield news as they come; ends when the app is over.

        Raises:
            StaleAnswerError: Another agent runs the app by now, or the service was restored to a
                state before this session. Calling this again opens a new session, which takes the
                app over and begins with an `AgentStart`.
            RefusedError: The last report was refused as a whole (`DeniedError` and others tell
                why). It is not sent again; calling this again goes on.
        """
        while True:
            for item in await self._exchange():
                yield item
                if isinstance(item, AppEndNews):
                    return

    async def _exchange(self) -> list[NewsItem]:
        """Send reports until one is answered with news."""
        while True:
            # Nothing is sent before the session has its number.
            said = self._next_messages() if self._fence else ()
            self._number += 1
            news = await self._deliver(said)
            del self._outbox[: len(said)]
            if news is not None:
                return self._take(news)

    async def _deliver(self, said: tuple[AgentRequest, ...]) -> News | None:
        """Send one report until it arrives; None if it was given up because more is to be sent."""
        report = AgentReport(
            self._app, self._session, self._number, self._epoch, self._heard, said, self._fence
        )
        while True:
            self._has_more.clear()
            if len(self._outbox) > len(said):
                self._has_more.set()
            try:
                news = await self._send(report)
            except StaleAnswerError:
                self._outbox.clear()
                self._begin(secrets.token_hex(8))
                raise
            except (UnavailableError, RefusedError) as error:
                wait = error.retry_after if isinstance(error, LimitError) else None
                if isinstance(error, RefusedError) and wait is None:
                    del self._outbox[: len(said)]
                    raise
                await asyncio.sleep((wait or 0.0) + self._backoff.failed())
                continue
            self._backoff.succeeded()
            return news

    def _next_messages(self) -> tuple[AgentRequest, ...]:
        """What fits in one report: a longer one would be refused however often it is sent."""
        room, said = MOST_TEXT, self._outbox[:MOST_SAID]
        for count, each in enumerate(said):
            room -= _text_bytes(each)
            if room < 0:
                return tuple(said[: max(1, count)])
        return tuple(said)

    async def _send(self, report: AgentReport) -> News | None:
        """Call the service; None if the call was given up because there is more to send."""
        # A report with messages must arrive, and the first one is answered at once. Any other call
        # only waits for news, which come again.
        if report.requests or not report.fence:
            return await self._client.exchange(report)
        call = asyncio.create_task(self._client.exchange(report))
        has_more = asyncio.create_task(self._has_more.wait())
        try:
            await asyncio.wait({call, has_more}, return_when=asyncio.FIRST_COMPLETED)
            return await call if call.done() else None
        finally:
            for task in (call, has_more):
                task.cancel()
            await asyncio.gather(call, has_more, return_exceptions=True)

    def _take(self, news: News) -> list[NewsItem]:
        self.at = news.at
        self._fence = news.fence
        if news.epoch != self._epoch:
            self._epoch, self._heard = news.epoch, news.first - 1
        skip = max(0, self._heard + 1 - news.first)
        self._heard = max(self._heard, news.first + len(news.items) - 1)
        return [new for item in news.items[skip:] if (new := self._unheard(item)) is not None]

    def _unheard(self, item: NewsItem) -> NewsItem | None:
        """Drop points that were heard: after a restart the service may send them again."""
        if isinstance(item, RunNews) and item.state.over:
            self._points.pop(item.run, None)  # Its points came before.
        if not isinstance(item, PointsNews):
            return item
        heard = self._points.get(item.run, 0)
        last = item.first + len(item.points) - 1
        if last <= heard:
            return None
        self._points[item.run] = last
        skip = max(0, heard + 1 - item.first)
        return replace(item, first=item.first + skip, points=item.points[skip:])


def _text_bytes(said: AgentRequest) -> int:
    """Bytes of the texts in a message, where they can be many."""
    if isinstance(said, TrialParams):
        texts = [said.params]
    elif isinstance(said, RunRequest):
        texts = [*said.program.argv, said.program.workdir]
        texts += [text for pair in said.program.env for text in pair]
    else:
        return 0
    return sum(len(text.encode("utf-8", "replace")) + 4 for text in texts)
