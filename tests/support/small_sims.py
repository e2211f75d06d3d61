"""Small simulations made by hand, and an auditor that watches what really runs in them.

    workload = workload_of(sim_app("a", work=3600.0, max_gpus=4), sim_app("b", arrival=60.0))
    auditor = Auditor()
    outcome = simulate(topology, workload, "fifo", observers=[auditor])

The auditor reads the same events as the arbiter and fails the moment two processes share a GPU.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from themis.core.arbiter import RoundRecord, Settings, events
from themis.core.arbiter.commands import Assign, Command, End, RecordApp
from themis.core.model import (
    NO_SLOWDOWN,
    AppId,
    AppSpec,
    GpuId,
    JobId,
    JobSpec,
    Lease,
    OwnerId,
    Phase,
    Slowdown,
    Topology,
)
from themis.core.policies import Policy, policy
from themis.errors import InvariantError
from themis.recording.cluster_snapshots import Snapshot
from themis.sim.driver import Observer, Simulation
from themis.sim.iteration_measuring import NO_LEARNING, Learning
from themis.sim.modelled_jobs import NO_COSTS, JobCosts
from themis.sim.outcome import SimulationOutcome
from themis.sim.snapshot_sim import Fork
from themis.sim.workloads import SimApp, Workload

NO_LEAD = Settings(bid_deadline=0.001, solve_budget=0.001, grace=0.0, heartbeat=0.0)
"""Settings under which rounds open a moment before their beat, as long as answers take no time."""


def sim_app(
    name: str,
    *,
    arrival: float = 0.0,
    work: float = 600.0,
    jobs: int = 1,
    max_gpus: int = 1,
    min_gpus: int = 1,
    weight: float = 1.0,
    phases: Sequence[Phase] = (),
    qualities: Sequence[float] = (),
    slowdown: Slowdown = NO_SLOWDOWN,
    costs: tuple[float, float] = (0.0, 0.0),
) -> SimApp:
    """An app of equal jobs with iterations of one second; the first job is the best one.

    Args:
        name: Its name, and its owner's.
        arrival: When it arrives.
        work: Serial seconds of each job, if there are no `phases`.
        jobs: How many jobs it has.
        max_gpus: The most GPUs of a job.
        min_gpus: The fewest GPUs of a job.
        weight: Its weight.
        phases: What it trains, phase by phase; without them one phase of `work`.
        qualities: Of its jobs; lower is better.
        slowdown: Of its jobs.
        costs: What it believes checkpoint and restart to take.
    """
    specs = tuple(
        JobSpec(JobId(f"j{number}"), 1.0, max_gpus, min_gpus, slowdown) for number in range(jobs)
    )
    spec = AppSpec(
        AppId(name),
        OwnerId(name),
        specs,
        tuple(phases) or (Phase(jobs, round(work)),),
        weight,
        checkpoint_seconds=costs[0],
        restart_seconds=costs[1],
    )
    return SimApp(spec, arrival, "by-hand", tuple(qualities) or tuple(map(float, range(jobs))))


def workload_of(*apps: SimApp) -> Workload:
    """A workload of these apps, in order of arrival."""
    ordered = tuple(sorted(apps, key=lambda app: (app.arrival, app.spec.id)))
    return Workload("by-hand", ordered, 1.0, 1.0, 0, "by-hand", 1)


def simulate(
    topology: Topology,
    workload: Workload,
    rule: str | Policy,
    settings: Settings | None = None,
    *,
    seed: int = 1,
    costs: JobCosts = NO_COSTS,
    learning: Learning = NO_LEARNING,
    options: dict[str, Any] | None = None,
    observers: Sequence[Observer] = (),
    on_round: Callable[[RoundRecord], None] | None = None,
) -> SimulationOutcome:
    """Run a workload to its end; without `costs` starting and checkpointing take no time."""
    return Simulation(
        topology,
        workload,
        policy(rule, **(options or {})) if isinstance(rule, str) else rule,
        settings or Settings(),
        seed=seed,
        costs=costs,
        learning=learning,
        observers=observers,
        on_round=on_round,
    ).run()


class Auditor:
    """Follows processes and leases through a simulation; an `Observer`."""

    def __init__(self) -> None:
        self.story: list[tuple[float, str, AppId, JobId, tuple[GpuId, ...]]] = []
        """Every start and stop of a process: time, which of the two, app, job, GPUs."""
        self.ended: list[AppId] = []
        self.leases: dict[tuple[GpuId, int], Lease] = {}
        """Every lease told to an app, in its latest form, by GPU and token."""
        self._on: dict[GpuId, tuple[AppId, JobId]] = {}
        self._held: dict[tuple[GpuId, AppId], float] = {}
        """Until when an app may start processes on a GPU: for ever, or when it was told to go."""
        self.finished: dict[AppId, float] = {}

    def handled(self, event: events.Event, commands: Sequence[Command]) -> None:
        """Check one step.

        Raises:
            InvariantError: A GPU has two processes, or one that has no lease there.
        """
        match event:
            case events.JobStarted(at=at, app=app, job=job, gpus=gpus):
                self._start(at, app, job, gpus)
            case events.JobStopped(at=at, app=app, job=job, gpus=gpus):
                self.story.append((at, "stop", app, job, gpus))
                for gpu in gpus:
                    if self._on.pop(gpu, None) != (app, job):
                        raise InvariantError(f"{app}/{job} stops on GPU {gpu} where it never was")
            case events.AppEnded(at=at, app=app):
                self.finished[app] = at
            case _:
                pass
        for command in commands:
            self._note(command, event.at)

    @property
    def running(self) -> dict[GpuId, tuple[AppId, JobId]]:
        """Which process is on which GPU."""
        return dict(self._on)

    def times(self, app: str) -> list[tuple[float, str, tuple[GpuId, ...]]]:
        """Starts and stops of one app."""
        return [(at, what, gpus) for at, what, name, _, gpus in self.story if name == app]

    def _start(self, at: float, app: AppId, job: JobId, gpus: Iterable[GpuId]) -> None:
        gpus = tuple(gpus)
        self.story.append((at, "start", app, job, gpus))
        for gpu in gpus:
            if gpu in self._on:
                raise InvariantError(f"{app}/{job} starts on GPU {gpu} beside {self._on[gpu]}")
            # A start may be under way at the very moment at which the lease is taken away.
            if at > self._held.get((gpu, app), -math.inf):
                raise InvariantError(f"{app}/{job} starts on GPU {gpu} without a lease")
            self._on[gpu] = (app, job)

    def _note(self, command: Command, at: float) -> None:
        match command:
            case Assign(app=app, granted=granted, renewed=renewed, revoked=revoked):
                for lease in revoked:
                    self._held[lease.gpu, app] = at
                for lease in (*granted, *renewed):
                    self.leases[lease.gpu, lease.token] = lease
                    self._held[lease.gpu, app] = math.inf
            case End(app=app, leases=leases):
                for lease in leases:
                    self.leases[lease.gpu, lease.token] = lease
            case RecordApp(record=record):
                self.ended.append(record.app)
            case _:
                pass


def snapshot_after(fork: Fork, workload: Workload, *first: events.Event) -> Snapshot:
    """A snapshot of a run under equal shares, after events that happen at once."""
    rule, truths = policy("equal-share"), {app.spec.id: app for app in workload.apps}
    taken = fork.snapshot("equal-share")
    later = Fork.of(taken, truths, (), rule, seed=1, costs=NO_COSTS, first=first)
    return later.snapshot("equal-share")
