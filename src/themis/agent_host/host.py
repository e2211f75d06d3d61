"""Agents of the apps that one owner has submitted, as tasks in one process.

    host = AgentHost(connection, random.Random())
    await host.run()

The process may end at any time, and the service starts it again: an agent knows nothing that the
service has not kept. An agent that fails is begun again; the others go on.
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
from themis.agent_host.session_client import AgentLink
from themis.apps import AppFile, SweepPlan, parse_app, plan_app
from themis.apps.app_file import Method
from themis.core.agent import Agent, MakeAgent
from themis.core.model import AppId, JobId
from themis.core.tuners import Stepwise
from themis.errors import DeniedError, ThemisError, UnknownAppError
from themis.protocol.agent_messages import (
    AgentReport,
    AgentStart,
    Hosted,
    News,
    OverNews,
    RunNews,
    Said,
    SubmittedApp,
)
from themis.rpc.client import Backoff
from themis.security.redaction import clean

if TYPE_CHECKING:
    from themis.integrations.optuna_search import Suggesting

_LOG = logging.getLogger(__name__)

_LONGEST_WAIT = 10.0
_MOST_FAILURES = 20
"""Of an app that are told; its status has all."""


class AgentService(Protocol):
    """What a host asks of the service, as with `HostClient`."""

    async def exchange(self, report: AgentReport) -> News:
        """Say something for an app, and hear what is new."""

    async def hosted(self, revision: int) -> Hosted:
        """Which apps need an agent; waits a while for another answer than the last."""

    async def sheet(self, app: AppId) -> SubmittedApp:
        """What was submitted."""


class Connect(Protocol):
    """Makes clients that can be used at the same time."""

    def __call__(self) -> AgentService:
        """Another client."""


class AppRunner:
    """One app's agent: its talk with the service, and its clock."""

    def __init__(
        self,
        client: AgentService,
        written: AppFile,
        plan: SweepPlan,
        rng: random.Random,
        *,
        suggesting: "Suggesting | None" = None,
        own: Stepwise | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        session: str = "",
        make_agent: MakeAgent = Agent,
    ) -> None:
        """Bring the parts together.

        Args:
            client: The way to the service.
            written: What was submitted.
            plan: What it comes to.
            rng: For spreading tries.
            suggesting: Chooses trials one after the other, where that is asked for.
            own: Somebody's own tuner, in place of the one that the app file names.
            monotonic: The clock; a rehearsal has its own.
            wall: The clock that jobs go by.
            session: What this agent is known by; nobody else's, and made up unless given.
            make_agent: Makes the core of it.
        """
        self._monotonic = monotonic
        self._wall = wall
        self._offset = 0.0
        """From this clock to the cluster's."""
        self._changed = asyncio.Event()
        session = session or secrets.token_hex(8)
        self._suggesting = suggesting
        self._link = AgentLink(
            client, plan.spec.id, rng, session=session, longest_wait=_LONGEST_WAIT
        )
        self._own = own
        self._app = plan.spec.id
        self._failures: set[str] = set()
        self._session = AgentSession(
            written,
            plan,
            session=session,
            choose=None if suggesting is None else suggesting.choose,
            own_tuner=own,
            make_agent=make_agent,
        )

    @classmethod
    def of_sheet(
        cls,
        client: AgentService,
        sheet: SubmittedApp,
        rng: random.Random,
        own: Stepwise | None = None,
        make_agent: MakeAgent = Agent,
    ) -> Self:
        """The agent of an app that was submitted as a file."""
        written = parse_app(json.loads(sheet.body))
        plan = plan_app(written, sheet.app, sheet.owner, sheet.seed)
        suggesting = _suggesting(written, plan, sheet.seed)
        return cls(
            client, written, plan, rng, suggesting=suggesting, own=own, make_agent=make_agent
        )

    async def run(self) -> str:
        """Speak for the app until it is over; returns how it ended.

        Raises:
            UnknownAppError: The service does not know the app (any more).
            DeniedError: It is somebody else's.
            StaleAnswerError: Another agent speaks for it.
            RefusedError: Something that this one said cannot be.
        """
        talk = asyncio.create_task(self._talk())
        alarm = asyncio.create_task(self._watch_clock())
        try:
            await asyncio.wait({talk, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if alarm.done():
                alarm.result()  # Only an error ends it, and nobody would start jobs again.
            return await talk
        finally:
            for task in (talk, alarm):
                task.cancel()
            await asyncio.gather(talk, alarm, return_exceptions=True)

    def park(self, jobs: frozenset[JobId]) -> None:
        """Let these jobs, and no others, want no GPUs for now; in the loop that it runs in."""
        self._say(self._session.park(self._now(), jobs))
        self._changed.set()

    def conclude(self, job: JobId, iterations: float, metric: float | None) -> None:
        """Let a job be over that its tuner, asked for it once more, will stop."""
        self._say(self._session.conclude(self._now(), job, iterations, metric))
        self._changed.set()

    async def _talk(self) -> str:
        async for item in self._link.news():
            self._offset = self._link.at - self._monotonic()
            self._session.set_clock_offset(self._link.at - self._wall())
            if isinstance(item, AgentStart):
                self._link.hush()  # What waits would be said twice, and differently.
                if self._suggesting is not None:
                    self._suggesting.relive(item)
            self._say(self._session.hear(self._link.at, item))
            self._changed.set()
            if isinstance(item, RunNews):
                self._tell_failure(item)
            if isinstance(item, OverNews):
                return item.outcome
        return ""

    def _tell_failure(self, news: RunNews) -> None:
        """Say what went wrong with a run, once: who runs a tuner has no other eyes."""
        failed = news.state.over and not news.told and news.code not in {0, RESUMABLE}
        if failed and news.message not in self._failures and len(self._failures) < _MOST_FAILURES:
            self._failures.add(news.message)
            told = news.message or f"it exited with {news.code}"
            _LOG.warning("job %s of %s failed: %s", news.job, self._app, clean(told))

    async def _watch_clock(self) -> None:
        while True:
            self._changed.clear()
            wait = self._session.next_wake - self._now()
            if wait > 0.0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if math.isinf(wait) else wait):
                        await self._changed.wait()
                continue
            self._say(self._session.wake(self._now()))

    def _now(self) -> float:
        return self._offset + self._monotonic()

    def _say(self, said: Sequence[Said]) -> None:
        if self._suggesting is not None:
            self._suggesting.note(said)
        self._link.say(*said)
        if self._own is not None:
            self._own.note_placement(self._session.placement)


def _suggesting(written: AppFile, plan: SweepPlan, seed: int) -> "Suggesting | None":
    search = written.search
    if search is None or search.method is not Method.OPTUNA:
        return None
    from themis.integrations.optuna_search import Suggesting  # noqa: PLC0415 - in an extra

    return Suggesting(search.params, written.metric.goal, len(plan.spec.phases), seed)


class AgentHost:
    """Keeps an agent for each app of its owner that needs one."""

    def __init__(self, connect: Connect, rng: random.Random) -> None:
        self._connect = connect
        self._client = connect()
        self._rng = rng
        self._tasks: dict[AppId, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Host until cancelled."""
        backoff = Backoff(self._rng, most=_LONGEST_WAIT)
        revision = 0
        try:
            while True:
                try:
                    hosted = await self._client.hosted(revision)
                except DeniedError:
                    raise  # The service has another host by now.
                except ThemisError as error:
                    _LOG.info("which apps need an agent is not known: %s", error)
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
        for app in [app for app, task in self._tasks.items() if task.done() or app not in apps]:
            # One that is not listed any more is over, or about to hear it.
            if self._tasks[app].done():
                del self._tasks[app]
        for app in apps:
            if app not in self._tasks:
                self._tasks[app] = asyncio.create_task(self._care(app), name=f"agent {app}")

    async def _care(self, app: AppId) -> None:
        """Speak for an app to its end, beginning again whenever something goes wrong."""
        backoff = Backoff(self._rng, most=_LONGEST_WAIT)
        while True:
            try:
                client = self._connect()  # Calls of its own, on one connection.
                runner = AppRunner.of_sheet(client, await client.sheet(app), self._rng)
                outcome = await runner.run()
                _LOG.info("%s is over: %s", app, outcome)
                return
            except (UnknownAppError, DeniedError) as error:
                _LOG.info("%s needs no agent any more: %s", app, error)
                return
            except ThemisError as error:
                _LOG.warning("the agent of %s begins again: %s", app, error)
            except Exception:
                _LOG.exception("the agent of %s failed and begins again", app)
            await asyncio.sleep(backoff.failed())
