"""Machines that fail and come back, as a run's faults have it."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from themis.core.agent import events as agent_ev
from themis.core.arbiter import events as ev
from themis.core.model import AppId, GpuId, Machine, Topology
from themis.sim.direct_agents import SimulatedApp
from themis.sim.event_heap import Agenda
from themis.sim.faults import Faults
from themis.sim.modelled_jobs import Nodes

_Times = Iterator[tuple[float, float]]
"""When a machine fails, and when it is back."""


class Outages:
    """Fails machines when their time comes."""

    def __init__(
        self,
        agenda: Agenda,
        nodes: Nodes,
        apps: Mapping[AppId, SimulatedApp],
        *,
        topology: Callable[[], Topology],
        post: Callable[[ev.Event], None],
    ) -> None:
        self.count = 0
        self._agenda = agenda
        self._nodes = nodes
        self._apps = apps
        self._topology = topology
        self._post = post

    def expect(self, faults: Faults, seed: int) -> None:
        """Put down the first failure of every machine."""
        for machine in self._topology().machines:
            self._await(machine, faults.outages(seed, machine.name))

    def _await(self, machine: Machine, times: _Times) -> None:
        outage = next(times, None)
        if outage is not None:
            fails, back = outage
            self._agenda.at(fails, lambda now: self._fail(machine, back, times, now))

    def _fail(self, machine: Machine, back: float, times: _Times, now: float) -> None:
        self.count += 1
        topology = self._topology()
        gpus = topology.gpus_of[topology.number_of[machine.name]]
        for (app, job), ran in self._nodes.lose(gpus, now):
            done = self._nodes.trainings[app, job].done
            if ran:
                # One that was leaving may have been stopped for good: then its work is done.
                sample = ev.ProgressSample(job, *self._nodes.last_sample(app, job))
                self._post(ev.ProgressMeasured(now, app, (sample,)))
            # That its GPUs are gone it hears from the arbiter, and then places its jobs anew:
            # told that the job was lost, it would start it on the same GPUs first.
            if app in self._apps:
                event = agent_ev.Progressed(now, ((job, done),))
                self._apps[app].agent.handle(event)
        self._post(ev.MachineLeft(now, machine.name))
        self._agenda.at(back, lambda at: self._return(machine, gpus, times, at))

    def _return(self, machine: Machine, gpus: Sequence[GpuId], times: _Times, now: float) -> None:
        self._post(ev.MachineJoined(now, machine))
        self._nodes.restore(gpus, now)
        self._await(machine, times)
