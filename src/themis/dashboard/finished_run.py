"""A finished run as the pages show it, from a run folder, a comparison, an event log or a store.

run.board(), run.timeline(), run.app(name)
run.rounds(before=None, limit=50), run.round(12)
run.compared()          # its line in a comparison
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from themis.core.arbiter.records import RoundRecord
from themis.core.model import Topology
from themis.core.model.reasons import Reason
from themis.dashboard.app_history import AppHistories, AppHistory
from themis.dashboard.arbiter_rows import machine_row
from themis.dashboard.model import (
    FAIR,
    MOST_LEASES,
    SHORT,
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
    RoundLine,
    RoundList,
    RunLine,
    Timeline,
    ViewerInfo,
    finite,
)
from themis.dashboard.round_view import RoundView, view_of
from themis.dashboard.timeline_columns import HeldSegment, TimelineBuilder
from themis.errors import CorruptLogError, MissingError, RefusedError
from themis.recording.codec import decode, loads

_HOUR = 3600.0
_UNKNOWN = "(unknown)"


@dataclass(frozen=True, slots=True)
class RunApp:
    """One app of a run."""

    app: str
    owner: str = ""
    submitted: float | None = None
    ended: float | None = None
    outcome: str = ""
    rho: float | None = None
    rho_ref: float | None = None
    gpu_seconds: float | None = None
    weight: float | None = None
    phases: tuple[PhaseRow, ...] = ()
    jobs: tuple[JobRow, ...] | None = None


class RunApps:
    """Apps by name, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.found: dict[str, RunApp] = {}

    def add(self, app: str, **known: Any) -> None:
        """Add what is known of an app to what was known before."""
        self.found[app] = replace(self.found.get(app) or RunApp(app), **known)


@dataclass(frozen=True, slots=True)
class RunRound:
    """A round in short, and where to read all of it."""

    line: RoundLine
    path: Path
    number: int
    """The line in the file."""
    offset: int
    record: RoundRecord | None = None
    """The round itself, if it was read already."""

    def read(self) -> RoundRecord:
        """The whole round.

        Raises:
            CorruptLogError: It cannot be read.
        """
        if self.record is not None:
            return self.record
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                return decode(RoundRecord, loads(file.readline().decode("utf-8", "replace")))
        except (OSError, RefusedError) as error:
            raise CorruptLogError(str(self.path), self.number, str(error)) from None


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that does not change any more."""

    origin: DataOrigin
    topology: Topology | None
    apps: RunApps
    held: Sequence[HeldSegment]
    histories: AppHistories
    round_index: Sequence[RunRound]
    summary: Mapping[str, Any] = field(default_factory=dict)
    workload: str = ""
    note: str = ""
    """A problem that the pages mention."""

    # Pages

    def board(self, runs: tuple[str, ...] = ()) -> Board:
        """The state at the end."""
        seconds = self._seconds()
        begin, end = self._span()
        rows = tuple(self._row(app, seconds) for app in self._all_apps())
        machines = self._machines()
        total = sum(len(machine.gpus) for machine in machines)
        return Board(
            origin=self.origin,
            viewer=ViewerInfo(),
            now=end,
            wall=None,
            begin=begin,
            gpus={"total": total},
            apps=rows,
            machines=machines,
            last_round=self.round_index[-1].line.round if self.round_index else None,
            runs=runs,
        )

    def timeline(self) -> Timeline:
        """Which app held which GPU when."""
        gathering = TimelineBuilder(app.app for app in self._all_apps())
        return gathering.timeline(gathering.columns(self.held), Columns(), len(self.held))

    def app(self, name: str) -> AppPage:
        """One app.

        Raises:
            MissingError: There is none of this name.
        """
        found = {app.app: app for app in self._all_apps()}.get(name)
        if found is None:
            raise MissingError(name[:200], "this run had no such app")
        history = self.histories.of(name)
        mine = [item for item in self.held if item.app == name]
        reasons = history.reasons
        if found.ended is not None:
            reasons = (*reasons, (found.ended, str(_last_reason(found))))
        return AppPage(
            row=self._row(found, self._seconds()),
            now=self._span()[1],
            weight=found.weight,
            outcome=found.outcome or ("finished" if found.ended is not None else ""),
            phases=found.phases,
            jobs=found.jobs,
            leases=tuple(self._lease(item) for item in mine[-MOST_LEASES:]),
            reasons=reasons,
            history=history.rho,
            held=_held_over_time(mine) if mine else history.held,
        )

    def rounds(self, before: int | None, limit: int) -> RoundList:
        """A page of rounds."""
        lines = [item.line for item in self.round_index if not before or item.line.round < before]
        page = lines[-limit:]
        return RoundList(tuple(page), page[0].round if len(page) < len(lines) else None)

    def round(self, number: int) -> RoundView:
        """One round in full.

        Raises:
            MissingError: There is none of this number.
            CorruptLogError: It cannot be read.
        """
        for place, item in enumerate(self.round_index):
            if item.line.round == number:
                before = self.round_index[place - 1].read() if place else None
                return view_of(item.read(), None, before)
        span = f"1 to {len(self.round_index)} are kept" if self.round_index else "none were kept"
        raise MissingError(f"round {number}", span)

    def compared(self) -> RunLine:
        """Its line in a comparison."""
        apps = [app for app in self._all_apps() if app.ended is not None]
        rhos = [rho for app in apps if (rho := app.rho_ref or app.rho) is not None]
        hours = {
            app.app: (app.ended - app.submitted) / _HOUR
            for app in apps
            if app.ended is not None and app.submitted is not None
        }
        return RunLine(
            title=self.origin.title,
            policy=self.origin.policy,
            cluster=self.origin.cluster,
            workload=self.workload,
            seed=self.origin.seed,
            measures=self._measures(sorted(rhos), sorted(hours.values())),
            rhos=tuple(sorted(rhos)),
            completions=tuple(sorted(hours.values())),
            completions_by_app=hours,
        )

    # Parts of the pages

    def _measures(self, rhos: list[float], hours: list[float]) -> dict[str, float | None]:
        summary, (begin, end) = self.summary, self._span()
        moves, gpu_hours = summary.get("moves"), summary.get("gpu_hours")
        if gpu_hours is None:
            gpu_hours = sum(item.end - item.start for item in self.held) / _HOUR
        return {
            "max_rho": rhos[-1] if rhos else None,
            "p95_rho": _quantile(rhos, 0.95),
            "median_rho": _quantile(rhos, 0.5),
            "share_fair": sum(rho <= FAIR for rho in rhos) / len(rhos) if rhos else None,
            "mean_completion_h": sum(hours) / len(hours) if hours else None,
            "makespan_h": finite(summary.get("makespan_h")) or (end - begin) / _HOUR,
            "gpu_hours": finite(gpu_hours),
            "moves": None if moves is None else float(moves),
            "rounds": float(summary.get("rounds", len(self.round_index))),
        }

    def _all_apps(self) -> list[RunApp]:
        """The known apps, and those that are only known from their segments."""
        known = dict(self.apps.found)
        for item in self.held:
            if item.app not in known:
                known[item.app] = RunApp(item.app)
        return sorted(known.values(), key=lambda app: (app.submitted or 0.0, app.app))

    def _seconds(self) -> dict[str, float]:
        seconds: dict[str, float] = {}
        for item in self.held:
            seconds[item.app] = seconds.get(item.app, 0.0) + item.end - item.start
        return seconds

    def _span(self) -> tuple[float, float]:
        times = [app.submitted for app in self.apps.found.values() if app.submitted is not None]
        times += [item.start for item in self.held[:1]]
        ends = [app.ended for app in self.apps.found.values() if app.ended is not None]
        ends += [max((item.end for item in self.held), default=0.0)]
        ends += [item.line.settled for item in self.round_index[-1:]]
        return min(times, default=0.0), max(ends)

    def _row(self, app: RunApp, seconds: Mapping[str, float]) -> AppRow:
        history = self.histories.of(app.app)
        ended = app.ended is not None
        elapsed = app.ended - app.submitted if app.ended is not None and app.submitted else None
        state = app.outcome.partition(":")[0] or ("finished" if ended else "running")
        rho = app.rho if app.rho is not None else _last(history)
        return AppRow(
            app=app.app,
            owner=app.owner,
            state=state,
            reason=str(_last_reason(app)) if ended else _reason_now(history),
            rho=rho,
            held=0 if ended else None,
            submitted=app.submitted,
            ended=app.ended,
            elapsed=elapsed,
            ideal_seconds=elapsed / app.rho if elapsed and app.rho else None,
            gpu_seconds=app.gpu_seconds
            if app.gpu_seconds is not None
            else seconds.get(app.app),
            history=history.short(SHORT),
        )  # fmt: skip

    def _lease(self, item: HeldSegment) -> LeaseSegment:
        return LeaseSegment(item.gpu, self._machine(item.gpu), item.start, item.end, item.source)

    def _machine(self, gpu: int) -> str:
        if self.topology is None or gpu >= self.topology.gpus:
            return _UNKNOWN
        return self.topology.machines[self.topology.seats[gpu].machine].name

    def _machines(self) -> tuple[MachineRow, ...]:
        if self.topology is None:
            # The cluster file is gone; the GPUs that were held are known all the same.
            most = max((item.gpu for item in self.held), default=-1) + 1
            gpus = tuple(GpuRow(gpu, gpu, 0, "free") for gpu in range(most))
            row = MachineRow(_UNKNOWN, _UNKNOWN, "", 0.0, "present", gpus, note=self.note)
            return (row,) if gpus else ()
        return tuple(
            machine_row(
                machine,
                "present",
                tuple(
                    GpuRow(gpu, index, self.topology.seats[gpu].slot, "free")
                    for index, gpu in enumerate(self.topology.gpus_of[number])
                ),
                number,
            )
            for number, machine in enumerate(self.topology.machines)
        )


def _last(history: AppHistory) -> float | None:
    return history.rho[-1][1] if history.rho else None


def _reason_now(history: AppHistory) -> str | None:
    return history.reasons[-1][1] if history.reasons else None


def _last_reason(app: RunApp) -> Reason:
    return Reason.FAILED if app.outcome.startswith("failed") else Reason.ENDED


def _held_over_time(items: Sequence[HeldSegment]) -> tuple[tuple[float, float], ...]:
    """How many GPUs were held from each time on."""
    changes: dict[float, int] = {}
    for item in items:
        changes[item.start] = changes.get(item.start, 0) + 1
        changes[item.end] = changes.get(item.end, 0) - 1
    count, points = 0, []
    for at, change in sorted(changes.items()):
        if change:
            count += change
            points.append((at, float(count)))
    return tuple(points)


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
