"""A snapshot for the pages: a cluster at one moment.

open_snapshot(Path("monday.json"))

A snapshot has no past: no rounds, no histories, no ended leases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from themis.core.arbiter import Arbiter
from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.offer import fairness_of
from themis.core.arbiter.saved_state import arbiter_from
from themis.core.model import GpuId
from themis.core.policies import policy
from themis.dashboard.app_history import AppHistories
from themis.dashboard.arbiter_rows import app_row, gpu_row, machine_row, phase_rows
from themis.dashboard.finished_run import FinishedRun, RunApps
from themis.dashboard.model import (
    MEASURES,
    AppPage,
    AppRow,
    Board,
    Columns,
    DataOrigin,
    JobRow,
    LeaseSegment,
    MachineRow,
    RunLine,
    Timeline,
    ViewerInfo,
    finite,
)
from themis.dashboard.timeline_columns import TimelineBuilder, held_segment
from themis.errors import ConfigError, MissingError, ThemisError
from themis.recording.cluster_snapshots import (
    KIND,
    AppSnapshot,
    ProcessStage,
    Snapshot,
    read_snapshot,
)

_HEAD = f'{{"kind":"{KIND}"'.encode("ascii")
_STATES = {
    ProcessStage.WAITING: "waiting",
    ProcessStage.STARTING: "starting",
    ProcessStage.RUNNING: "running",
    ProcessStage.SAVING: "saving",
}


def is_snapshot(path: Path) -> bool:
    """Whether a file looks like a snapshot, without reading all of it."""
    try:
        with path.open("rb") as file:
            return b"".join(file.read(64).split()).startswith(b"".join(_HEAD.split()))
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class SnapshotPages(FinishedRun):
    """A cluster at one moment, as a run without a past."""

    at: float = 0.0
    rows: tuple[AppRow, ...] = ()
    pages: Mapping[str, AppPage] = field(default_factory=dict)
    machines: tuple[MachineRow, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    def board(self, runs: tuple[str, ...] = ()) -> Board:
        """The state at that moment."""
        begin = min((row.submitted for row in self.rows if row.submitted), default=self.at)
        return Board(
            origin=self.origin,
            viewer=ViewerInfo(),
            now=self.at,
            wall=None,
            begin=min(begin, *(item.start for item in self.held), self.at),
            gpus=self.counts,
            apps=self.rows,
            machines=self.machines,
            runs=runs,
        )

    def timeline(self) -> Timeline:
        """Which app held which GPU."""
        gathering = TimelineBuilder(row.app for row in self.rows)
        return gathering.timeline(Columns(), gathering.columns(self.held), 0)

    def app(self, name: str) -> AppPage:
        """One app.

        Raises:
            MissingError: There is none of this name.
        """
        found = self.pages.get(name)
        if found is None:
            raise MissingError(name[:200], "there was no such app")
        return found

    def compared(self) -> RunLine:
        """Its line in a comparison, without measures: no app has ended."""
        nothing = {measure.name: None for measure in MEASURES}
        origin = self.origin
        return RunLine(origin.title, origin.policy, origin.cluster, "", None, nothing, (), ())


def open_snapshot(path: Path) -> SnapshotPages:
    """The snapshot in a file.

    Raises:
        MissingFileError: There is no such file.
        ConfigError: It cannot be read, or contradicts itself.
    """
    snapshot = read_snapshot(path)
    try:
        # Any policy will do, as none is asked; the one that the file names may be code of a user.
        arbiter = arbiter_from(snapshot.state, policy("fifo"), seed=snapshot.seed)
        return _still(snapshot, arbiter, path.name)
    except (ThemisError, ArithmeticError, LookupError, ValueError) as error:
        problem = f"a state that contradicts itself ({error})"
        raise ConfigError("snapshot", problem, "a file of `themis snapshot`", str(path)) from None


def _still(snapshot: Snapshot, arbiter: Arbiter, title: str) -> SnapshotPages:
    world, ledger, at = arbiter.world, arbiter.ledger, snapshot.at
    standings = fairness_of(world, at)
    pictures = {picture.app: picture for picture in snapshot.apps}
    leases = [
        held_segment(lease, lease.end)
        for gpu in range(len(ledger))
        if (lease := ledger.lease(GpuId(gpu))) is not None
    ]
    machines = _machines(arbiter)
    name_of = {gpu.gpu: machine.machine for machine in machines for gpu in machine.gpus}
    pages = {}
    for name, state in sorted(world.apps.items()):
        row = app_row(arbiter, state, standings.get(name), at, reason=str(state.reason))
        mine = tuple(
            LeaseSegment(item.gpu, name_of[item.gpu], item.start, item.end, item.source, open=True)
            for item in leases
            if item.app == name
        )
        pages[str(name)] = AppPage(
            row=row,
            now=at,
            weight=world.weight(name),
            phases=phase_rows(state),
            jobs=_jobs(state, pictures[name]),
            leases=mine,
            reasons=((at, str(state.reason)),),
        )
    counts: dict[str, int] = {}
    for gpu in (gpu for machine in machines for gpu in machine.gpus):
        counts[gpu.state] = counts.get(gpu.state, 0) + 1
    settings = arbiter.settings
    origin = DataOrigin(
        "snapshot", title, snapshot.policy, world.topology.name, settings.lease, taken=snapshot.wall
    )
    rows = tuple(page.row for page in pages.values())
    return SnapshotPages(
        origin, world.topology, RunApps(), tuple(leases), AppHistories(), (),
        at=at, rows=rows, pages=pages, machines=machines, counts=counts,
    )  # fmt: skip


def _jobs(state: AppState, picture: AppSnapshot) -> tuple[JobRow, ...]:
    known = {job.job: job for job in picture.jobs}
    reached = {job for job, _ in picture.reached}
    rows = []
    for job in state.spec.jobs:
        progress, seen = state.jobs.get(job.id), known.get(job.id)
        process = None if seen is None else seen.process
        job_state = "waiting" if process is None else _STATES[process.stage]
        if progress is None:
            job_state = "stopped"
        elif job.id in reached:
            job_state = "finished"
        rows.append(
            JobRow(
                job.id,
                job_state,
                () if process is None else tuple(map(int, process.gpus)),
                iterations=None if progress is None else finite(progress.done),
                target=None if progress is None else finite(progress.target),
            )
        )
    return tuple(rows)


def _machines(arbiter: Arbiter) -> tuple[MachineRow, ...]:
    topology, world = arbiter.world.topology, arbiter.world
    rows = []
    for number, machine in enumerate(topology.machines):
        cordoned = "cordoned" if world.is_cordoned(number) else "present"
        gpus = tuple(
            gpu_row(arbiter, gpu, index) for index, gpu in enumerate(topology.gpus_of[number])
        )
        state = "silent" if world.is_gone(number) else cordoned
        rows.append(machine_row(machine, state, gpus, number))
    return tuple(rows)
