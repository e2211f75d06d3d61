"""A node's answers to people who read logs: what is wanted is read as soon as it is there.

    logs = LogAnswers(engine, is_alive, put)
    logs.want(orders.logs)          # in place of what was wanted before

Nobody is waited for: each part that is wanted is looked for a few times a second, until there is
something of it, the run is over, or it is wanted no more.
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
"""Seconds between looks. Also between parts of one log that grows, so that they are not many."""
LEAST = 64
"""Bytes that are read at least: less may be half a character for ever."""


class LogAnswers:
    """Reads what people wait for."""

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
        """By run: when its log is looked at next, after a part that was all there was."""

    def want(self, wanted: tuple[LogWanted, ...]) -> None:
        """Look for these from now on, and for nothing else."""
        self._wanted = list(wanted)
        self._changed.set()

    async def work(self) -> None:
        """Look for what is wanted; until cancelled."""
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
            # Before the look: a run that is over by then has printed all that it ever will.
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
    """What there is to say to who wants this; None for nothing yet."""
    if piece is None:
        # One that is about to start has no log yet.
        if alive and not want.now:
            return None
        gone = not alive
        return LogPart(want.run, want.offset, want.offset, "", 0, gone, gone, want.number)
    end = piece.over and not alive and piece.next >= piece.size
    if not piece.text and not end and not want.now:
        return None
    # What is gone is stepped over, but nobody is sent back.
    following = max(piece.next, want.offset) if not piece.text else piece.next
    return LogPart(
        want.run, want.offset, following, piece.text, piece.size, end, number=want.number
    )
