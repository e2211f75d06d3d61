"""E17: the live system against the simulator, and how long a change of containers takes.

The service, its store, its nodes and its agents run 20 apps of W2 on 64 pretend GPUs in virtual
time (`rehearsal`); the simulator runs the same apps. Virtual time skips idle stretches instead of
compressing them: with leases of ten minutes in a second, delays of a busy machine would dominate.
"""

import math
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from themis import __version__
from themis.core.fairness.ideal_time import Convention
from themis.core.model import AppId
from themis.errors import RefusedError
from themis.evaluation.claims import (
    NO_VALUE,
    Claim,
    ClaimAnswer,
    Quantity,
    Verdict,
    check,
    details,
    quantity,
)
from themis.evaluation.experiment import (
    Experiment,
    ExtraData,
    Findings,
    NumberTable,
    Results,
    number_table,
)
from themis.evaluation.rehearsal.handover_timing import HandoverTimes, measure_handovers
from themis.evaluation.rehearsal.pretend_engine import ProcessOverhead
from themis.recording.agent_log import AgentLog, replay_agents
from themis.recording.codec import decode, dumps, loads
from themis.sim.config import RunConfig, prepare
from themis.sim.metrics import AppResult, app_results, quantile, reference
from themis.sim.outcome import SimulationOutcome
from themis.sim.runs.result_cache import run_key

if TYPE_CHECKING:
    from themis.evaluation.rehearsal.rehearsal import Rehearsed

SEEDS = (101,)
APPS, QUICK_APPS = 20, 2
CLOSE = 0.05
"""By how much rho may differ."""
CHANGES, QUICK_CHANGES = 40, 5
OPTIONS = {"heartbeat": 30.0, "learn": True}
"""For both: agents of the service always learn, and with 20 nodes that report every two seconds a
week would take an hour."""
MEMORY = Path("/dev/shm")
"""The folder for files of a rehearsal, where it exists: E17 measures no disks."""
PAPER_OVERHEAD = 0.2
"""Percent of the duration of apps."""


@dataclass(frozen=True, slots=True)
class LiveRun:
    """The result of a rehearsal."""

    themis: str
    apps: tuple[AppResult, ...]
    changes: tuple[ProcessOverhead, ...]
    killed: int
    events: int
    """Events of the arbiter, rerehearsal."""
    decisions: tuple[int, int, int]
    """Bids, starts and stops of agents, rerehearsal."""
    difference: str
    """The first difference of a replay; empty if there is none."""


def configs(results: Results) -> list[RunConfig]:
    """The runs, each of them simulated and run live."""
    base = results.scope.base("w2", apps=APPS, quick=QUICK_APPS)
    return [
        RunConfig(base.cluster, 1, base.workload, base.apps, seed, options=OPTIONS)
        for seed in results.scope.seeds_of(SEEDS, 1)
    ]


def plan(results: Results) -> Iterable[RunConfig]:
    """The simulated runs."""
    return configs(results)


def extra_data(results: Results) -> Iterable[ExtraData]:
    """The times of real processes, and the live runs."""
    times = QUICK_CHANGES if results.scope.quick else CHANGES
    yield ExtraData(
        "processes that change hands",
        _handover_path(results),
        lambda _: _bytes(measure_handovers(times)),
    )
    for config in configs(results):
        yield ExtraData("the live system", _live_path(results, config), partial(_run_live, config))


def _live_path(results: Results, config: RunConfig) -> Path:
    return results.store.folder / f"{run_key(config)}.live"


def _handover_path(results: Results) -> Path:
    kind = "quick" if results.scope.quick else "full"
    return results.store.folder / f"handing-over-{kind}.live"


def _bytes(value: object) -> bytes:
    return (dumps(value) + "\n").encode()


# Running live


def _run_live(config: RunConfig, say: Callable[[str], None]) -> bytes:
    # Late: slow to import, and other experiments do without.
    from themis.evaluation.rehearsal.rehearsal import rehearse  # noqa: PLC0415

    prepared, book = prepare(config), AgentLog()
    count = len(prepared.workload.apps)
    place = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="themis-", dir=place) as folder:
        rehearsal = rehearse(
            prepared,
            Path(folder),
            progress=lambda done: say(f"({done} of {count} apps)"),
            book=book,
        )
        say("(replaying its logs)")
        found = _replayed(rehearsal)
    fluid = dict(reference(prepared.workload, prepared.topology))
    outcome = SimulationOutcome(apps=rehearsal.apps)
    apps = app_results(outcome, prepared.workload, prepared.topology, fluid)
    return _bytes(LiveRun(__version__, apps, rehearsal.changes, rehearsal.killed, *found))


def _replayed(rehearsal: "Rehearsed") -> tuple[int, tuple[int, int, int], str]:
    from themis.service.persistence.log_replay import replay_store  # noqa: PLC0415 - see above
    from themis.service.persistence.store import open_store  # noqa: PLC0415 - see above

    with open_store(f"sqlite:///{rehearsal.store}", read_only=True) as store:
        arbiter = replay_store(store)
    agents = replay_agents(rehearsal.agents)
    text = ""
    if arbiter.first_difference is not None:
        text = f"entry {arbiter.first_difference.line}: {arbiter.first_difference.text}"
    elif agents.first_difference is not None:
        text = f"{agents.first_difference.app}: {agents.first_difference.text}"
    return arbiter.events, (agents.bids, agents.starts, agents.stops), text


# Comparing


@dataclass(frozen=True, slots=True)
class AppPair:
    """An app in both worlds."""

    seed: int
    app: AppId
    simulated: AppResult
    live: AppResult
    changes: tuple[ProcessOverhead, ...]

    @property
    def difference(self) -> float:
        """By how much rho is higher live, as a share."""
        return _rho(self.live) / _rho(self.simulated) - 1.0

    def measured_share(self, startup: float, checkpoint: float) -> float:
        """The part of its GPU time that starts and checkpoints of this length take."""
        lost = sum(
            one.gpus * (startup + checkpoint * (one.checkpoint > 0.0)) for one in self.changes
        )
        return lost / self.live.gpu_seconds

    @property
    def modelled_share(self) -> float:
        """The same with the times of the live run, which are the paper's."""
        lost = sum(one.gpus * (one.startup + one.checkpoint) for one in self.changes)
        return lost / self.live.gpu_seconds


def _rho(app: AppResult) -> float:
    return app.rho[Convention.FAIR_SHARE]


_Kind = TypeVar("_Kind")


def _load(path: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        return decode(kind, loads(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, RefusedError):
        return None


@dataclass(frozen=True, slots=True)
class LiveComparison:
    """Everything that was run live, beside the simulated runs."""

    lives: tuple[LiveRun, ...]
    pairs: tuple[AppPair, ...]
    handovers: HandoverTimes | None

    @property
    def medians(self) -> tuple[float, float]:
        """Of the measured start-ups and checkpoints, in seconds."""
        if self.handovers is None:
            return math.nan, math.nan
        return quantile(self.handovers.startups, 0.5), quantile(self.handovers.checkpoints, 0.5)


def _compare(results: Results) -> LiveComparison:
    lives, pairs = [], []
    for config in configs(results):
        live, record = _load(_live_path(results, config), LiveRun), results.find(config)
        if live is None:
            continue
        lives.append(live)
        by_name = {app.app: app for app in live.apps}
        for app in () if record is None else record.apps:
            if app.app in by_name:
                changes = tuple(one for one in live.changes if one.app == app.app)
                pairs.append(AppPair(config.seed, app.app, app, by_name[app.app], changes))
    handovers = _load(_handover_path(results), HandoverTimes)
    return LiveComparison(tuple(lives), tuple(pairs), handovers)


NOT_RUN = ClaimAnswer(NO_VALUE, Verdict.UNDECIDED, printed=None)


def _same_rho(found: LiveComparison) -> ClaimAnswer:
    """The largest difference of an app."""
    if not found.pairs:
        return NOT_RUN
    worst = max(found.pairs, key=lambda pair: abs(pair.difference))
    exact = sum(abs(pair.difference) < 1e-9 for pair in found.pairs)
    return ClaimAnswer(
        quantity(100.0 * abs(worst.difference), ".2f", " %"),
        Verdict.HOLDS if abs(worst.difference) <= CLOSE else Verdict.FAILS,
        None,
        details(
            (f"the largest of {len(found.pairs)} apps", str(worst.app)),
            ("apps that end at the same moment in both", str(exact)),
        ),
    )


def _same_decisions(found: LiveComparison) -> ClaimAnswer:
    """The logs of the arbiter and of all agents, replayed by fresh cores."""
    if not found.lives:
        return NOT_RUN
    different = next((live.difference for live in found.lives if live.difference), "")
    bids, starts, stops = (sum(live.decisions[k] for live in found.lives) for k in range(3))
    return ClaimAnswer(
        Quantity("no" if different else "yes"),
        Verdict.FAILS if different else Verdict.HOLDS,
        None,
        details(
            ("first difference", different),
            ("events of the arbiter", str(sum(live.events for live in found.lives))),
            ("decisions of agents", f"{bids} bids, {starts} starts and {stops} stops"),
        ),
    )


def _time(found: LiveComparison, part: str) -> ClaimAnswer:
    """Median (95th percentile); not the whole of the paper's time, so it decides nothing."""
    values = getattr(found.handovers, part, ())
    if not values:
        return NOT_RUN
    assert found.handovers is not None
    median, high = quantile(values, 0.5), quantile(values, 0.95)
    return ClaimAnswer(
        Quantity(f"{median:.2f} ({high:.2f}) s", median),
        Verdict.UNDECIDED,
        None,
        details(("processes", str(len(values))), ("held by", found.handovers.control)),
    )


def _overhead(found: LiveComparison) -> ClaimAnswer:
    """Mean over apps (most of one), judged by the paper's times: ours have no containers."""
    modelled = [100.0 * pair.modelled_share for pair in found.pairs]
    if not modelled or found.handovers is None:
        return NOT_RUN
    mean = math.fsum(modelled) / len(modelled)
    verdict = Verdict.HOLDS if mean <= PAPER_OVERHEAD else Verdict.FAILS
    own = [100.0 * pair.measured_share(*found.medians) for pair in found.pairs]
    return ClaimAnswer(
        Quantity(f"{mean:.1f} ({max(modelled):.1f}) %", mean),
        verdict,
        None,
        details(
            ("processes", str(sum(len(pair.changes) for pair in found.pairs))),
            ("with the medians measured here", f"{math.fsum(own) / len(own):.3f} %"),
        ),
    )


CLAIMS: tuple[Claim[LiveComparison], ...] = (
    Claim("rho", "rho per app, live against simulated", Quantity("5 %", 5.0), _same_rho, "rho"),
    Claim(
        "replay",
        "The logs of the live run, replayed, give the same decisions",
        Quantity("yes"),
        _same_decisions,
        "Replay",
    ),
    Claim(
        "containers",
        "A change of containers",
        Quantity("35 (50) s"),
        partial(_time, part="startups"),
        "Changes of containers",
    ),
    Claim(
        "checkpoints",
        "A checkpoint",
        Quantity("5-10 s"),
        partial(_time, part="checkpoints"),
        "Changes of containers",
    ),
    Claim(
        "overhead",
        "Changes of containers and checkpoints, of the apps' duration",
        Quantity("0.2 (2) %"),
        _overhead,
        "The share of an app's duration",
    ),
)


def _table(found: LiveComparison) -> NumberTable:
    rows = [
        (
            pair.seed,
            pair.app,
            _rho(pair.simulated),
            _rho(pair.live),
            100.0 * pair.difference,
            len(pair.changes),
            quantile([one.startup for one in pair.changes], 0.5),
            quantile([one.checkpoint for one in pair.changes if one.checkpoint], 0.5),
            100.0 * pair.modelled_share,
            100.0 * pair.measured_share(*found.medians),
        )
        for pair in found.pairs
    ]
    columns = {
        "seed": "", "app": "", "simulated": ".3f", "live": ".3f", "difference, %": "+.2f",
        "processes": "", "start-up, s": ".1f", "checkpoint, s": ".1f", "share, %": ".2f",
        "measured, %": ".3f",
    }  # fmt: skip
    title = (
        "rho (fair_share) in both worlds; the share of held GPU time that starts and checkpoints "
        "take, with the times of the live run and with those measured on this machine"
    )
    return number_table("apps", title, columns, rows)


def study(results: Results) -> Findings:
    """Compare the live system with the simulator."""
    found = _compare(results)
    killed = sum(live.killed for live in found.lives)
    notes = (f"{killed} processes had to be killed.",) if killed else ()
    return Findings(check(CLAIMS, found), (_table(found),), notes=notes)


EXPERIMENT = Experiment(
    "E17",
    "The live system against the simulator",
    "The simulator is faithful to the testbed: rho per app within 5 %. A change of containers "
    "takes 35 (50) s and a checkpoint 5-10 s.",
    study,
    plan,
    extra_data,
    module=__name__,
)
