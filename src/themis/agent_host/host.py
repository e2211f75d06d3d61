"""Agents of one owner's submitted apps, as tasks in one process.

    host = AgentHost(connection, random.Random())
    await host.run()

The process may end at any time, and the service starts it again: an agent knows nothing that the
service has not kept. An agent that fails begins again; the others go on.
"""

import asyncio
import json
import logging
import math
import random
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self

from themis.agent_host.session.outcomes import RESUMABLE
from themis.agent_host.session.session import AgentSession
from themis.agent_host.session_client import SessionClient
from themis.apps import SweepPlan, parse_app, plan_app
from themis.core.agent import Agent, MakeAgent
from themis.core.model import AppId, JobId
from themis.core.tuners import Stepwise
from themis.errors import DeniedError, ThemisError, UnknownAppError
from themis.protocol.agent_messages import (
    AgentReport,
    AgentRequest,
    AgentStart,
    AppEndNews,
    HostedApps,
    News,
    NewsItem,
    RunNews,
    SubmittedApp,
)
from themis.rpc.client import Backoff
from themis.security.redaction import clean

if TYPE_CHECKING:
    from themis.integrations.optuna_search import OptunaSearch

_LOG = logging.getLogger(__name__)

_LONGEST_BACKOFF = 10.0
_MOST_FAILURES = 20
"""Different failures of an app that are logged; its status has all."""


class AgentService(Protocol):
    """The service as a host calls it; `HostClient` implements it."""

    async def exchange(self, report: AgentReport) -> News:
        """Send a report of an app's agent; returns news of the app."""

    async def hosted(self, revision: int) -> HostedApps:
        """Which apps need an agent; waits a while for another answer than the last."""

    async def sheet(self, app: AppId) -> SubmittedApp:
        """What was submitted."""


class ConnectService(Protocol):
    """Makes clients that can be used at the same time."""

    def __call__(self) -> AgentService:
        """Another client."""


class AgentRunner:
    """One app's agent: its session, the exchange with the service, and a clock."""

    def __init__(
        self,
        service: AgentService,
        plan: SweepPlan,
        rng: random.Random,
        *,
        search: "OptunaSearch | None" = None,
        own_tuner: Stepwise | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        session: str = "",
        make_agent: MakeAgent = Agent,
    ) -> None:
        """Bring the parts together.

        Args:
            service: The service.
            plan: The app file, its jobs and phases.
            rng: For the jitter of retries.
            search: Chooses trials one after the other, if the app file asks for that.
            own_tuner: A user's tuner, in place of the one that the app file names.
            monotonic: The clock; a rehearsal has its own.
            wall: The clock that jobs report by.
            session: A text that no other agent has; random by default.
            make_agent: Makes the core agent.
        """
        self._app = plan.spec.id
        self._search = search
        self._own_tuner = own_tuner
        self._monotonic = monotonic
        self._wall = wall
        self._offset = 0.0
        """The cluster's time less this clock's."""
        self._changed = asyncio.Event()
        self._logged: set[str] = set()
        session = session or secrets.token_hex(8)
        self._client = SessionClient(
            service, self._app, rng, session=session, longest_wait=_LONGEST_BACKOFF
        )
        self._session = AgentSession(
            plan,
            session=session,
            choose=None if search is None else search.choose,
            own_tuner=own_tuner,
            make_agent=make_agent,
        )

    @classmethod
    def of_sheet(
        cls,
        service: AgentService,
        sheet: SubmittedApp,
        rng: random.Random,
        own_tuner: Stepwise | None = None,
        make_agent: MakeAgent = Agent,
    ) -> Self:
        """The agent of an app that was submitted as a file."""
        app_file = parse_app(json.loads(sheet.body))
        plan = plan_app(app_file, sheet.app, sheet.owner, sheet.seed)
        search = _optuna_search(plan)
        return cls(service, plan, rng, search=search, own_tuner=own_tuner, make_agent=make_agent)

    async def run(self) -> str:
        """Run the agent until its app is over; returns the outcome.

        Raises:
            UnknownAppError: The service does not know the app (any more).
            DeniedError: The app is another owner's.
            StaleAnswerError: Another agent runs the app.
            RefusedError: The service refused a report of this agent.
        """
        exchange = asyncio.create_task(self._exchange())
        alarm = asyncio.create_task(self._watch_clock())
        try:
            await asyncio.wait({exchange, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if alarm.done():
                alarm.result()  # Only an error ends it, and no job would be retried any more.
            return await exchange
        finally:
            for task in (exchange, alarm):
                task.cancel()
            await asyncio.gather(exchange, alarm, return_exceptions=True)

    def park(self, jobs: frozenset[JobId]) -> None:
        """Let these jobs, and no others, want no GPUs for now; call it in the agent's loop."""
        self._say(self._session.park(self._now(), jobs))

    def conclude(self, job: JobId, iterations: float, metric: float | None) -> None:
        """End a job that its tuner, asked once more, stops; call it in the agent's loop."""
        self._say(self._session.conclude(self._now(), job, iterations, metric))

    async def _exchange(self) -> str:
        async for item in self._client.news():
            self._offset = self._client.at - self._monotonic()
            self._session.set_clock_offset(self._client.at - self._wall())
            self._take(item)
            if isinstance(item, AppEndNews):
                return item.outcome
        return ""

    def _take(self, item: NewsItem) -> None:
        if isinstance(item, AgentStart):
            self._client.cancel_pending()  # The session decides it again, perhaps differently.
            if self._search is not None:
                self._search.replay(item)
        self._say(self._session.hear(self._client.at, item))
        if isinstance(item, RunNews):
            self._log_failure(item)

    def _log_failure(self, news: RunNews) -> None:
        """Log each failure of a run once: a user who runs a tuner may see nothing else."""
        failed = news.state.over and not news.interrupted and news.code not in {0, RESUMABLE}
        if failed and news.message not in self._logged and len(self._logged) < _MOST_FAILURES:
            self._logged.add(news.message)
            why = news.message or f"it exited with {news.code}"
            _LOG.warning("job %s of %s failed: %s", news.job, self._app, clean(why))

    async def _watch_clock(self) -> None:
        while True:
            self._changed.clear()
            wait = self._session.next_wake - self._now()
            if wait <= 0.0:
                self._say(self._session.wake(self._now()))
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(None if math.isinf(wait) else wait):
                    await self._changed.wait()

    def _now(self) -> float:
        return self._offset + self._monotonic()

    def _say(self, said: Sequence[AgentRequest]) -> None:
        if self._search is not None:
            self._search.learn(said)
        self._client.say(*said)
        if self._own_tuner is not None:
            self._own_tuner.note_placement(self._session.placement)
        self._changed.set()


def _optuna_search(plan: SweepPlan) -> "OptunaSearch | None":
    search = plan.app.search
    if search is None or not plan.app.uses_optuna:
        return None
    from themis.integrations.optuna_search import OptunaSearch  # noqa: PLC0415 - in an extra

    return OptunaSearch(search.params, plan.app.metric.goal, len(plan.spec.phases), plan.seed)


class AgentHost:
    """Runs an agent for each app of its owner that needs one."""

    def __init__(self, connect: ConnectService, rng: random.Random) -> None:
        self._connect = connect
        self._client = connect()
        self._rng = rng
        self._tasks: dict[AppId, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Host until cancelled.

        Raises:
            DeniedError: The service has another host for this owner by now.
        """
        backoff = Backoff(self._rng, most=_LONGEST_BACKOFF)
        revision = 0
        try:
            while True:
                try:
                    hosted = await self._client.hosted(revision)
                except DeniedError:
                    raise
                except ThemisError as error:
                    _LOG.info("cannot ask which apps need an agent: %s", error)
                    await asyncio.sleep(backoff.failed())
                    continue
                backoff.succeeded()
                revision = hosted.revision
                self._match(hosted.apps)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _match(self, apps: Sequence[AppId]) -> None:
        # The agent of an app that is not listed any more ends by itself: it hears that.
        self._tasks = {app: task for app, task in self._tasks.items() if not task.done()}
        for app in apps:
            if app not in self._tasks:
                self._tasks[app] = asyncio.create_task(self._run_agent(app), name=f"agent {app}")

    async def _run_agent(self, app: AppId) -> None:
        """Run an app's agent to its end; it begins again whenever something goes wrong."""
        backoff = Backoff(self._rng, most=_LONGEST_BACKOFF)
        while True:
            try:
                client = self._connect()  # Calls of its own, on one connection.
                runner = AgentRunner.of_sheet(client, await client.sheet(app), self._rng)
                _LOG.info("%s is over: %s", app, await runner.run())
                return
            except (UnknownAppError, DeniedError) as error:
                _LOG.info("%s needs no agent any more: %s", app, error)
                return
            except ThemisError as error:
                _LOG.warning("the agent of %s begins again: %s", app, error)
            except Exception:
                _LOG.exception("the agent of %s failed and begins again", app)
            await asyncio.sleep(backoff.failed())
