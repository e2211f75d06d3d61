"""How long a phase takes on fixed GPUs: what a bid says of it, and what an agent makes of it.

    for trial in trials(app, topology, random.Random("1/w2-0007")):
        trial.predicted, trial.realised

Nothing is in the way: no noise, no costs, no other apps, and the GPUs stay for the phase. What is
left between the two numbers is due to the agent: its bids take the work as divisible (a lower
bound), its jobs are whole, and gangs that a bid takes for far apart may lie next to each other.
"""

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from themis.core.agent import Agent, AppBidder, BidContext, JobNeed, commands, events
from themis.core.agent.remaining_time import Clock
from themis.core.auction.mechanism import bind
from themis.core.auction.problem import Bidder as Buyer
from themis.core.auction.problem import Candidate, Problem, offered_machines
from themis.core.auction.solvers.registry import solver
from themis.core.model import AppId, GpuId, JobId, JobSpec, Lease, LeaseSource, Offer, Row, Topology
from themis.core.tuners import Tuner, tuner_for
from themis.errors import InvariantError
from themis.sim.modelled_jobs import NO_COSTS, Nodes
from themis.sim.workloads import SimApp

SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
"""How much of the cluster an offer may hold."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One phase of one app on GPUs that it would have won with a row of its bid."""

    app: AppId
    phase: int
    jobs: int
    demand: int
    """GPUs that its jobs could use."""
    gpus: int
    bid: float
    """Seconds in the row: its gangs may be farther apart than those won."""
    predicted: float
    """Seconds by the same equations for gangs as far apart as those won: T_phase(G)."""
    realised: float

    @property
    def crowded(self) -> bool:
        """Whether there are fewer GPUs than the jobs could use, so that they must be shared."""
        return self.gpus < self.demand

    @property
    def error(self) -> float:
        """Predicted over realised, less one."""
        return self.predicted / self.realised - 1.0

    @property
    def bid_error(self) -> float:
        """The same for what was bid."""
        return self.bid / self.realised - 1.0


def trials(app: SimApp, topology: Topology, rng: random.Random) -> Iterator[Trial]:
    """Run an app phase by phase, each on the GPUs of a row drawn from its bid for a random offer.

    Rows are of all sizes and levels, whole machines or scattered GPUs, as offers come.
    """
    stage = Stage(app, topology)
    while not stage.over:
        phase, needs = stage.tuner.phase, needs_of(stage.tuner)
        row, chunks = _award(app, needs, topology, rng)
        shape = sorted((topology.level(chunk), len(chunk)) for chunk in chunks)
        predicted = Clock([needs]).seconds(tuple(shape))
        gpus = [gpu for chunk in chunks for gpu in chunk]
        realised = stage.run_phase(gpus)
        yield Trial(
            app=app.spec.id,
            phase=phase,
            jobs=len(needs),
            demand=sum(need.spec.max_gpus for need in needs),
            gpus=len(gpus),
            bid=row.seconds,
            predicted=predicted,
            realised=realised,
        )


def needs_of(tuner: Tuner) -> tuple[JobNeed, ...]:
    """The jobs of a phase that is about to begin."""
    return tuple(
        JobNeed(
            JobSpec(info.job, info.iteration_time, info.max_gpus, info.min_gpus, info.slowdown),
            info.iterations_left * info.iteration_time,
        )
        for info in tuner.jobs_in_phase(tuner.phase)
    )


def _award(
    app: SimApp, needs: tuple[JobNeed, ...], topology: Topology, rng: random.Random
) -> tuple[Row, tuple[tuple[GpuId, ...], ...]]:
    """A row of the app's bid for some offer, and the GPUs that an auction with no rival gives."""
    bidder = AppBidder(app.spec, restart_in_bids=False)
    while True:
        offered = _offer(topology, rng)
        rows = bidder.bid(BidContext(needs, (), {}), Offer(1, offered, (), ()), topology).rows
        if not rows:
            continue
        row = rng.choice(rows)
        buyer = Buyer(app.spec.id, 1.0, 2.0, (Candidate(row.chunks, 1.0),))
        problem = Problem(offered_machines(offered, topology), (buyer,))
        won = bind(solver("search").solve(problem, 10_000), offered, {}, topology)
        if app.spec.id in won:
            return row, won[app.spec.id]


def _offer(topology: Topology, rng: random.Random) -> tuple[GpuId, ...]:
    share = rng.choice(SHARES)
    if rng.random() < 0.5:
        gpus = [gpu for group in topology.gpus_of if rng.random() < share for gpu in group]
    else:
        gpus = [seat.gpu for seat in topology.seats if rng.random() < share]
    return tuple(gpus)


class Stage:
    """One agent and its processes on a cluster of its own: time passes, nothing costs anything."""

    def __init__(self, app: SimApp, topology: Topology) -> None:
        self.tuner = tuner_for(app.spec, app.tuner)
        self.over = False
        self._app = app
        self._topology = topology
        self._agent = Agent(app.spec, self.tuner)
        self._quality = {job.spec.id: job.quality for job in app.jobs}
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._pushed = 0
        self._now = 0.0
        self._leases = 0
        self._nodes = Nodes(
            topology=lambda: topology,
            costs=NO_COSTS,
            seed=0,
            at=self._at,
            started=lambda *_: None,
            stopped=lambda *_: None,
            reached=self._reached,
        )
        self._nodes.add(app.spec.id, app.spec.jobs)

    def run_phase(self, gpus: Sequence[GpuId]) -> float:
        """The seconds that the phase under way takes with these GPUs and no others.

        What the agent gives back before its end stays unused.

        Raises:
            InvariantError: The app gets stuck.
        """
        begun, phase = self._now, self.tuner.phase
        before = self._lease(sorted(self._agent.gpus))
        self._tell(
            events.LeasesChanged(begun, self._topology, self._lease(sorted(gpus)), (), before)
        )
        while not self.over and self.tuner.phase == phase:
            if not self._heap:
                raise InvariantError(f"{self._app.spec.id} is stuck in phase {phase}")
            self._now, _, action = heapq.heappop(self._heap)
            action(self._now)
        return self._now - begun

    def _lease(self, gpus: Sequence[GpuId]) -> tuple[Lease, ...]:
        self._leases += 1
        app = self._app.spec.id
        return tuple(Lease(gpu, app, self._leases, 0.0, 1e15, LeaseSource.DIRECT) for gpu in gpus)

    def _at(self, time: float, action: Callable[[float], None]) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (max(time, self._now), self._pushed, action))

    def _reached(self, now: float, app: AppId, job: JobId) -> None:
        self._tell(events.JobReached(now, job, self._quality[job]))

    def _tell(self, event: events.AgentEvent) -> None:
        app = self._app.spec.id
        runs = self._nodes.running.get(app, {})
        done = tuple((job, self._nodes.progress(run, self._now)) for job, run in runs.items())
        self._agent.handle(events.Progressed(self._now, done))
        for command in self._agent.handle(event):
            match command:
                case commands.StartJob(job=job, gpus=gpus, until=until):
                    self._nodes.start(app, job, gpus, until, self._now)
                case commands.StopJob(job=job):
                    self._nodes.stop(app, job, self._now)
                case commands.FinishApp():
                    self.over = True
                case _:
                    pass  # Phases are the tuner's to tell, and nobody waits for GPUs.
