"""What training programs print, for people who read it: where it is, and what is wanted of it."""

from themis.core.model import AppId, JobId
from themis.core.steward.events import LogsWanted
from themis.core.steward.log_index import LoggedRun, LogsRow
from themis.core.steward.metric_relay import Pointing
from themis.core.steward.node_table import NodeEntry
from themis.core.steward.rows import RunEnd, WantedRun


class Printing(Pointing):
    """The part of the steward that knows of logs. What they say never comes by here."""

    def logged(self, app: AppId, job: JobId) -> LogsRow | None:
        """What is known of the log of a job; None if it never ran."""
        if app not in self._arbiter.world.apps:
            return self._book.logs.find(app, job)
        runs = [self._logged(row) for row in self._book.results(app) if row.job == job]
        for run in self._book.of_job(app, job):
            size = self._log_sizes.get(run.run, 0)
            runs.append(LoggedRun(run.run, self._log_node(run), size, over=False))
        return LogsRow(app, job, tuple(runs)) if runs else None

    def _logged(self, row: RunEnd) -> LoggedRun:
        # The last lines are all there is of a run whose node never said how much it printed.
        size = max(row.log_size, len(row.log.encode()))
        return LoggedRun(row.run, self._log_node(row), size, tail=row.log)

    def _log_node(self, run: WantedRun | RunEnd) -> str:
        return self._roster.machine_of[run.gpus[0]].name if run.gpus else ""

    def _keep_logs(self, app: AppId) -> None:
        """An app is gone; its logs are on the nodes for some time yet."""
        by_job: dict[JobId, list[LoggedRun]] = {}
        for row in self._book.results(app):
            by_job.setdefault(row.job, []).append(self._logged(row))
        for job, runs in by_job.items():
            self._book.logs.add(app, job, tuple(runs))

    def _take_logs(self, node: NodeEntry) -> None:
        """Note how much runs have printed."""
        report = node.held
        if report is None:
            return
        told = [(run.run, run.log_size) for run in report.runs if run.log_size]
        told += [(part.run, part.size) for part in report.logs]
        for number, size in told:
            run = self._book.runs.get(number)
            if run is not None and self._log_node(run) == node.name:
                self._log_sizes[number] = max(size, self._log_sizes.get(number, 0))

    def _on_logs_wanted(self, event: LogsWanted) -> None:
        """People wait for other parts of a node's logs. Nothing of this is kept."""
        node = self._roster.nodes.get(event.node)
        if node is None or event.wanted == node.logs:
            return
        before, node.logs = node.logs, event.wanted
        if any(want not in before for want in event.wanted):
            node.revision += 1
            self._ready[node.name] = None
