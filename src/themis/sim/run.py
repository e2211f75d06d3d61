"""One simulated run from configuration to results.

result = run(RunConfig(policy="themis", apps=20))
result.summary["max_rho_ref"]["fair_share"]
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from themis.arbiter import RoundRecord
from themis.arbiter.commands import Command
from themis.arbiter.events import Event
from themis.fairness.fluid import FluidResult
from themis.model import AppId, GpuId, Lease, Source, Topology
from themis.records.log import LogWriter, header_of
from themis.sim.config import Prepared, RunConfig, prepare
from themis.sim.driver import Outcome, Simulation
from themis.sim.frames import app_rows, frame
from themis.sim.metrics import AppResult, app_results, floor_rho_ref, reference, summarise

if TYPE_CHECKING:
    from themis.sim.canvas import Drawing


@dataclass(frozen=True, slots=True)
class Segment:
    """One GPU held by one app without a break."""

    gpu: GpuId
    app: AppId
    start: float
    end: float
    source: Source


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run gives. Nothing in it depends on the machine."""

    prepared: Prepared
    summary: dict[str, Any]
    apps: tuple[AppResult, ...]
    segments: tuple[Segment, ...]
    rounds: tuple[RoundRecord, ...]
    outcome: Outcome
    fluid: dict[AppId, FluidResult]

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
        from themis.sim.figures import run_figure  # noqa: PLC0415 - it imports this module

        return run_figure(self, kind)


class _Logging:
    """Writes every event with its commands to a log."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log

    def handled(self, event: Event, commands: Sequence[Command]) -> None:
        """One call of the arbiter."""
        self._log.write(event, commands)


def run(
    config: RunConfig | Prepared,
    *,
    keep_rounds: bool = False,
    log_to: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RunResult:
    """Simulate.

    Args:
        config: What to run.
        keep_rounds: Whether to keep every round's record in memory.
        log_to: Where to write the event log, if anywhere.
        progress: Called now and then with apps finished and apps in all.
    """
    prepared = config if isinstance(config, Prepared) else prepare(config)
    segments: list[Segment] = []
    rounds: list[RoundRecord] = []

    def on_segment(part: Lease) -> None:
        if part.end > part.start:
            segments.append(Segment(part.gpu, part.app, part.start, part.end, part.source))

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
            solver_name=prepared.solver,
            observers=observers,
            on_round=rounds.append if keep_rounds else None,
            on_segment=on_segment,
            on_progress=on_progress,
        )
        outcome = simulation.run()
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
    floor = None
    if prepared.floor:
        floor = floor_rho_ref(
            prepared.workload, prepared.topology, fluid, prepared.costs, prepared.config.seed
        )
    summary["floor_rho_ref"] = floor
    return RunResult(prepared, summary, apps, tuple(segments), tuple(rounds), outcome, fluid)
