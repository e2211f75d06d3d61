"""The agents' side of the service: who speaks for each app, what was said, and what is to be told.

agents = AgentSessions(service, memory)
news = await agents.exchange(report)
agents.tell(app, OfferNews(...))        # waits on its desk until it is heard
"""

import asyncio
from dataclasses import replace
from typing import Protocol

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.records import AppRecord
from themis.core.model import AppId
from themis.core.model.reasons import Reason
from themis.core.steward.commands import (
    AcceptSession,
    Outcome,
    RefuseSession,
    StewardCommand,
    TellPoints,
    TellRun,
)
from themis.core.steward.events import AgentSpoke, PointsHeard, SessionOpened, StewardEvent
from themis.core.steward.rows import ActiveRun, RunEnd
from themis.core.steward.steward import DISPLACED, Steward
from themis.errors import InvariantError, RefusedError, StaleAnswerError, UnknownAppError
from themis.protocol.agent_messages import (
    AgentReport,
    AgentStart,
    BidSaid,
    News,
    NewsItem,
    OfferNews,
    OverNews,
    RefusalNews,
    RunNews,
    RunSaid,
    Said,
    TrialSaid,
)
from themis.service.message_mapping import event_of, run_news
from themis.service.outbox import AgentOutbox
from themis.service.persistence.recovery import RecoveredState, longest_hold
from themis.service.program_checks import trouble_with, trouble_with_params
from themis.service.prometheus import Metrics
from themis.service.retained_rows import EndedApps

AGENT_TTL = 30.0
"""Seconds of silence after which an app's agent counts as unreachable."""
AGENT_POLL = 10.0
"""Seconds after which an agent without news is answered: it is heard in time by a wide margin."""


class ServiceForAgents(Protocol):
    """The service, as its agents' side needs it."""

    @property
    def steward(self) -> Steward:
        """The state; read only."""

    @property
    def departed(self) -> EndedApps:
        """Apps that are over."""

    def apply(self, event: StewardEvent) -> Outcome:
        """Hand an event to the steward."""

    @property
    def taken(self) -> int:
        """How many outcomes of the steward there were."""

    def now(self) -> float:
        """The cluster's time."""

    async def settled(self) -> None:
        """Wait until all that was decided so far is durable."""

    @property
    def metrics(self) -> Metrics:
        """Where the times of bids are counted."""


class AgentSessions:
    """All desks, and the calls that wait at them."""

    def __init__(self, host: ServiceForAgents, memory: RecoveredState) -> None:
        self._host = host
        self._epoch = memory.epoch.number
        self.desks: dict[AppId, AgentOutbox] = {}
        self._waiting: dict[AppId, asyncio.Future[None]] = {}
        self._offers: dict[AppId, tuple[OfferNews, float]] = {}
        """What each app was last asked and when, if it has not answered."""
        self._absent = set(memory.absent)
        """Apps whose agents are waited for before the first round."""
        self._parted: set[AppId] = set()
        """Apps that are over, and whose agents have heard it."""

    # Life

    def begin(self) -> None:
        """Have a desk for every app."""
        for app, state in self._host.steward.arbiter.world.apps.items():
            self.desks[app] = AgentOutbox(app, self._epoch, self._host.now())
            self.desks[app].unreachable = Reason.AGENT_UNREACHABLE in state.suspended

    def hush(self, error: Exception) -> None:
        """End the calls that wait."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)

    def listening(self) -> None:
        """Agents can come: they get some time before a round opens in which they could not bid."""
        if self._absent:
            now = self._host.now()
            wait = longest_hold(self._host.steward.arbiter.settings)
            self._host.apply(ev.RoundsHeld(now, now + wait))

    def receive(self, app: AppId) -> AgentOutbox | None:
        """Have a desk for an app that is about to arrive; returns the one of a namesake."""
        before = self.desks.get(app)
        if app not in self._host.steward.arbiter.world.apps:
            self.desks[app] = AgentOutbox(app, self._epoch, self._host.now())
        return before

    def send_away(self, app: AppId, before: AgentOutbox | None) -> None:
        """It was not taken: everything is as it was."""
        if before is None:
            del self.desks[app]
        else:
            self.desks[app] = before

    def arrived(self, app: AppId) -> None:
        """It was taken."""
        self._parted.discard(app)

    def forget_old(self) -> None:
        """Keep no more in mind than the store does."""
        departed = self._host.departed
        self._parted = {app for app in self._parted if departed.find(app) is not None}

    async def watch(self) -> None:
        """Suspend apps whose agents are silent: nobody can place their jobs."""
        while True:
            await asyncio.sleep(self._host.steward.arbiter.settings.heartbeat)
            now = self._host.now()
            for app, desk in list(self.desks.items()):
                if now - desk.seen <= AGENT_TTL:
                    continue
                if app not in self._host.steward.arbiter.world.apps:
                    del self.desks[app]  # If its agent ever asks, the row of its end is there.
                    continue
                if desk.unreachable:
                    continue
                desk.unreachable = True
                self._host.apply(ev.AppSuspended(now, app, Reason.AGENT_UNREACHABLE))

    # What is told

    def ask(self, command: cmd.Ask) -> None:
        """An app is shown an offer."""
        offer = OfferNews(command.offer, command.deadline)
        self._offers[command.app] = offer, self._host.now()
        self.tell(command.app, offer)

    def end_round(self, number: int) -> None:
        """Nobody waits for bids of a round any more."""
        self._offers = {
            app: asked for app, asked in self._offers.items() if asked[0].offer.round != number
        }

    def close(self, record: AppRecord) -> None:
        """An app is over; unless there is another one of the same name by now."""
        app = record.app
        if app in self._host.steward.arbiter.world.apps:
            return
        self._offers.pop(app, None)
        if app in self.desks:
            self.desks[app].conclude(OverNews(record.outcome))
            self._wake_agent(app)

    def accept_run(self, number: int) -> None:
        """A run was asked for and is wanted."""
        run = self._host.steward.runs.get(number)
        if run is not None:
            self.tell(run.app, run_news(run))

    def is_told_anew(self, command: StewardCommand, number: int) -> bool:
        """Whether a talk has begun since that tells this again, in its place among the others.

        What waited for the disk meanwhile must not come first: the points of a run have an order.
        """
        if not isinstance(command, TellPoints | TellRun):
            return False
        desk = self.desks.get(command.app)
        return desk is not None and number < desk.began

    def tell_run(self, command: TellRun) -> None:
        """A run of an app is different."""
        known = self._host.steward.rows.get(f"run/{command.run}") or self._host.steward.rows.get(
            f"result/{command.run}"
        )
        runs = ActiveRun | RunEnd
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
            command.interrupted,
        )
        self.tell(command.app, news)

    def tell(self, app: AppId, item: NewsItem) -> None:
        """Put news on the desk of an app, and wake the call that waits there."""
        desk = self.desks.get(app)
        if desk is None:
            return
        desk.put(item)
        self._wake_agent(app)

    def tell_all(self, item: NewsItem) -> None:
        """The same for every app."""
        for app in list(self.desks):
            self.tell(app, item)

    def _wake_agent(self, app: AppId) -> None:
        waiting = self._waiting.get(app)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # What is said

    async def exchange(self, report: AgentReport) -> News:
        """Take in what an agent says; returns when there is news, or after some seconds.

        Raises:
            UnknownAppError: There is no such app.
            StaleAnswerError: Another agent speaks for the app by now.
            RefusedError: It opens a session and says something at once.
            UnavailableError: The service is stopping.
        """
        app = report.app
        if app not in self._host.steward.arbiter.world.apps:
            return await self._part(report)
        desk, before = self._desk_of(app), self._host.steward.fence_of(app)
        fence = self._admit(desk, report)
        now = self._host.now()
        if desk.unreachable:
            desk.unreachable = False
            self._host.apply(ev.AppResumed(now, app, Reason.AGENT_UNREACHABLE))
        if app in self._absent:
            self._absent.remove(app)
            if not self._absent:
                self._host.apply(ev.RoundsHeld(now, now))
        said = desk.take(report, now, fence)
        heard = desk.heard_points()
        if heard:
            points = PointsHeard(now, app, *heard[0], heard[1:])
            self._host.apply(AgentSpoke(now, app, fence, points))
        for item in said:
            self._hear(app, fence, item)
        if not desk.pending:
            await self._wait_for_news(app)
            if self._host.steward.fence_of(app) not in {0, fence}:
                raise StaleAnswerError(app, DISPLACED)  # What is new is for somebody else.
        if desk.needs_standing:
            self._stand(desk)
            if fence == before:
                # It lost what waited for it, or we did.
                known = self._host.steward.sessions.get(app)
                self._open(desk, known.session if known is not None else "")
        news = desk.news(self._host.now())
        # A standing is read from memory, which may be ahead of the disk.
        await self._host.settled()
        return news

    async def _part(self, report: AgentReport) -> News:
        """Tell an agent that its app is over, until it says that it has heard it.

        Raises:
            UnknownAppError: It has heard it, or there never was such an app.
        """
        await self._host.settled()
        app, ended = report.app, self._host.departed.find(report.app)
        if ended is None or app in self._parted:
            raise UnknownAppError(app, "there is no such app, or it has ended")
        desk = self.desks.get(app)
        if desk is None:
            epoch = self._epoch
            first = report.heard + 1 if report.epoch == epoch else 1
            desk = self.desks[app] = AgentOutbox(app, epoch, self._host.now(), first)
        desk.conclude(OverNews(ended.outcome))
        desk.take(report, self._host.now(), report.fence)
        if not desk.pending:
            del self.desks[app]
            self._parted.add(app)
            raise UnknownAppError(app, "it has ended")
        return desk.news(self._host.now())

    def _desk_of(self, app: AppId) -> AgentOutbox:
        desk = self.desks.get(app)
        if desk is None:
            desk = self.desks[app] = AgentOutbox(app, self._epoch, self._host.now())
        return desk

    def _admit(self, desk: AgentOutbox, report: AgentReport) -> int:
        """The session that a report is of, which may begin with it.

        Raises:
            StaleAnswerError: It is an old one.
            RefusedError: What it says may be late: nobody has given it a number yet.
        """
        app = report.app
        if report.fence:
            if report.fence != self._host.steward.fence_of(app):
                raise StaleAnswerError(app, DISPLACED)
            return report.fence
        if report.said:
            reason = "a session begins with a report that says nothing, and is given its number"
            raise RefusedError(app, reason)
        # One that is new is stored before anything is told of it, and so after its standing.
        return self._open(desk, report.session)

    def _open(self, desk: AgentOutbox, session: str) -> int:
        """Begin the talk with an agent; what it has not heard of its runs is told again.

        Raises:
            StaleAnswerError: Another agent speaks for the app by now.
        """
        outcome = self._host.apply(SessionOpened(self._host.now(), desk.app, session))
        for command in outcome.commands:
            match command:
                case AcceptSession(fence=fence):
                    desk.began = self._host.taken
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

    def _stand(self, desk: AgentOutbox) -> None:
        """Tell an agent everything, as it is durable now."""
        arbiter = self._host.steward.arbiter
        state = arbiter.world.apps.get(desk.app)
        if state is None:
            return
        held = arbiter.ledger.holdings(desk.app)
        runs = self._host.steward.last_runs(desk.app)
        desk.stand(
            AgentStart(
                state.spec,
                arbiter.world.topology,
                tuple(held[gpu] for gpu in sorted(held)),
                # The last lines of a thousand jobs would be too long for one message.
                tuple(replace(run_news(run), log="") for run in runs),
                state.phase,
                tuple((job, progress.done) for job, progress in state.jobs.items()),
                *self._host.steward.trials.for_agent(desk.app),
                tuple((job, progress.target) for job, progress in state.jobs.items()),
                self._host.steward.job_pasts(desk.app, self._host.now()),
            )
        )
        asked = self._offers.get(desk.app)
        if asked is not None and asked[0].deadline > self._host.now():
            desk.put(asked[0])  # It was asked while nobody was there to answer.

    def _hear(self, app: AppId, fence: int, said: Said) -> None:
        if isinstance(said, BidSaid) and said.bid.app != app:
            self.tell(app, RefusalNews("bid", "it names another app"))
            return
        if isinstance(said, RunSaid) and (trouble := trouble_with(said.program)):
            self.tell(app, RefusalNews(said.key, trouble, final=True))
            return
        if isinstance(said, TrialSaid) and (trouble := trouble_with_params(said.params)):
            self.tell(app, RefusalNews(said.job, trouble))
            return
        asked = self._offers.get(app) if isinstance(said, BidSaid) else None
        # A bid for an earlier round leaves this offer open.
        if isinstance(said, BidSaid) and asked is not None and said.round == asked[0].offer.round:
            del self._offers[app]
            self._host.metrics.note_bid(self._host.now() - asked[1])
        at = self._host.now()
        outcome = self._host.apply(AgentSpoke(at, app, fence, event_of(at, app, said)))
        if outcome.refusal is not None:
            self.tell(app, RefusalNews(type(said).__name__, outcome.refusal.reason))
