"""The app that stands for a script: submitted, run by an agent in a thread of its own, and ended.

The tuner is elsewhere. `ScriptAgent.park` says which trials want no GPUs, `conclude` that one is
over; the agent does the rest (bids, starts, stops, retries) as for every app.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from themis.agent_host.own_tuner import OwnTuner, ServiceAddress, run_agent
from themis.apps import parse_app
from themis.core.model import AppId, JobId
from themis.core.tuners import Trial
from themis.core.tuners.base import Decision
from themis.errors import MissingError, StaleAnswerError, ThemisError, UnavailableError

if TYPE_CHECKING:
    from themis.agent_host.host import AgentRunner
    from themis.rpc.client import Connection

_LOG = logging.getLogger(__name__)

ParamsOf = Callable[[str], Mapping[str, Any]]
"""The parameters of a job, by its name."""


class FollowingTuner(OwnTuner):
    """A tuner that repeats what Ray Tune decided."""

    def __init__(self, params: ParamsOf) -> None:
        self._params = params
        self.concluded: set[str] = set()
        self.given_up: set[str] = set()
        """Jobs that could not be started, in spite of all retries."""

    def suggest(self, trial: Trial) -> Mapping[str, Any]:
        """The parameters that Ray Tune gave the trial."""
        known = self._params(trial.name)
        return {name: known.get(name, value) for name, value in trial.params.items()}

    def should_stop(self, trial: Trial) -> bool:
        """Whether Ray Tune has ended the trial."""
        return trial.name in self.concluded

    def reached(self, job: JobId, metric: float) -> Decision | None:
        """Note a job that was given up: Ray Tune does not see that."""
        if math.isinf(metric) and job not in self.concluded:
            self.given_up.add(job)
        return super().reached(job, metric)


class ScriptAgent:
    """One app, from its submission to its end."""

    def __init__(
        self, address: ServiceAddress, app: Mapping[str, Any], key: str, params: ParamsOf
    ) -> None:
        """Submit it and start its agent.

        Args:
            address: The service.
            app: The keys of an app file.
            key: A text that no other submission has.
            params: Called when a job begins.

        Raises:
            ConfigError: A key is invalid, or the token is not a tenant's.
            ThemisError: It was refused, or the service does not answer.
        """
        self._address = address
        self.tuner = FollowingTuner(params)
        parse_app(dict(app))  # A mistake is an error here, also without a service.
        address.check_role()
        self.app = str(address.client.submit(dict(app), key)["app"])
        self.error: Exception | None = None
        """Why the agent ended, if it ended before the app."""
        self.over = threading.Event()
        """Set when the agent has ended."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: AgentRunner | None = None
        self._parked: frozenset[JobId] = frozenset()
        self._concluded: dict[JobId, tuple[float, float | None]] = {}
        self._cancelled = False
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name=f"agent of {self.app}", daemon=True).start()

    def park(self, jobs: frozenset[JobId]) -> None:
        """Let these jobs, and no others, want no GPUs for now."""
        with self._lock:
            if jobs == self._parked:
                return
            self._parked = jobs
        self._call(lambda runner: runner.park(jobs))

    def conclude(self, job: JobId, iterations: float, metric: float | None) -> None:
        """End a job."""
        with self._lock:
            if job in self._concluded:
                return
            self._concluded[job] = iterations, metric
        self.tuner.concluded.add(job)
        self._call(lambda runner: runner.conclude(job, iterations, metric))

    def cancel(self) -> None:
        """Cancel the app if it is not over, as when the script ends early or its agent is refused.

        Not if another process runs its agent by now: then the app is that one's.
        """
        if self._cancelled or (self.over.is_set() and self.error is None):
            return
        if isinstance(self.error, StaleAnswerError):
            return
        try:
            self._address.client.cancel(self.app)  # It is over when the call returns.
        except MissingError:
            pass  # It has ended already.
        except ThemisError as error:
            _LOG.warning("%s could not be cancelled: %s", self.app, error)
            return
        self._cancelled = True

    def _call(self, change: "Callable[[AgentRunner], None]") -> None:
        with self._lock:
            loop, runner = self._loop, self._runner
        if loop is not None and runner is not None and not self.over.is_set():
            loop.call_soon_threadsafe(change, runner)

    def _began(self, runner: "AgentRunner") -> None:
        """Tell an agent that begins everything, before it hears where the app is."""
        with self._lock:
            self._runner, self._loop = runner, asyncio.get_running_loop()
            parked, concluded = self._parked, dict(self._concluded)
        runner.park(parked)
        for job, (iterations, metric) in concluded.items():
            runner.conclude(job, iterations, metric)

    def _run(self) -> None:
        try:
            asyncio.run(self._run_agent())
        except Exception as error:
            self.error = error
        finally:
            self.over.set()

    async def _run_agent(self) -> None:
        connection = await self._connected()
        try:
            await run_agent(
                self.tuner, AppId(self.app), connection, self._address.client, began=self._began
            )
        finally:
            await connection.close()

    async def _connected(self) -> "Connection":
        while True:
            try:
                return await asyncio.to_thread(self._address.connection)
            except UnavailableError as error:
                _LOG.warning("the service does not answer: %s", error)
            await asyncio.sleep(2.0)
