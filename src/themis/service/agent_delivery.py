"""Sessions of agents: which one speaks for each app, what it says, and what it is to be told.

sessions = AgentSessions(loop, state.absent, ended)
news = await sessions.exchange(report)
sessions.take(event, outcome)           # news for agents, kept in outboxes until acknowledged
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.agent_port import AgentPort
from themis.core.model import AppId
from themis.core.model.reasons import Reason
from themis.core.steward.commands import (
    AcceptRun,
    AcceptSession,
    Outcome,
    RefuseRun,
    RefuseSession,
    StewardCommand,
    TellPoints,
    TellRun,
)
from themis.core.steward.events import (
    AgentSpoke,
    PointsAcknowledged,
    SessionOpened,
    StewardEvent,
)
from themis.core.steward.rows import ActiveRun, RunEnd
from themis.core.steward.steward import DISPLACED
from themis.errors import InvariantError, RefusedError, StaleAnswerError, UnknownAppError
from themis.protocol.agent_messages import (
    AgentReport,
    AgentRequest,
    AgentStart,
    AppEndNews,
    BidReply,
    LeaseNews,
    News,
    NewsItem,
    OfferNews,
    PointsNews,
    RefusalNews,
    RunNews,
    RunRequest,
    TopologyNews,
    TrialParams,
)
from themis.protocol.node_messages import RunState
from themis.service.outbox import AgentOutbox
from themis.service.persistence.recovery import longest_hold
from themis.service.program_checks import trouble_with, trouble_with_params
from themis.service.retained_rows import EndedApps
from themis.service.steward_loop import StewardLoop

AGENT_TTL = 30.0
"""Seconds of silence after which an app's agent counts as unreachable."""
AGENT_POLL = 10.0
"""Seconds after which an agent without news is answered: well within its time to live."""


class AgentDelivery(AgentPort):
    """The outboxes of all agents, and their calls that wait for news."""

    def __init__(self, loop: StewardLoop, absent: Iterable[AppId], ended: EndedApps) -> None:
        self._loop = loop
        self._steward = loop.steward
        self._ended = ended
        self._absent = set(absent)
        """Apps whose agents are waited for before the first round."""
        self._informed: set[AppId] = set()
        """Ended apps whose agents have acknowledged the end."""
        self._waiting: dict[AppId, asyncio.Future[None]] = {}
        self._published = 0
        """How many outcomes were taken."""
        self._topology = self._steward.arbiter.world.topology
        """As it was told last."""
        self.outboxes: dict[AppId, AgentOutbox] = {}
        for app, state in self._steward.arbiter.world.apps.items():
            suspended = Reason.AGENT_UNREACHABLE in state.suspended
            self._outbox_of(app).unreachable = suspended

    def heard_at(self) -> Mapping[AppId, float]:
        """When the agent of each app that goes on was last heard."""
        apps = self._steward.arbiter.world.apps
        return {app: outbox.seen for app, outbox in self.outboxes.items() if app in apps}

    # Life

    def stop(self, error: Exception) -> None:
        """End the calls that wait."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)

    def listening(self) -> None:
        """Agents can call: they get some time before a round opens in which they could not bid."""
        if self._absent:
            now = self._loop.now()
            wait = longest_hold(self._steward.arbiter.settings)
            self._loop.apply(ev.RoundsHeld(now, now + wait))

    def forget_old(self) -> None:
        """Remember no ended app for longer than the store does."""
        self._informed = {app for app in self._informed if self._ended.find(app) is not None}

    async def watch(self) -> None:
        """Suspend apps whose agents are silent: nothing can place their jobs."""
        while True:
            await asyncio.sleep(self._steward.arbiter.settings.heartbeat)
            now = self._loop.now()
            for app, outbox in list(self.outboxes.items()):
                if now - outbox.seen <= AGENT_TTL:
                    continue
                if app not in self._steward.arbiter.world.apps:
                    del self.outboxes[app]  # If its agent ever calls, the row of its end is there.
                elif not outbox.unreachable:
                    outbox.unreachable = True
                    self._loop.apply(ev.AppSuspended(now, app, Reason.AGENT_UNREACHABLE))

    # What agents are told

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Put the news of an outcome into the outboxes."""
        self._published += 1
        for each in outcome.changes.events:
            if isinstance(each, ev.AppArrived) and each.app.id in self._steward.arbiter.world.apps:
                self._outbox_of(each.app.id)
                self._informed.discard(each.app.id)
        for command in outcome.commands:
            self._tell_of(command)
        topology = self._steward.arbiter.world.topology
        if topology is not self._topology:
            self._topology = topology
            for app in list(self.outboxes):
                self._put(app, TopologyNews(topology))

    def send(self, command: cmd.Ask | cmd.Assign) -> None:
        """Put an offer, or a change of leases, into the outbox of its app."""
        outbox = self.outboxes.get(command.app)
        if isinstance(command, cmd.Assign):
            news = LeaseNews(command.granted, command.renewed, command.revoked, command.reason)
            self._put(command.app, news)
        elif outbox is not None:
            outbox.offer = OfferNews(command.offer, command.deadline)
            self._put(command.app, outbox.offer)

    def _tell_of(self, command: StewardCommand) -> None:
        match command:
            case cmd.Ask() | cmd.Assign():
                self.send(command)
            case cmd.End():
                self._put(command.app, LeaseNews(revoked=command.leases, reason="over"))
            case AcceptRun():
                run = self._steward.runs.get(command.run)
                if run is not None:
                    self._put(run.app, run_news(run))
            case RefuseRun():
                refusal = RefusalNews(command.key, command.reason, home=command.home)
                self._put(command.app, refusal)
            case TellRun() if not self._is_told_anew(command.app):
                self._put(command.app, self._changed_run(command))
            case TellPoints() if not self._is_told_anew(command.app):
                points = PointsNews(command.run, command.job, command.first, command.points)
                self._put(command.app, points)
            case cmd.RecordRound(record=record):
                for outbox in self.outboxes.values():
                    outbox.end_round(record.round)
            case cmd.RecordApp(record=record):
                self._end(record.app, record.outcome)
            case _:
                pass

    def _is_told_anew(self, app: AppId) -> bool:
        """Whether a session has opened since this outcome, and is told of all runs again.

        What waited for the disk meanwhile must not come first: the points of a run have an order.
        """
        outbox = self.outboxes.get(app)
        return outbox is not None and self._published < outbox.opened_at

    def _changed_run(self, command: TellRun) -> RunNews:
        rows = self._steward.rows
        known = rows.get(f"run/{command.run}") or rows.get(f"result/{command.run}")
        runs = ActiveRun | RunEnd
        return RunNews(
            command.run,
            command.job,
            known.gpus if isinstance(known, runs) else (),
            known.key if isinstance(known, runs) else "",
            command.state,
            command.code,
            command.iterations,
            command.message,
            command.log,
            command.interrupted,
        )

    def _end(self, app: AppId, outcome: str) -> None:
        """An app is over; unless there is another one of the same name by now."""
        if app in self.outboxes and app not in self._steward.arbiter.world.apps:
            self.outboxes[app].end(AppEndNews(outcome))
            self._wake(app)

    def _put(self, app: AppId, item: NewsItem) -> None:
        outbox = self.outboxes.get(app)
        if outbox is not None:
            outbox.put(item)
            self._wake(app)

    def _wake(self, app: AppId) -> None:
        waiting = self._waiting.get(app)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # What agents say

    async def exchange(self, report: AgentReport) -> News:
        """Take in what an agent says; returns when there is news, or after some seconds.

        Raises:
            UnknownAppError: There is no such app.
            StaleAnswerError: Another agent speaks for the app by now.
            RefusedError: The report opens a session and says something at once.
            UnavailableError: The service is stopping.
        """
        self._loop.check_open()
        app = report.app
        if app not in self._steward.arbiter.world.apps:
            return await self._say_goodbye(report)
        outbox, fence_before = self._outbox_of(app), self._steward.fence_of(app)
        fence = self._admit(outbox, report)
        self._note_presence(outbox)
        now = self._loop.now()
        said = outbox.receive(report, now, fence)
        acknowledged = outbox.acknowledged_points()
        if acknowledged:
            self._loop.apply(PointsAcknowledged(now, app, fence, acknowledged))
        for item in said:
            self._hear(outbox, fence, item)
        if not outbox.pending:
            await self._wait_for_news(app)
            if self._steward.fence_of(app) not in {0, fence}:
                raise StaleAnswerError(app, DISPLACED)  # The news are for the other agent.
        if outbox.needs_start:
            self._start_anew(outbox)
            if fence == fence_before:
                # The agent lost what waited for it, or the service did.
                known = self._steward.sessions.get(app)
                self._open(outbox, known.session if known is not None else "")
        news = outbox.news(self._loop.now())
        # An `AgentStart` is read from memory, which may be ahead of the disk.
        await self._loop.queue.settled()
        return news

    async def _say_goodbye(self, report: AgentReport) -> News:
        """Tell an agent that its app is over, until it acknowledges that.

        Raises:
            UnknownAppError: It has acknowledged, or there never was such an app.
        """
        await self._loop.queue.settled()
        app, ended = report.app, self._ended.find(report.app)
        if ended is None or app in self._informed:
            raise UnknownAppError(app, "there is no such app, or it has ended")
        outbox = self.outboxes.get(app)
        if outbox is None:
            epoch = self._steward.epoch
            first = report.heard + 1 if report.epoch == epoch else 1
            outbox = self.outboxes[app] = AgentOutbox(app, epoch, self._loop.now(), first)
        outbox.end(AppEndNews(ended.outcome))
        outbox.receive(report, self._loop.now(), report.fence)
        if not outbox.pending:
            del self.outboxes[app]
            self._informed.add(app)
            raise UnknownAppError(app, "it has ended")
        return outbox.news(self._loop.now())

    def _outbox_of(self, app: AppId) -> AgentOutbox:
        """The outbox of an app that goes on; that of an ended app of the same name is dropped."""
        outbox = self.outboxes.get(app)
        if outbox is None or outbox.ended:
            outbox = AgentOutbox(app, self._steward.epoch, self._loop.now())
            self.outboxes[app] = outbox
        return outbox

    def _note_presence(self, outbox: AgentOutbox) -> None:
        """An agent calls: its app is suspended no more, and rounds wait for one fewer."""
        app, now = outbox.app, self._loop.now()
        if outbox.unreachable:
            outbox.unreachable = False
            self._loop.apply(ev.AppResumed(now, app, Reason.AGENT_UNREACHABLE))
        if app in self._absent:
            self._absent.remove(app)
            if not self._absent:
                self._loop.apply(ev.RoundsHeld(now, now))

    def _admit(self, outbox: AgentOutbox, report: AgentReport) -> int:
        """The fence of the session that a report belongs to; the report may open it.

        Raises:
            StaleAnswerError: The session is an old one.
            RefusedError: The report says something although its session has no fence yet: it may
                be late.
        """
        app = report.app
        if report.fence:
            if report.fence != self._steward.fence_of(app):
                raise StaleAnswerError(app, DISPLACED)
            return report.fence
        if report.requests:
            reason = "a session begins with a report that says nothing, and is given its number"
            raise RefusedError(app, reason)
        # A new session is stored before anything is told of it, and so after its `AgentStart`.
        return self._open(outbox, report.session)

    def _open(self, outbox: AgentOutbox, session: str) -> int:
        """Open a session; runs whose state the agent has not acknowledged are told again.

        Raises:
            StaleAnswerError: Another agent speaks for the app by now.
        """
        outcome = self._loop.apply(SessionOpened(self._loop.now(), outbox.app, session))
        for command in outcome.commands:
            match command:
                case AcceptSession(fence=fence):
                    outbox.opened_at = self._loop.handled
                    return fence
                case RefuseSession(reason=reason):
                    raise StaleAnswerError(outbox.app, reason)
                case _:
                    pass
        raise InvariantError(f"the session of {outbox.app} was neither accepted nor refused")

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

    def _start_anew(self, outbox: AgentOutbox) -> None:
        """Put the whole state of an app into its outbox."""
        steward, app = self._steward, outbox.app
        state = steward.arbiter.world.apps.get(app)
        if state is None:
            return
        held = steward.arbiter.ledger.holdings(app)
        trials, reached, curves = steward.trials.for_agent(app)
        outbox.start(
            AgentStart(
                spec=state.spec,
                topology=steward.arbiter.world.topology,
                leases=tuple(held[gpu] for gpu in sorted(held)),
                # The last lines of a thousand jobs would be too long for one message.
                runs=tuple(replace(run_news(run), log="") for run in steward.last_runs(app)),
                phase=state.phase,
                iterations=tuple((job, each.done) for job, each in state.jobs.items()),
                trials=trials,
                reached=reached,
                curves=curves,
                targets=tuple((job, each.target) for job, each in state.jobs.items()),
                past=steward.job_pasts(app, self._loop.now()),
            )
        )
        if outbox.offer is not None and outbox.offer.deadline > self._loop.now():
            outbox.put(outbox.offer)  # It was asked while it had no agent.

    def _hear(self, outbox: AgentOutbox, fence: int, said: AgentRequest) -> None:
        app, at = outbox.app, self._loop.now()
        refusal = _objection(app, said)
        if refusal is None:
            if isinstance(said, BidReply):
                outbox.end_round(said.round)
            outcome = self._loop.apply(AgentSpoke(at, app, fence, said))
            if outcome.refusal is not None:
                refusal = RefusalNews(type(said).__name__, outcome.refusal.reason)
        if refusal is not None:
            self._put(app, refusal)


def _objection(app: AppId, said: AgentRequest) -> RefusalNews | None:
    """Why the steward need not even see what an agent says."""
    match said:
        case BidReply(bid=bid) if bid.app != app:
            return RefusalNews("bid", "it names another app")
        case RunRequest() if trouble := trouble_with(said.program):
            return RefusalNews(said.key, trouble, final=True)
        case TrialParams() if trouble := trouble_with_params(said.params):
            return RefusalNews(said.job, trouble)
        case _:
            return None


def run_news(run: ActiveRun | RunEnd) -> RunNews:
    """The state of a run, for its agent."""
    if isinstance(run, RunEnd) and run.points_on:
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
        run.interrupted,
    )
