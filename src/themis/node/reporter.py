"""Sends a node's reports to the service, and retries until they arrive."""

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
"""Seconds between retries: at first and at most, spread at random."""

Refused = Callable[[], Coroutine[Any, Any, bool]]


class Reporter(Protocol):
    """Sends reports to the service, as `NodeClient` does."""

    async def report(self, report: NodeReport) -> Orders:
        """Send a report; returns with the orders that answer it."""


class ServiceReporter:
    """Sends one report at a time."""

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
        """The latest message on the connection to the service."""

    def send(self, report: NodeReport) -> None:
        """Send a report in place of the one that is being sent."""
        self.cancel()
        with marked(request=report_id(report.node, report.boot, report.number)):
            self._sending = asyncio.create_task(self._send(report))

    def cancel(self) -> None:
        """Give up the report that is being sent."""
        if self._sending is not None:
            self._sending.cancel()

    def hear(self, epoch: int, known: int) -> None:
        """Orders came from a service of this epoch; `known` is the highest epoch so far."""
        if epoch < known:
            text = f"does not obey a service of epoch {epoch}: it has heard one of {known}"
            self._note(f"{text}; was an old copy of the store put back without `themis restore`?")
        else:
            self._note(f"hears the service (epoch {epoch})")

    async def _send(self, report: NodeReport) -> None:
        """Send a report; reconnect and retry until it arrives."""
        backoff = Backoff(self._rng, *_PAUSES)
        while True:
            try:
                orders = await self._reporter.report(report)
            except UnavailableError as error:
                self._note(f"does not reach the service: {error}")
            except ThemisError as error:
                self._note(f"is refused by the service: {error}")
                return  # the core sends the next report in its own time
            else:
                self._put(partial(ev.OrdersCame, orders=orders))
                return
            await self._check_absence()
            await asyncio.sleep(backoff.failed())

    async def _check_absence(self) -> None:
        tried_at = self._now()
        if self._refused is not None and await self._refused():
            self._put(partial(ev.ServiceAbsent, tried_at=tried_at))

    def _note(self, text: str) -> None:
        """Log the state of the connection when it changes."""
        if text != self._connection:
            self._connection = text
            _LOG.info("node %s", text)
