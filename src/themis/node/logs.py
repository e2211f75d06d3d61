"""Reads the parts of logs that the service asks for, as soon as they exist.

    logs = LogAnswers(engine, live, put)
    logs.want(orders.logs)          # replaces the former requests

The node looks for each part a few times a second, until there is some output, the run has ended, or
the service does not ask for it any more.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial

from themis.engines.base import Engine, LogPiece
from themis.engines.host import boottime
from themis.errors import ThemisError
from themis.node.core import events as ev
from themis.node.runs import Put, tag_of
from themis.protocol.node_messages import MOST_LOG, LogPart, LogWanted

_LOG = logging.getLogger(__name__)

LOOK = 0.25
"""Seconds between looks, and between parts of one log that grows."""
LEAST = 64
"""Bytes that are read at least: fewer may never complete a character."""


class LogAnswers:
    """Answers requests for parts of logs."""

    def __init__(
        self,
        engine: Engine,
        alive: Callable[[], Collection[int]],
        put: Put,
        now: Callable[[], float] = boottime.now,
    ) -> None:
        self._now = now
        self._engine = engine
        self._alive = alive
        self._put = put
        self._wanted: list[LogWanted] = []
        self._changed = asyncio.Event()
        self._not_before: dict[int, float] = {}
        """When the log of a run is read next, after a part that reached its end."""

    def want(self, wanted: tuple[LogWanted, ...]) -> None:
        """Look for these parts from now on, and for no others."""
        self._wanted = list(wanted)
        self._changed.set()

    async def work(self) -> None:
        """Look for wanted parts; until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._wanted and not self._changed.is_set():
                await self._look()
                if self._wanted:
                    await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(LOOK):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _look(self) -> None:
        now = self._now()
        self._not_before = {run: at for run, at in self._not_before.items() if at > now}
        found: list[tuple[LogWanted, LogPart]] = []
        for want in list(self._wanted):
            if want.run in self._not_before and not want.now:
                continue
            # Asked before reading: a run that has ended by then prints nothing more.
            alive = want.run in self._alive()
            most = min(MOST_LOG, max(LEAST, want.most))
            try:
                piece = await self._engine.output(tag_of(want), want.offset, most)
            except (ThemisError, OSError) as error:
                _LOG.warning("the log of run %s cannot be read: %s", want.run, error)
                piece = None
            part = _part(want, piece, alive=alive)
            if part is not None and want in self._wanted:
                self._wanted.remove(want)
                if part.next - part.offset < most and not part.end:
                    self._not_before[want.run] = self._now() + LOOK
                found.append((want, part))
        if found:
            self._put(partial(ev.LogsRead, read=tuple(found)))


def _part(want: LogWanted, piece: LogPiece | None, *, alive: bool) -> LogPart | None:
    """The answer to a request; None while there is none."""
    if piece is None:
        # A run that is about to start has no log yet.
        if alive and not want.now:
            return None
        gone = not alive
        return LogPart(want.run, want.offset, want.offset, "", 0, gone, gone, want.number)
    end = piece.over and not alive and piece.next >= piece.size
    if not piece.text and not end and not want.now:
        return None
    # Readers skip dropped output, and never go back.
    following = max(piece.next, want.offset) if not piece.text else piece.next
    return LogPart(
        want.run, want.offset, following, piece.text, piece.size, end, number=want.number
    )
