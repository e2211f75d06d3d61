"""Toy agents: they start and stop jobs on the GPUs that they hold, often with wrong requests."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.scripted_world import simple_app
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.auction.solvers.registry import solver
from themis.core.model import AppId, AppSpec, Bid, Chunk, GpuId, JobId, Offer, Row, TableRow
from themis.core.steward.events import AgentSpoke, SessionOpened
from themis.protocol.agent_messages import (
    AgentRequest,
    ReleaseRequest,
    RunRequest,
    StopRequest,
)
from themis.protocol.node_messages import Program

if TYPE_CHECKING:
    from tests.support.fleet.simulation import FleetSim

TRAIN = Program(("train",))


@dataclass(slots=True)
class _App:
    spec: AppSpec
    accepted: bool = False
    over: bool = False
    session: str = ""
    fence: int = 0
    """The number of its session; 0 while it has none."""


class Agents:
    """All agents, and the users who submit apps."""

    def __init__(self, sim: "FleetSim", rng: random.Random) -> None:
        self._sim = sim
        self._rng = rng
        self._fates = sim.stream("sessions")
        self._solver = solver("default")
        self._count = 0
        self._keys = 0
        self.apps: dict[AppId, _App] = {}
        self.lasting: list[AppId] = []
        """Apps that stay to the end, and that the cluster can serve all at once."""

    def submit(self, gpus: int, *, lasting: bool = False) -> None:
        """A user has an app, and submits it until it is accepted."""
        self._count += 1
        spec = simple_app(f"app-{self._count}", gpus=1, jobs=gpus, iterations=10**6, seconds=1.0)
        self.apps[spec.id] = _App(spec)
        if lasting:
            self.lasting.append(spec.id)
        self._try(spec.id)

    def _try(self, name: AppId) -> None:
        app, service = self.apps[name], self._sim.service
        if app.accepted or app.over:
            return
        if service.up and not service.stalled:
            outcome = service.handle(ev.AppArrived(self._sim.now, app.spec))
            refused = outcome is None or any(isinstance(c, cmd.Refuse) for c in outcome.commands)
            # A user without an answer tries again, and may find that the first request arrived.
            known = outcome is not None and name in service.steward.arbiter.world.apps
            if not refused or known:
                app.accepted = True
                self._sim.checker.accepted(name)
                self.begin(name)
                self._sim.later(self._rng.uniform(0.1, 1.0), self._act, name)
                return
        self._sim.later(1.0, self._try, name)

    def end(self, name: AppId) -> None:
        """A user ends an app, and repeats the request until the service has accepted it."""
        app, service = self.apps[name], self._sim.service
        if app.over:
            return
        listens = app.accepted and service.up and not service.stalled
        if listens and service.handle(ev.AppEnded(self._sim.now, name)) is not None:
            app.over = True
        else:
            self._sim.later(1.0, self.end, name)

    def asked(self, command: cmd.Ask | cmd.Solve) -> None:
        """An agent is asked for a bid, or the solver for a solution."""
        rng = self._rng
        if isinstance(command, cmd.Solve):
            solution = self._solver.solve(command.problem, min(command.work, 2000))
            self._sim.later(
                0.1, self._sim.service.take, lambda at: ev.Solved(at, command.round, solution)
            )
        elif rng.random() < 0.9:
            app, offer = command.app, command.offer
            bid = self._bid(app, offer)
            self._sim.later(
                rng.uniform(0.01, 0.4),
                self._sim.service.take,
                lambda at: ev.BidReceived(at, app, offer.round, bid),
            )

    def _bid(self, app: AppId, offer: Offer) -> Bid:
        most = len(self.apps[app].spec.jobs)
        table = tuple(TableRow(level, n, 1e6 / n) for level in (1, 3) for n in range(1, most + 1))
        room = min(len(offer.gpus), most - len(offer.kept))
        kept = len(offer.kept)
        rows = tuple(Row((Chunk(3, 1),) * n, 1e6 / (kept + n)) for n in range(1, room + 1))
        return Bid(app, rows, table)

    # Acting

    def begin(self, name: AppId) -> None:
        """An agent starts, perhaps in the place of another."""
        app = self.apps[name]
        self._keys += 1
        session, app.fence = f"s{self._keys}", 0
        app.session = session
        self._sim.service.take(lambda at: SessionOpened(at, name, session))

    def opened(self, name: AppId, session: str, fence: int) -> None:
        """A session has its number."""
        if self.apps[name].session == session:
            self.apps[name].fence = fence

    def spoken(self, name: AppId, request: AgentRequest) -> Callable[[float], AgentSpoke]:
        """A request of an agent, in its present session."""
        fence = self.apps[name].fence
        return lambda at: AgentSpoke(at, name, fence, request)

    def _send(self, name: AppId, request: AgentRequest) -> None:
        """Send a request to the service, perhaps late, perhaps twice."""
        sim, rng = self._sim, self._rng
        spoken = self.spoken(name, request)
        sim.service.take(spoken)
        if sim.weather.doubled and rng.random() < 0.2:
            sim.later(rng.uniform(0.01, 6.0), sim.service.take, spoken)

    def _act(self, name: AppId) -> None:
        sim, rng = self._sim, self._rng
        app = self.apps[name]
        if app.over:
            return
        sim.later(rng.uniform(0.5, 1.5), self._act, name)
        if not sim.service.up or sim.service.stalled:
            return
        if not app.fence:
            self.begin(name)  # Its last request was not answered.
            return
        steward = sim.service.steward
        mine = [run for run in steward.runs.values() if run.app == name and not run.stop]
        held = steward.arbiter.ledger.holdings(name)
        used = {gpu for run in mine for gpu in run.gpus}
        free = [gpu for gpu in sorted(held) if gpu not in used]
        if sim.wild and mine and rng.random() < 0.08:
            run = rng.choice(mine).run
            self._send(name, StopRequest(run))
        if sim.wild and held and rng.random() < 0.05:
            given = rng.choice(sorted(held))
            token = held[given].token
            sim.checker.gave_back(given, token)
            self._send(name, ReleaseRequest((given,), (token,)))
        if free:
            busy = {run.job for run in mine}
            idle = [job.id for job in app.spec.jobs if job.id not in busy]
            count = rng.choice((1, 1, len(free)))
            if idle:
                self._request(name, rng.choice(idle), tuple(free[:count]))
        if sim.wild and self._fates.random() < 0.05:
            self._replace(name, tuple(held))

    def _replace(self, name: AppId, held: tuple[GpuId, ...]) -> None:
        """An agent dies with a request on its way, and another one starts."""
        if held:
            gpu, job = (
                self._fates.choice(sorted(held)),
                self._fates.choice(self.apps[name].spec.jobs),
            )
            late = self.spoken(name, self._run_request(name, job.id, (gpu,)))
            self._sim.later(self._fates.uniform(0.01, 6.0), self._sim.service.take, late)
        self.begin(name)

    def _request(self, name: AppId, job: JobId, gpus: tuple[GpuId, ...]) -> None:
        if self._sim.wild and self._rng.random() < 0.02:
            gpus = (*gpus, GpuId(0))
        wrong = self._rng.random() < 0.1 if self._sim.wild else False
        request = self._run_request(name, job, gpus)
        if wrong:  # A request that comes when things have changed.
            late = self.spoken(name, request)
            self._sim.later(self._rng.uniform(0.5, 8.0), self._sim.service.take, late)
        else:
            self._send(name, request)

    def _run_request(self, name: AppId, job: JobId, gpus: tuple[GpuId, ...]) -> RunRequest:
        self._keys += 1
        key = f"k{self._keys}"
        self._sim.checker.asked(name, key, self.apps[name].fence)
        return RunRequest(job, gpus, TRAIN, key)
