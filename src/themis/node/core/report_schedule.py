"""When a node reports, and which orders answer its last report."""

import math

from themis.protocol.node_messages import LeaseTerms, Orders

POINTS_WAIT = 2.0
"""Seconds that points wait for a report that is due anyway, before they make another overtake the
one that is under way. If an answer is overdue they wait for it: a slow service must get to answer
some report."""


class ReportSchedule:
    """Numbers and times of the reports of one boot, on the node's clock."""

    def __init__(self) -> None:
        self.number = 0
        """Of the last report."""
        self.sent_at = 0.0
        """When it was sent: leases and liveness in its answer count from here."""
        self._answered = True
        self._heard_at = -math.inf
        self._patience = 0.0
        """Seconds to wait for an answer before the report is sent again."""
        self._resend_at = math.inf
        self._points_at = math.inf

    def is_answer(self, orders: Orders) -> bool:
        """Whether orders answer the last report, and are its first answer."""
        return not self._answered and orders.answers == self.number

    def answer(self, at: float) -> None:
        """The last report was answered."""
        self._answered, self._heard_at = True, at

    def trust(self, heartbeat: float) -> None:
        """The service answers in time again."""
        self._patience = 2.0 * heartbeat

    def add_points(self, at: float, heartbeat: float) -> None:
        """There are points to report."""
        due = at + POINTS_WAIT
        if due < self._heard_at + heartbeat:
            self._points_at = min(self._points_at, due)

    def service_absent(self, heartbeat: float) -> None:
        """No service runs: look for one often."""
        self._resend_at = min(self._resend_at, self.sent_at + heartbeat)

    @property
    def next_time(self) -> float:
        """When a report is due if nothing happens before."""
        return min(self._resend_at, self._points_at)

    def send(self, at: float, terms: LeaseTerms) -> None:
        """A report is being sent."""
        self._points_at = math.inf
        if self._resend_at <= at and not self._answered:
            # If every report overtook the one before, a slow service could answer none.
            self._patience = min(2.0 * self._patience, terms.node_ttl / 4.0)
        self._patience = max(self._patience, 2.0 * terms.heartbeat)
        self.number += 1
        self.sent_at = at
        self._answered = False
        self._resend_at = at + self._patience
