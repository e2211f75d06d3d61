"""A node's side of leases: what runs on one machine, and until when.

An event goes in, commands come out; times are the machine's own monotonic clock. What keeps GPUs
exclusive, whatever the network does:

- A lease, and the node's liveness, count from when the report was *sent* that the orders answer.
  The service counts from when it received it, which was later.
- Only orders that answer the last report are obeyed. So a report shows all effects that orders to
  earlier reports can ever have, and a slot that it calls empty stays empty until it is answered.
- A run's supervisor has its limits too, and ends it if the node itself is dead or stopped.
- A token is on disk before anything runs under it, and lower ones are refused.
"""

import math
from typing import assert_never

from themis.core.model import Machine
from themis.node.core import commands as cmd
from themis.node.core import events as ev
from themis.node.core.events import RunLimits
from themis.node.core.report_budget import share_report
from themis.node.core.report_schedule import ReportSchedule
from themis.node.core.run_states import HeldLease, NodeRun
from themis.protocol.node_messages import (
    MOST_PARTS,
    LeaseOrder,
    LeaseTerms,
    LogPart,
    LogWanted,
    NodeReport,
    Orders,
    RunOrder,
    RunState,
    SlotReport,
    SlotState,
)

KILL_PATIENCE = 10.0
"""Seconds after which a run that was killed and does not die quarantines its GPUs."""


class NodeCore:
    """The state machine: events go into `handle`, and `Adopted` is the first of them."""

    def __init__(
        self,
        machine: Machine,
        memory: cmd.NodeMemory,
        *,
        control: str = "",
        version: str = "",
        trust_tenants: bool = False,
        shared_dir: str = "",
        kill_patience: float = KILL_PATIENCE,
        schedule: ReportSchedule | None = None,
    ) -> None:
        self._machine = machine
        self._control = control
        self._version = version
        self._trust_tenants = trust_tenants
        self._shared_dir = shared_dir
        self._nonce = self._mark = self._storage_trouble = ""
        self._kill_patience = kill_patience
        tokens = list(memory.tokens[: machine.gpus])
        self._tokens = tokens + [0] * (machine.gpus - len(tokens))
        self._boot = memory.boot + 1
        self._epoch = memory.epoch
        self._revision = 0
        self._schedule = schedule or ReportSchedule()
        self._introduces = True
        self._known_terms = memory.terms
        self._terms = memory.terms or LeaseTerms()
        self._leases: dict[int, HeldLease] = {}
        self._alive_until = -math.inf
        self._live: dict[int, NodeRun] = {}
        self._over: dict[int, NodeRun] = {}
        self._failed: dict[int, dict[ev.Fault, str]] = {}
        """Why GPUs must not be used."""
        self._slots: tuple[SlotReport, ...] | None = None
        self._logs_wanted: tuple[LogWanted, ...] = ()
        self._logs: dict[LogWanted, LogPart] = {}
        """Those that were read."""
        self._news = False
        """Whether something must be reported at once."""
        self._asked = math.inf
        """When the driver was asked to send `Ticked`."""
        self._out: list[cmd.NodeCommand] = []

    # For drivers to read

    @property
    def epoch(self) -> int:
        """Of the last orders obeyed."""
        return self._epoch

    @property
    def memory(self) -> cmd.NodeMemory:
        """The state to be kept on disk."""
        return cmd.NodeMemory(self._boot, self._epoch, tuple(self._tokens), self._known_terms)

    @property
    def live(self) -> tuple[int, ...]:
        """Runs that may have processes alive."""
        return tuple(self._live)

    # Events

    def handle(self, event: ev.NodeEvent) -> list[cmd.NodeCommand]:
        """Take one event; returns the commands to carry out, in order."""
        self._out = []
        match event:
            case ev.OrdersCame(at=at, orders=orders):
                # A service that was replaced is not obeyed.
                current = orders.boot >= self._boot and orders.epoch >= self._epoch
                if self._schedule.is_answer(orders) and current:
                    self._on_orders(at, orders)
            case ev.Ticked():
                self._asked = math.inf  # Should it be early, it is asked for again.
            case ev.RunMeasured():
                run = self._live.get(event.run)
                if run is not None:
                    run.iterations, run.seconds = event.iterations, event.seconds
            case ev.PointsRead():
                self._on_points(event)
            case ev.LogsRead(read=read):
                found = {want: part for want, part in read if want in self._logs_wanted}
                self._logs |= found
                # Once for each part, so that some report is not overtaken before its answer.
                self._news = self._news or bool(found)
            case ev.StorageSeen(mark=mark, trouble=trouble):
                # It waits for the next report, as points do.
                self._mark, self._storage_trouble = mark, trouble
            case ev.RunStarted(run=number):
                run = self._live.get(number)
                if run is not None and run.state is RunState.STARTING:
                    run.state = RunState.RUNNING
                    self._changed()
            case ev.RunExited():
                self._on_exit(event)
            case ev.KillFailed(run=number, reason=reason):
                run = self._live.get(number)
                if run is not None:
                    run.stuck = reason
                    self._changed()
            case ev.ServiceAbsent(tried_at=tried_at):
                self._on_absence(tried_at)
            case ev.GpuFailed(gpu=gpu, reason=reason, fault=fault):
                self._failed.setdefault(gpu, {})[fault] = reason
                self._changed()
            case ev.GpuWell(gpu=gpu, fault=fault):
                if self._failed.get(gpu, {}).pop(fault, None) is not None:
                    self._changed()
            case ev.Adopted(at=at, found=found):
                self._on_adoption(at, found)
            case _:
                assert_never(event)
        # Measurements and points change no limit, and there are many: before the next tick nothing
        # is due.
        passing = isinstance(event, ev.RunMeasured | ev.PointsRead)
        if not passing or self._news or event.at >= self._asked:
            self._look_at_the_clock(event.at)
        return self._out

    def _changed(self) -> None:
        self._slots = None
        self._news = True

    # Orders

    def _on_orders(self, at: float, orders: Orders) -> None:
        self._schedule.answer(at)
        if orders.outdated:
            # The node has lost its disk, and counts its boots from the one the service knows.
            self._boot = orders.boot + 1
            self._out.append(cmd.Remember(self.memory))
            self._news = True
            return
        if orders.epoch != self._epoch or orders.terms != self._known_terms:
            self._epoch = orders.epoch
            self._terms = self._known_terms = orders.terms
            self._out.append(cmd.Remember(self.memory))
        self._revision = orders.revision
        self._introduces = orders.introduce
        self._schedule.trust(orders.terms.heartbeat)
        start = self._schedule.sent_at
        self._alive_until = start + orders.terms.node_ttl
        self._leases = {
            lease.gpu: HeldLease(lease.app, lease.token, start + lease.remaining)
            for lease in orders.leases
            if self._takes(lease)
        }
        if self._shared_dir and orders.nonce and orders.nonce != self._nonce:
            self._nonce = orders.nonce
            self._out.append(cmd.LookAtStorage(orders.nonce))
        for number, heard in orders.heard:
            self._advance(number, heard)
        self._want_logs(orders.logs)
        for number in orders.forget:
            if self._over.pop(number, None) is not None:
                self._out.append(cmd.Forget(number))
        wanted = {order.run: order for order in orders.runs}
        for number, run in list(self._live.items()):
            self._review(at, run, wanted.get(number))
        for order in orders.runs:
            if order.run not in self._live and order.run not in self._over and not order.stop:
                self._begin(at, order)
        self._news = True  # Every answer is followed by a report, which the service may hold.

    def _takes(self, lease: LeaseOrder) -> bool:
        """Whether a lease is not older than one that this GPU has run under."""
        return 0 <= lease.gpu < len(self._tokens) and lease.token >= self._tokens[lease.gpu]

    def _lease_end(self, order: RunOrder) -> float | None:
        """When the first of a run's leases ends; None if one is missing."""
        end = math.inf
        for gpu, token in zip(order.gpus, order.tokens, strict=True):
            lease = self._leases.get(gpu)
            if lease is None or lease.token != token or lease.app != order.app:
                return None
            end = min(end, lease.end)
        return end

    def _grace(self, order: RunOrder) -> float:
        """Seconds between telling a run to stop and killing it."""
        return order.program.grace or self._terms.grace

    def _limits(self, order: RunOrder, lease_end: float) -> RunLimits:
        # A lease is renewed no later than the grace of the terms before its end: a run that is told
        # to stop earlier would stop at the end of every lease. A run with a longer grace has the
        # rest of its lease once the service says that it is not renewed.
        grace, ttl = min(self._grace(order), self._terms.grace), self._terms.node_ttl
        # A run that is cut off saves in time, but not while the service may still be heard.
        early = min(grace, ttl / 4.0)
        return RunLimits(
            lease_end,
            min(lease_end - grace, self._alive_until - early),
            min(lease_end, self._alive_until),
        )

    def _review(self, at: float, run: NodeRun, order: RunOrder | None) -> None:
        """Apply new orders to a run that is alive."""
        if run.killed_at < math.inf:
            return
        end = self._lease_end(run.order)
        if end is None:
            self._kill(at, run)
            return
        if order is None or order.stop:
            self._tell_to_stop(at, run)
        self._renew(run, end)

    def _renew(self, run: NodeRun, lease_end: float) -> None:
        limits = self._limits(run.order, lease_end)
        if limits != run.limits:
            run.limits = limits
            self._out.append(cmd.Renew(run.order.run, limits))

    def _begin(self, at: float, order: RunOrder) -> None:
        end = self._lease_end(order)
        if end is None:
            self._refuse(order, "a lease is missing, or older than what this GPU has run under")
            return
        limits = self._limits(order, end)
        if limits.until <= at or any(map(self._occupied, order.gpus)):
            return  # The next orders have it again, if it is still wanted.
        for gpu, token in zip(order.gpus, order.tokens, strict=True):
            self._tokens[gpu] = token
        self._live[order.run] = NodeRun(order, RunState.STARTING, limits)
        self._out += (cmd.Remember(self.memory), cmd.StartRun(order, limits))
        self._changed()

    def _refuse(self, order: RunOrder, reason: str) -> None:
        never = RunLimits(-math.inf, -math.inf, -math.inf)
        self._over[order.run] = NodeRun(order, RunState.LOST, never, message=reason)

    def _occupied(self, gpu: int) -> bool:
        """Whether a GPU cannot take a process now."""
        used = any(gpu in run.order.gpus for run in self._live.values())
        return used or bool(self._failed.get(gpu))

    # Runs

    def _on_adoption(self, at: float, found: tuple[ev.FoundRun, ...]) -> None:
        for item in found:
            run = NodeRun(
                item.order,
                item.state,
                item.limits,
                code=item.code,
                iterations=item.iterations,
                seconds=item.seconds,
                message=item.message,
                heard=item.heard,
                more=item.more,
                log=item.log,
                log_size=item.log_size,
                # It may have ended at any time: its supervisor may have told it to stop.
                interrupted=item.state.over and item.limits.checkpoint_at <= at,
            )
            (self._over if item.state.over else self._live)[item.order.run] = run
            for gpu, token in zip(item.order.gpus, item.order.tokens, strict=True):
                self._tokens[gpu] = max(self._tokens[gpu], token)
        self._out.append(cmd.Remember(self.memory))
        self._changed()

    def _on_points(self, event: ev.PointsRead) -> None:
        run = self._live.get(event.run) or self._over.get(event.run)
        if run is not None:
            run.points += event.points
            if event.points:
                self._schedule.add_points(event.at, self._terms.heartbeat)
            run.more = event.more
            run.trouble = event.trouble

    def _want_logs(self, wanted: tuple[LogWanted, ...]) -> None:
        """Read the parts that are missing, and drop those that no reader waits for any more."""
        if wanted != self._logs_wanted:
            self._logs_wanted = wanted
            self._logs = {want: part for want, part in self._logs.items() if want in wanted}
            missing = tuple(want for want in wanted if want not in self._logs)
            self._out.append(cmd.ReadLogs(missing))

    def _advance(self, number: int, heard: int) -> None:
        """Drop the points that the agent has acknowledged."""
        run = self._live.get(number) or self._over.get(number)
        if run is not None and run.heard < heard <= run.heard + len(run.points):
            run.points = run.points[heard - run.heard :]
            run.heard = heard
            self._out.append(cmd.Advance(number, heard))

    def _on_exit(self, event: ev.RunExited) -> None:
        run = self._live.pop(event.run, None)
        if run is None:
            return
        run.state = RunState.EXITED if event.code is not None else RunState.LOST
        # Its supervisor goes by the same limits, and may have acted on them first.
        due = min(run.limits.checkpoint_at, run.limits.until)
        run.interrupted = run.told_to_stop or run.killed_at < math.inf or due <= event.at
        run.code, run.message, run.log = event.code, event.message, event.log
        run.log_size = max(run.log_size, event.log_size)
        self._over[event.run] = run
        self._changed()

    def _on_absence(self, tried_at: float) -> None:
        """No service that starts after `tried_at` gives this machine up before its time to live."""
        self._schedule.service_absent(self._terms.heartbeat)
        alive_until = tried_at + self._terms.node_ttl
        # A node that lost its disk does not know how long a service would wait for it.
        if self._known_terms is not None and alive_until > self._alive_until:
            self._alive_until = alive_until
            for run in self._live.values():
                if run.killed_at == math.inf:
                    self._renew(run, run.limits.lease_end)

    def _tell_to_stop(self, at: float, run: NodeRun) -> None:
        if not run.told_to_stop and run.killed_at == math.inf:
            run.kill_at = at + self._grace(run.order)
            run.state = RunState.STOPPING
            self._out.append(cmd.Checkpoint(run.order.run))
            self._changed()

    def _kill(self, at: float, run: NodeRun) -> None:
        if run.killed_at == math.inf:
            run.killed_at = at
            run.state = RunState.STOPPING
            self._out.append(cmd.Kill(run.order.run))
            self._changed()

    # Time

    def _look_at_the_clock(self, at: float) -> None:
        """Act on limits, report, and ask for the next tick."""
        patience = self._kill_patience
        first = math.inf
        for run in self._live.values():
            step = run.next_step(patience)
            if step <= at:
                self._act(at, run)
                step = run.next_step(patience)
            first = min(first, step)
        if self._news or self._schedule.next_time <= at:
            self._report(at)
        first = min(first, self._schedule.next_time)
        if first < self._asked or self._asked <= at:
            self._asked = first
            if first < math.inf:
                self._out.append(cmd.TickMe(first))

    def _act(self, at: float, run: NodeRun) -> None:
        if run.killed_at < math.inf:
            run.stuck = f"run {run.order.run} of {run.order.app} does not die"
            self._changed()
        elif min(run.limits.until, run.kill_at) <= at:
            self._kill(at, run)
        else:
            self._tell_to_stop(at, run)

    # Reports

    def _report(self, at: float) -> None:
        self._news = False
        self._schedule.send(at, self._terms)
        if self._slots is None:
            self._slots = tuple(map(self._slot, range(len(self._tokens))))
        runs = (*self._live.values(), *self._over.values())
        counts = share_report([run.points for run in runs], self._schedule.number)
        self._out.append(
            cmd.Send(
                NodeReport(
                    self._machine.name,
                    self._boot,
                    self._schedule.number,
                    self._epoch,
                    self._revision,
                    self._slots,
                    tuple(map(NodeRun.report, runs, counts)),
                    self._machine if self._introduces else None,
                    self._control,
                    self._version,
                    self._trust_tenants,
                    self._shared_dir,
                    self._mark,
                    self._storage_trouble,
                    tuple(self._logs.values())[:MOST_PARTS],
                )
            )
        )

    def _slot(self, gpu: int) -> SlotReport:
        token = self._tokens[gpu]
        run = next((run for run in self._live.values() if gpu in run.order.gpus), None)
        reason = next(iter(self._failed.get(gpu, {}).values()), run.stuck if run else "")
        if run is not None:
            token = run.order.tokens[run.order.gpus.index(gpu)]
        if reason:
            return SlotReport(gpu, token, SlotState.QUARANTINED, reason)
        if run is None:
            return SlotReport(gpu, token, SlotState.EMPTY)
        stopping = run.state is RunState.STOPPING
        return SlotReport(gpu, token, SlotState.STOPPING if stopping else SlotState.RUNNING)
