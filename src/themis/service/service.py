"""The service: the steward's loop, and the subscribers that nodes, agents and people talk to.

    service = Service(state, store, SolverClient())
    await service.start()
    orders = await service.nodes.report(report)
    news = await service.agents.exchange(agent_report)
    await service.submissions.submit(spec, key)

An event goes to the steward at once; its outcome goes to the subscribers when it is durable, in one
order: nodes, agents, history, metrics, log, pages.
"""

import asyncio
from concurrent.futures import Executor

from themis.core.arbiter import events as ev
from themis.core.model import AppId, OwnerId
from themis.core.steward.events import AppForgotten
from themis.core.steward.steward import Steward
from themis.errors import UnavailableError
from themis.service.agent_delivery import AgentDelivery
from themis.service.dashboard.change_feed import ChangeFeed
from themis.service.dashboard.page_history import PageHistory
from themis.service.forecast_jobs import Forecasts
from themis.service.log_requests import LogRequests
from themis.service.operator_log import OperatorLog
from themis.service.pending_reports import PendingReports
from themis.service.persistence.commit_queue import CommitQueue
from themis.service.persistence.recovery import RecoveredState
from themis.service.persistence.round_history import RoundHistory
from themis.service.persistence.store.sql import Store
from themis.service.prometheus import Metrics
from themis.service.retained_rows import EndedApps, RetiredMachines, owner_of
from themis.service.solver.auctions import Auctions, RoundSolver
from themis.service.steward_loop import StewardLoop
from themis.service.submissions import INTENT, Submissions
from themis.service.submitted_apps import SubmittedApps

_FORGET_EVERY = 600.0


class Service:
    """Puts the parts together, starts them and stops them. All belong to one event loop."""

    def __init__(
        self,
        state: RecoveredState,
        store: Store,
        solver: RoundSolver,
        thread: Executor | None = None,
    ) -> None:
        self.store = store
        """Used through the queue's thread only."""
        self.parameters = state.parameters
        self._state = state
        self._solver = solver
        self.queue = CommitQueue(store, state.changed, thread)
        loop = self.loop = StewardLoop(state, self.queue)
        self.steward: Steward = loop.steward
        self.rows = loop.rows
        self.ended = EndedApps(self.rows, loop.steward.arbiter.settings.convention)
        self.files = SubmittedApps(self.rows, loop.steward)
        self.submissions = Submissions(loop, self.ended, self.files)
        self.retired = RetiredMachines(self.rows)
        self.agents = AgentDelivery(loop, state.absent, self.ended)
        self.logs = LogRequests(loop)
        self.nodes = PendingReports(loop, self.logs)
        self.rounds = RoundHistory(self.owner_of)
        self.past = PageHistory(self.ended, self.owner_of)
        self.metrics = Metrics(loop, self.agents, self.retired)
        self.watchers = ChangeFeed()
        self.forecasts = Forecasts()
        loop.at_once = (self.ended, self.files, self.retired, Auctions(loop, solver))
        loop.answers = self.nodes
        loop.subscribers = (
            self.agents,
            *(self.rounds, self.past),
            *(self.metrics, OperatorLog(loop.steward), self.watchers),
        )

    async def start(self) -> None:
        """Begin to serve."""
        # What was only intended when the last service ended was never acknowledged.
        intents = {key: None for key in self.rows if key.startswith(INTENT)}
        self.rows.keep({**self._state.new_rows, **intents})
        await self._solver.start()
        self.loop.publish(*self._state.restart)
        await self.queue.settled()
        self.loop.spawn(self.agents.watch())
        self.loop.spawn(self._forget_old())
        if self.steward.arbiter.settings != self.parameters.settings:
            await self.loop.carry_out(ev.SettingsChanged(self.now(), self.parameters.settings))

    def listening(self) -> None:
        """Nodes and agents can reach the service from now on.

        What nodes did not say before proves nothing.
        """
        self.steward.listen(self.now())
        self.agents.listening()

    def stop(self) -> None:
        """Accept no more requests, and end the calls that wait."""
        self.loop.stop()
        self.logs.stop()
        self.watchers.close()
        self.nodes.stop()
        self.agents.stop(UnavailableError("the service is stopping"))

    async def close(self) -> None:
        """Stop serving; what runs on nodes goes on."""
        self.stop()
        await self.loop.close()
        await self.forecasts.close()
        await self._solver.close()

    async def _forget_old(self) -> None:
        while True:
            old = self.ended.old(self.now())
            for app in old:
                self.loop.apply(AppForgotten(self.now(), app))
            self.ended.forget(old)
            self.files.forget(old)
            self.submissions.forget_old()
            self.agents.forget_old()
            await asyncio.sleep(_FORGET_EVERY)

    def now(self) -> float:
        """The cluster's time."""
        return self.loop.now()

    def owner_of(self, app: AppId) -> OwnerId | None:
        """The owner of an app that goes on or has ended; None if neither is known."""
        return owner_of(self.steward, self.ended, app)
