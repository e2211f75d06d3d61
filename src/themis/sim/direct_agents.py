"""The agents of a simulation, called directly, and the truth about their apps.

agents = DirectAgents(nodes, handover, topology=..., post=..., now=...)
agents.add(app, policy, learns=False)
agents.send(Ask(app, offer, deadline))       # posts BidReceived
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import assert_never

from themis.core.agent import Agent, MakeAgent, Profiler
from themis.core.agent import commands as agent_cmd
from themis.core.agent import events as agent_ev
from themis.core.arbiter import events as ev
from themis.core.arbiter.agent_port import AgentPort
from themis.core.arbiter.commands import Ask, Assign
from themis.core.model import AppId, Topology
from themis.core.policies import Policy
from themis.core.tuners import Tuner, tuner_for
from themis.sim.iteration_measuring import Meter
from themis.sim.modelled_jobs import Nodes
from themis.sim.slot_handover import SlotHandover
from themis.sim.workloads import SimApp

Watch = Callable[[str], AbstractContextManager[None]]
"""Times what happens within it: a "bid" or an "auction"."""


@dataclass(slots=True)
class SimulatedApp:
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


class DirectAgents(AgentPort):
    """The agents of all apps that have arrived and not ended."""

    def __init__(
        self,
        nodes: Nodes,
        handover: SlotHandover,
        *,
        topology: Callable[[], Topology],
        post: Callable[[ev.Event], None],
        now: Callable[[], float],
        watch: Watch = lambda _: nullcontext(),
    ) -> None:
        """Begin without agents.

        Args:
            nodes: Where jobs run.
            handover: Takes GPUs that agents give back.
            topology: The arbiter's.
            post: Takes the replies.
            now: The virtual clock.
            watch: Times bids.
        """
        self._nodes = nodes
        self._handover = handover
        self._topology = topology
        self._post = post
        self._now = now
        self._watch = watch
        self.apps: dict[AppId, SimulatedApp] = {}
        self.events = 0
        """How many events agents have handled."""

    def add(
        self,
        app: SimApp,
        policy: Policy,
        *,
        learns: bool,
        make_agent: MakeAgent = Agent,
        tuner: Tuner | None = None,
    ) -> None:
        """Make the agent of an app, as the policy wants it.

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
        self.apps[app.spec.id] = SimulatedApp(app, agent)

    def send(self, command: Ask | Assign) -> None:
        """Hand a command to its agent; renewals alone change nothing for one."""
        now, topology = self._now(), self._topology()
        match command:
            case Ask(app=name, offer=offer):
                with self._watch("bid"):
                    self.tell(self.apps[name], agent_ev.Asked(now, offer, topology))
            case Assign(app=name, granted=granted, renewed=renewed, revoked=revoked):
                app = self.apps.get(name)
                if app is not None and (granted or revoked):
                    change = agent_ev.LeasesChanged(now, topology, granted, renewed, revoked)
                    self.tell(app, change)
            case _:
                assert_never(command)

    def tell(self, app: SimulatedApp, event: agent_ev.AgentEvent) -> None:
        """Hand an event to an agent, and carry out what it wants."""
        now = self._now()
        if not isinstance(event, agent_ev.JobReached) or app.agent.reads_progress:
            self.events += app.read_metrics(self._nodes, now)
        self.events += 1
        name = app.truth.spec.id
        for command in app.agent.handle(event):
            match command:
                case agent_cmd.SendBid(round=number, bid=bid):
                    if app.truth.claim is not None:
                        bid = replace(bid, claim=app.truth.claim)
                    self._post(ev.BidReceived(now, name, number, bid))
                case agent_cmd.StartJob(job=job, gpus=gpus, until=until):
                    self._nodes.start(name, job, gpus, until, now)
                case agent_cmd.StopJob(job=job):
                    self._nodes.stop(name, job, now)
                case agent_cmd.ReleaseGpus(gpus=gpus):
                    self._handover.release(now, name, gpus)
                case agent_cmd.AnnouncePhase(phase=phase, targets=targets):
                    self._post(ev.PhaseStarted(now, name, phase, targets))
                case agent_cmd.ReviseTargets(targets=targets):
                    self._post(ev.TargetsRevised(now, name, targets))
                case agent_cmd.FinishApp():
                    self._post(ev.AppEnded(now, name))
                case _:
                    assert_never(command)

    def samples(self, now: float, told: float) -> Iterator[ev.ProgressMeasured]:
        """The reports of nodes on the jobs that run, as of now, to arrive at another time."""
        for name, runs in sorted(self._nodes.running.items()):
            if name in self.apps:
                found = [
                    ev.ProgressSample(job, *self._nodes.sample(run, now))
                    for job, run in sorted(runs.items())
                ]
                yield ev.ProgressMeasured(told, name, tuple(found))

    def tell_timings(self, meter: Meter, now: float) -> None:
        """Tell agents that learn how long the iterations of their jobs take."""
        for name, app in sorted(self.apps.items()):
            windows = meter.windows(self._nodes.running.get(name, {}), now)
            if windows:
                self.tell(app, agent_ev.IterationsTimed(now, windows))
