"""The simulator: events at their time, a virtual clock, the two cores, and modelled jobs.

outcome = Simulation(topology, workload, policy("themis"), Settings(), seed=1).run()
outcome.apps["w2-0001"].end
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Protocol, assert_never

from themis.core.agent import Agent, MakeAgent
from themis.core.agent import events as agent_ev
from themis.core.arbiter import AppRecord, Arbiter, RoundRecord, Settings
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.auction.solvers.registry import Solver, solver
from themis.core.model import AppId, AppSpec, GpuId, JobId, Lease, Topology
from themis.core.policies import Policy
from themis.errors import InvariantError, ThemisError
from themis.sim.direct_agents import DirectAgents, Watch
from themis.sim.event_heap import Agenda
from themis.sim.faults import NO_FAULTS, Faults
from themis.sim.iteration_measuring import NO_LEARNING, Learning, Meter
from themis.sim.machine_outages import Outages
from themis.sim.modelled_jobs import JobCosts, Nodes, iteration_limits
from themis.sim.outcome import SimulationOutcome
from themis.sim.slot_handover import SlotHandover
from themis.sim.workloads import SimApp, Workload

STUCK_BEATS = 1000
"""Beats without a process, though apps wait, after which a run is given up."""


class StuckError(InvariantError):
    """A run in which nobody who waits will ever be served."""


class Observer(Protocol):
    """Sees every event and what the arbiter made of it."""

    def handled(self, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
        """One call of the arbiter."""


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
        costs: JobCosts | None = None,
        faults: Faults = NO_FAULTS,
        learning: Learning = NO_LEARNING,
        solver_name: str = "default",
        solve_with: Solver | None = None,
        observers: Sequence[Observer] = (),
        on_round: Callable[[RoundRecord], None] | None = None,
        on_segment: Callable[[Lease], None] | None = None,
        on_progress: Callable[[float, int], None] | None = None,
        watch: Watch | None = None,
        make_agent: MakeAgent = Agent,
        arbiter: Arbiter | None = None,
        costs_of: Callable[[AppSpec], JobCosts] | None = None,
    ) -> None:
        self._make_agent = make_agent
        self._costs_of: Callable[[AppSpec], JobCosts | None] = costs_of or (lambda _: None)
        self._workload = workload
        self._policy = policy
        recorded = bool(observers) or on_round is not None
        self._arbiter = arbiter or Arbiter(
            topology, policy, settings, seed=seed, tells_rho=recorded
        )
        self._solver: Solver = solve_with or solver(solver_name)
        self._observers = tuple(observers)
        self._on_round = on_round
        self._on_progress = on_progress
        self._watch: Watch = watch or (lambda _: nullcontext())
        self._agenda = Agenda()
        self._last_sign_of_life = 0.0
        self._inbox: deque[ev.Event] = deque()
        self._outcome = SimulationOutcome()
        self._nodes = Nodes(
            topology=lambda: self._arbiter.world.topology,
            costs=costs or JobCosts(),
            seed=seed,
            at=self._agenda.at,
            started=self._job_started,
            stopped=self._job_stopped,
            reached=self._job_reached,
            failed=self._job_failed,
            faults=faults,
        )
        self._handover = SlotHandover(
            post=self._post,
            occupant=self._nodes.occupant,
            contended=self._outcome.contended,
            on_segment=on_segment,
        )
        self._agents = DirectAgents(
            self._nodes,
            self._handover,
            topology=lambda: self._arbiter.world.topology,
            post=self._post,
            now=lambda: self._agenda.now,
            watch=self._watch,
        )
        self._outages = Outages(
            self._agenda,
            self._nodes,
            self._agents.apps,
            topology=lambda: self._arbiter.world.topology,
            post=self._post,
        )
        self._meter = Meter(learning.iteration_noise, seed) if learning.learn else None
        self._waited_for = {app.spec.id for app in workload.apps}
        for app in workload.apps:
            self._agenda.at(app.arrival, partial(self._arrive, app))
        self._outages.expect(faults, seed)

    @property
    def arbiter(self) -> Arbiter:
        """The core under simulation; read only."""
        return self._arbiter

    def run(self) -> SimulationOutcome:
        """Run to the end of the last app.

        Raises:
            StuckError: The run got stuck with apps unfinished, as with a policy that gives
                nothing to anybody.
        """
        self.advance()
        if self._agents.apps:
            raise StuckError(
                f"the simulation stopped at {self._now:g} s with "
                f"{len(self._outcome.apps)} of {len(self._workload.apps)} apps finished"
            )
        self._outcome.events += self._agents.events
        self._outcome.rounds = self._arbiter.rounds
        self._outcome.moves = self._nodes.moves
        self._outcome.spent = self._nodes.spent
        self._outcome.scores = tuple(sorted(self._nodes.scores.items()))
        self._outcome.failures = self._nodes.failures
        self._outcome.outages = self._outages.count
        return self._outcome

    def advance(self, until: float = math.inf) -> float | None:
        """Go on up to a time, or to the end of the last app; when there is more to do, if ever."""
        while (first := self._agenda.first) is not None and first <= until:
            action = self._agenda.next()
            assert action is not None
            self._outcome.events += 1
            action(self._now)
            self._work_off()
            if not self._waited_for:
                return None
        return first

    @property
    def outcome(self) -> SimulationOutcome:
        """What there is so far; read only."""
        return self._outcome

    @property
    def _now(self) -> float:
        return self._agenda.now

    # The inbox

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
        learns = self._meter is not None
        self._agents.add(app, self._policy, learns=learns, make_agent=self._make_agent)
        self._nodes.add(
            app.spec.id,
            app.spec.jobs,
            iteration_limits(app.submitted),
            ready=app.ready,
            dawdle=app.dawdle,
            costs=self._costs_of(app.spec),
        )
        self._post(ev.AppArrived(now, app.submitted))

    def _wake(self, now: float) -> None:
        if not self._nodes.running and not self._waited_for.isdisjoint(self._agents.apps):
            patience = STUCK_BEATS * self._arbiter.settings.lease
            if now - self._last_sign_of_life > patience:
                raise StuckError(
                    f"{len(self._agents.apps)} apps wait and nothing has run since "
                    f"{self._last_sign_of_life:g} s, for {STUCK_BEATS} beats"
                    f"{self._outcome.failed_of(self._arbiter.rounds)}"
                )
        if self._arbiter.round_due(now):
            self._measure(now)
        self._post(ev.Woken(now))

    def _measure(self, now: float) -> None:
        """Nodes report how far their jobs are, in time for a round."""
        if self._meter is not None:
            self._agents.tell_timings(self._meter, now)
        if self._policy.looks_at_progress:
            self._sample(now)

    def _sample(self, now: float) -> None:
        at = self._arbiter.before_alarm(now)
        self._inbox.extend(self._agents.samples(now, at))

    # The arbiter's commands

    def _carry_out(self, command: cmd.Command) -> None:
        match command:
            case cmd.Assign():  # The most frequent ones first: each case takes its time.
                self._assign(command)
            case cmd.End(leases=leases, at=at):
                for lease in leases:
                    self._handover.end_segment(lease, at)
            case cmd.WakeMe(at=at):
                self._agenda.at(at, self._wake)
            case cmd.Ask():
                self._agents.send(command)
            case cmd.Solve(round=number, problem=problem, work=work):
                self._solve(number, problem, work)
            case cmd.Refuse(who=who, reason=reason):
                self._refused(who, reason)
            case cmd.RecordRound(record=record):
                self._report(record)
            case cmd.RecordApp(record=record):
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
        self._handover.begin(self._now, command.granted, command.renewed, command.revoked)
        for lease in command.revoked:
            if self._arbiter.ledger.lease(lease.gpu) != lease:
                self._handover.never_began(lease)
        self._agents.send(command)
        for lease in command.revoked:
            if self._nodes.occupant(lease.gpu) != command.app:
                self._handover.report_empty(self._now, lease.gpu, lease.token)

    def _refused(self, who: str, reason: str) -> None:
        self._outcome.refused.append(reason)
        if who in self._agents.apps and who not in self._arbiter.world.apps:
            del self._agents.apps[AppId(who)]
            self._waited_for.discard(AppId(who))

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
        self._waited_for.discard(record.app)
        app = self._agents.apps.pop(record.app, None)
        if app is not None:  # None if it had ended before a run that began in the middle.
            self._nodes.remove(record.app, app.truth.spec.jobs)
        if self._on_progress is not None:
            self._on_progress(self._now, len(self._outcome.apps))

    # The nodes' reports

    def _job_started(self, now: float, app: AppId, job: JobId, gpus: tuple[GpuId, ...]) -> None:
        self._last_sign_of_life = now
        self._post(ev.JobStarted(now, app, job, gpus))

    def _job_stopped(self, now: float, app: AppId, job: JobId, gpus: tuple[GpuId, ...]) -> None:
        self._last_sign_of_life = now
        self._post(ev.JobStopped(now, app, job, gpus))
        self._handover.left(now, app, gpus)

    def _job_reached(self, now: float, app: AppId, job: JobId) -> None:
        known = self._agents.apps.get(app)
        if known is None:
            return  # It ended while this process wrote its last checkpoint.
        done, seconds = self._nodes.last_sample(app, job)
        self._post(ev.ProgressMeasured(now, app, (ev.ProgressSample(job, done, seconds),)))
        target = known.agent.target(job)
        if known.truth.adds_work and done < target:
            # The node has stopped it at its limit: it declares the rest, and starts again.
            self._nodes.raise_limit(app, job, target)
            self._post(ev.WorkAdded(now, app, ((job, target),)))
            self._agents.tell(known, agent_ev.JobLost(now, job, done))
            return
        if known.truth.declared is not None:
            # It may have declared more: that it has ended is for all to see.
            self._post(ev.TargetsRevised(now, app, ((job, done),)))
        index = next(i for i, spec in enumerate(known.truth.spec.jobs) if spec.id == job)
        self._agents.tell(known, agent_ev.JobReached(now, job, known.truth.qualities[index]))

    # What goes wrong

    def _job_failed(self, now: float, app: AppId, job: JobId) -> None:
        done, seconds = self._nodes.last_sample(app, job)
        self._post(ev.ProgressMeasured(now, app, (ev.ProgressSample(job, done, seconds),)))
        known = self._agents.apps.get(app)
        if known is not None:
            self._agents.tell(known, agent_ev.JobLost(now, job, done))
