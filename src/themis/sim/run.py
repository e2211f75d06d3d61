"""One simulated run from configuration to results.

result = run(RunConfig(policy="themis", apps=20))
result.summary["max_rho_ref"]["fair_share"]
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from themis.core.arbiter import RoundRecord
from themis.core.arbiter.commands import Command
from themis.core.arbiter.events import Event
from themis.core.fairness.fluid import FluidResult
from themis.core.fairness.ideal_time import Convention
from themis.core.model import AppId, GpuId, Lease, LeaseSource, Topology
from themis.display import Displayed, Sheet, Table
from themis.errors import ConfigError
from themis.recording.event_log import LogWriter, header_of
from themis.sim.config import PreparedRun, RunConfig, prepare
from themis.sim.direct_agents import Watch
from themis.sim.driver import Simulation
from themis.sim.metrics import HOUR, AppResult, app_results, limits, reference, summarise
from themis.sim.outcome import SimulationOutcome
from themis.sim.runs.data_frames import app_rows, frame

if TYPE_CHECKING:
    from themis.sim.figures.plot_style import Drawing

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Segment:
    """One GPU held by one app without a break and from one source."""

    gpu: GpuId
    app: AppId
    start: float
    end: float
    source: LeaseSource


@dataclass(frozen=True, slots=True, repr=False)
class RunResult(Displayed):
    """What a run gives. Nothing in it depends on the machine."""

    prepared: PreparedRun
    summary: dict[str, Any]
    apps: tuple[AppResult, ...]
    segments: tuple[Segment, ...]
    rounds: tuple[RoundRecord, ...]
    outcome: SimulationOutcome
    fluid: dict[AppId, FluidResult]

    def __repr__(self) -> str:
        # All of it would fill a notebook.
        told, worst = self.summary, self.summary["max_rho_ref"][Convention.FAIR_SHARE]
        return (
            f"RunResult({told['policy']} on {told['cluster']}, {told['workload']}, "
            f"{told['apps']} apps, seed {told['seed']}: max rho_ref {worst:.2f})"
        )

    def _sheet(self) -> Sheet:
        told = self.summary
        title = (
            f"{told['policy']} on {told['cluster']}: {told['workload']}, {told['apps']} apps, "
            f"seed {told['seed']}"
        )
        fair = Convention.FAIR_SHARE
        columns = ("app", "arrival h", "completion h", "GPU hours", "rho", "rho_ref")
        rows = tuple(
            (
                *(app.app, app.arrival / 3600, app.completion / 3600, app.gpu_seconds / 3600),
                *(app.rho[fair], app.rho_ref[fair]),
            )
            for app in sorted(self.apps, key=lambda app: -app.rho_ref[fair])
        )
        worst = f"max rho_ref {told['max_rho_ref'][fair]:.2f}"
        share = f"{told['share_fair_ref'][fair]:.0%} of the apps at most 1.05"
        note = f"{worst}, {share}; fair share, the worst off first"
        return Sheet(title, (Table(columns, rows),), (note,))

    @property
    def topology(self) -> Topology:
        """The cluster it ran on."""
        return self.prepared.topology

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row per app, times in hours.

        Raises:
            ConfigError: pandas is missing.
        """
        return frame(app_rows(self.apps))

    def plot(self, kind: str = "rho") -> "Drawing":
        """A figure: `rho`, `timeline`, `usage` or `placement`. Notebooks show it by themselves.

        Raises:
            ConfigError: No such figure, or matplotlib is missing.
        """
        from themis.sim.figures.run_figures import run_figure  # noqa: PLC0415 - it imports this module

        if kind in {"timeline", "usage"} and not self.segments:
            raise ConfigError("segments", "none were kept", "run(..., keep_segments=True)")
        return run_figure(self, kind)


class _Stretches:
    """Joins what follows each other on a GPU, so that only changes of hands take room."""

    def __init__(self, give: Callable[[Segment], None]) -> None:
        self._give = give
        self._last: dict[GpuId, Segment] = {}

    def add(self, part: Lease) -> None:
        """A lease or a part of one that is over; those of a GPU come in order."""
        if part.end <= part.start:
            return
        last, start = self._last.get(part.gpu), part.start
        if last is not None:
            if (last.app, last.end, last.source) == (part.app, part.start, part.source):
                start = last.start
            else:
                self._give(last)
        self._last[part.gpu] = Segment(part.gpu, part.app, start, part.end, part.source)

    def finish(self) -> None:
        """Give what nothing follows."""
        for gpu in sorted(self._last):
            self._give(self._last.pop(gpu))


class _Logging:
    """Writes every event with its commands to a log."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log

    def handled(self, event: Event, commands: Sequence[Command]) -> None:
        """One call of the arbiter."""
        self._log.write(event, commands)


def _takers(*each: Callable[[_Item], object] | None) -> list[Callable[[_Item], object]]:
    return [take for take in each if take is not None]


def _to_all(takers: Sequence[Callable[[_Item], object]]) -> Callable[[_Item], None]:
    def give(item: _Item) -> None:
        for take in takers:
            take(item)

    return give


def run(
    config: RunConfig | PreparedRun,
    *,
    keep_rounds: bool = False,
    keep_segments: bool = True,
    on_round: Callable[[RoundRecord], None] | None = None,
    on_segment: Callable[[Segment], None] | None = None,
    log_to: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    watch: Watch | None = None,
) -> RunResult:
    """Simulate.

    Rounds and segments are what grows with simulated time. Long runs take them as they come, or
    not at all, and keep neither.

    Args:
        config: What to run.
        keep_rounds: Whether to keep every round's record in memory.
        keep_segments: Whether to keep who held which GPU when, for figures.
        on_round: Called with every round's record.
        on_segment: Called with every segment once it has ended, in order for each GPU.
        log_to: Where to write the event log, if anywhere.
        progress: Called now and then with apps finished and apps in all.
        watch: Times bids and auctions, if anybody wants to know; changes nothing.
    """
    prepared = config if isinstance(config, PreparedRun) else prepare(config)
    segments: list[Segment] = []
    rounds: list[RoundRecord] = []

    round_takers = _takers(rounds.append if keep_rounds else None, on_round)
    segment_takers = _takers(segments.append if keep_segments else None, on_segment)
    stretches = _Stretches(_to_all(segment_takers))

    def on_progress(_: float, done: int) -> None:
        if progress is not None:
            progress(done, len(prepared.workload.apps))

    with ExitStack() as stack:
        observers = []
        if log_to is not None:
            header = header_of(
                prepared.topology,
                prepared.config.policy,
                prepared.settings,
                seed=prepared.config.seed,
                options=prepared.policy_options,
            )
            observers.append(_Logging(stack.enter_context(LogWriter(log_to, header))))
        simulation = Simulation(
            prepared.topology,
            prepared.workload,
            prepared.policy,
            prepared.settings,
            seed=prepared.config.seed,
            costs=prepared.costs,
            faults=prepared.faults,
            learning=prepared.learning,
            solver_name=prepared.solver,
            observers=observers,
            on_round=_to_all(round_takers) if round_takers else None,
            on_segment=stretches.add if segment_takers else None,
            on_progress=on_progress,
            watch=watch,
        )
        outcome = simulation.run()
        stretches.finish()
    fluid = dict(reference(prepared.workload, prepared.topology))
    apps = app_results(outcome, prepared.workload, prepared.topology, fluid)
    summary = summarise(
        outcome,
        prepared.workload,
        prepared.topology,
        apps,
        fluid,
        policy=prepared.config.policy,
        seed=prepared.config.seed,
    )
    best = None
    if prepared.floor:
        best = limits(
            prepared.workload, prepared.topology, fluid, prepared.costs, prepared.config.seed
        )
    summary["floor_rho_ref"] = best and best.floor
    summary["placed_floor_rho_ref"] = best and best.placed_floor
    summary["placed_fluid_h"] = best and best.fluid / HOUR
    summary["placed_over_work"] = best and best.over_work
    summary["most_fair_ref"] = best and best.share_fair
    summary["max_rho_alone"] = {kind: best and best.rho_alone(apps, kind) for kind in Convention}
    return RunResult(prepared, summary, apps, tuple(segments), tuple(rounds), outcome, fluid)
