"""What training programs report, on its way from nodes to agents: all of it, once, in order."""

from themis.core.model import AppId
from themis.core.steward.commands import TellPoints, TellRun
from themis.core.steward.events import PointsHeard
from themis.core.steward.node_table import NodeEntry
from themis.core.steward.rows import RunEnd, WantedRun
from themis.core.steward.state import Knowing
from themis.protocol.node_messages import RunReport


class Pointing(Knowing):
    """The part of the steward that passes points on, and then the end of their run."""

    def _source(self, run: int) -> tuple[WantedRun | RunEnd, str] | None:
        """A run whose agent wants its points, and the node that has them: that of rank 0."""
        wanted = self._book.runs.get(run)
        if wanted is not None:
            known = wanted.app in self._arbiter.world.apps
            return (wanted, self._roster.machine_of[wanted.gpus[0]].name) if known else None
        result = self._book.result(run)
        return (result, result.points_on) if result is not None else None

    def _take_points(self, node: NodeEntry, report: RunReport) -> None:
        """Tell an agent what its run has reported since, and then how it ended."""
        source = self._source(report.run)
        if source is None or source[1] != node.name:
            return
        run = source[0]
        first, points = self._streams.take(run.app, report)
        if points or report.state.over:
            over = report.state.over
            metric = run.metric if isinstance(run, RunEnd) else run.program.metrics.name
            self._book.trials.grow(run.app, run.job, metric, points, self._now, over=over)
        if points:
            self._commands.append(TellPoints(run.app, run.job, run.run, first, points))
        if isinstance(run, RunEnd):
            self._tell_end(run)

    def _keeps_points(self, node: NodeEntry, run: int) -> bool:
        """Whether a node must keep a run that is over, because of its points."""
        source, stream = self._source(run), self._streams.get(run)
        if source is None or source[1] != node.name:
            return False
        return stream is not None and not stream.all_heard

    def _has_points(self, run: WantedRun, node: NodeEntry) -> bool:
        """Whether the node of rank 0 has points of a run that is over, or may have."""
        if not node.present or not run.ordered:
            return False
        stream = self._streams.get(run.run)
        if stream is not None:
            return not stream.all_heard
        if node.proves and node.held is not None:
            return any(told.run == run.run for told in node.held.runs)
        return True  # It was not heard since this service began.

    def _on_heard(self, event: PointsHeard) -> None:
        for run, number in ((event.run, event.number), *event.others):
            self._hear_of(event.app, run, number)

    def _hear_of(self, app: AppId, number: int, last: int) -> None:
        stream, source = self._streams.hear(app, number, last), None
        if stream is not None:
            source = self._source(number)
        if stream is None or source is None:
            return
        run, name = source
        if stream.all_heard and isinstance(run, RunEnd) and run.points_on:
            self._settle_points(run)
            self._forget_too(name, run.run)
        elif stream.more and name in self._roster.nodes:
            held = self._roster.nodes[name].held
            if held is not None and any(told.run == run.run and told.more for told in held.runs):
                self._answer_soon(name)

    def _settle_points(self, row: RunEnd) -> None:
        """Nothing more of a run's points will come."""
        stream = self._streams.get(row.run)
        told = stream is not None and stream.end_told
        self._streams.drop(row.run)
        row = self._book.settle_points(row)
        if not told:
            self._tell_end(row)

    def _tell_end(self, row: RunEnd) -> None:
        """Tell an agent how a run ended, once it was told all that the run reported."""
        stream = self._streams.get(row.run)
        if stream is not None:
            if stream.end_told or not stream.all_told:
                return
            stream.end_told = True
        elif row.points_on:
            return
        self._commands.append(
            TellRun(
                row.app,
                row.job,
                row.run,
                row.state,
                row.code,
                row.iterations,
                row.message,
                row.log,
                row.told,
            )
        )

    def _forget_too(self, name: str, run: int) -> None:
        """Let a node forget a run that is in its kept report."""
        node = self._roster.nodes.get(name)
        if node is not None and node.held is not None and node.fresh:
            node.forget = (*node.forget, run)
            self._ready[name] = None

    def _answer_soon(self, name: str) -> None:
        self._roster.nodes[name].due = True
        self._ready[name] = None

    def _tell_again(self, app: AppId) -> None:
        """Tell again what may be lost, as far as the last reports have it; later ones have all."""
        for run in list(self._streams.begin_again(app)):
            source = self._source(run)
            node = self._roster.nodes.get(source[1]) if source is not None else None
            if node is None or node.held is None or not node.fresh:
                continue
            for report in node.held.runs:
                if report.run == run:
                    self._take_points(node, report)

    def _heard(self, node: NodeEntry) -> tuple[tuple[int, int], ...]:
        """What a node may drop of the points in its kept report."""
        heard = []
        for report in node.held.runs if node.held is not None and node.fresh else ():
            if report.points:
                source, stream = self._source(report.run), self._streams.get(report.run)
                wanted = source is not None and source[1] == node.name and stream is not None
                number = stream.heard if wanted and stream is not None else report.last
                if number >= report.first:
                    heard.append((report.run, number))
        return tuple(heard)
