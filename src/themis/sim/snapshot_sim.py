"""A simulation that can be written down in the middle, and begun there.

    simulation = Fork(topology, workload, policy("themis"), Settings(), seed=1)
    simulation.advance(3600.0)
    snapshot = simulation.snapshot("themis")
    Fork.of(snapshot, truths, coming, policy("themis"), seed=1).run()     # as if nothing had been

A snapshot of a live cluster does not say when processes end what they are doing: that is drawn.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from themis.core.agent import Agent
from themis.core.agent import commands as agent_cmd
from themis.core.agent import events as agent_ev
from themis.core.arbiter import events as ev
from themis.core.arbiter.saved_state import arbiter_from, parts
from themis.core.arbiter.state_parts import GpuPart, StandingPart, WorkPart
from themis.core.model import AppId, AppSpec, GpuId, JobId, Lease
from themis.core.policies import Policy
from themis.core.tuners import AppProgress, Known, Stepwise
from themis.errors import ConfigError, RefusedError
from themis.recording.cluster_snapshots import (
    AppSnapshot,
    JobSnapshot,
    PendingEvent,
    ProcessSnapshot,
    ProcessStage,
    Snapshot,
)
from themis.sim.direct_agents import SimulatedApp
from themis.sim.driver import Observer, Simulation
from themis.sim.faults import NO_FAULTS
from themis.sim.modelled_jobs import JobCosts, ModelledProcess, ProcessDue, ProcessState, Training
from themis.sim.workloads import SimApp, Workload

_STAGES = {
    ProcessState.WAITING: ProcessStage.WAITING,
    ProcessState.STARTING: ProcessStage.STARTING,
    ProcessState.RUNNING: ProcessStage.RUNNING,
    ProcessState.CHECKPOINTING: ProcessStage.SAVING,
}
_STATES = {stage: state for state, stage in _STAGES.items()}
_WORST = 1e300
"""The metric of a trial that has none."""


class Fork(Simulation):
    """One run, which need not begin with an empty cluster."""

    # Writing down

    def snapshot(self, policy: str, options: Mapping[str, Any] | None = None) -> Snapshot:
        """All that decides what comes, but for apps that have not arrived.

        Args:
            policy: The name of the policy that it has.
            options: Of the policy.

        Raises:
            ConfigError: It has faults, or agents that learn: what those know is not written down.
        """
        if self._meter is not None or self._nodes.faults != NO_FAULTS:
            raise ConfigError("snapshot", "a run with faults or learning agents", "one without")
        return Snapshot(
            at=self._now,
            policy=policy,
            seed=self._nodes.seed,
            state=parts(self._arbiter),
            apps=tuple(self._picture(app, each) for app, each in sorted(self._agents.apps.items())),
            options=dict(options or {}),
            agenda=tuple(self._entries()),
        )

    def _picture(self, app: AppId, known: SimulatedApp) -> AppSnapshot:
        agent = known.agent
        quality = {job.spec.id: job.quality for job in known.truth.jobs}
        return AppSnapshot(
            app,
            known.truth.tuner,
            agent.targets,
            tuple((job, quality[job]) for job, _ in agent.targets if not agent.trains(job)),
            tuple(sorted(agent.gpus)),
            tuple(agent.placement.items()),
            tuple(_job(self._nodes.trainings[app, job.id]) for job in known.truth.spec.jobs),
            agent.waiting,
            agent.content,
        )

    def look(self, at: float) -> None:
        """Let the arbiter know how far all jobs are, as nodes would before a round.

        Args:
            at: Now: a time up to which it has advanced.
        """
        self._agenda.now = max(self._now, at)
        self._sample(self._now)
        self._work_off()

    def _entries(self) -> Iterable[PendingEvent]:
        for at, action in self._agenda.coming():
            if action == self._wake:
                yield PendingEvent(at)
            elif isinstance(action, ProcessDue):
                run, training = action.run, action.run.training
                known = run is training.run or run is training.waiting
                if known and run.state is action.expects:
                    later = run is training.waiting
                    yield PendingEvent(at, training.app, training.spec.id, successor=later)

    # Beginning in the middle

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        truths: Mapping[AppId, SimApp],
        coming: Sequence[SimApp],
        policy: Policy,
        *,
        seed: int,
        arbiter_seed: int | None = None,
        costs: JobCosts | None = None,
        costs_of: Callable[[AppSpec], JobCosts] | None = None,
        observers: Sequence[Observer] = (),
        solver_name: str = "default",
        first: Sequence[ev.Event] = (),
        on_progress: Callable[[float, int], None] | None = None,
    ) -> "Fork":
        """A run that begins where a snapshot was taken.

        Args:
            snapshot: Where.
            truths: Of its apps that are not over; `arrival` is not looked at.
            coming: Apps that arrive later, in their order.
            policy: The one that the snapshot names, or another to go on with.
            seed: What is not known is drawn from it.
            arbiter_seed: What the policy draws from; the snapshot's own if none is given.
            costs: Of starting and saving.
            costs_of: The same for each app by itself.
            observers: See every event.
            solver_name: Who solves auctions.
            first: Events that happen at once, such as machines that join.
            on_progress: Told the time and how many apps have ended, now and then.

        Raises:
            RefusedError: The snapshot contradicts itself.
        """
        own = snapshot.seed if arbiter_seed is None else arbiter_seed
        arbiter = arbiter_from(snapshot.state, policy, seed=own)
        workload = Workload("coming", tuple(coming), 1.0, 0.0, seed, "snapshot", 1)
        fork = cls(
            arbiter.world.topology,
            workload,
            policy,
            arbiter.settings,
            seed=seed,
            costs=costs,
            observers=observers,
            solver_name=solver_name,
            on_progress=on_progress,
            arbiter=arbiter,
            costs_of=costs_of,
        )
        fork._begin(snapshot, truths, first)
        return fork

    def _begin(
        self, snapshot: Snapshot, truths: Mapping[AppId, SimApp], first: Sequence[ev.Event]
    ) -> None:
        now = self._agenda.now = self._last_sign_of_life = snapshot.at
        _check_gpus(snapshot, self._arbiter.world.topology.gpus)
        for picture in snapshot.apps:
            self._place(picture, snapshot, truths.get(picture.app))
        runs = self._all_runs()
        if snapshot.agenda is None:
            for run in runs:
                self._nodes.go_on(run, None, now)
        else:
            self._expect(snapshot.agenda)
        self._hand_over(snapshot, now)
        for picture in snapshot.apps:
            if picture.app in self._agents.apps:
                self._resume_agent(picture, now)
        for event in first:
            self._post(event)
        if snapshot.agenda is None:
            # What was asked is asked again, and it says anew when it wants to be woken.
            self._post(ev.ServiceRestarted(now))
        self._work_off()

    def _place(self, picture: AppSnapshot, snapshot: Snapshot, truth: SimApp | None) -> None:
        """Have the jobs of an app, its processes, and its agent if it is not over."""
        app = picture.app
        standing = snapshot.state[f"standing/{app}"]
        assert isinstance(standing, StandingPart)
        spec = snapshot.specs[app].spec if truth is None else truth.spec
        known = {job.job: job for job in picture.jobs}
        limits = {job.id: _limit(known.get(job.id)) for job in spec.jobs}
        ready, dawdle = (0.0, 0.0) if truth is None else (truth.ready, truth.dawdle)
        costs = self._costs_of(spec)
        self._nodes.add(app, spec.jobs, limits, ready=ready, dawdle=dawdle, costs=costs)
        for job in picture.jobs:
            training = self._nodes.trainings[app, job.job]
            training.done, training.starts = job.done, job.starts
            training.unreported = job.unreported
            process = _run(training, job.process)
            self._nodes.resume(training, process, _run(training, job.successor))
        if truth is None or standing.outcome:
            return
        work = snapshot.state[f"work/{app}"]
        assert isinstance(work, WorkPart)
        tuner = Stepwise().enter(truth.planned, {})
        tuner.resume(_past(picture, work))
        self._agents.add(
            truth, self._policy, learns=False, make_agent=self._make_agent, tuner=tuner
        )
        if not standing.suspended:
            self._waited_for.add(app)

    def _all_runs(self) -> list[ModelledProcess]:
        runs = [
            run
            for training in self._nodes.trainings.values()
            for run in (training.run, training.waiting)
            if run is not None
        ]
        return sorted(runs, key=lambda run: run.number)

    def _expect(self, agenda: Iterable[PendingEvent]) -> None:
        for entry in agenda:
            if entry.app is None or entry.job is None:
                self._agenda.at(entry.at, self._wake)
                continue
            training = self._nodes.trainings[entry.app, entry.job]
            run = training.waiting if entry.successor else training.run
            if run is not None:
                self._nodes.go_on(run, entry.at, self._now)

    def _hand_over(self, snapshot: Snapshot, now: float) -> None:
        leaving: list[Lease] = []
        releasing: dict[GpuId, AppId] = {}
        usable = {(picture.app, gpu) for picture in snapshot.apps for gpu in picture.gpus}
        for part in snapshot.state.values():
            if not isinstance(part, GpuPart) or part.lease is None:
                continue
            lease = part.lease
            if part.leaving:
                leaving.append(lease)
            elif (lease.app, lease.gpu) not in usable and lease.app in self._agents.apps:
                releasing[lease.gpu] = lease.app
        self._handover.resume(now, leaving, releasing)

    def _resume_agent(self, picture: AppSnapshot, now: float) -> None:
        """Let an agent know what was before it."""
        app, nodes = self._agents.apps[picture.app], self._nodes
        agent: Agent = app.agent
        for job, metric in picture.reached:
            # What follows from it was done then, unless it was the last word.
            worst = _WORST if metric is None else metric
            for command in agent.handle(agent_ev.JobReached(now, job, worst)):
                self._announce(picture.app, command)
        done: list[tuple[JobId, float]] = []
        for each in picture.jobs:
            training = nodes.trainings[picture.app, each.job]
            at = training.done if training.run is None else nodes.progress(training.run, now)
            done.append((each.job, at))
        agent.handle(agent_ev.Progressed(now, tuple(done)))
        topology = self._arbiter.world.topology
        self._agents.tell(
            app,
            agent_ev.Resumed(
                now, topology, picture.gpus, picture.placement, picture.waiting, picture.content
            ),
        )

    def _announce(self, app: AppId, command: agent_cmd.AgentCommand) -> None:
        """Tell the arbiter of a phase that it has not heard of yet, or of the end."""
        if isinstance(command, agent_cmd.AnnouncePhase):
            self._post(ev.PhaseStarted(self._now, app, command.phase, command.targets))
        elif isinstance(command, agent_cmd.FinishApp):
            self._post(ev.AppEnded(self._now, app))


def _job(training: Training) -> JobSnapshot:
    return JobSnapshot(
        training.spec.id,
        training.done,
        training.starts,
        None if math.isinf(training.limit) else training.limit,
        training.unreported,
        _process(training.run),
        _process(training.waiting),
    )


def _process(run: ModelledProcess | None) -> ProcessSnapshot | None:
    if run is None:
        return None
    return ProcessSnapshot(
        run.gpus, run.until, _STAGES[run.state], run.since, run.sampled, run.number, run.begins
    )


def _run(training: Training, process: ProcessSnapshot | None) -> ModelledProcess | None:
    if process is None:
        return None
    return ModelledProcess(
        training,
        process.gpus,
        process.until,
        _STATES[process.stage],
        since=process.since,
        sampled=process.sampled,
        number=process.number,
        begins=process.begins,
    )


def _check_gpus(snapshot: Snapshot, count: int) -> None:
    """Refuse GPUs that are not there, and processes without any or in each other's place."""
    taken: set[GpuId] = set()
    for picture in snapshot.apps:
        named = {*picture.gpus, *(gpu for _, gang in picture.placement for gpu in gang)}
        for process in (each for job in picture.jobs for each in (job.process, job.successor)):
            if process is None:
                continue
            named |= set(process.gpus)
            seated = set() if process.stage is ProcessStage.WAITING else set(process.gpus)
            if not process.gpus or seated & taken:
                raise RefusedError(picture.app, "each process has GPUs that no other one is on")
            taken |= seated
        if not all(0 <= gpu < count for gpu in named):
            raise RefusedError(picture.app, "it has GPUs that no machine has")


def _limit(job: JobSnapshot | None) -> float:
    return math.inf if job is None or job.limit is None else job.limit


def _past(picture: AppSnapshot, work: WorkPart) -> AppProgress:
    """Where an app is, for a tuner that was not there."""
    began = {job.job: job.started_at for job in work.jobs}
    known: dict[JobId, Known] = {
        job: Known(job, (began[job],) if began.get(job) else ()) for job, _ in picture.targets
    }
    for job, iterations in work.retired:
        known.setdefault(job, Known(job, (iterations,)))
    return AppProgress(work.phase, picture.targets, tuple(known.values()))
