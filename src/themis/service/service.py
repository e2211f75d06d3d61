"""The service: one steward, one store, one clock, and doors for nodes, agents and people.

    service = Service(memory, store, Solving())
    await service.start()
    orders = await service.report(report)          # a node
    news = await service.exchange(agent_report)    # an agent
    await service.submit(spec, key)                # somebody with an app

Every door hands an event to the steward at once, and answers when what came of it is durable. The
loop never waits for the disk or for an auction.
"""

import asyncio
import json
import logging
import math
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Protocol, assert_never

from themis.apps import AppFile, plain_app, plan_app
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.auction import Problem, Solution
from themis.core.model import AppId, AppSpec, OwnerId
from themis.core.steward.commands import (
    AcceptRun,
    AcceptSession,
    AnswerReport,
    Outcome,
    RefuseRun,
    RefuseSession,
    StewardCommand,
    TellPoints,
    TellRun,
)
from themis.core.steward.events import AgentSpoke, AppForgotten, ReportCame, StewardEvent
from themis.core.steward.steward import Steward
from themis.errors import RefusedError, ThemisError, UnavailableError
from themis.ops.log_format import current_request, marked
from themis.protocol.agent_messages import (
    MOST_BODY,
    AgentReport,
    LeaseNews,
    News,
    PointsNews,
    RefusalNews,
    SubmittedApp,
    TopologyNews,
)
from themis.protocol.node_messages import NodeReport, Orders
from themis.security.audit import AuditRow
from themis.security.redaction import clean
from themis.service.agent_sessions import AgentSessions
from themis.service.dashboard.change_feed import ChangeFeed
from themis.service.dashboard.page_history import PageHistory
from themis.service.forecast_jobs import Forecasts
from themis.service.log_requests import LogRequests
from themis.service.operator_log import lines_of
from themis.service.persistence.commit_queue import CommitQueue
from themis.service.persistence.log_entries import body_of
from themis.service.persistence.recovery import CLUSTER, RecoveredState, fleet_rows
from themis.service.persistence.round_history import RoundHistory
from themis.service.persistence.store.base import Batch, LogEntry, Store
from themis.service.prometheus import Metrics
from themis.service.retained_rows import EndedApps, Rows, SubmissionKeys
from themis.service.retired_machines import RetiredMachines
from themis.service.solver.deadlines import Deadlines
from themis.service.submitted_apps import SubmittedApps

_LOG = logging.getLogger(__name__)

_FORGET_EVERY = 600.0
_HANG = 15.0
"""Seconds beyond a heartbeat in which a report must have been answered."""


class RoundSolver(Protocol):
    """Solves auctions beside the loop, as `Solving` does."""

    async def start(self) -> None:
        """Get ready."""

    async def solve(self, problem: Problem, seconds: float, slack: float = 0.0) -> Solution:
        """The best answer after so many seconds; the first one, if it takes `slack` longer."""

    async def close(self) -> None:
        """Let go of everything."""


class Service:
    """Drives the steward. All methods belong to one event loop."""

    def __init__(
        self,
        memory: RecoveredState,
        store: Store,
        solving: RoundSolver,
        thread: Executor | None = None,
        *,
        policy: str = "",
    ) -> None:
        self.policy = policy
        """What decides, by name; for who looks."""
        self._thread = thread
        self._memory = memory
        self._store = store
        self._solving = solving
        self._steward: Steward = memory.steward
        self._clock = memory.clock
        self._writer: CommitQueue | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._polls: dict[str, tuple[tuple[int, int], asyncio.Future[Orders]]] = {}
        self._deadlines = Deadlines()
        self._submitting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self.taken = 0
        """How many outcomes of the steward there were."""
        self.departed = EndedApps(memory.kept, self._steward.arbiter.settings.convention)
        """Apps that are over."""
        self.agents = AgentSessions(self, memory)
        """Who speaks for apps, and what they are to be told."""
        self._submissions = SubmissionKeys(memory.kept)
        self.hosting = SubmittedApps(memory.kept, self._active)
        self.removed = RetiredMachines(memory.kept)
        """Apps that were submitted as files."""
        self.book = RoundHistory()
        """The last rounds."""
        self.past = PageHistory(self.departed)
        """What was, for the pages."""
        self.watchers = ChangeFeed()
        """Who looks at pages that change."""
        self.metrics = Metrics(self)
        """What Prometheus reads."""
        self.logs = LogRequests(self)
        """Who reads what jobs print."""
        self.forecasts = Forecasts()
        """Who asks what would be."""

    # Life

    async def start(self) -> None:
        """Begin to serve."""
        self._writer = CommitQueue(self._store, self._memory.changed, self._thread)
        self.agents.begin()
        # What was only intended when the last service ended was never acknowledged.
        intents = {key: None for key in self._memory.kept if key.startswith("intent/")}
        self.keep({CLUSTER: self._memory.kept[CLUSTER], **intents})
        await self._solving.start()
        self._take(self._memory.first)
        await self.settled()
        self._spawn(self.agents.watch())
        self._spawn(self._forget_old())

    def hush(self) -> None:
        """Take nothing more, and end the calls that wait."""
        self._closing = True
        self.logs.close()
        self.watchers.close()
        gone = UnavailableError("the service is stopping")
        for _, poll in self._polls.values():
            if not poll.done():
                poll.set_exception(gone)
        self.agents.hush(gone)

    async def close(self) -> None:
        """Stop serving; nothing that runs on nodes is touched."""
        self.hush()
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.forecasts.close()
        await self.writer.close()
        await self._solving.close()

    @property
    def writer(self) -> CommitQueue:
        """What makes things durable."""
        assert self._writer is not None, "the service has not begun"
        return self._writer

    @property
    def steward(self) -> Steward:
        """The state; read only."""
        return self._steward

    @property
    def store(self) -> Store:
        """The store; only through the writer's thread."""
        return self._store

    @property
    def last_seen(self) -> Mapping[AppId, float]:
        """When the agent of each app was last heard."""
        apps = self._steward.arbiter.world.apps
        return {app: desk.seen for app, desk in self.agents.desks.items() if app in apps}

    def seen(self, app: AppId) -> float | None:
        """When the agent of an app was last heard."""
        desk = self.agents.desks.get(app)
        return desk.seen if desk is not None else None

    @property
    def kept(self) -> Mapping[str, str]:
        """Durable rows of the service's own; changed by `keep` only."""
        return self._memory.kept

    def now(self) -> float:
        """The cluster's time."""
        return self._clock.now()

    async def settled(self) -> None:
        """Wait until all that was decided so far is durable."""
        await self.writer.settled()

    async def failed(self) -> Exception:
        """Waits until nothing can be stored any more; the process must end then."""
        return await asyncio.shield(self.writer.failed)

    # Events

    def apply(self, event: StewardEvent) -> Outcome:
        """Hand an event to the steward; what comes of it is let out when it is durable."""
        outcome = self._handled(event)
        self._take(outcome, _kind_of(event))
        return outcome

    def _handled(self, event: StewardEvent) -> Outcome:
        """What comes of an event. A bug in there ends the service: its state is half changed."""
        try:
            return self._steward.handle(event)
        except Exception as error:
            with marked(round=self._round_of()):
                _LOG.critical("the steward failed at %s", type(event).__name__, exc_info=error)
            self.writer.fail(error)
            raise UnavailableError("the service failed and is stopping") from error

    async def carry_out(
        self,
        event: StewardEvent,
        audit: AuditRow | None = None,
        kept: Mapping[str, str | None] | None = None,
    ) -> Outcome:
        """Apply an event that somebody asked for, and wait until it is durable.

        Args:
            event: What was asked for.
            audit: What the audit log says of it.
            kept: Rows of the service's own that go with it, unless it is refused.

        Raises:
            RefusedError: It was not taken.
            ThemisError: It cannot be stored.
        """
        outcome = self._handled(event)
        refusal = outcome.refusal
        if refusal is None and kept:
            self.keep(kept)
        # Whoever calls is told of a refusal, and tells the audit log of it in their own way.
        self._take(outcome, _kind_of(event), audit if refusal is None else None)
        await self.settled()
        if refusal is not None:
            raise RefusedError(refusal.who, refusal.reason.removeprefix(f"{refusal.who}: "))
        return outcome

    def keep(self, rows: Mapping[str, str | None]) -> None:
        """Change durable rows of the service's own."""
        for key, text in rows.items():
            if text is None:
                self._memory.kept.pop(key, None)
            else:
                self._memory.kept[key] = text
        self.writer.add(kept=rows)

    def _take(self, outcome: Outcome, kind: str = "", audit: AuditRow | None = None) -> None:
        entry = None
        changes = outcome.changes
        for command in outcome.commands:
            if isinstance(command, cmd.RecordApp):
                self.keep(self.departed.note(command.record))
                self.hosting.tell()
            elif isinstance(command, cmd.Solve):
                # Nobody is told anything by it, and its answer is stored behind what it answers:
                # it need not wait for a disk that a crowd's bids keep busy.
                self._spawn(self._solve(command))
        back = self.removed.hear(changes.events)
        if back:
            self.keep(back)
        if changes.events:
            passing = cmd.WakeMe | TellPoints
            commands = [item for item in outcome.commands if not isinstance(item, passing)]
            body = body_of(changes.events, commands)
            entry = LogEntry(self._steward.arbiter.now, kind, body)
        self.taken += 1
        # It is let out by whoever finds it on disk; its lines belong to who asked for it.
        request, number = current_request(), self._round_of(outcome)
        then = partial(self._let_out, outcome, self.taken, request, number)
        if entry is None and not changes.rows and audit is None:
            # Nothing to store, but what was decided before must be durable before this is told.
            self.writer.add(then=then)
        else:
            self.writer.add(entry, fleet_rows(changes.rows), audit, then)
        self._wake_at(outcome.wake)

    def _wake_at(self, at: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None and not self._closing:
            loop = asyncio.get_running_loop()
            # In no request: it rings long after the one that happened to set it.
            wait = self._clock.until(at)
            self._timer = loop.call_later(wait, self._woken, at, context=Context())

    def _woken(self, at: float) -> None:
        # Timers may ring a hair early.
        with suppress(UnavailableError):  # which ends the service by itself
            self.apply(ev.Woken(max(at, self.now())))

    # What comes out

    def _round_of(self, outcome: Outcome | None = None) -> int | None:
        """The round that an outcome belongs to: the one it ends, else the one under way."""
        for command in outcome.commands if outcome is not None else ():
            if isinstance(command, cmd.RecordRound):
                return command.record.round
        arbiter = self._steward.arbiter
        return arbiter.rounds if arbiter.round_open else None

    def _let_out(self, outcome: Outcome, number: int, request: str, round_: int | None) -> None:
        with marked(request=request, round=round_):
            for line in lines_of(outcome, self._steward.arbiter.world.topology):
                _LOG.log(line.level, "%s", line.text)
            for answer in outcome.answers:
                self._answer(answer)
            for command in outcome.commands:
                if not self.agents.is_told_anew(command, number):
                    self._do(command)
        if outcome.changes.any or outcome.commands:
            self.past.take(outcome.changes.events, outcome.commands, self.owner_of)
            self.watchers.tell()

    def _answer(self, answer: AnswerReport) -> None:
        waiting = self._polls.get(answer.node)
        if waiting is None or waiting[0][1] != answer.orders.answers:
            return
        del self._polls[answer.node]
        if not waiting[1].done():
            waiting[1].set_result(answer.orders)

    def _do(self, command: StewardCommand) -> None:
        self.metrics.note(command)
        match command:
            case cmd.Ask():
                self._deadlines.note(command)
                self.agents.ask(command)
            case cmd.Assign():
                news = LeaseNews(command.granted, command.renewed, command.revoked, command.reason)
                self.agents.tell(command.app, news)
            case cmd.RecordApp(record=over):
                self.agents.close(over)
            case cmd.Refuse():
                _LOG.info("refused: %s: %s", clean(command.who), clean(command.reason))
            case cmd.End():
                lost = LeaseNews(revoked=command.leases, reason="over")
                self.agents.tell(command.app, lost)
            case AcceptRun():
                self.agents.accept_run(command.run)
            case RefuseRun():
                refusal = RefusalNews(command.key, command.reason, home=command.home)
                self.agents.tell(command.app, refusal)
            case TellRun():
                self.agents.tell_run(command)
            case TellPoints():
                points = PointsNews(command.run, command.job, command.first, command.points)
                self.agents.tell(command.app, points)
            case cmd.RecordRound(record=record):
                self.agents.end_round(record.round)
                apps = self._steward.arbiter.world.apps
                named = [line.app for line in record.apps if line.app in apps]
                self.book.add(record, {app: apps[app].spec.owner for app in named})
            case cmd.Solve() | cmd.WakeMe() | AcceptSession() | RefuseSession():
                pass  # Under way; set; and who opened a session is told by the answer.
            case _:
                assert_never(command)

    async def _solve(self, command: cmd.Solve) -> None:
        with marked(round=command.round):
            await self._solve_in(command)

    async def _solve_in(self, command: cmd.Solve) -> None:
        due = self._deadlines.of(command, self._steward.arbiter.settings)
        last = max(0.0, self._clock.until(due.last))
        seconds = min(last, max(0.0, self._clock.until(due.ready)))
        try:
            solution = await self._solving.solve(command.problem, seconds, last - seconds)
        except ThemisError as error:
            self.apply(ev.SolveFailed(self.now(), command.round, str(error)))
        else:
            self.apply(ev.Solved(self.now(), command.round, solution))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a task of the service failed", exc_info=task.exception())

    # Nodes

    async def report(self, report: NodeReport) -> Orders:
        """Take a node's report in; returns when there are orders, or after a heartbeat.

        Raises:
            UnavailableError: A later report came, or the service is stopping.
        """
        self._check_open()
        loop = asyncio.get_running_loop()
        _check_report(report)
        before, place = self._polls.get(report.node), (report.boot, report.number)
        if before is not None and before[0] > place:
            raise UnavailableError("a later report of this node came")
        if before is not None and not before[1].done():
            before[1].set_exception(UnavailableError("a later report of this node came"))
        poll: asyncio.Future[Orders] = loop.create_future()
        self._polls[report.node] = (place, poll)
        topology = self._steward.arbiter.world.topology
        self.apply(ReportCame(self.now(), report))
        self.logs.take(report.node, report.logs)
        present = self._steward.arbiter.world.topology
        if present is not topology:
            # Told when the machine is on disk, like everything.
            self.writer.add(then=partial(self.agents.tell_all, TopologyNews(present)))
        try:
            limit = self._steward.arbiter.settings.heartbeat + _HANG
            async with asyncio.timeout(limit):
                return await poll
        except TimeoutError:
            raise UnavailableError("this report was superseded") from None
        finally:
            known = self._polls.get(report.node)
            if known is not None and known[1] is poll:
                del self._polls[report.node]

    def listening(self) -> None:
        """Nodes and agents can reach the service from now on.

        What nodes did not say before proves nothing, and agents get some time to come back before
        a round opens in which they could not bid.
        """
        self._steward.listen(self.now())
        self.agents.listening()

    # Agents

    async def exchange(self, report: AgentReport) -> News:
        """Take in what an agent says; returns when there is news, or after some seconds.

        Raises:
            UnavailableError: The service is stopping.
            RefusedError: As `AgentSessions.exchange`.
        """
        self._check_open()
        return await self.agents.exchange(report)

    async def _forget_old(self) -> None:
        while True:
            now = self.now()
            ended = self.departed.old(now)
            active = self._steward.arbiter.world.apps
            rows = {**ended, **self._submissions.old(now, active)}
            for app in self.departed.named(ended):
                rows |= self.hosting.forget(app)
                self.apply(AppForgotten(now, app))
            if rows:
                self.keep(rows)
            self.agents.forget_old()
            await asyncio.sleep(_FORGET_EVERY)

    # People

    async def submit(
        self,
        spec: AppSpec,
        key: str,
        audit: AuditRow | None = None,
        *,
        most: float = math.inf,
    ) -> AppId:
        """Take an app in; durable when this returns. The same key again is the same app.

        Args:
            spec: What it is.
            key: Of this submission.
            audit: What the audit log says of it.
            most: Apps that its owner may have at a time.

        Raises:
            RefusedError: It cannot be taken.
            UnavailableError: There is no room for it on disk.
        """
        self._check_open()
        # One at a time: the same key, or the same name, may be under way twice.
        async with self._submitting:
            return await self._submit(spec, key, audit, most=most)

    async def submit_file(
        self,
        app: AppFile,
        owner: OwnerId,
        key: str,
        seed: int,
        audit: Callable[[AppId], AuditRow] | None = None,
        *,
        most: float = math.inf,
    ) -> AppId:
        """Take an app in as it was written; its agent is ours.

        Its name gets a number where it is taken.

        Raises:
            ConfigError: It comes to something that cannot be.
            RefusedError: It cannot be taken.
            UnavailableError: There is no room for it on disk.
        """
        self._check_open()
        async with self._submitting:
            known = self._submissions.find(owner, key)
            if known is not None:
                await self.settled()
                return known
            name = self.free_name(app.name)
            plan = plan_app(app, name, owner, seed)
            sheet = _sheet(app, name, owner, seed)
            rows = self.hosting.note(sheet)
            try:
                await self._submit(plan.spec, key, audit and audit(name), rows, most=most)
            except BaseException:
                self.hosting.forget(name)
                raise
        self.hosting.tell()
        return name

    def check_file(
        self, app: AppFile, owner: OwnerId, key: str, seed: int, *, most: float = math.inf
    ) -> None:
        """Refuse what `submit_file` would refuse now.

        Raises:
            RefusedError: It could not be taken.
            UnavailableError: The service is stopping.
        """
        self._check_open()
        if self._submissions.find(owner, key) is None:
            name = self.free_name(app.name)
            _sheet(app, name, owner, seed)
            self._check_room(owner, most)
            self._steward.arbiter.world.check_fits(plan_app(app, name, owner, seed).spec)

    def free_name(self, wanted: str) -> AppId:
        """The name that an app gets which wants this one."""
        number, name = 1, AppId(wanted)
        # Of an app that is over something may still be alive; the next must not be told of it.
        alive = {run.app for run in self._steward.runs.values()}
        while self.owner_of(name) is not None or name in self.hosting or name in alive:
            number += 1
            tail = f"-{number}"
            name = AppId(wanted[: 63 - len(tail)] + tail)
        return name

    async def _submit(
        self,
        spec: AppSpec,
        key: str,
        audit: AuditRow | None,
        more: Rows | None = None,
        *,
        most: float,
    ) -> AppId:
        known = self._submissions.find(spec.owner, key)
        if known is not None:
            if known != spec.id:
                raise RefusedError(key, f"this key was used for {known}")
            await self.settled()
            return spec.id
        self._check_room(spec.owner, most)
        # May fail for want of space, before anything depends on it.
        intent = f"intent/{spec.owner}/{key}"
        await self.writer.apart(Batch(kept={intent: spec.id}, essential=False))
        now, before = self.now(), self.agents.receive(spec.id)
        rows = {
            **self._submissions.note(spec.owner, key, spec.id, now),
            **self.departed.forget(spec.id),
            **(more or {}),
            intent: None,
        }
        try:
            await self.carry_out(ev.AppArrived(now, spec), audit, rows)
        except RefusedError:
            self.agents.send_away(spec.id, before)
            self.keep({intent: None})
            raise
        self.agents.arrived(spec.id)
        return spec.id

    def _check_room(self, owner: OwnerId, most: float) -> None:
        apps = self._steward.arbiter.world.apps.values()
        mine = sum(state.spec.owner == owner for state in apps)
        if mine >= most:
            reason = f"{mine} apps are not over, allowed: at most {most:g} (limits.apps)"
            raise RefusedError(owner, reason)

    def _active(self) -> Collection[AppId]:
        return self._steward.arbiter.world.apps

    def owner_of(self, app: AppId) -> OwnerId | None:
        """Whose an app is, or was if it is over; None if nobody knows it."""
        state = self._steward.arbiter.world.apps.get(app)
        if state is not None:
            return state.spec.owner
        ended = self.departed.find(app)
        return ended.owner if ended is not None else None

    def _check_open(self) -> None:
        if self._closing or self.writer.failed.done():
            raise UnavailableError("the service is stopping")


def _sheet(app: AppFile, name: AppId, owner: OwnerId, seed: int) -> SubmittedApp:
    """An app as it is kept.

    Raises:
        RefusedError: It is too long.
    """
    sheet = SubmittedApp(name, owner, json.dumps(plain_app(app)), seed)
    if len(sheet.body) > MOST_BODY:
        reason = f"{len(sheet.body)} characters as JSON, allowed: at most {MOST_BODY}"
        raise RefusedError(app.name, reason)
    return sheet


def _check_report(report: NodeReport) -> None:
    """Refuse what a node may not say: another machine, or slots that are not its own.

    Raises:
        RefusedError: It says that.
    """
    if report.machine is not None and report.machine.name != report.node:
        raise RefusedError(report.node, "a node reports its own machine only")
    if [slot.gpu for slot in report.slots] != list(range(len(report.slots))):
        raise RefusedError(report.node, "slots are numbered from 0, each once")


def _kind_of(event: StewardEvent) -> str:
    """What the log calls an event."""
    return type(event.event if isinstance(event, AgentSpoke) else event).__name__
