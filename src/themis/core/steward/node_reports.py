"""What nodes report, and what their silence means."""

from dataclasses import replace

from themis.core.arbiter import events as ev
from themis.core.steward.agent_requests import FROM_NODE, Hearing
from themis.core.steward.commands import AnswerReport, TellRun
from themis.core.steward.events import ReportCame
from themis.core.steward.node_table import NodeEntry
from themis.core.steward.rows import WantedRun
from themis.core.steward.state import WatchedRun
from themis.protocol.node_messages import LeaseTerms, Orders, RunReport, RunState, SlotState


class Reception(Hearing):
    """The part of the steward that takes reports in and gives silent nodes up."""

    def _first_heard(self, at: float) -> float:
        """Since when nodes count as silent: a service that just began has heard nobody yet."""
        return at

    def listen(self, at: float) -> None:
        """Nodes can be heard from now on: silence before this proves nothing."""
        for node in self.nodes.values():
            node.heard = max(node.heard, at)

    def _notice_stall(self, at: float) -> None:
        """If this service itself was held up, silence of the nodes proves nothing."""
        if at > self._wake + self._arbiter.settings.guard / 2.0:
            for node in self._roster.nodes.values():
                node.heard = max(node.heard, at)

    # Reports

    def _on_report(self, name: str, event: ReportCame) -> None:
        report, at = event.report, self._now
        node = self._roster.nodes.get(name) or self._meet(name, at)
        if not node.is_newer(report):
            if (report.boot, report.number) != (node.boot, node.number):
                self._call_outdated(node, report.number)
            return
        node.keep(report, at, self._epoch)
        if self._book.longest_ttl > self._node_ttl and self._all_informed():
            self._book.note_ttl(self._node_ttl)
        self._ready[name] = None
        # Not from this report on: a node with much to tell would never be answered, and give up.
        self._roster.hold(node, node.waits_since + self._arbiter.settings.heartbeat)
        if not node.fresh:
            return
        self._take_logs(node)
        for run in report.runs:
            self._take_points(node, run)
        # Before what is over, which may open a round.
        for run in report.runs:
            if not run.state.over:
                self._take_progress(node, run)
        node.forget = tuple(
            [run.run for run in report.runs if run.state.over and self._take_end(node, run)]
        )
        told = {run.run for run in report.runs}
        for row in self._book.owed_by(name):
            if row.run not in told:
                self._settle_points(row)
        self._take_hardware(node)
        self._touched[name] = None

    def _call_outdated(self, node: NodeEntry, number: int) -> None:
        """A late message, whose sender ignores this; or a node that lost its disk and counts on."""
        terms = self._terms()
        orders = Orders(self._epoch, node.boot, number, 0, (), (), terms, outdated=True)
        self._answers.append(AnswerReport(node.name, orders))

    def _meet(self, name: str, heard: float) -> NodeEntry:
        node = self._roster.nodes[name] = NodeEntry(name, heard)
        world = self._arbiter.world
        number = world.topology.number_of.get(name)
        if number is not None:
            self._seat(node, number)
            node.present = not world.is_gone(number)
        if node.present:
            self._watch_silence(node)
        return node

    def _seat(self, node: NodeEntry, number: int) -> None:
        topology = self._arbiter.world.topology
        self._roster.seat(node, topology.gpus_of[number], topology.machines[number])

    def _take_end(self, node: NodeEntry, report: RunReport) -> bool:
        """Note that a run is over on a node; returns whether the node may forget it."""
        run = self._book.runs.get(report.run)
        if run is not None and node.name not in run.over and self._runs_on(run, node):
            self._take_progress(node, report)
            if report.code != 0 and not run.stop:
                run = replace(run, stop=True)
            # Of several machines the first trouble counts: the others end because of it.
            if run.code is None or (run.code == 0 and report.code):
                run = replace(
                    run,
                    state=report.state,
                    code=report.code,
                    message=report.message,
                    log=report.log,
                    told=run.told or report.told,
                )
            self._over(run, node.name)
        return not self._keeps_points(node, report.run)

    def _runs_on(self, run: WantedRun, node: NodeEntry) -> bool:
        """Whether a part of a run is on a node; what others say of it counts for nothing."""
        return any(self._roster.machine_of[gpu] is node for gpu in run.gpus)

    def _take_progress(self, node: NodeEntry, report: RunReport) -> None:
        run = self._book.runs.get(report.run)
        if run is None or self._roster.machine_of[run.gpus[0]] is not node:
            return
        self._watch(run, report)
        measured = self._iterations[run.run] = (report.iterations, report.seconds)
        if report.seconds > 0.0:
            self._begun.setdefault(run.run, measured)
        if report.state is RunState.RUNNING and run.state is RunState.STARTING:
            self._book.put(replace(run, state=RunState.RUNNING))
            self._commands.append(TellRun(run.app, run.job, run.run, RunState.RUNNING))

    def _watch(self, run: WantedRun, report: RunReport) -> None:
        """Note whether a run gets on, and what is wrong with what it reports."""
        known = self._watched.get(run.run)
        before, _ = self._iterations.get(run.run, (0.0, 0.0))
        begins = report.state is RunState.RUNNING and run.state is RunState.STARTING
        gets_on = report.iterations != before
        since = self._now if known is None or begins or gets_on else known.since
        if gets_on:
            self._quiet.pop((run.app, run.job), None)
        quiet = self._quiet.get((run.app, run.job), 0.0)
        self._watched[run.run] = WatchedRun(since, report.trouble, quiet)

    def _take_hardware(self, node: NodeEntry) -> None:
        """Let quarantine follow what the node says, and take the machine in when it is clear."""
        report = node.held
        if report is None or (node.gpus and len(report.slots) != len(node.gpus)):
            return
        ledger = self._arbiter.ledger
        for gpu, slot in zip(node.gpus, report.slots, strict=False):
            reason = ledger.quarantine_reason(gpu)
            if slot.state is SlotState.QUARANTINED:
                if reason is None or (not node.present and not reason.startswith(FROM_NODE)):
                    self._feed(ev.GpuQuarantined(self._now, gpu, FROM_NODE + slot.reason))
            elif slot.state is SlotState.EMPTY and reason and reason.startswith(FROM_NODE):
                self._feed(ev.GpuRestored(self._now, gpu))
        if not node.present and node.clear and node.machine is not None:
            self._join(node)

    def _join(self, node: NodeEntry) -> None:
        world = self._arbiter.world
        known = world.topology.number_of.get(node.name)
        if node.machine is None or node.held is None:
            return
        if known is not None and world.topology.machines[known] != node.machine:
            return  # It says so in status; its operator must give it another name.
        if node.machine.gpus != len(node.held.slots):
            return
        self._feed(ev.MachineJoined(self._now, node.machine))
        node.present = True
        self._seat(node, world.topology.number_of[node.name])
        self._watch_silence(node)
        if known is None:
            self._take_hardware(node)

    def _terms(self) -> LeaseTerms:
        settings = self._arbiter.settings
        return LeaseTerms(settings.heartbeat, self._node_ttl, settings.grace)

    # Silence

    def _last_word(self, node: NodeEntry) -> float:
        """When a node must be taken as gone unless it is heard: it has ended everything by then."""
        ttl = self._node_ttl if node.informed else self._book.longest_ttl
        return node.heard + ttl + self._arbiter.settings.guard

    def _all_informed(self) -> bool:
        """Whether no node goes by the terms of an earlier service; one that left runs nothing."""
        return all(node.informed or not node.present for node in self._roster.nodes.values())

    def _watch_silence(self, node: NodeEntry) -> None:
        self._roster.watch(node, self._last_word(node))

    def _give_up(self, node: NodeEntry) -> None:
        node.present = False
        node.held = None
        self._feed(ev.MachineLeft(self._now, node.name))
        for row in self._book.owed_by(node.name):
            self._settle_points(row)
        for run in self._book.on_node(node.gpus):
            if run.ordered and node.name not in run.over:
                lost = replace(run, stop=True, state=RunState.LOST, message="its machine is gone")
                self._over(lost, node.name)
