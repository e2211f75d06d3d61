"""The agent's end of its talk with the service: everything said once, everything heard once.

    link = AgentLink(AgentClient(connection), AppId("sweep"), random.Random())
    link.say(RunSaid(...))
    async for item in link.news():      # Standing first, and again after a restart of the service
        ...

Calls that fail are made again, after a wait with full jitter, with the same number: the service
takes what was said once.
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
    News,
    NewsItem,
    OverNews,
    PointsNews,
    RunNews,
    RunSaid,
    Said,
    TrialSaid,
)
from themis.rpc.client import Backoff
from themis.rpc.methods import MOST_SAID

MOST_TEXT = 128 << 10
"""Bytes of programs and parameters in a report: the service takes 256 KiB unless told otherwise."""


class Exchanges(Protocol):
    """How reports travel, as with `AgentClient`."""

    async def exchange(self, report: AgentReport) -> News:
        """Say something, and hear what is new."""


class AgentLink:
    """One app's talk with the service."""

    def __init__(
        self,
        client: Exchanges,
        app: AppId,
        rng: random.Random,
        *,
        session: str = "",
        longest_wait: float = 10.0,
    ) -> None:
        self._client = client
        self._app = app
        self._backoff = Backoff(rng, most=longest_wait)
        self._begin(session)
        self._outbox: list[Said] = []
        self._spoke = asyncio.Event()
        self.at = 0.0
        """The cluster's time of the last news."""

    def _begin(self, session: str = "") -> None:
        self._session = session or secrets.token_hex(8)
        self._fence = 0
        """The number of the session; 0 until the service has given one."""
        self._number = 0
        self._epoch = 0
        self._heard = 0
        self._points: dict[int, int] = {}
        """By run: the number of the last point heard."""

    def say(self, *said: Said) -> None:
        """Say something as soon as possible."""
        self._outbox.extend(said)
        self._spoke.set()

    def hush(self) -> None:
        """Leave unsaid what was not said yet: whoever begins anew decides anew."""
        self._outbox.clear()

    async def news(self) -> AsyncIterator[NewsItem]:
        """What the app should know, as it comes; ends when the app is over.

        Raises:
            StaleAnswerError: Another agent speaks for the app by now, so that nothing that this one
                says counts any more, or the service was brought back from before this one began.
                Whoever calls this again takes the app over, and begins with its standing.
            RefusedError: What was said last was not taken at all (`DeniedError` and others tell
                why). It is not said again; go on by calling this again.
        """
        while True:
            for item in await self._exchange():
                yield item
                if isinstance(item, OverNews):
                    return

    async def _exchange(self) -> list[NewsItem]:
        # The rest goes with the next report; nothing is said before the session has its number.
        said = self._next() if self._fence else ()
        self._number += 1
        while True:
            self._spoke.clear()
            if len(self._outbox) > len(said):
                self._spoke.set()
            try:
                news = await self._ask(
                    AgentReport(
                        self._app,
                        self._session,
                        self._number,
                        self._epoch,
                        self._heard,
                        said,
                        self._fence,
                    )
                )
            except StaleAnswerError:
                self._outbox.clear()
                self._begin()
                raise
            except (UnavailableError, RefusedError) as error:
                wait = error.retry_after if isinstance(error, LimitError) else None
                if isinstance(error, RefusedError) and wait is None:
                    del self._outbox[: len(said)]
                    raise
                await asyncio.sleep((wait or 0.0) + self._backoff.failed())
                continue
            self._backoff.succeeded()
            if news is None:  # There is more to say: what this call would have brought comes again.
                del self._outbox[: len(said)]
                said = self._next()
                self._number += 1
                continue
            del self._outbox[: len(said)]
            return self._new(news)

    def _next(self) -> tuple[Said, ...]:
        """What goes with one report: a longer one would be refused, however often it is sent."""
        room, said = MOST_TEXT, self._outbox[:MOST_SAID]
        for count, each in enumerate(said):
            room -= _text(each)
            if room < 0:
                return tuple(said[: max(1, count)])
        return tuple(said)

    async def _ask(self, report: AgentReport) -> News | None:
        """The answer; None if something was said while the service had nothing to tell."""
        call = asyncio.create_task(self._client.exchange(report))
        spoke = asyncio.create_task(self._spoke.wait())
        try:
            # What the report says must have arrived: only one that says nothing is given up.
            # Neither is the first, which is answered at once.
            lasts = bool(report.said) or not report.fence
            waits = {call} if lasts else {call, spoke}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return await call if call.done() or lasts else None
        finally:
            for task in (call, spoke):
                task.cancel()
            await asyncio.gather(call, spoke, return_exceptions=True)

    def _new(self, news: News) -> list[NewsItem]:
        self.at = news.at
        self._fence = news.fence
        if news.epoch != self._epoch:
            self._epoch, self._heard = news.epoch, news.first - 1
        skip = max(0, self._heard + 1 - news.first)
        items = list(news.items[skip:])
        self._heard = max(self._heard, news.first + len(news.items) - 1)
        return [new for item in items if (new := self._unheard(item)) is not None]

    def _unheard(self, item: NewsItem) -> NewsItem | None:
        """Points come once: those of before a restart of the service may be told again."""
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


def _text(said: Said) -> int:
    """Bytes of text in what is said, as far as they can be many."""
    if isinstance(said, TrialSaid):
        words = [said.params]
    elif isinstance(said, RunSaid):
        words = [*said.program.argv, said.program.workdir]
        words += [word for pair in said.program.env for word in pair]
    else:
        return 0
    return sum(len(word.encode("utf-8", "replace")) + 4 for word in words)
