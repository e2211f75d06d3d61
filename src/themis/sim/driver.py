"""The simulator: a heap of events, a virtual clock, the two cores, and modelled jobs.

outcome = Simulation(topology, workload, policy("themis"), Settings(), seed=1).run()
outcome.apps["w2-0001"].end
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

from themis.agent import Agent, Profiler
from themis.agent import commands as agent_cmd
from themis.agent import events as agent_ev
from themis.arbiter import AppRecord, Arbiter, RoundRecord, Settings
from themis.arbiter import commands as cmd
from themis.arbiter import events as ev
from themis.auction.solver import Solver, solver
from themis.errors import InvariantError, ThemisError
from themis.model import AppId, GpuId, JobId, Lease, Machine, Source, Topology
from themis.policies import Policy
from themis.sim.faults import NO_FAULTS, Faults
from themis.sim.jobs import Costs, Due, Ledgered, Nodes, iteration_limits
from themis.sim.measuring import NO_LEARNING, Learning, Meter
from themis.sim.tallies import Contended, Shares
from themis.sim.workloads import SimApp, Workload
from themis.tuners import tuner_for

STUCK_BEATS = 1000
"""Beats without a process, though apps wait, after which a run is given up."""

Watch = Callable[[str], AbstractContextManager[None]]
"""Times what happens within it: a "bid" or an "auction"."""

LEAST_TO_TIDY = 1000
"""Entries of the heap up to which it is not searched for stale ones."""


class Observer(Protocol):
    """Sees every event and what the arbiter made of it."""

    def handled(self, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
        """One call of the arbiter."""


@dataclass(slots=True)
class Outcome:
    """What a run left behind."""

    apps: dict[AppId, AppRecord] = field(default_factory=dict)
    rounds: int = 0
    auctions: int = 0
    moves: int = 0
    events: int = 0
    end: float = 0.0
    spent: dict[AppId, Ledgered] = field(default_factory=dict)
    scores: tuple[tuple[float, float], ...] = ()
    """Placement scores in rising order, with the GPU-seconds that had them."""
    kept_fractions: Shares = field(default_factory=Shares)
    refused: list[str] = field(default_factory=list)
    failed_rounds: int = 0
    first_failure: str = ""
    """Why the first of them failed."""
    failures: int = 0
    """Processes that died, alone or with a machine."""
    outages: int = 0
    """Machines that failed."""
    contended: Contended = field(default_factory=Contended)
    """Whose GPUs those were while apps wanted more than there are."""


@dataclass(slots=True)
class _Seat:
    """An app in the simulation: its agent and the truth about it."""

    truth: SimApp
    agent: Agent
    informed: float = -1.0
    """When the agent last read how far its jobs are."""


class Simulation:
    """One run, one seed, one process."""

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        policy: Policy,
        settings: Settings,
        *,
        seed: int,
        costs: Costs | None = None,
        faults: Faults = NO_FAULTS,
        learning: Learning = NO_LEARNING,
        solver_name: str = "default",
        solve_with: Solver | None = None,
        observers: Sequence[Observer] = (),
        on_round: Callable[[RoundRecord], None] | None = None,
        on_segment: Callable[[Lease], None] | None = None,
        on_progress: Callable[[float, int], None] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._workload = workload
        self._policy = policy
        self._arbiter = Arbiter(topology, policy, settings, seed=seed)
        self._solver: Solver = solve_with or solver(solver_name)
        self._observers = tuple(observers)
        self._on_round = on_round
        self._on_segment = on_segment
        self._on_progress = on_progress
        self._watch: Watch = watch or (lambda _: nullcontext())
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._pushed = 0
        self._tidy_at = LEAST_TO_TIDY
        self._now = 0.0
        self._last_sign_of_life = 0.0
        self._inbox: deque[ev.Event] = deque()
        self._seats: dict[AppId, _Seat] = {}
        self._leaving: dict[GpuId, list[int]] = {}
        self._releasing: dict[GpuId, AppId] = {}
        self._sources: dict[tuple[GpuId, int], tuple[float, Source]] = {}
        """Since when a lease has had its present source."""
        self._outcome = Outcome()
        self._nodes = Nodes(
            topology=lambda: self._arbiter.world.topology,
            costs=costs or Costs(),
            seed=seed,
            at=self._at,
            started=self._job_started,
            stopped=self._job_stopped,
            reached=self._job_reached,
            failed=self._job_failed,
            faults=faults,
        )
        self._meter = Meter(learning.iteration_noise, seed) if learning.learn else None
        self._waited_for = len(workload.apps)
        for app in workload.apps:
            self._at(app.arrival, lambda now, app=app: self._arrive(app, now))  # type: ignore[misc]
        for machine in topology.machines:
            self._await_outage(machine, faults.outages(seed, machine.name))

    @property
    def arbiter(self) -> Arbiter:
        """The core under simulation; read only."""
        return self._arbiter

    def run(self) -> Outcome:
        """Run to the end of the last app.

        Raises:
            InvariantError: The run got stuck with apps unfinished, as with a policy that gives
                nothing to anybody.
        """
        while self._heap:
            at, _, action = heapq.heappop(self._heap)
            self._now = at
            self._outcome.events += 1
            action(at)
            self._work_off()
            if not self._waited_for:
                break
        if self._seats:
            raise InvariantError(
                f"the simulation stopped at {self._now:g} s with "
                f"{len(self._outcome.apps)} of {len(self._workload.apps)} apps finished"
            )
        self._outcome.rounds = self._arbiter.rounds
        self._outcome.moves = self._nodes.moves
        self._outcome.spent = self._nodes.spent
        self._outcome.scores = tuple(sorted(self._nodes.scores.items()))
        self._outcome.failures = self._nodes.failures
        return self._outcome

    # The heap and the inbox

    def _at(self, time: float, action: Callable[[float], None]) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (max(time, self._now), self._pushed, action))
        if len(self._heap) > self._tidy_at:
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Forget the ends of processes that were stopped, which may be far off and many."""
        self._heap = [
            entry for entry in self._heap if not (isinstance(entry[2], Due) and entry[2].stale)
        ]
        heapq.heapify(self._heap)
        self._tidy_at = max(LEAST_TO_TIDY, 2 * len(self._heap))

    def _post(self, event: ev.Event) -> None:
        self._inbox.append(event)

    def _work_off(self) -> None:
        """Hand events to the arbiter one by one and carry out what it wants."""
        while self._inbox:
            event = self._inbox.popleft()
            commands = self._arbiter.handle(event)
            self._outcome.events += 1
            for observer in self._observers:
                observer.handled(event, commands)
            for command in commands:
                self._carry_out(command)

    def _arrive(self, app: SimApp, now: float) -> None:
        self._last_sign_of_life = now
        self._measure(now)
        planned = app.planned
        agent = Agent(
            planned,
            tuner_for(planned, app.tuner),
            sticky=self._policy.sticky_agents,
            restart_in_bids=self._policy.restart_in_bids,
            in_bids=None if app.distortion.none else app.distortion.of,
            profiler=None if self._meter is None else Profiler(planned.jobs),
        )
        self._seats[app.spec.id] = _Seat(app, agent)
        self._nodes.add(
            app.spec.id,
            app.spec.jobs,
            iteration_limits(app.submitted),
            ready=app.ready,
            dawdle=app.dawdle,
        )
        self._post(ev.AppArrived(now, app.submitted))

    def _wake(self, now: float) -> None:
        if self._seats and not self._nodes.running:
            patience = STUCK_BEATS * self._arbiter.settings.lease
            if now - self._last_sign_of_life > patience:
                failed = ""
                if self._outcome.failed_rounds:
                    failed = (
                        f"; {self._outcome.failed_rounds} of {self._arbiter.rounds} rounds failed, "
                        f"the first with {self._outcome.first_failure}"
                    )
                raise InvariantError(
                    f"{len(self._seats)} apps wait and nothing has run since "
                    f"{self._last_sign_of_life:g} s, for {STUCK_BEATS} beats{failed}"
                )
        if self._arbiter.round_due(now):
            self._measure(now)
        self._post(ev.Woken(now))

    def _measure(self, now: float) -> None:
        """Nodes report how far their jobs are, in time for a round."""
        if self._meter is not None:
            self._teach(self._meter, now)
        if not self._policy.looks_at_progress:
            return
        for app, runs in sorted(self._nodes.running.items()):
            if app in self._seats:
                samples = tuple(
                    ev.Sample(job, *self._nodes.sample(run, now))
                    for job, run in sorted(runs.items())
                )
                self._post(ev.ProgressMeasured(now, app, samples))

    def _teach(self, meter: Meter, now: float) -> None:
        """Agents that learn hear how long the iterations of their jobs take."""
        for app, seat in sorted(self._seats.items()):
            windows = meter.windows(self._nodes.running.get(app, {}), now)
            if windows:
                self._tell(seat, agent_ev.IterationsTimed(now, windows))

    def _inform(self, seat: _Seat) -> None:
        """An agent reads its jobs' metrics before it decides anything."""
        runs = self._nodes.running.get(seat.truth.spec.id)
        if runs and seat.informed < self._now:
            seat.informed = self._now
            progress = self._nodes.progress
            iterations = tuple((job, progress(run, self._now)) for job, run in runs.items())
            self._outcome.events += 1
            seat.agent.handle(agent_ev.Progressed(self._now, iterations))

    # The arbiter's commands

    def _carry_out(self, command: cmd.Command) -> None:
        match command:
            case cmd.Ask(app=app, offer=offer):
                topology = self._arbiter.world.topology
                with self._watch("bid"):
                    self._tell(self._seats[app], agent_ev.Asked(self._now, offer, topology))
            case cmd.Solve(round=number, problem=problem, work=work):
                self._solve(number, problem, work)
            case cmd.Assign():
                self._assign(command)
            case cmd.End(leases=leases, at=at):
                for lease in leases:
                    self._end_segment(lease, at)
            case cmd.WakeMe(at=at):
                self._at(at, self._wake)
            case cmd.Refuse(who=who, reason=reason):
                self._refused(who, reason)
            case cmd.Report(record=record):
                self._report(record)
            case cmd.Close(record=record):
                self._close(record)
            case _:
                assert_never(command)

    def _solve(self, number: int, problem: object, work: int) -> None:
        try:
            with self._watch("auction"):
                solution = self._solver.solve(problem, work)  # type: ignore[arg-type]
        except ThemisError as error:
            self._post(ev.SolveFailed(self._now, number, str(error)))
        else:
            self._post(ev.Solved(self._now, number, solution))

    def _assign(self, command: cmd.Assign) -> None:
        # Before the agent hears of it: a process that is still starting leaves at once, and
        # whoever waits for its slot begins at once.
        for lease in command.revoked:
            self._leaving.setdefault(lease.gpu, []).append(lease.token)
            self._releasing.pop(lease.gpu, None)
        for lease in command.granted:
            self._sources[lease.gpu, lease.token] = (lease.start, lease.source)
        for lease in command.renewed:
            self._end_segment(lease, self._now, lease.source)
        for lease in command.revoked:
            if self._arbiter.ledger.lease(lease.gpu) != lease:
                self._sources.pop((lease.gpu, lease.token), None)  # It never began.
        seat = self._seats.get(command.app)
        # Renewals alone change nothing for an agent: the nodes know the new end.
        if seat is not None and (command.granted or command.revoked):
            change = agent_ev.LeasesChanged(
                self._now,
                self._arbiter.world.topology,
                command.granted,
                command.renewed,
                command.revoked,
            )
            self._tell(seat, change)
        for lease in command.revoked:
            if self._nodes.occupant(lease.gpu) != command.app:
                self._report_empty(lease.gpu, lease.token)

    def _end_segment(self, lease: Lease, at: float, source: Source | None = None) -> None:
        """A lease is over, or goes on with another source: tell of the stretch up to now."""
        since, had = self._sources.pop((lease.gpu, lease.token), (lease.start, lease.source))
        if had != source:
            start = max(since, lease.start)
            self._outcome.contended.held(start, at, had)
            if self._on_segment is not None:
                self._on_segment(Lease(lease.gpu, lease.app, lease.token, start, at, had))
        if source is not None:
            self._sources[lease.gpu, lease.token] = (since if had == source else at, source)

    def _report_empty(self, gpu: GpuId, only: int | None = None) -> None:
        """Report that nothing runs under the tokens taken away on a GPU, or under one of them."""
        tokens = self._leaving.pop(gpu, [])
        gone = [token for token in tokens if only in {None, token}]
        if len(gone) < len(tokens):
            self._leaving[gpu] = [token for token in tokens if token not in gone]
        if gone:
            self._post(ev.GpusVacated(self._now, tuple((gpu, token) for token in gone)))

    def _refused(self, who: str, reason: str) -> None:
        self._outcome.refused.append(reason)
        seat = self._seats.get(AppId(who))
        if seat is not None and who not in self._arbiter.world.apps:
            del self._seats[AppId(who)]
            self._waited_for -= 1

    def _report(self, record: RoundRecord) -> None:
        wanted = sum(line.demand for line in record.apps)
        self._outcome.contended.look(self._now, wanted > self._arbiter.world.topology.gpus)
        if record.failed:
            self._outcome.failed_rounds += 1
            self._outcome.first_failure = self._outcome.first_failure or record.failed
        if record.notes.certificate is not None:
            self._outcome.auctions += 1
            self._outcome.kept_fractions.extend(record.notes.kept_fractions.values())
        if self._on_round is not None:
            self._on_round(record)
        if self._on_progress is not None:
            self._on_progress(self._now, len(self._outcome.apps))

    def _close(self, record: AppRecord) -> None:
        self._outcome.apps[record.app] = record
        self._outcome.end = max(self._outcome.end, record.end)
        seat = self._seats.pop(record.app)
        self._waited_for -= 1
        self._nodes.remove(record.app, seat.truth.spec.jobs)
        if self._on_progress is not None:
            self._on_progress(self._now, len(self._outcome.apps))

    # The agents' commands

    def _tell(self, seat: _Seat, event: agent_ev.AgentEvent) -> None:
        app = seat.truth.spec.id
        if not isinstance(event, agent_ev.JobReached) or seat.agent.reads_progress:
            self._inform(seat)
        self._outcome.events += 1
        for command in seat.agent.handle(event):
            match command:
                case agent_cmd.Answer(round=number, bid=bid):
                    if seat.truth.claim is not None:
                        bid = replace(bid, claim=seat.truth.claim)
                    self._post(ev.BidReceived(self._now, app, number, bid))
                case agent_cmd.StartJob(job=job, gpus=gpus, until=until):
                    self._nodes.start(app, job, gpus, until, self._now)
                case agent_cmd.StopJob(job=job):
                    self._nodes.stop(app, job, self._now)
                case agent_cmd.ReleaseGpus(gpus=gpus):
                    self._release(app, gpus)
                case agent_cmd.AnnouncePhase(phase=phase, targets=targets):
                    self._post(ev.PhaseStarted(self._now, app, phase, targets))
                case agent_cmd.ReviseTargets(targets=targets):
                    self._post(ev.TargetsRevised(self._now, app, targets))
                case agent_cmd.FinishApp():
                    self._post(ev.AppEnded(self._now, app))
                case _:
                    assert_never(command)

    def _release(self, app: AppId, gpus: tuple[GpuId, ...]) -> None:
        empty = []
        for gpu in gpus:
            # Its own process must go first; a slot that it was only promised is not waited for.
            if self._nodes.occupant(gpu) == app:
                self._releasing[gpu] = app
            else:
                empty.append(gpu)
        if empty:
            self._post(ev.GpusReleased(self._now, app, tuple(empty)))

    # The nodes' reports

    def _job_started(self, now: float, app: AppId, job: JobId, gpus: tuple[GpuId, ...]) -> None:
        self._last_sign_of_life = now
        self._post(ev.JobStarted(now, app, job, gpus))

    def _job_stopped(self, now: float, app: AppId, job: JobId, gpus: tuple[GpuId, ...]) -> None:
        self._last_sign_of_life = now
        self._post(ev.JobStopped(now, app, job, gpus))
        released = []
        for gpu in gpus:
            self._report_empty(gpu)
            if self._releasing.get(gpu) == app:
                del self._releasing[gpu]
                released.append(gpu)
        if released:
            self._post(ev.GpusReleased(now, app, tuple(released)))

    def _job_reached(self, now: float, app: AppId, job: JobId) -> None:
        seat = self._seats.get(app)
        if seat is None:
            return  # It ended while this process wrote its last checkpoint.
        done, seconds = self._nodes.last_sample(app, job)
        self._post(ev.ProgressMeasured(now, app, (ev.Sample(job, done, seconds),)))
        target = seat.agent.target(job)
        if seat.truth.adds_work and done < target:
            # The node has stopped it at its limit: it declares the rest, and starts again.
            self._nodes.raise_limit(app, job, target)
            self._post(ev.WorkAdded(now, app, ((job, target),)))
            self._tell(seat, agent_ev.JobLost(now, job, done))
            return
        if seat.truth.declared is not None:
            # It may have declared more: that it has ended is for all to see.
            self._post(ev.TargetsRevised(now, app, ((job, done),)))
        index = next(i for i, spec in enumerate(seat.truth.spec.jobs) if spec.id == job)
        self._tell(seat, agent_ev.JobReached(now, job, seat.truth.qualities[index]))

    # What goes wrong

    def _job_failed(self, now: float, app: AppId, job: JobId) -> None:
        done, seconds = self._nodes.last_sample(app, job)
        self._post(ev.ProgressMeasured(now, app, (ev.Sample(job, done, seconds),)))
        seat = self._seats.get(app)
        if seat is not None:
            self._tell(seat, agent_ev.JobLost(now, job, done))

    def _await_outage(self, machine: Machine, outages: Iterator[tuple[float, float]]) -> None:
        outage = next(outages, None)
        if outage is not None:
            fails, back = outage
            self._at(fails, lambda now: self._machine_fails(machine, back, outages, now))

    def _machine_fails(
        self, machine: Machine, back: float, outages: Iterator[tuple[float, float]], now: float
    ) -> None:
        self._outcome.outages += 1
        topology = self._arbiter.world.topology
        gpus = topology.gpus_of[topology.number_of[machine.name]]
        for (app, job), ran in self._nodes.lose(gpus, now):
            done = self._nodes.trainings[app, job].done
            if ran:
                # One that was leaving may have been stopped for good: then its work is done.
                sample = ev.Sample(job, *self._nodes.last_sample(app, job))
                self._post(ev.ProgressMeasured(now, app, (sample,)))
            if app in self._seats:
                # That its GPUs are gone it hears from the arbiter, and then places its jobs anew:
                # told that the job was lost, it would start it on the same GPUs first.
                event = agent_ev.Progressed(now, ((job, done),))
                self._seats[app].agent.handle(event)
        self._post(ev.MachineLeft(now, machine.name))
        self._at(back, lambda at: self._machine_returns(machine, gpus, outages, at))

    def _machine_returns(
        self,
        machine: Machine,
        gpus: Sequence[GpuId],
        outages: Iterator[tuple[float, float]],
        now: float,
    ) -> None:
        self._post(ev.MachineJoined(now, machine))
        self._nodes.restore(gpus, now)
        self._await_outage(machine, outages)
