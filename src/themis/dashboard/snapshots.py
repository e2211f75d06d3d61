"""Snapshots for the pages: a cluster at one moment, as it was.

open_snapshot(Path("monday.json"))

A snapshot has no past: no rounds, no histories, no leases that are over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from themis.core.arbiter import Arbiter
from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.cluster_state import GONE
from themis.core.arbiter.offer import Fairness, fairness_of
from themis.core.arbiter.saved_state import arbiter_from
from themis.core.model import GpuId
from themis.core.policies import policy
from themis.dashboard.app_history import Histories
from themis.dashboard.finished import AppIndex, Recording
from themis.dashboard.model import (
    MEASURES,
    AppPage,
    AppRow,
    Board,
    Columns,
    DataOrigin,
    GpuRow,
    JobRow,
    LeaseSegment,
    MachineRow,
    PhaseRow,
    RunLine,
    Timeline,
    ViewerInfo,
    finite,
)
from themis.dashboard.segment_columns import Gathering, HeldSegment
from themis.errors import ConfigError, MissingError, ThemisError
from themis.recording.cluster_snapshots import (
    KIND,
    AppPicture,
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
class Still(Recording):
    """A cluster at one moment."""

    at: float = 0.0
    rows: tuple[AppRow, ...] = ()
    pages: Mapping[str, AppPage] = field(default_factory=dict)
    machines: tuple[MachineRow, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    def board(self, runs: tuple[str, ...] = ()) -> Board:
        """The state then."""
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
        """Who held which GPU."""
        gathering = Gathering(row.app for row in self.rows)
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
        """Its line in a comparison: nothing of it is over."""
        nothing = {measure.name: None for measure in MEASURES}
        origin = self.origin
        return RunLine(origin.title, origin.policy, origin.cluster, "", None, nothing, (), ())


def open_snapshot(path: Path) -> Still:
    """The snapshot in a file.

    Raises:
        MissingFileError: There is no such file.
        ConfigError: It cannot be read, or contradicts itself.
    """
    snapshot = read_snapshot(path)
    try:
        # Nothing is decided, so that any policy will do; its own may be somebody's code.
        arbiter = arbiter_from(snapshot.state, policy("fifo"), seed=snapshot.seed)
        return _still(snapshot, arbiter, path.name)
    except (ThemisError, ArithmeticError, LookupError, ValueError) as error:
        problem = f"a state that contradicts itself ({error})"
        raise ConfigError("snapshot", problem, "a file of `themis snapshot`", str(path)) from None


def _still(snapshot: Snapshot, arbiter: Arbiter, title: str) -> Still:
    world, ledger, at = arbiter.world, arbiter.ledger, snapshot.at
    stands = fairness_of(world, at)
    pictures = {picture.app: picture for picture in snapshot.apps}
    leases = [
        HeldSegment(lease.gpu, lease.app, lease.start, lease.end, str(lease.source))
        for gpu in range(len(ledger))
        if (lease := ledger.lease(GpuId(gpu))) is not None
    ]
    machines = _machines(arbiter)
    name_of = {gpu.gpu: machine.machine for machine in machines for gpu in machine.gpus}
    pages = {}
    for name, state in sorted(world.apps.items()):
        row = _row(arbiter, state, stands.get(name), at)
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
    return Still(
        origin, world.topology, AppIndex(), tuple(leases), Histories(), (),
        at=at, rows=rows, pages=pages, machines=machines, counts=counts,
    )  # fmt: skip


def phase_rows(state: AppState) -> tuple[PhaseRow, ...]:
    """The phases of an app that is not over."""
    return tuple(
        PhaseRow(
            phase.jobs,
            phase.iterations,
            "over" if number < state.phase else "now" if number == state.phase else "to come",
        )
        for number, phase in enumerate(state.spec.phases)
    )


def _row(arbiter: Arbiter, state: AppState, stands: Fairness | None, at: float) -> AppRow:
    held = len(arbiter.ledger.holdings(state.id))
    rho = None if stands is None else finite(stands.rho)
    return AppRow(
        app=state.id,
        owner=state.spec.owner,
        state="suspended" if state.suspended else "running" if held else "waiting",
        reason=str(state.reason),
        rho=rho,
        held=held,
        demand=state.demand,
        submitted=state.submitted,
        elapsed=None if stands is None else finite(stands.elapsed),
        ideal_seconds=None if stands is None else finite(stands.ideal_time),
        gpu_seconds=arbiter.ledger.attained_total(state.id, at),
    )


def _jobs(state: AppState, picture: AppPicture) -> tuple[JobRow, ...]:
    known = {job.job: job for job in picture.jobs}
    reached = {job for job, _ in picture.reached}
    rows = []
    for job in state.spec.jobs:
        progress, seen = state.jobs.get(job.id), known.get(job.id)
        process = None if seen is None else seen.process
        told = "waiting" if process is None else _STATES[process.stage]
        if progress is None:
            told = "stopped"
        elif job.id in reached:
            told = "finished"
        rows.append(
            JobRow(
                job.id,
                told,
                () if process is None else tuple(map(int, process.gpus)),
                iterations=None if progress is None else finite(progress.done),
                target=None if progress is None else finite(progress.target),
            )
        )
    return tuple(rows)


def _machines(arbiter: Arbiter) -> tuple[MachineRow, ...]:
    topology, world = arbiter.world.topology, arbiter.world
    return tuple(
        MachineRow(
            machine.name,
            machine.rack,
            machine.gpu_model,
            machine.gpu_memory,
            "silent" if world.is_gone(number)
            else "cordoned" if world.is_cordoned(number) else "present",
            tuple(_gpu(arbiter, gpu, index) for index, gpu in enumerate(topology.gpus_of[number])),
            number=number,
        )
        for number, machine in enumerate(topology.machines)
    )  # fmt: skip


def _gpu(arbiter: Arbiter, gpu: GpuId, index: int) -> GpuRow:
    ledger = arbiter.ledger
    lease, quarantine = ledger.lease(gpu), ledger.quarantine_reason(gpu)
    state = "absent" if quarantine == GONE else str(ledger.state(gpu))
    return GpuRow(
        gpu,
        index,
        arbiter.world.topology.seats[gpu].slot,
        state,
        None if lease is None else str(lease.app),
        None if lease is None else finite(lease.end),
        "" if state == "absent" or quarantine is None else quarantine,
    )
