"""The agent of one app: bids for it, and hands its GPUs to its jobs.

agent = Agent(spec, tuner_for(spec))
agent.handle(LeasesChanged(at=0.0, topology=topology, granted=leases))   # [StartJob(...), ...]
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, assert_never

from themis.core.agent import commands as cmd
from themis.core.agent import events as ev
from themis.core.agent.bidder import AppBidder, BidContext
from themis.core.agent.job_assignment import JobNeed, Placement, assign, longest_first, top_rate
from themis.core.agent.move_costs import MoveCosts
from themis.core.agent.pinned_jobs import assign_at_home, bid_at_home
from themis.core.agent.profiler import Profiler
from themis.core.agent.unequal_gangs import with_longest
from themis.core.model import AppSpec, GpuId, JobId, JobSpec, Topology
from themis.core.tuners.base import (
    Decision,
    Finished,
    IterationForecast,
    JobInfo,
    NextPhase,
    StopTraining,
    Tuner,
)

_SLACK = 1e-6


@dataclass(slots=True)
class _Job:
    spec: JobSpec
    target: float
    done: float = 0.0
    forecast: float = math.inf
    """Where the tuner expects it to stop, if before its target."""
    over: bool = False
    """At its target, or stopped for good before it; its process is gone or told to go."""
    aside: bool = False
    """It must not run for now."""
    home: int | None = None
    """The only machine that it can go on on."""

    @property
    def work(self) -> float:
        if self.over or self.aside:
            return 0.0
        # Measured at its target, but not yet reported there: it must not be stopped on the way.
        left = max(self.target - self.done, _SLACK)
        if self.forecast < self.target:
            # Past its forecast but not stopped yet, it goes on for an iteration at least.
            left = min(left, max(1.0, self.forecast - self.done))
        return left * self.spec.serial_iteration_time


class Agent:
    """The state machine. `handle` is its only door."""

    def __init__(
        self,
        spec: AppSpec,
        tuner: Tuner,
        *,
        sticky: bool = True,
        restart_in_bids: bool = True,
        hold_idle: float = 30.0,
        in_bids: Callable[[BidContext], BidContext] | None = None,
        profiler: Profiler | None = None,
    ) -> None:
        self._spec = spec
        self._tuner = tuner
        self._sticky = sticky
        self._hold_idle = hold_idle
        self._in_bids = in_bids
        self._profiler = profiler
        self._costs = MoveCosts(spec.checkpoint_seconds, spec.restart_seconds)
        self._bidder = AppBidder(spec, restart_in_bids=restart_in_bids, sticky=sticky)
        self._specs = {job.id: job for job in spec.jobs}
        self._all: dict[JobId, _Job] = {}
        self._jobs: dict[JobId, _Job] = {}
        self._needed: dict[JobId, JobNeed] | None = None
        """Jobs with work left, as far as nothing has changed since; None if it has."""
        self._later: tuple[tuple[JobNeed, ...], ...] = ()
        self._gpus: set[GpuId] = set()
        self._placement: Placement = {}
        self._waiting: list[JobId] = []
        """Jobs without GPUs since the last look at all of them, the longest last."""
        self._content = False
        """Whether no job could run faster or waits, so that freed GPUs are of no use."""
        self._topology: Topology | None = None
        self._over = False
        self._out: list[cmd.AgentCommand] = []
        self._enter(tuner.begin())

    @property
    def placement(self) -> Placement:
        """Where its jobs run or are about to."""
        return dict(self._placement)

    @property
    def gpus(self) -> frozenset[GpuId]:
        """The GPUs it may use."""
        return frozenset(self._gpus)

    def trains(self, job: JobId) -> bool:
        """Whether a job has something left to do in this phase."""
        known = self._jobs.get(job)
        return known is not None and not known.over and not self._over

    def target(self, job: JobId) -> float:
        """The iterations a job trains to in this phase."""
        return self._jobs[job].target

    def pace(self, job: JobId) -> float:
        """Iterations in a second of a job where it is placed, as believed; 0 if it is not."""
        known, gang = self._jobs.get(job), self._placement.get(job, ())
        if known is None or not gang or self._topology is None:
            return 0.0
        spec = known.spec
        rate = spec.slowdown.rate(self._topology.level(gang), len(gang))
        return rate / spec.serial_iteration_time

    @property
    def start_seconds(self) -> float:
        """How long a job takes from its start to its first iteration, as believed."""
        return self._costs.restart

    def handle(self, event: ev.AgentEvent) -> list[cmd.AgentCommand]:
        """Take one event; returns what is to be done, in order."""
        self._out = []
        match event:
            case ev.Asked():
                standing = self._standing()
                if self._in_bids is not None:
                    standing = self._in_bids(standing)  # Errors and lies of experiments.
                bid = self._bidder.bid(standing, event.offer, event.topology)
                wanted = self._wanted_at_home()
                if wanted:
                    led = self._led(event.topology)
                    bid = bid_at_home(bid, wanted, event.offer, event.topology, led=led)
                self._out.append(cmd.SendBid(event.offer.round, bid))
            case ev.LeasesChanged():
                self._on_leases(event)
            case ev.Progressed():
                self._on_progress(event)
            case ev.IterationsTimed():
                self._on_timed(event)
            case ev.MoveTimed():
                self._on_move(event)
            case ev.LossSeen():
                self._on_loss(event)
            case ev.JobReached():
                self._on_reached(event)
            case ev.JobLost():
                self._on_lost(event)
            case ev.JobSetAside():
                self._on_set_aside(event)
            case ev.JobBack():
                self._on_back(event)
            case ev.JobBound():
                self._on_bound(event)
            case ev.Resumed():
                self._on_resumed(event)
            case _:
                assert_never(event)
        return self._out

    def _on_leases(self, event: ev.LeasesChanged) -> None:
        self._topology = event.topology
        lost = frozenset([lease.gpu for lease in event.revoked])
        before = len(self._gpus)
        self._gpus -= lost
        self._gpus.update([lease.gpu for lease in event.granted])
        if not lost and len(self._gpus) == before:
            return
        if self._singles and not self._homes():
            self._arrange_singles(lost)
        else:
            self._arrange(lost, giving_way=True)

    def _on_progress(self, event: ev.Progressed) -> None:
        needed = self._needed
        for name, iterations in event.iterations:
            job = self._jobs.get(name)
            if job is None or job.done == iterations:
                continue
            job.done = iterations
            if needed is not None and name in needed:
                needed[name] = JobNeed(job.spec, job.work)

    def _on_reached(self, event: ev.JobReached) -> None:
        job = self._jobs.get(event.job)
        if job is None or job.over or self._over:
            return
        job.done = job.target
        job.over = True
        self._needed = None
        gang = self._placement.pop(event.job, ())
        decision = self._tuner.reached(event.job, event.metric)
        if decision is None and gang:
            if self._pass_on(gang):
                return
            if self._content and not self._waiting:
                self._release(set(gang))
                return
        self._decide(decision)

    @property
    def reads_progress(self) -> bool:
        """Whether it matters to it now how far its jobs are when one of them is done."""
        # Alike jobs take each other's place without a look at who has how far to go.
        return bool(self._later) or not (self._content or (self._waiting and self._alike))

    def _pass_on(self, gang: tuple[GpuId, ...]) -> bool:
        """Give the GPUs of a job that is done to the longest one that waits, if they suit it.

        The common case, and what `assign` would do: no other app moves while jobs wait, unless
        leases change.
        """
        while self._waiting:
            name = self._waiting[-1]
            job = self._jobs.get(name)
            if job is None or job.over or name in self._placement:
                self._waiting.pop()
                continue
            if not job.spec.min_gpus <= len(gang) <= job.spec.max_gpus or job.home is not None:
                return False
            self._waiting.pop()
            self._placement[name] = gang
            self._out.append(cmd.StartJob(name, gang, job.target))
            return True
        return False

    def _on_timed(self, event: ev.IterationsTimed) -> None:
        """Learn; what is believed from now on may make another placement worth a move."""
        if self._profiler is None or self._topology is None or self._over:
            return
        changed = False
        for window in event.windows:
            if all(0 <= gpu < self._topology.gpus for gpu in window.gpus):
                changed |= self._profiler.observe(
                    window.job,
                    self._topology.level(window.gpus),
                    len(window.gpus),
                    first=window.first,
                    iterations=window.iterations,
                    seconds=window.seconds,
                )
        if changed:
            self._rethink()
            self._arrange()

    def _on_move(self, event: ev.MoveTimed) -> None:
        """Learn what moves cost; the next bids and placements count with it."""
        costs = self._costs
        changed = event.checkpoint is not None and costs.saw_checkpoint(event.checkpoint)
        if event.restart is not None and costs.saw_restart(event.restart):
            changed = True
        if changed:
            self._bidder.believe(costs.checkpoint, costs.restart)

    def _on_loss(self, event: ev.LossSeen) -> None:
        job = self._jobs.get(event.job)
        if job is None or job.over or self._over:
            return
        outlook = self._tuner.observe(event.job, event.iteration, event.loss)
        if isinstance(outlook, IterationForecast):
            job.forecast = outlook.until
            self._needed = None
        elif isinstance(outlook, StopTraining):
            job.done = max(job.done, min(event.iteration, job.target))
            self._stop(event.job, job, outlook)

    def _stop(self, name: JobId, job: _Job, outlook: StopTraining) -> None:
        """End a job for good where it is; the arbiter learns how little work is left."""
        job.over = True
        job.target = job.done
        self._needed = None
        if self._placement.pop(name, None) is not None:
            self._out.append(cmd.StopJob(name))
        self._out.append(cmd.ReviseTargets(((name, job.target),)))
        self._decide(outlook.then)

    def _decide(self, decision: Decision | None) -> None:
        if isinstance(decision, Finished):
            self._over = True
            self._out.append(cmd.FinishApp(decision.best))
            return
        if isinstance(decision, NextPhase):
            self._enter(decision)
            self._out.append(cmd.AnnouncePhase(decision.phase, decision.targets))
        self._arrange()

    def _on_lost(self, event: ev.JobLost) -> None:
        job = self._jobs.get(event.job)
        if job is None or job.over:
            return
        job.done = event.iterations
        self._needed = None
        self._placement.pop(event.job, None)
        self._arrange()

    def _on_set_aside(self, event: ev.JobSetAside) -> None:
        job = self._jobs.get(event.job)
        if job is None or job.over:
            return
        job.done, job.aside = event.iterations, True
        self._needed = None
        self._placement.pop(event.job, None)
        self._arrange()

    def _on_back(self, event: ev.JobBack) -> None:
        job = self._jobs.get(event.job)
        if job is None or not job.aside:
            return
        job.aside = False
        self._needed = None
        self._content = False
        self._arrange()

    def _on_bound(self, event: ev.JobBound) -> None:
        job = self._all.get(event.job)
        if job is None or job.home == event.machine:
            return
        job.home = event.machine
        gang = self._placement.get(event.job, ())
        if self._topology is not None and event.machine is not None:
            machines = {self._topology.seats[gpu].machine for gpu in gang[:1]}
            if machines - {event.machine}:
                del self._placement[event.job]
        self._content = False
        self._arrange()

    def _homes(self) -> dict[JobId, int]:
        """The jobs of this phase that can go on on one machine only, and which that is."""
        found = {name: job.home for name, job in self._jobs.items() if not job.over}
        return {name: home for name, home in found.items() if home is not None}

    def _wanted_at_home(self) -> dict[int, int]:
        """By machine: GPUs that jobs could use which have a home; nothing if others wait."""
        homes = self._homes()
        if not homes:
            return {}
        wanted: dict[int, int] = {}
        for need in self._needs():
            home = homes.get(need.spec.id)
            if home is not None:
                wanted[home] = wanted.get(home, 0) + need.spec.max_gpus
            elif need.spec.id not in self._placement:
                return {}
        return wanted

    def _wide(self, topology: Topology) -> dict[JobId, int]:
        """Jobs that need more GPUs than their home has, with that home."""
        return {
            name: home
            for name, home in self._homes().items()
            if self._jobs[name].spec.min_gpus > topology.machines[home].gpus
        }

    def _led(self, topology: Topology) -> dict[int | None, int]:
        """By machine: GPUs elsewhere that jobs could use whose first process must be there."""
        elsewhere: dict[int | None, int] = {}
        for name, home in self._wide(topology).items():
            elsewhere[home] = elsewhere.get(home, 0) + self._jobs[name].spec.max_gpus - 1
        return elsewhere

    def _on_resumed(self, event: ev.Resumed) -> None:
        """Take what runs as its own doing; processes that it has no use for are told to go."""
        self._topology = event.topology
        self._gpus = set(event.gpus)
        self._placement = {}
        for name, gang in event.placement:
            job = self._jobs.get(name)
            if job is not None and job.work > 0.0 and self._gpus.issuperset(gang):
                self._placement[name] = gang
            else:
                self._out.append(cmd.StopJob(name))
        if event.waiting is None:
            self._arrange()
            return
        self._waiting, self._content = list(event.waiting), event.content

    @property
    def waiting(self) -> tuple[JobId, ...]:
        """Jobs without GPUs since the last look at all of them, the longest last."""
        return tuple(self._waiting)

    @property
    def content(self) -> bool:
        """Whether freed GPUs are of no use to it."""
        return self._content

    @property
    def targets(self) -> tuple[tuple[JobId, float], ...]:
        """The jobs of this phase, and the iterations that each trains to."""
        return tuple((name, job.target) for name, job in self._jobs.items())

    def _enter(self, phase: NextPhase) -> None:
        self._jobs = {}
        for name, target in phase.targets:
            job = self._all.setdefault(name, _Job(self._specs[name], target))
            job.target = target
            job.forecast = math.inf
            job.over = job.aside = False
            self._jobs[name] = job
        self._content = False
        self._rethink()
        widths = {(job.spec.min_gpus, job.spec.max_gpus) for job in self._jobs.values()}
        self._alike = len(widths) == 1
        self._singles = all(most == 1 for _, most in widths)

    def _rethink(self) -> None:
        """Take the jobs of this phase and of those to come as they are believed to be now."""
        now = self._tuner.phase
        self._needed = None
        for name, job in self._jobs.items():
            job.spec = self._believed(self._tuner.phases[now].job(self._specs[name]))
        self._later = tuple(
            tuple(map(self._need, self._tuner.jobs_in_phase(number)))
            for number in range(now + 1, len(self._tuner.phases))
        )

    def _believed(self, spec: JobSpec) -> JobSpec:
        return spec if self._profiler is None else self._profiler.learned(spec)

    def _need(self, info: JobInfo) -> JobNeed:
        declared = JobSpec(
            info.job, info.iteration_time, info.max_gpus, info.min_gpus, info.slowdown
        )
        spec = self._believed(declared)
        return JobNeed(spec, info.iterations_left * spec.serial_iteration_time)

    def _needs(self) -> tuple[JobNeed, ...]:
        if self._needed is None:
            works = [(name, job.spec, job.work) for name, job in self._jobs.items()]
            self._needed = {name: JobNeed(spec, work) for name, spec, work in works if work > 0.0}
        return tuple(self._needed.values())

    def _standing(self) -> BidContext:
        return BidContext(self._needs(), self._later, dict(self._placement))

    def _arrange_singles(self, lost: frozenset[GpuId]) -> None:
        """What `_arrange` comes to when every job uses one GPU: no app moves without need."""
        if self._topology is None or self._over:
            return
        placement = self._placement
        stopped = [name for name, gang in placement.items() if gang[0] in lost]
        for name in stopped:
            del placement[name]
        going_on = dict(placement)
        used = {gang[0] for gang in placement.values()}
        seats = self._topology.seats
        free = sorted([seats[gpu] for gpu in self._gpus if gpu not in used], reverse=True)
        needs = self._needs()
        self._queue(needs)
        while free and self._waiting:
            placement[self._waiting.pop()] = (free.pop().gpu,)
        if self._waiting:
            self._let_longest_run(needs, going_on)
            stopped += going_on.keys() - placement.keys()
        self._out += [cmd.StopJob(name) for name in sorted(stopped)]
        for name in sorted(placement.keys() - going_on.keys()):
            self._out.append(cmd.StartJob(name, placement[name], self._jobs[name].target))
        self._content = not self._waiting
        if free:
            self._release({seat.gpu for seat in free})

    def _let_longest_run(self, needs: tuple[JobNeed, ...], going_on: Placement) -> None:
        """As `assign` does, for jobs of one GPU."""
        if self._topology is None:
            return
        seats = self._topology.seats
        named = {need.spec.id for need in needs}
        gangs = {job: (seats[gang[0]],) for job, gang in self._placement.items() if job in named}
        running = {job: gangs[job] for job in going_on if job in gangs}
        restart = self._costs.checkpoint + self._costs.restart
        wanted = with_longest(longest_first(needs), gangs, running, restart)
        for job in gangs.keys() - wanted.keys():
            del self._placement[job]
        for job, gang in wanted.items():
            self._placement[job] = (gang[0].gpu,)
        self._queue(needs)

    def _arrange(self, lost: frozenset[GpuId] = frozenset(), *, giving_way: bool = False) -> None:
        """Bring the jobs in line with the GPUs, moving as few as is worth it.

        Running jobs give way to longer ones only when leases change: a job that was away for a
        moment has its GPUs back when one has ended.
        """
        if self._topology is None or self._over:
            return
        seats = [self._topology.seats[gpu] for gpu in sorted(self._gpus)]
        needs = self._needs()
        restart = self._costs.checkpoint + self._costs.restart
        # A GPU taken and given back in one go has a new token: the process must go anyway.
        going_on = {name: gang for name, gang in self._placement.items() if lost.isdisjoint(gang)}
        homes, sticky = self._homes(), self._sticky
        if not needs:
            wanted: Placement = {}
        elif homes:
            wide = self._wide(self._topology)
            wanted = assign_at_home(
                needs, seats, going_on, homes, wide=wide, restart=restart, sticky=sticky
            )
        else:
            wanted = assign(
                needs,
                seats,
                going_on,
                restart=restart,
                sticky=sticky,
                uneven=sticky,
                giving_way=giving_way,
            )
        for name in sorted(self._placement):
            if name not in going_on or not _same(wanted.get(name, ()), self._placement[name]):
                self._out.append(cmd.StopJob(name))
                del self._placement[name]
        for name in sorted(wanted):
            if name not in self._placement:
                job = self._jobs[name]
                self._placement[name] = wanted[name]
                self._out.append(cmd.StartJob(name, wanted[name], job.target))
        self._queue(needs)
        self._content = not self._waiting and all(map(self._at_its_best, needs))
        used = {gpu for gpus in self._placement.values() for gpu in gpus}
        self._release(self._gpus - used)

    def _queue(self, needs: tuple[JobNeed, ...]) -> None:
        """Note who waits."""
        waiting = [need for need in needs if need.spec.id not in self._placement]
        waiting.sort(key=lambda need: need.spec.id, reverse=True)
        waiting.sort(key=lambda need: need.work)
        self._waiting = [need.spec.id for need in waiting]

    def _at_its_best(self, need: JobNeed) -> bool:
        gang = self._placement.get(need.spec.id, ())
        if not gang or self._topology is None:
            return False
        rate = need.spec.slowdown.rate(self._topology.level(gang), len(gang))
        return rate >= top_rate(need.spec.slowdown, need.spec.max_gpus)

    def _release(self, spare: set[GpuId]) -> None:
        """Give back what no job uses, unless the phase is about to end and the next wants it."""
        if not spare or (self._later and self._phase_rest() < self._hold_idle):
            return
        self._gpus -= spare
        self._out.append(cmd.ReleaseGpus(tuple(sorted(spare))))

    def _phase_rest(self) -> float:
        """A lower bound on the seconds until this phase ends."""
        rest = 0.0
        for name, job in self._jobs.items():
            rest = max(rest, job.work / max(1, len(self._placement.get(name, ()))))
        return rest


class MakeAgent(Protocol):
    """Makes the agent of an app: `Agent` itself, or one that is recorded."""

    def __call__(
        self,
        spec: AppSpec,
        tuner: Tuner,
        *,
        sticky: bool = True,
        restart_in_bids: bool = True,
        in_bids: Callable[[BidContext], BidContext] | None = None,
        profiler: Profiler | None = None,
    ) -> Agent:
        """An agent that knows nothing yet."""


def _same(gang: tuple[GpuId, ...], other: tuple[GpuId, ...]) -> bool:
    """Whether these are the same GPUs; which of them is the first was settled at the start."""
    return gang == other or set(gang) == set(other)
