"""Passes the points that runs report on to their agents: all of them, once, in order.

A node's report has all points of a run that its agent has not acknowledged. The relay passes on
those that are new, and tells the node which were acknowledged. It keeps numbers only: after a
restart of the service the next reports have everything that is missing. How a run ended is told
after all of its points.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from themis.core.model import AppId
from themis.core.steward.commands import TellPoints, TellRun
from themis.core.steward.node_table import NodeEntry, NodeTable
from themis.core.steward.rows import ActiveRun, RowChanges, RunEnd
from themis.core.steward.run_table import RunTable
from themis.protocol.node_messages import Point, RunReport


@dataclass(slots=True)
class PointCursor:
    """How far the points of one run were passed on, by their numbers."""

    app: AppId
    sent: int
    acknowledged: int
    last: int
    """The last one that its node has reported."""
    more: bool = True
    """Whether the run may report others, or has some that its node has not reported yet."""
    end_sent: bool = False

    @property
    def all_sent(self) -> bool:
        """Whether the agent may be told how the run ended."""
        return not self.more and self.sent >= self.last

    @property
    def all_acknowledged(self) -> bool:
        """Whether the node need not keep any of them."""
        return not self.more and self.acknowledged >= self.last

    def take(self, report: RunReport) -> tuple[int, tuple[Point, ...]]:
        """The new points of a report, after the number of the first of them."""
        before = report.first - 1
        self.acknowledged = max(self.acknowledged, before)
        first = max(self.sent, before) + 1
        self.last = self.sent = max(self.sent, report.last)
        self.more = report.more or not report.state.over
        return first, report.points[first - report.first :]


class MetricRelay:
    """The cursors of all runs whose nodes have reported in this epoch."""

    def __init__(self, runs: RunTable, nodes: NodeTable, apps: Container[AppId]) -> None:
        self._runs = runs
        self._nodes = nodes
        self._apps = apps
        """Those that are active."""
        self._cursors: dict[int, PointCursor] = {}

    def _source(self, number: int) -> tuple[ActiveRun | RunEnd, str] | None:
        """A run whose agent wants its points, and the node that has them: that of rank 0."""
        run = self._runs.active.get(number)
        if run is not None:
            return (run, self._nodes.leader(run.gpus).name) if run.app in self._apps else None
        end = self._runs.end(number)
        return (end, end.points_on) if end is not None else None

    def run_on(self, node: NodeEntry, number: int) -> ActiveRun | RunEnd | None:
        """A run, if its agent wants its points and this node has them."""
        source = self._source(number)
        return source[0] if source is not None and source[1] == node.name else None

    # From nodes to agents

    def take(self, run: ActiveRun | RunEnd, report: RunReport) -> TellPoints | None:
        """What the agent is to be told of a report of the node that has the run's points."""
        before = report.first - 1
        cursor = self._cursors.setdefault(run.run, PointCursor(run.app, before, before, before))
        first, points = cursor.take(report)
        return TellPoints(run.app, run.job, run.run, first, points) if points else None

    def end(self, end: RunEnd) -> TellRun | None:
        """How a run ended, to be told if it was not and if all of its points were."""
        cursor = self._cursors.get(end.run)
        if cursor is not None:
            if cursor.end_sent or not cursor.all_sent:
                return None
            cursor.end_sent = True
        elif end.points_on:
            return None
        return _news_of(end)

    def settle(self, end: RunEnd) -> tuple[RowChanges, TellRun | None]:
        """No more points of a run will come: all were acknowledged, or the others are lost."""
        cursor = self._cursors.pop(end.run, None)
        end, changes = self._runs.points_done(end)
        return changes, None if cursor is not None and cursor.end_sent else _news_of(end)

    def repeat(self, app: AppId) -> Iterator[tuple[NodeEntry, RunReport]]:
        """Begin again after what an agent has acknowledged: it may have lost the rest.

        Gives the held reports that have it; other reports will.
        """
        own = {number: cursor for number, cursor in self._cursors.items() if cursor.app == app}
        for cursor in own.values():
            cursor.sent, cursor.end_sent = cursor.acknowledged, False
        for number in own:
            source = self._source(number)
            node = self._nodes.by_name.get(source[1]) if source is not None else None
            if node is not None and node.proof is not None:
                yield from ((node, each) for each in node.proof.runs if each.run == number)

    # From agents to nodes

    def acknowledge(self, app: AppId, number: int, last: int) -> RunEnd | None:
        """An agent has all points of a run up to this number.

        Its node is answered soon if it has more. Returns the run if it has ended and was all
        acknowledged: its node may forget it.
        """
        cursor, source = self._cursors.get(number), self._source(number)
        if cursor is None or cursor.app != app:
            return None
        cursor.acknowledged = max(cursor.acknowledged, min(last, cursor.sent))
        if source is None:
            return None
        run, node = source[0], self._nodes.by_name.get(source[1])
        if cursor.all_acknowledged and isinstance(run, RunEnd) and run.points_on:
            return run
        held = node.held.runs if cursor.more and node is not None and node.held is not None else ()
        if node is not None and any(each.run == number and each.more for each in held):
            self._nodes.answer_soon(node)
        return None

    def acknowledged(self, node: NodeEntry) -> tuple[tuple[int, int], ...]:
        """Runs in the held report, with the last of their points that the node may drop."""
        found = []
        for report in node.proof.runs if node.proof is not None else ():
            if report.points:
                cursor = self._cursors.get(report.run)
                wanted = cursor is not None and self.run_on(node, report.run) is not None
                number = cursor.acknowledged if wanted and cursor is not None else report.last
                if number >= report.first:
                    found.append((report.run, number))
        return tuple(found)

    def keeps(self, node: NodeEntry, number: int) -> bool:
        """Whether a node must keep the record of an ended run, because of its points."""
        cursor = self._cursors.get(number)
        if cursor is None or self.run_on(node, number) is None:
            return False
        return not cursor.all_acknowledged

    def node_with_points(self, run: ActiveRun) -> str:
        """The node that has, or may have, points of a run that is about to end; else empty."""
        if run.app not in self._apps or not run.dispatched:
            return ""
        node = self._nodes.leader(run.gpus)
        cursor = self._cursors.get(run.run)
        if not node.present:
            return ""
        if cursor is not None:
            unread = not cursor.all_acknowledged
        else:
            # Unless it proves the contrary: it may not have reported in this epoch.
            unread = node.proof is None or node.reports_run(run.run)
        return node.name if unread else ""

    def drop(self, run: int) -> None:
        """A run has ended and its node has none of its points."""
        self._cursors.pop(run, None)

    def close(self, app: AppId) -> None:
        """The app is gone."""
        self._cursors = {n: cursor for n, cursor in self._cursors.items() if cursor.app != app}


def _news_of(end: RunEnd) -> TellRun:
    return TellRun(
        end.app,
        end.job,
        end.run,
        end.state,
        end.code,
        end.iterations,
        end.message,
        end.log,
        end.interrupted,
    )
