"""Modelled training: processes on GPUs that start, run at their true rate, checkpoint and stop.

Plays the part of the nodes: it knows which slots are empty and what really runs there.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from statistics import NormalDist

from themis.core.model import AppId, AppSpec, GpuId, JobId, JobSpec, Topology
from themis.core.model.ids import check_number
from themis.core.model.values import value
from themis.errors import ConfigError, InvariantError
from themis.sim.faults import HOPELESS, NO_FAULTS, Faults, back_off

_NORMAL = NormalDist()
_P95 = _NORMAL.inv_cdf(0.95)


class ProcessState(Enum):
    """What a process is doing."""

    WAITING = auto()
    """Asked for; some of its slots are still in use."""
    STARTING = auto()
    RUNNING = auto()
    CHECKPOINTING = auto()


@dataclass(frozen=True, slots=True)
class JobCosts:
    """How long starting and checkpointing take; seconds."""

    restart_median: float = 35.0
    restart_p95: float = 50.0
    checkpoint_low: float = 5.0
    checkpoint_high: float = 10.0

    def __post_init__(self) -> None:
        check_number("restart_median", self.restart_median, high=86400.0)
        check_number("restart_p95", self.restart_p95, low=self.restart_median, high=86400.0)
        check_number("checkpoint_low", self.checkpoint_low, high=86400.0)
        check_number("checkpoint_high", self.checkpoint_high, low=self.checkpoint_low, high=86400.0)

    def restart(self, chance: float) -> float:
        """Lognormal with the given median and 95th percentile, for a chance within (0, 1)."""
        if self.restart_median <= 0.0:
            return 0.0
        sigma = math.log(self.restart_p95 / self.restart_median) / _P95
        return self.restart_median * math.exp(sigma * _NORMAL.inv_cdf(chance))

    def checkpoint(self, chance: float) -> float:
        """Uniform, for a chance within (0, 1)."""
        return self.checkpoint_low + chance * (self.checkpoint_high - self.checkpoint_low)


NO_COSTS = JobCosts(0.0, 0.0, 0.0, 0.0)


def declared_costs(spec: AppSpec) -> JobCosts:
    """What an app says that moving its jobs takes, spread like the default costs."""
    most = 86400.0
    usual, restart, save = JobCosts(), spec.restart_seconds, spec.checkpoint_seconds
    middle = (usual.checkpoint_low + usual.checkpoint_high) / 2.0
    return JobCosts(
        min(most, restart),
        min(most, restart * usual.restart_p95 / usual.restart_median),
        min(most, save * usual.checkpoint_low / middle),
        min(most, save * usual.checkpoint_high / middle),
    )


Key = tuple[AppId, JobId]


def iteration_limits(declared: AppSpec) -> dict[JobId, float]:
    """The most iterations that each job can do by what was declared, if it survives all phases."""
    limits = dict.fromkeys((job.id for job in declared.jobs), 0.0)
    for phase in declared.phases:
        if not phase.targets:
            most = [float(phase.iterations)] * len(declared.jobs)
        elif phase is declared.phases[0]:
            most = [float(target) for target in phase.targets]
            most += [0.0] * (len(declared.jobs) - len(most))
        else:
            # Which survivor gets which target is not known yet.
            most = [float(max(phase.targets))] * len(declared.jobs)
        for job, iterations in zip(declared.jobs, most, strict=True):
            limits[job.id] += iterations
    return limits


@dataclass(slots=True)
class Training:
    """One job as it really is, whatever its agent believes."""

    app: AppId
    spec: JobSpec
    limit: float = math.inf
    """Iterations declared: the node lets it do no more."""
    costs: JobCosts | None = None
    """Of starting and saving, if they are not as those of all others."""
    done: float = 0.0
    starts: int = 0
    run: "ModelledProcess | None" = None
    waiting: "ModelledProcess | None" = None
    """A start asked for while the last process still writes its checkpoint."""
    losses: int = 0
    """How often in a row it lost its process without having saved anything."""
    not_before: float = 0.0
    """When it may start again after a failure."""
    ready: float = 0.0
    dawdle: float = 0.0
    """It begins no process before this time, nor so soon after it was told to."""
    unreported: float = 0.0
    """Seconds that processes now gone trained since the last sample.

    Minus infinity after a loss: whatever the next sample says, no seconds belong to it.
    """


@dataclass(slots=True, eq=False)
class ModelledProcess:
    """One process of a job, from being asked for to its end."""

    training: Training
    gpus: tuple[GpuId, ...]
    until: float
    state: ProcessState = ProcessState.WAITING
    rate: float = 0.0
    """Iterations per second."""
    score: float = 1.0
    """1/S where it runs."""
    since: float = 0.0
    sampled: float = 0.0
    """When a sample last told how far it is."""
    timed: int = 0
    """How many windows of iterations its agent was told about."""
    number: int = 0
    begins: float = 0.0
    """It leaves its slots empty until then."""
    saved: float = 0.0
    """Iterations at the last periodic checkpoint, once it runs no more."""
    unsaved: float = 0.0
    """Seconds it ran after that."""
    gone_at: float = 0.0
    """When it will have written its last checkpoint."""


@value
class ProcessDue:
    """What is to become of a process if nothing comes in between; often something does."""

    run: ModelledProcess
    deed: Callable[[ModelledProcess, float], None]
    expects: ProcessState
    """What the process must be doing then, else nothing comes of it."""

    def __call__(self, now: float) -> None:
        """Its time has come."""
        self.deed(self.run, now)

    @property
    def stale(self) -> bool:
        """Whether it will do nothing: the process runs no more."""
        return self.expects is ProcessState.RUNNING and self.run.state is not ProcessState.RUNNING


@dataclass(slots=True)
class Ledgered:
    """GPU-seconds by what they were spent on."""

    useful: float = 0.0
    slowed: float = 0.0
    restart: float = 0.0
    checkpoint: float = 0.0
    lost: float = 0.0
    """Ran, but died before its work was saved."""


@dataclass(slots=True)
class Nodes:
    """All slots, and the processes on them. The driver gives it time and carries its wishes out."""

    topology: Callable[[], Topology]
    costs: JobCosts
    seed: int
    at: Callable[[float, Callable[[float], None]], None]
    """Have a function called at a time."""
    started: Callable[[float, AppId, JobId, tuple[GpuId, ...]], None]
    stopped: Callable[[float, AppId, JobId, tuple[GpuId, ...]], None]
    reached: Callable[[float, AppId, JobId], None]
    failed: Callable[[float, AppId, JobId], None] = lambda *_: None
    """A process died by itself; what it had not saved is lost."""
    faults: Faults = NO_FAULTS
    trainings: dict[Key, Training] = field(default_factory=dict)
    spent: dict[AppId, Ledgered] = field(default_factory=dict)
    scores: dict[float, float] = field(default_factory=dict)
    """GPU-seconds by placement score (1/S); there are as many scores as profiles have values."""
    moves: int = 0
    failures: int = 0
    """Processes that died, alone or with a machine."""
    running: dict[AppId, dict[JobId, ModelledProcess]] = field(default_factory=dict)
    """Processes that make progress, by app."""
    _occupant: dict[GpuId, ModelledProcess] = field(default_factory=dict)
    _queued: dict[GpuId, list[ModelledProcess]] = field(default_factory=dict)
    _down: set[GpuId] = field(default_factory=set)
    _runs: int = 0

    def add(
        self,
        app: AppId,
        jobs: Iterable[JobSpec],
        limits: Mapping[JobId, float] | None = None,
        *,
        ready: float = 0.0,
        dawdle: float = 0.0,
        costs: JobCosts | None = None,
    ) -> None:
        """Get to know the jobs of an app, and how many iterations were declared for each.

        They begin nothing before they are `ready`, and `dawdle` for so long at every start.
        """
        for job in jobs:
            limit = limits[job.id] if limits is not None else math.inf
            self.trainings[app, job.id] = Training(
                app, job, limit, costs, ready=ready, dawdle=dawdle
            )
        self.spent[app] = Ledgered()

    def raise_limit(self, app: AppId, job: JobId, limit: float) -> None:
        """More iterations of a job were declared."""
        self.trainings[app, job].limit = limit

    def remove(self, app: AppId, jobs: Iterable[JobSpec]) -> None:
        """Forget the jobs of an app that is over."""
        for job in jobs:
            del self.trainings[app, job.id]

    def occupant(self, gpu: GpuId) -> AppId | None:
        """Whose process is on this GPU."""
        run = self._occupant.get(gpu)
        return run.training.app if run is not None else None

    def start(
        self, app: AppId, job: JobId, gpus: tuple[GpuId, ...], until: float, now: float
    ) -> None:
        """Run a job as soon as all these GPUs are empty."""
        training = self.trainings[app, job]
        self._runs += 1
        run = ModelledProcess(training, gpus, min(until, training.limit), number=self._runs)
        run.begins = max(training.ready, now + training.dawdle)
        if run.begins > now:
            self.at(run.begins, ProcessDue(run, self._try, ProcessState.WAITING))
        if training.run is not None:
            if training.waiting is not None or training.run.state is not ProcessState.CHECKPOINTING:
                raise InvariantError(f"{app}/{job} is started twice")
            training.waiting = run
            return
        training.run = run
        self._enqueue(run, now)

    def _enqueue(self, run: ModelledProcess, now: float) -> None:
        for gpu in run.gpus:
            self._queued.setdefault(gpu, []).append(run)
        self._try(run, now)

    def _try(self, run: ModelledProcess, now: float) -> None:
        """Begin if every GPU is there and empty."""
        if now < run.begins or run.training.run is not run:
            return
        if run.state is not ProcessState.WAITING or not self._occupant.keys().isdisjoint(run.gpus):
            return
        if self._down and not self._down.isdisjoint(run.gpus):
            return
        for gpu in run.gpus:
            self._occupant[gpu] = run
            self._dequeue(gpu, run)
        run.state = ProcessState.STARTING
        run.since = now
        training = run.training
        training.starts += 1
        if training.starts > 1:
            self.moves += 1
        self.started(now, training.app, training.spec.id, run.gpus)
        # After a failure it holds its GPUs while it waits.
        cost = self._restart(training)
        begin = max(now, training.not_before) + cost
        self.at(begin, ProcessDue(run, self._run, ProcessState.STARTING))

    def _run(self, run: ModelledProcess, now: float) -> None:
        if run.state is not ProcessState.STARTING:
            return
        training = run.training
        self.spent[training.app].restart += len(run.gpus) * (now - run.since)
        self._pace(run)
        run.state = ProcessState.RUNNING
        run.since = now
        self.running.setdefault(training.app, {})[training.spec.id] = run
        seconds = max(0.0, run.until - training.done) / run.rate
        failure = self.faults.time_to_failure(
            self.seed, training.app, training.spec.id, training.starts, len(run.gpus)
        )
        if failure < seconds:
            self.at(now + failure, ProcessDue(run, self._fail, ProcessState.RUNNING))
        else:
            self.at(now + seconds, ProcessDue(run, self._reach, ProcessState.RUNNING))

    def _pace(self, run: ModelledProcess) -> None:
        """Find how fast a process trains where it is."""
        spec = run.training.spec
        level = self.topology().level(run.gpus)
        slowdown = spec.slowdown.at(level, len(run.gpus))
        run.rate = len(run.gpus) / slowdown / spec.serial_iteration_time
        run.score = 1.0 / slowdown

    def _reach(self, run: ModelledProcess, now: float) -> None:
        if run.state is not ProcessState.RUNNING:
            return
        self._settle(run, now)
        run.training.done = run.until
        run.training.losses = 0
        self._leave(run, now)
        self.reached(now, run.training.app, run.training.spec.id)

    def progress(self, run: ModelledProcess, now: float) -> float:
        """Iterations a job has done."""
        if run.state is not ProcessState.RUNNING:
            return run.training.done
        return min(run.until, run.training.done + (now - run.since) * run.rate)

    def sample(self, run: ModelledProcess, now: float) -> tuple[float, float]:
        """Iterations a running job has done, and the seconds it trained since the last sample."""
        training = run.training
        seconds = training.unreported + now - max(run.since, run.sampled)
        training.unreported = 0.0
        run.sampled = now
        return self.progress(run, now), max(0.0, seconds)

    def last_sample(self, app: AppId, job: JobId) -> tuple[float, float]:
        """The same for a job whose process is gone."""
        training = self.trainings[app, job]
        seconds, training.unreported = training.unreported, 0.0
        return training.done, max(0.0, seconds)

    def _settle(self, run: ModelledProcess, now: float) -> None:
        """Book what a process that stops running has done."""
        training = run.training
        training.unreported += now - max(run.since, run.sampled)
        mine = self.running[training.app]
        del mine[training.spec.id]
        if not mine:
            del self.running[training.app]
        seconds = now - run.since
        kept = self.faults.saved(seconds)
        run.saved = training.done + kept * run.rate
        run.unsaved = seconds - kept
        if kept > 0.0:
            training.losses = 0
        training.done = self.progress(run, now)
        gpu_seconds = seconds * len(run.gpus)
        useful = seconds * run.rate * training.spec.serial_iteration_time
        account = self.spent[training.app]
        account.useful += useful
        account.slowed += gpu_seconds - useful
        if gpu_seconds > 0.0:
            self.scores[run.score] = self.scores.get(run.score, 0.0) + gpu_seconds
        run.since = now

    def stop(self, app: AppId, job: JobId, now: float) -> None:
        """Checkpoint a job and end its process; forget a start that has not happened."""
        training = self.trainings[app, job]
        training.waiting = None
        run = training.run
        if run is None or run.state is ProcessState.CHECKPOINTING:
            return
        if run.state is ProcessState.WAITING:
            for gpu in run.gpus:
                self._dequeue(gpu, run)
            training.run = None
        elif run.state is ProcessState.STARTING:
            # Nothing new to save: it may go at once, and go on from its last checkpoint.
            self.spent[app].restart += len(run.gpus) * (now - run.since)
            self._leave(run, now)
        else:
            self._settle(run, now)
            run.state = ProcessState.CHECKPOINTING
            duration = self._saving(training)
            self.spent[app].checkpoint += len(run.gpus) * duration
            run.gone_at = now + duration
            self.at(run.gone_at, ProcessDue(run, self._save, ProcessState.CHECKPOINTING))

    # What goes wrong

    def _fail(self, run: ModelledProcess, now: float) -> None:
        """The process dies by itself."""
        if run.state is not ProcessState.RUNNING:
            return
        training = run.training
        self._settle(run, now)
        self._undo(run)
        training.not_before = now + back_off(training.losses)
        self.failures += 1
        self._leave(run, now)
        self.failed(now, training.app, training.spec.id)

    def _undo(self, run: ModelledProcess) -> None:
        """Take back what a process did since its last periodic checkpoint.

        Raises:
            ConfigError: The job has failed so often in a row that it will never get on.
        """
        training = run.training
        training.losses += 1
        if training.losses > HOPELESS:
            raise ConfigError(
                "checkpoint_every",
                self.faults.checkpoint_every,
                f"less, or fewer failures: {training.app}/{training.spec.id} has died "
                f"{HOPELESS} times in a row with nothing saved",
            )
        training.done = min(training.done, run.saved)
        training.unreported = -math.inf
        whole = run.unsaved * len(run.gpus)
        useful = whole * run.score
        account = self.spent[training.app]
        account.useful -= useful
        account.slowed -= whole - useful
        account.lost += whole

    def lose(self, gpus: Iterable[GpuId], now: float) -> list[tuple[Key, bool]]:
        """These GPUs are gone, and with them every process that has one of them.

        Returns:
            The jobs that lost work, and whether each was running and not just leaving.
        """
        gone = list(gpus)
        self._down.update(gone)
        hit = {run.number: run for gpu in gone if (run := self._occupant.get(gpu)) is not None}
        harmed = []
        for number in sorted(hit):
            run = hit[number]
            if run.state is ProcessState.STARTING:
                self.spent[run.training.app].restart += len(run.gpus) * (now - run.since)
            else:
                ran = run.state is ProcessState.RUNNING
                self._lose_work(run, now)
                harmed.append(((run.training.app, run.training.spec.id), ran))
            self.failures += 1
            self._leave(run, now)
        return harmed

    def _lose_work(self, run: ModelledProcess, now: float) -> None:
        if run.state is ProcessState.RUNNING:
            self._settle(run, now)
        else:
            # It dies with its last checkpoint half written.
            self.spent[run.training.app].checkpoint -= len(run.gpus) * (run.gone_at - now)
        self._undo(run)

    def restore(self, gpus: Iterable[GpuId], now: float) -> None:
        """These GPUs are back, and empty."""
        back = list(gpus)
        self._down.difference_update(back)
        for gpu in back:
            self.wake(gpu, now)

    def _save(self, run: ModelledProcess, now: float) -> None:
        training = run.training
        if training.run is not run:
            return
        training.losses = 0
        # Told to stop at the very moment it reached its target, it has reached it: if nobody
        # heard of that, its agent would wait for an end and the arbiter see nothing left to run.
        nothing_left = training.waiting is None or training.waiting.until <= training.done
        ended = training.done >= run.until and nothing_left
        if ended:
            training.waiting = None
        self._leave(run, now)
        if ended:
            self.reached(now, training.app, training.spec.id)

    def _leave(self, run: ModelledProcess, now: float) -> None:
        """The process is gone: whoever waits for its slots may begin."""
        training = run.training
        if training.run is not run:
            return
        for gpu in run.gpus:
            del self._occupant[gpu]
        training.run = None
        run.state = ProcessState.WAITING
        self.stopped(now, training.app, training.spec.id, run.gpus)
        if training.waiting is not None and training.run is None:
            training.run, training.waiting = training.waiting, None
            self._enqueue(training.run, now)
        for gpu in run.gpus:
            self.wake(gpu, now)

    def wake(self, gpu: GpuId, now: float) -> None:
        """A slot is empty: let the first who waits for it try."""
        for run in list(self._queued.get(gpu, ())):
            self._try(run, now)

    def _dequeue(self, gpu: GpuId, run: ModelledProcess) -> None:
        queue = self._queued.get(gpu, [])
        if run in queue:
            queue.remove(run)
        if not queue:
            self._queued.pop(gpu, None)

    # Beginning in the middle

    def resume(
        self, training: Training, process: ModelledProcess | None, successor: ModelledProcess | None
    ) -> None:
        """Take processes of a job as they are; what becomes of them is put down by `go_on`."""
        training.run, training.waiting = process, successor
        for run in (process, successor):
            if run is not None:
                self._runs = max(self._runs, run.number)
        if process is None:
            return
        for gpu in process.gpus:
            if process.state is ProcessState.WAITING:
                self._queued.setdefault(gpu, []).append(process)
            else:
                self._occupant[gpu] = process
        if process.state in {ProcessState.RUNNING, ProcessState.CHECKPOINTING}:
            self._pace(process)
        if process.state is ProcessState.RUNNING:
            self.running.setdefault(training.app, {})[training.spec.id] = process

    def go_on(self, run: ModelledProcess, at: float | None, now: float) -> None:
        """Put down when the stage of a process ends: at a known time, or as chance has it."""
        training = run.training
        match run.state:
            case ProcessState.WAITING:
                if at is not None or run.begins > now:
                    begins = run.begins if at is None else at
                    self.at(begins, ProcessDue(run, self._try, ProcessState.WAITING))
                elif training.run is run:
                    self._try(run, now)
            case ProcessState.STARTING:
                end = run.since + self._restart(training)
                self.at(
                    end if at is None else at, ProcessDue(run, self._run, ProcessState.STARTING)
                )
            case ProcessState.RUNNING:
                left = max(0.0, run.until - training.done) / run.rate
                self.at(
                    run.since + left if at is None else at, ProcessDue(run, self._reach, run.state)
                )
            case ProcessState.CHECKPOINTING:
                run.gone_at = run.since + self._saving(training)
                run.gone_at = run.gone_at if at is None else at
                self.at(run.gone_at, ProcessDue(run, self._save, ProcessState.CHECKPOINTING))

    def _restart(self, training: Training) -> float:
        costs = self.costs if training.costs is None else training.costs
        return costs.restart(self._chance("restart", training))

    def _saving(self, training: Training) -> float:
        costs = self.costs if training.costs is None else training.costs
        return costs.checkpoint(self._chance("checkpoint", training))

    def _chance(self, purpose: str, training: Training) -> float:
        # The n-th start of a job costs the same under every policy: common random numbers.
        return chance(self.seed, purpose, training.app, training.spec.id, training.starts)


def first_start(costs: JobCosts, seed: int, app: AppId, job: JobId) -> float:
    """The seconds that the first start of a job takes in a run with this seed."""
    return costs.restart(chance(seed, "restart", app, job, 1))


def chance(seed: int, purpose: str, app: AppId, job: JobId, start: int) -> float:
    """A number within (0, 1) that depends on these names alone.

    A hash: seeding a generator for a single draw takes ten times as long.
    """
    name = f"{seed}/{purpose}/{app}/{job}/{start}"
    digest = hashlib.blake2b(name.encode(), digest_size=6).digest()
    return (int.from_bytes(digest) + 0.5) / 2**48
