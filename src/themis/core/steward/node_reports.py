"""What follows from the reports of nodes, and from their silence."""

from dataclasses import replace

from themis.core.arbiter import Arbiter
from themis.core.arbiter import events as ev
from themis.core.model import AppId, GpuId
from themis.core.steward.commands import AnswerReport, TellRun
from themis.core.steward.components import Components
from themis.core.steward.node_table import NodeEntry
from themis.core.steward.orders import lease_terms, outdated_orders
from themis.core.steward.outcome import OutcomeBuilder
from themis.core.steward.rows import RunEnd
from themis.core.steward.run_lifecycle import RunLifecycle
from themis.protocol.node_messages import NodeReport, RunReport, RunState


class NodeReports:
    """Applies reports of nodes to runs, points, logs and hardware."""

    def __init__(
        self,
        arbiter: Arbiter,
        parts: Components,
        out: OutcomeBuilder,
        lifecycle: RunLifecycle,
        *,
        epoch: int,
    ) -> None:
        self._arbiter = arbiter
        self._parts = parts
        self._out = out
        self._lifecycle = lifecycle
        self._epoch = epoch

    def add_node(self, name: str, heard: float) -> NodeEntry:
        """A node that is new to this service, which counts its silence from then on."""
        world, nodes = self._arbiter.world, self._parts.nodes
        node, number = nodes.add(name, heard), world.topology.number_of.get(name)
        if number is not None and world.is_gone(number):
            nodes.seat(node, world.topology)
        elif number is not None:
            nodes.join(node, world.topology, self._arbiter.settings.guard)
        return node

    def take(self, report: NodeReport) -> None:
        """A report arrives."""
        parts, out, heartbeat = self._parts, self._out, self._arbiter.settings.heartbeat
        node = self._parts.nodes.by_name.get(report.node) or self.add_node(report.node, out.now)
        if not parts.nodes.is_newer(node, report):
            if (report.boot, report.number) != (node.boot, node.number):
                orders = outdated_orders(
                    node, report.number, self._epoch, lease_terms(self._arbiter, self._parts.nodes)
                )
                out.answer([AnswerReport(node.name, orders)])
            return
        out.store(parts.nodes.take(node, report, out.now, heartbeat))
        if node.proof is None:
            return
        self._note_log_sizes(node, node.proof)
        for run in report.runs:
            self.relay_points(node, run)
        # Before the ends of runs, which may open a round.
        for run in report.runs:
            if not run.state.over:
                self._take_progress(node, run)
        node.forget = tuple(
            [run.run for run in report.runs if run.state.over and self._take_end(node, run)]
        )
        reported = {run.run for run in report.runs}
        for end in parts.runs.unread_on(node.name):
            if end.run not in reported:
                self._settle_points(end)
        self._take_hardware(node)
        parts.nodes.reconsider(node)

    def _note_log_sizes(self, node: NodeEntry, report: NodeReport) -> None:
        sizes = [(run.run, run.log_size) for run in report.runs if run.log_size]
        sizes += [(part.run, part.size) for part in report.logs]
        for number, size in sizes:
            run = self._parts.runs.active.get(number)
            if run is not None and self._parts.nodes.leader(run.gpus) is node:
                self._parts.logs.note_size(number, size)

    def _take_progress(self, node: NodeEntry, report: RunReport) -> None:
        run = self._parts.runs.active.get(report.run)
        if run is None or self._parts.nodes.leader(run.gpus) is not node:
            return
        self._parts.progress.take(run, report, self._out.now)
        if report.state is RunState.RUNNING and run.state is RunState.STARTING:
            self._out.store(self._parts.runs.put(replace(run, state=RunState.RUNNING)))
            self._out.tell(TellRun(run.app, run.job, run.run, RunState.RUNNING))

    def _take_end(self, node: NodeEntry, report: RunReport) -> bool:
        """A run has ended on a node; returns whether the node may forget it."""
        run = self._parts.runs.active.get(report.run)
        # A node cannot end a run of which it has no part.
        own = run is not None and node.name in self._parts.nodes.names_of(run.gpus)
        if run is not None and own and node.name not in run.ended_on:
            self._take_progress(node, report)
            if report.code != 0 and not run.stop:
                run = replace(run, stop=True)
            # The first failure of a gang counts: its other processes end because of it.
            if run.code is None or (run.code == 0 and report.code):
                run = replace(
                    run,
                    state=report.state,
                    code=report.code,
                    message=report.message,
                    log=report.log,
                    interrupted=run.interrupted or report.interrupted,
                )
            self._lifecycle.end_on(run, node.name)
        return not self._parts.metrics.keeps(node, report.run)

    def _take_hardware(self, node: NodeEntry) -> None:
        """Quarantine what a node says is broken, and let its machine join when it is clear."""
        world, nodes = self._arbiter.world, self._parts.nodes
        for event in nodes.quarantine_changes(node, world.ledger.quarantine_reason, self._out.now):
            self._lifecycle.feed(event)
        if node.machine is not None and nodes.may_join(node, world.topology):
            is_new = node.name not in world.topology.number_of
            self._lifecycle.feed(ev.MachineJoined(self._out.now, node.machine))
            nodes.join(node, world.topology, self._arbiter.settings.guard)
            if is_new:
                self._take_hardware(node)

    def give_up(self, node: NodeEntry) -> None:
        """A node has been silent for too long, or its machine left."""
        self._parts.nodes.give_up(node)
        self._lifecycle.feed(ev.MachineLeft(self._out.now, node.name))
        for end in self._parts.runs.unread_on(node.name):
            self._settle_points(end)
        for run in self._parts.runs.on_gpus(node.gpus):
            if run.dispatched and node.name not in run.ended_on:
                lost = replace(run, stop=True, state=RunState.LOST, message="its machine is gone")
                self._lifecycle.end_on(lost, node.name)

    # Points of runs

    def relay_points(self, node: NodeEntry, report: RunReport) -> None:
        """Send the new points of a run to its agent, and then how it ended."""
        run = self._parts.metrics.run_on(node, report.run)
        if run is None:
            return
        told = self._parts.metrics.take(run, report)
        ended, metric = report.state.over, run.metric
        if told is not None or ended:
            points = told.points if told is not None else ()
            self._out.store(
                self._parts.trials.add_points(
                    run.app, run.job, metric, points, self._out.now, ended=ended
                )
            )
        self._out.tell(told)
        if isinstance(run, RunEnd):
            self._out.tell(self._parts.metrics.end(run))

    def acknowledge(self, app: AppId, number: int, last: int) -> None:
        """An agent acknowledges the points of a run up to this number."""
        end = self._parts.metrics.acknowledge(app, number, last)
        node = self._parts.nodes.by_name.get(end.points_on) if end is not None else None
        if end is not None:
            self._settle_points(end)
            if node is not None:
                self._parts.nodes.let_forget(node, number)

    def _settle_points(self, end: RunEnd) -> None:
        changes, told = self._parts.metrics.settle(end)
        self._out.store(changes)
        self._out.tell(told)

    def conclude(self, node: NodeEntry) -> None:
        """Free GPUs that the held report of a node proves empty, and end runs that never began."""
        for run in self._parts.runs.on_gpus(node.gpus):
            over = run.run in node.live or node.name in run.ended_on
            if run.stop and run.dispatched and not over:
                self._lifecycle.end_on(run, node.name)  # The order to start it never arrived.
        ledger = self._arbiter.ledger
        vacated: list[tuple[GpuId, int]] = []
        released: dict[AppId, list[GpuId]] = {}
        for gpu in self._parts.nodes.empty(node):
            lease = ledger.lease(gpu)
            if lease is not None and ledger.is_leaving(gpu):
                vacated.append((gpu, lease.token))
            elif lease is not None and self._parts.runs.is_released(lease):
                released.setdefault(lease.app, []).append(gpu)
        if vacated:
            self._lifecycle.feed(ev.GpusVacated(self._out.now, tuple(vacated)))
        for app, gpus in sorted(released.items()):
            self._lifecycle.feed(ev.GpusReleased(self._out.now, app, tuple(gpus)))
