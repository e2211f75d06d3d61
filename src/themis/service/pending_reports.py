"""Reports of nodes, each held until the steward answers it with orders.

reports = NodeReports(loop, logs)
orders = await reports.report(report)
reports.take(event, outcome)        # the steward's answers, to the calls that wait for them
"""

import asyncio
from dataclasses import dataclass

from themis.core.steward.commands import Outcome
from themis.core.steward.events import ReportCame, StewardEvent
from themis.errors import RefusedError, UnavailableError
from themis.protocol.node_messages import NodeReport, Orders
from themis.service.log_requests import LogRequests
from themis.service.steward_loop import StewardLoop

_HANG = 15.0
"""Seconds beyond a heartbeat in which a report must have been answered."""


@dataclass(frozen=True, slots=True)
class _HeldReport:
    boot: int
    number: int
    orders: asyncio.Future[Orders]

    def fail(self, reason: str) -> None:
        if not self.orders.done():
            self.orders.set_exception(UnavailableError(reason))


class PendingReports:
    """The last report of each node, while it waits for its answer."""

    def __init__(self, loop: StewardLoop, logs: LogRequests) -> None:
        self._loop = loop
        self._logs = logs
        self._held: dict[str, _HeldReport] = {}

    def stop(self) -> None:
        """End the calls that wait."""
        for held in self._held.values():
            held.fail("the service is stopping")

    async def report(self, report: NodeReport) -> Orders:
        """Hand a report to the steward; returns when there are orders, or after a heartbeat.

        Raises:
            RefusedError: The report says what no node may say.
            UnavailableError: A later report came, or the service is stopping.
        """
        self._loop.check_open()
        _check(report)
        before = self._held.get(report.node)
        if before is not None:
            later = "a later report of this node came"
            if (before.boot, before.number) > (report.boot, report.number):
                raise UnavailableError(later)
            before.fail(later)
        orders: asyncio.Future[Orders] = asyncio.get_running_loop().create_future()
        held = self._held[report.node] = _HeldReport(report.boot, report.number, orders)
        self._loop.apply(ReportCame(self._loop.now(), report))
        if report.logs:
            self._logs.receive(report.node, report.logs)
        try:
            async with asyncio.timeout(self._loop.steward.arbiter.settings.heartbeat + _HANG):
                return await orders
        except TimeoutError:
            raise UnavailableError("this report was superseded") from None
        finally:
            if self._held.get(report.node) is held:
                del self._held[report.node]

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Answer the reports that the steward answers."""
        for answer in outcome.answers:
            held = self._held.get(answer.node)
            if held is not None and held.number == answer.orders.answers:
                del self._held[answer.node]
                if not held.orders.done():
                    held.orders.set_result(answer.orders)


def _check(report: NodeReport) -> None:
    """Refuse a report about another machine, or about slots that a node does not have.

    Raises:
        RefusedError: It is one.
    """
    if report.machine is not None and report.machine.name != report.node:
        raise RefusedError(report.node, "a node reports its own machine only")
    if [slot.gpu for slot in report.slots] != list(range(len(report.slots))):
        raise RefusedError(report.node, "slots are numbered from 0, each once")
