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
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Protocol, assert_never

from themis.apps import AppFile, plain_app, plan_app
from themis.arbiter import commands as cmd
from themis.arbiter import events as ev
from themis.auction import Problem, Solution
from themis.errors import (
    InvariantError,
    RefusedError,
    StaleAnswerError,
    ThemisError,
    UnavailableError,
    UnknownAppError,
)
from themis.fleet import Steward
from themis.fleet.commands import (
    AcceptRun,
    AcceptSession,
    Answer,
    Outcome,
    RefuseRun,
    RefuseSession,
    StewardCommand,
    TellPoints,
    TellRun,
)
from themis.fleet.events import (
    AgentEvent,
    AgentSpoke,
    AppForgotten,
    AppWon,
    JobNoted,
    PointsHeard,
    ReleaseRequested,
    ReportCame,
    RunRequested,
    SessionOpened,
    StewardEvent,
    StopRequested,
    TrialChosen,
)
from themis.fleet.kept import RunResult, WantedRun
from themis.fleet.messages import Orders, Report, RunState
from themis.fleet.steward import DISPLACED
from themis.fleet.talk import (
    AgentReport,
    BidSaid,
    EndSaid,
    LeaseNews,
    News,
    NewsItem,
    OfferNews,
    OverNews,
    PhaseSaid,
    PointsNews,
    ReachedSaid,
    RefusalNews,
    ReleaseSaid,
    RunNews,
    RunSaid,
    Said,
    Sheet,
    Standing,
    StopSaid,
    TargetsSaid,
    TopologyNews,
    TrialSaid,
)
from themis.live.desk import Desk
from themis.live.entries import body_of
from themis.live.keeping import Departed, Rows, Submissions
from themis.live.memory import Memory, fleet_rows, longest_hold
from themis.live.programs import trouble_with
from themis.live.rounds import RoundBook
from themis.live.sheets import Sheets
from themis.live.store.base import AuditRow, Batch, LogEntry, Store
from themis.live.writing import Writer
from themis.model import AppId, AppSpec, OwnerId
from themis.model.reasons import Reason

_LOG = logging.getLogger(__name__)

AGENT_TTL = 30.0
"""Seconds of silence after which an app's agent counts as unreachable."""
AGENT_POLL = 10.0
"""Seconds after which an agent without news is answered: it is heard in time by a wide margin."""
_IN_TIME = 0.1
"""Seconds before the arbiter's deadline at which a solution must be here."""
_FORGET_EVERY = 600.0
_HANG = 15.0
"""Seconds beyond a heartbeat in which a report must have been answered."""


class Solver(Protocol):
    """Solves auctions beside the loop, as `Solving` does."""

    async def start(self) -> None:
        """Get ready."""

    async def solve(self, problem: Problem, seconds: float, slack: float = 0.0) -> Solution:
        """The best answer after so many seconds; it is here within `slack` more."""

    async def close(self) -> None:
        """Let go of everything."""


class Service:
    """Drives the steward. All methods belong to one event loop."""

    def __init__(
        self, memory: Memory, store: Store, solving: Solver, thread: Executor | None = None
    ) -> None:
        self._thread = thread
        self._memory = memory
        self._store = store
        self._solving = solving
        self._steward: Steward = memory.steward
        self._clock = memory.clock
        self._writer: Writer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._polls: dict[str, tuple[tuple[int, int], asyncio.Future[Orders]]] = {}
        self._submitting = asyncio.Lock()
        self._desks: dict[AppId, Desk] = {}
        self._waiting: dict[AppId, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._taken = 0
        """How many outcomes of the steward there were."""
        self._offers: dict[AppId, OfferNews] = {}
        """What each app was last asked, if it has not answered."""
        self._absent = set(memory.absent)
        """Apps whose agents are waited for before the first round."""
        self._parted: set[AppId] = set()
        """Apps that are over, and whose agents have heard it."""
        self.departed = Departed(memory.kept, self._steward.arbiter.settings.convention)
        """Apps that are over."""
        self._submissions = Submissions(memory.kept)
        self.hosting = Sheets(memory.kept, self._active)
        """Apps that were submitted as files."""
        self.book = RoundBook()
        """The last rounds."""

    # Life

    async def start(self) -> None:
        """Begin to serve."""
        self._writer = Writer(self._store, self._memory.changed, self._thread)
        for app in self._steward.arbiter.world.apps:
            self._desks[app] = Desk(app, self._memory.epoch.number, self.now())
            suspended = self._steward.arbiter.world.apps[app].suspended
            self._desks[app].unreachable = Reason.AGENT_UNREACHABLE in suspended
        # What was only intended when the last service ended was never acknowledged.
        intents = {key: None for key in self._memory.kept if key.startswith("intent/")}
        self.keep({**self._memory.kept, **intents})
        await self._solving.start()
        self._take(self._memory.first)
        await self.settled()
        self._spawn(self._watch_agents())
        self._spawn(self._forget_old())

    def hush(self) -> None:
        """Take nothing more, and end the calls that wait."""
        self._closing = True
        gone = UnavailableError("the service is stopping")
        for _, poll in self._polls.values():
            if not poll.done():
                poll.set_exception(gone)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(gone)

    async def close(self) -> None:
        """Stop serving; nothing that runs on nodes is touched."""
        self.hush()
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.writer.close()
        await self._solving.close()

    @property
    def writer(self) -> Writer:
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
        refusal = next((c for c in outcome.commands if isinstance(c, cmd.Refuse)), None)
        if refusal is None and kept:
            self.keep(kept)
        self._take(outcome, _kind_of(event), audit)
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
            if isinstance(command, cmd.Close):
                self.keep(self.departed.note(command.record))
                self.hosting.tell()
        if changes.events:
            passing = cmd.WakeMe | TellPoints
            commands = [item for item in outcome.commands if not isinstance(item, passing)]
            body = body_of(changes.events, commands)
            entry = LogEntry(self._steward.arbiter.now, kind, body)
        self._taken += 1
        then = partial(self._let_out, outcome, self._taken)
        if entry is None and not changes.kept and audit is None:
            # Nothing to store, but what was decided before must be durable before this is told.
            self.writer.add(then=then)
        else:
            self.writer.add(entry, fleet_rows(changes.kept), audit, then)
        self._wake_at(outcome.wake)

    def _wake_at(self, at: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None and not self._closing:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._clock.until(at), self._woken, at)

    def _woken(self, at: float) -> None:
        # Timers may ring a hair early.
        with suppress(UnavailableError):  # which ends the service by itself
            self.apply(ev.Woken(max(at, self.now())))

    # What comes out

    def _let_out(self, outcome: Outcome, number: int) -> None:
        for answer in outcome.answers:
            self._answer(answer)
        for command in outcome.commands:
            if not self._is_told_anew(command, number):
                self._do(command)

    def _is_told_anew(self, command: StewardCommand, number: int) -> bool:
        """Whether a talk has begun since that tells this again, in its place among the others.

        What waited for the disk meanwhile must not come first: the points of a run have an order.
        """
        if not isinstance(command, TellPoints | TellRun):
            return False
        desk = self._desks.get(command.app)
        return desk is not None and number < desk.began

    def _answer(self, answer: Answer) -> None:
        waiting = self._polls.get(answer.node)
        if waiting is None or waiting[0][1] != answer.orders.answers:
            return
        del self._polls[answer.node]
        if not waiting[1].done():
            waiting[1].set_result(answer.orders)

    def _do(self, command: StewardCommand) -> None:
        match command:
            case cmd.Ask():
                offer = self._offers[command.app] = OfferNews(command.offer, command.deadline)
                self._tell(command.app, offer)
            case cmd.Solve():
                self._spawn(self._solve(command))
            case cmd.Assign():
                news = LeaseNews(command.granted, command.renewed, command.revoked, command.reason)
                self._tell(command.app, news)
            case cmd.Close(record=over):
                # Unless there is another one of the same name by now.
                if over.app in self._desks and over.app not in self._steward.arbiter.world.apps:
                    self._desks[over.app].conclude(OverNews(over.outcome))
                    self._wake_agent(over.app)
            case cmd.Refuse():
                _LOG.info("refused: %s: %s", command.who, command.reason)
            case cmd.End():
                lost = LeaseNews(revoked=command.leases, reason="over")
                self._tell(command.app, lost)
            case AcceptRun():
                run = self._steward.runs.get(command.run)
                if run is not None:
                    self._tell(command.app, _run_news(run))
            case RefuseRun():
                self._tell(command.app, RefusalNews(command.key, command.reason))
            case TellRun():
                self._tell_run(command)
            case TellPoints():
                points = PointsNews(command.run, command.job, command.first, command.points)
                self._tell(command.app, points)
            case cmd.Report(record=record):
                self._offers = {
                    app: news
                    for app, news in self._offers.items()
                    if news.offer.round != record.round
                }
                apps = self._steward.arbiter.world.apps
                named = [line.app for line in record.apps if line.app in apps]
                self.book.add(record, {app: apps[app].spec.owner for app in named})
            case cmd.WakeMe() | AcceptSession() | RefuseSession():
                pass  # Who opened a session is told by the answer.
            case _:
                assert_never(command)

    def _tell_run(self, command: TellRun) -> None:
        known = self._steward.kept.get(f"run/{command.run}") or self._steward.kept.get(
            f"result/{command.run}"
        )
        runs = WantedRun | RunResult
        gpus = known.gpus if isinstance(known, runs) else ()
        key = known.key if isinstance(known, runs) else ""
        news = RunNews(
            command.run,
            command.job,
            gpus,
            key,
            command.state,
            command.code,
            command.iterations,
            command.message,
            command.log,
        )
        self._tell(command.app, news)

    def _tell(self, app: AppId, item: NewsItem) -> None:
        desk = self._desks.get(app)
        if desk is None:
            return
        desk.put(item)
        self._wake_agent(app)

    def _wake_agent(self, app: AppId) -> None:
        waiting = self._waiting.get(app)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _solve(self, command: cmd.Solve) -> None:
        # The arbiter's deadline is for the answer to be here, the budget for the solver itself.
        left = max(0.0, self._clock.until(command.deadline) - _IN_TIME)
        seconds = min(left, self._steward.arbiter.settings.solve_budget)
        try:
            solution = await self._solving.solve(command.problem, seconds, left - seconds)
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

    async def report(self, report: Report) -> Orders:
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
        present = self._steward.arbiter.world.topology
        if present is not topology:
            # Told when the machine is on disk, like everything.
            self.writer.add(then=partial(self._tell_all, TopologyNews(present)))
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

    def _tell_all(self, item: NewsItem) -> None:
        for app in list(self._desks):
            self._tell(app, item)

    def listening(self) -> None:
        """Nodes and agents can reach the service from now on.

        What nodes did not say before proves nothing, and agents get some time to come back before
        a round opens in which they could not bid.
        """
        self._steward.listen(self.now())
        if self._absent:
            now = self.now()
            self.apply(ev.RoundsHeld(now, now + longest_hold(self._steward.arbiter.settings)))

    # Agents

    async def exchange(self, report: AgentReport) -> News:
        """Take in what an agent says; returns when there is news, or after some seconds.

        Raises:
            UnknownAppError: There is no such app.
            StaleAnswerError: Another agent speaks for the app by now.
            RefusedError: It opens a session and says something at once.
            UnavailableError: The service is stopping.
        """
        self._check_open()
        app = report.app
        if app not in self._steward.arbiter.world.apps:
            return await self._part(report)
        desk, before = self._desk_of(app), self._steward.fence_of(app)
        fence = self._admit(desk, report)
        now = self.now()
        if desk.unreachable:
            desk.unreachable = False
            self.apply(ev.AppResumed(now, app, Reason.AGENT_UNREACHABLE))
        if app in self._absent:
            self._absent.remove(app)
            if not self._absent:
                self.apply(ev.RoundsHeld(now, now))
        said = desk.take(report, now, fence)
        for run, number in desk.heard_points():
            self.apply(AgentSpoke(now, app, fence, PointsHeard(now, app, run, number)))
        for item in said:
            self._hear(app, fence, item)
        if not desk.pending:
            await self._wait_for_news(app)
            if self._steward.fence_of(app) not in {0, fence}:
                raise StaleAnswerError(app, DISPLACED)  # What is new is for somebody else.
        if desk.needs_standing:
            self._stand(desk)
            if fence == before:
                # It lost what waited for it, or we did.
                self._open(desk, self._steward.session_of(app))
        news = desk.news(self.now())
        # A standing is read from memory, which may be ahead of the disk.
        await self.settled()
        return news

    async def _part(self, report: AgentReport) -> News:
        """Tell an agent that its app is over, until it says that it has heard it.

        Raises:
            UnknownAppError: It has heard it, or there never was such an app.
        """
        await self.settled()
        app, ended = report.app, self.departed.find(report.app)
        if ended is None or app in self._parted:
            raise UnknownAppError(app, "there is no such app, or it has ended")
        desk = self._desks.get(app)
        if desk is None:
            epoch = self._memory.epoch.number
            first = report.heard + 1 if report.epoch == epoch else 1
            desk = self._desks[app] = Desk(app, epoch, self.now(), first)
        desk.conclude(OverNews(ended.outcome))
        desk.take(report, self.now(), report.fence)
        if not desk.pending:
            del self._desks[app]
            self._parted.add(app)
            raise UnknownAppError(app, "it has ended")
        return desk.news(self.now())

    def _desk_of(self, app: AppId) -> Desk:
        desk = self._desks.get(app)
        if desk is None:
            desk = self._desks[app] = Desk(app, self._memory.epoch.number, self.now())
        return desk

    def _admit(self, desk: Desk, report: AgentReport) -> int:
        """The session that a report is of, which may begin with it.

        Raises:
            StaleAnswerError: It is an old one.
            RefusedError: What it says may be late: nobody has given it a number yet.
        """
        app = report.app
        if report.fence:
            if report.fence != self._steward.fence_of(app):
                raise StaleAnswerError(app, DISPLACED)
            return report.fence
        if report.said:
            reason = "a session begins with a report that says nothing, and is given its number"
            raise RefusedError(app, reason)
        # One that is new is stored before anything is told of it, and so after its standing.
        return self._open(desk, report.session)

    def _open(self, desk: Desk, session: str) -> int:
        """Begin the talk with an agent; what it has not heard of its runs is told again.

        Raises:
            StaleAnswerError: Another agent speaks for the app by now.
        """
        outcome = self.apply(SessionOpened(self.now(), desk.app, session))
        for command in outcome.commands:
            match command:
                case AcceptSession(fence=fence):
                    desk.began = self._taken
                    return fence
                case RefuseSession(reason=reason):
                    raise StaleAnswerError(desk.app, reason)
                case _:
                    pass
        raise InvariantError(f"the session of {desk.app} was neither taken nor refused")

    async def _wait_for_news(self, app: AppId) -> None:
        before = self._waiting.get(app)
        if before is not None and not before.done():
            before.set_result(None)  # An earlier call of the same agent: only the last one waits.
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[app] = waiting
        try:
            async with asyncio.timeout(AGENT_POLL):
                await waiting
        except TimeoutError:
            pass
        finally:
            if self._waiting.get(app) is waiting:
                del self._waiting[app]

    def _stand(self, desk: Desk) -> None:
        """Tell an agent everything, as it is durable now."""
        arbiter = self._steward.arbiter
        state = arbiter.world.apps.get(desk.app)
        if state is None:
            return
        held = arbiter.ledger.holdings(desk.app)
        runs = self._steward.last_runs(desk.app)
        desk.stand(
            Standing(
                state.spec,
                arbiter.world.topology,
                tuple(held[gpu] for gpu in sorted(held)),
                tuple(_run_news(run) for run in runs),
                state.phase,
                tuple((job, progress.done) for job, progress in state.jobs.items()),
                *self._steward.trials.told(desk.app),
            )
        )
        offer = self._offers.get(desk.app)
        if offer is not None and offer.deadline > self.now():
            desk.put(offer)  # It was asked while nobody was there to answer.

    def _hear(self, app: AppId, fence: int, said: Said) -> None:
        if isinstance(said, BidSaid) and said.bid.app != app:
            self._tell(app, RefusalNews("bid", "it names another app"))
            return
        if isinstance(said, RunSaid) and (trouble := trouble_with(said.program)):
            self._tell(app, RefusalNews(said.key, trouble, final=True))
            return
        if isinstance(said, BidSaid):
            self._offers.pop(app, None)
        at = self.now()
        outcome = self.apply(AgentSpoke(at, app, fence, _event_of(at, app, said)))
        for command in outcome.commands:
            if isinstance(command, cmd.Refuse):
                self._tell(app, RefusalNews(type(said).__name__, command.reason))

    async def _watch_agents(self) -> None:
        """Suspend apps whose agents are silent: nobody can place their jobs."""
        while True:
            await asyncio.sleep(self._steward.arbiter.settings.heartbeat)
            now = self.now()
            for app, desk in list(self._desks.items()):
                if desk.unreachable or now - desk.seen <= AGENT_TTL:
                    continue
                if app not in self._steward.arbiter.world.apps:
                    del self._desks[app]  # If its agent ever asks, the row of its end is there.
                    continue
                desk.unreachable = True
                self.apply(ev.AppSuspended(now, app, Reason.AGENT_UNREACHABLE))

    async def _forget_old(self) -> None:
        while True:
            now = self.now()
            ended = self.departed.old(now)
            rows = {**ended, **self._submissions.old(now)}
            for app in self.departed.named(ended):
                rows |= self.hosting.forget(app)
                self.apply(AppForgotten(now, app))
            if rows:
                self.keep(rows)
            self._parted = {app for app in self._parted if self.departed.find(app) is not None}
            await asyncio.sleep(_FORGET_EVERY)

    # People

    async def submit(self, spec: AppSpec, key: str, audit: AuditRow | None = None) -> AppId:
        """Take an app in; durable when this returns. The same key again is the same app.

        Raises:
            RefusedError: It cannot be taken.
            UnavailableError: There is no room for it on disk.
        """
        self._check_open()
        # One at a time: the same key, or the same name, may be under way twice.
        async with self._submitting:
            return await self._submit(spec, key, audit)

    async def submit_file(
        self,
        app: AppFile,
        owner: OwnerId,
        key: str,
        seed: int,
        audit: Callable[[AppId], AuditRow] | None = None,
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
            name = self._free_name(app.name)
            plan = plan_app(app, name, owner, seed)
            sheet = Sheet(name, owner, json.dumps(plain_app(app)), seed)
            rows = self.hosting.note(sheet)
            try:
                await self._submit(plan.spec, key, audit and audit(name), rows)
            except BaseException:
                self.hosting.forget(name)
                raise
        self.hosting.tell()
        return name

    def _free_name(self, wanted: str) -> AppId:
        number, name = 1, AppId(wanted)
        while self.owner_of(name) is not None or name in self.hosting:
            number += 1
            tail = f"-{number}"
            name = AppId(wanted[: 63 - len(tail)] + tail)
        return name

    async def _submit(
        self, spec: AppSpec, key: str, audit: AuditRow | None, more: Rows | None = None
    ) -> AppId:
        known = self._submissions.find(spec.owner, key)
        if known is not None:
            if known != spec.id:
                raise RefusedError(key, f"this key was used for {known}")
            await self.settled()
            return spec.id
        # May fail for want of space, before anything depends on it.
        intent = f"intent/{spec.owner}/{key}"
        await self.writer.apart(Batch(kept={intent: spec.id}, essential=False))
        now, before = self.now(), self._desks.get(spec.id)
        if spec.id not in self._steward.arbiter.world.apps:
            self._desks[spec.id] = Desk(spec.id, self._memory.epoch.number, now)
        rows = {
            **self._submissions.note(spec.owner, key, spec.id, now),
            **self.departed.forget(spec.id),
            **(more or {}),
            intent: None,
        }
        try:
            await self.carry_out(ev.AppArrived(now, spec), audit, rows)
        except RefusedError:
            if before is None:
                del self._desks[spec.id]
            else:
                self._desks[spec.id] = before
            self.keep({intent: None})
            raise
        self._parted.discard(spec.id)
        return spec.id

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


def _check_report(report: Report) -> None:
    """Refuse what a node may not say: another machine, or slots that are not its own.

    Raises:
        RefusedError: It says that.
    """
    if report.machine is not None and report.machine.name != report.node:
        raise RefusedError(report.node, "a node reports its own machine only")
    if [slot.gpu for slot in report.slots] != list(range(len(report.slots))):
        raise RefusedError(report.node, "slots are numbered from 0, each once")


def _event_of(at: float, app: AppId, said: Said) -> AgentEvent:
    """What it means for the steward that an agent says something."""
    match said:
        case BidSaid():
            return ev.BidReceived(at, app, said.round, said.bid)
        case RunSaid():
            return RunRequested(at, app, said.job, said.gpus, said.program, said.key, said.limit)
        case StopSaid():
            return StopRequested(at, app, said.run, said.key)
        case ReleaseSaid():
            return ReleaseRequested(at, app, said.gpus, said.tokens)
        case PhaseSaid():
            return ev.PhaseStarted(at, app, said.phase, said.targets)
        case TargetsSaid(added=True):
            return ev.WorkAdded(at, app, said.targets)
        case TargetsSaid():
            return ev.TargetsRevised(at, app, said.targets)
        case TrialSaid():
            return TrialChosen(at, app, said.job, said.params)
        case ReachedSaid():
            return JobNoted(at, app, said.reached)
        case EndSaid():
            return AppWon(at, app, said.outcome, said.best)
        case _:
            assert_never(said)


def _kind_of(event: StewardEvent) -> str:
    """What the log calls an event."""
    return type(event.event if isinstance(event, AgentSpoke) else event).__name__


def _run_news(run: WantedRun | RunResult) -> RunNews:
    if isinstance(run, RunResult) and run.points_on:
        # Its end is told after what it reported, which is on its way.
        return RunNews(run.run, run.job, run.gpus, run.key, RunState.STOPPING)
    return RunNews(
        run.run,
        run.job,
        run.gpus,
        run.key,
        run.state,
        run.code,
        run.iterations,
        run.message,
        run.log,
    )
