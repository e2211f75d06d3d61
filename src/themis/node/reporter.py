"""A node's talk with the service: a report goes until it is there, and what is odd is noted."""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from themis.engines.host import boottime
from themis.errors import ThemisError, UnavailableError
from themis.node.core import events as ev
from themis.node.runs import Put
from themis.ops.log_format import marked, report_id
from themis.protocol.node_messages import NodeReport, Orders
from themis.rpc.client import Backoff

_LOG = logging.getLogger(__name__)

_PAUSES = (0.2, 2.0)
"""Between tries to bring a report to the service: at first and at most, in seconds, spread."""

Refused = Callable[[], Coroutine[Any, Any, bool]]


class Reporter(Protocol):
    """Brings reports to the service, as `NodeClient` does."""

    async def report(self, report: NodeReport) -> Orders:
        """Send a report; returns with the orders that answer it."""


class ServiceReporter:
    """The way to the service; one report at a time."""

    def __init__(
        self,
        reporter: Reporter,
        put: Put,
        refused: Refused | None,
        rng: random.Random,
        now: Callable[[], float] = boottime.now,
    ) -> None:
        self._now = now
        self._reporter = reporter
        self._put = put
        self._refused = refused
        self._rng = rng
        self._sending: asyncio.Task[None] | None = None
        self._connection = ""
        """What was last said of the way to the service."""

    def send(self, report: NodeReport) -> None:
        """Send a report in place of the one that is under way."""
        self.cancel()
        with marked(request=report_id(report.node, report.boot, report.number)):
            self._sending = asyncio.create_task(self._send(report))

    def cancel(self) -> None:
        """Give up what is under way."""
        if self._sending is not None:
            self._sending.cancel()

    def hear(self, epoch: int, known: int) -> None:
        """Orders came of a service of this epoch, where one of `known` was heard before."""
        if epoch < known:
            text = f"does not obey a service of epoch {epoch}: it has heard one of {known}"
            self._note(f"{text}; was an old copy of the store put back without `themis restore`?")
        else:
            self._note(f"hears the service (epoch {epoch})")

    async def _send(self, report: NodeReport) -> None:
        """Bring a report to the service; a broken connection is made again until it is there."""
        backoff = Backoff(self._rng, *_PAUSES)
        while True:
            try:
                orders = await self._reporter.report(report)
            except UnavailableError as error:
                self._note(f"does not reach the service: {error}")
            except ThemisError as error:
                self._note(f"is refused by the service: {error}")
                return  # The core tries again in its own time.
            else:
                self._put(partial(ev.OrdersCame, orders=orders))
                return
            await self._look_for_absence()
            await asyncio.sleep(backoff.failed())

    async def _look_for_absence(self) -> None:
        tried_at = self._now()
        if self._refused is not None and await self._refused():
            self._put(partial(ev.ServiceAbsent, tried_at=tried_at))

    def _note(self, text: str) -> None:
        """Log how the connection is, when that changes."""
        if text != self._connection:
            self._connection = text
            _LOG.info("node %s", text)
