"""Apps in a simulation: the agent of each, the truth about it, and what is measured of its jobs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from themis.core.agent import Agent, MakeAgent, Profiler
from themis.core.agent import events as agent_ev
from themis.core.arbiter import events as ev
from themis.core.model import AppId
from themis.core.policies import Policy
from themis.core.tuners import Tuner, tuner_for
from themis.sim.iteration_measuring import Meter
from themis.sim.modelled_jobs import Nodes
from themis.sim.workloads import SimApp


@dataclass(slots=True)
class AppRuntime:
    """An app in the simulation: its agent and the truth about it."""

    truth: SimApp
    agent: Agent
    informed: float = -1.0
    """When the agent last read how far its jobs are."""

    def read_metrics(self, nodes: Nodes, now: float) -> bool:
        """Let the agent read how far its jobs are, once at a time; whether there was news."""
        runs = nodes.running.get(self.truth.spec.id)
        if not runs or self.informed >= now:
            return False
        self.informed = now
        iterations = tuple((job, nodes.progress(run, now)) for job, run in runs.items())
        self.agent.handle(agent_ev.Progressed(now, iterations))
        return True


def seat_for(
    app: SimApp,
    policy: Policy,
    *,
    learns: bool,
    make_agent: MakeAgent = Agent,
    tuner: Tuner | None = None,
) -> AppRuntime:
    """The seat of an app, with an agent as the policy wants it.

    Args:
        app: The truth about it.
        policy: By which it is scheduled.
        learns: Whether its agent learns from what is measured.
        make_agent: Makes the agent.
        tuner: One that knows how far the app is; without it the app is only arriving.
    """
    planned = app.planned
    agent = make_agent(
        planned,
        tuner or tuner_for(planned, app.tuner),
        sticky=policy.sticky_agents,
        restart_in_bids=policy.restart_in_bids,
        in_bids=None if app.distortion.none else app.distortion.of,
        profiler=Profiler(planned.jobs) if learns else None,
    )
    return AppRuntime(app, agent)


def samples(
    nodes: Nodes, seats: Mapping[AppId, AppRuntime], now: float, told: float
) -> Iterator[ev.ProgressMeasured]:
    """What nodes report of the jobs that run, told at some time."""
    for app, runs in sorted(nodes.running.items()):
        if app in seats:
            found = [
                ev.ProgressSample(job, *nodes.sample(run, now)) for job, run in sorted(runs.items())
            ]
            yield ev.ProgressMeasured(told, app, tuple(found))


def timings(
    meter: Meter, nodes: Nodes, seats: Mapping[AppId, AppRuntime], now: float
) -> Iterator[tuple[AppRuntime, agent_ev.IterationsTimed]]:
    """What agents that learn hear of how long the iterations of their jobs take."""
    for app, seat in sorted(seats.items()):
        windows = meter.windows(nodes.running.get(app, {}), now)
        if windows:
            yield seat, agent_ev.IterationsTimed(now, windows)
