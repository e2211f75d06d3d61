"""E17: the live system against the simulator, and what a change of hands takes.

The service, its store, its nodes and its agents play 20 apps of W2 on 64 pretend GPUs in virtual
time (`rehearsal`); the simulator plays the same. Time is not divided but skipped: with leases of
ten minutes in a second, what a busy machine adds to each step would be all that is seen.
"""

import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from themis import __version__
from themis.core.fairness.ideal_time import Convention
from themis.core.model import AppId
from themis.errors import RefusedError
from themis.evaluation.experiment import (
    NOTHING,
    Claim,
    Column,
    Experiment,
    ExtraData,
    Findings,
    NumberTable,
    Results,
    Row,
    Told,
    Verdict,
    alike,
    told,
)
from themis.evaluation.rehearsal.handover_timing import Handed, measure_handing_over
from themis.evaluation.rehearsal.pretend_engine import ProcessOverhead
from themis.recording.agent_log import AgentBook, replay_agents
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
"""For both: agents of the service always learn, and 20 nodes that report every two seconds for a
week would take an hour."""
MEMORY = Path("/dev/shm")
"""Where a rehearsal keeps its files, if there is such a place: it proves nothing about disks."""
PAPER_STARTUP, PAPER_CHECKPOINT = "35 (50) s", "5-10 s"
PAPER_OVERHEAD = 0.2
"""Percent of the duration of apps."""


@dataclass(frozen=True, slots=True)
class LiveRun:
    """What is kept of a rehearsal."""

    themis: str
    apps: tuple[AppResult, ...]
    changes: tuple[ProcessOverhead, ...]
    killed: int
    events: int
    """That the arbiter was told, and replayed."""
    decisions: tuple[int, int, int]
    """Bids, starts and stops of agents, replayed."""
    difference: str
    """Where a replay first went another way; empty if it did not."""


def configs(results: Results) -> list[RunConfig]:
    """The runs, each of them simulated and played live."""
    base = results.scope.base("w2", apps=APPS, quick=QUICK_APPS)
    return [
        RunConfig(base.cluster, 1, base.workload, base.apps, seed, options=OPTIONS)
        for seed in results.scope.seeds_of(SEEDS, 1)
    ]


def plan(results: Results) -> Iterable[RunConfig]:
    """The simulated ones."""
    return configs(results)


def pieces(results: Results) -> Iterable[ExtraData]:
    """The live ones, and real processes."""
    times = QUICK_CHANGES if results.scope.quick else CHANGES
    yield ExtraData(
        "processes change hands",
        _handed_path(results),
        lambda _: _bytes(measure_handing_over(times)),
    )
    for config in configs(results):
        yield ExtraData("the live system", _live_path(results, config), partial(_play, config))


def _live_path(results: Results, config: RunConfig) -> Path:
    return results.store.folder / f"{run_key(config)}.live"


def _handed_path(results: Results) -> Path:
    kind = "quick" if results.scope.quick else "full"
    return results.store.folder / f"handing-over-{kind}.live"


def _bytes(value: object) -> bytes:
    return (dumps(value) + "\n").encode()


# Playing


def _play(config: RunConfig, say: Callable[[str], None]) -> bytes:
    # Late: slow to import, and other experiments do without.
    from themis.evaluation.rehearsal.rehearsal import rehearse  # noqa: PLC0415

    prepared, book = prepare(config), AgentBook()
    count = len(prepared.workload.apps)
    place = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="themis-", dir=place) as folder:
        played = rehearse(
            prepared,
            Path(folder),
            progress=lambda done: say(f"({done} of {count} apps)"),
            book=book,
        )
        say("(replaying its logs)")
        found = _replayed(played)
    fluid = dict(reference(prepared.workload, prepared.topology))
    outcome = SimulationOutcome(apps=played.apps)
    apps = app_results(outcome, prepared.workload, prepared.topology, fluid)
    return _bytes(LiveRun(__version__, apps, played.changes, played.killed, *found))


def _replayed(played: "Rehearsed") -> tuple[int, tuple[int, int, int], str]:
    from themis.service.persistence.log_replay import replay_store  # noqa: PLC0415 - see above
    from themis.service.persistence.store import open_store  # noqa: PLC0415 - see above

    with open_store(f"sqlite:///{played.store}", read_only=True) as store:
        arbiter = replay_store(store)
    agents = replay_agents(played.agents)
    text = ""
    if arbiter.first_difference is not None:
        text = f"entry {arbiter.first_difference.line}: {arbiter.first_difference.text}"
    elif agents.first_difference is not None:
        text = f"{agents.first_difference.app}: {agents.first_difference.text}"
    return arbiter.events, (agents.bids, agents.starts, agents.stops), text


# Telling


@dataclass(frozen=True, slots=True)
class AppPair:
    """An app in both worlds."""

    seed: int
    app: AppId
    simulated: AppResult
    live: AppResult
    changes: tuple[ProcessOverhead, ...]

    @property
    def apart(self) -> float:
        """By how much rho is higher live, as a share."""
        return _rho(self.live) / _rho(self.simulated) - 1.0

    def share(self, startup: float, checkpoint: float) -> float:
        """The part of its GPUs' time that changes of hands take, each of so many seconds."""
        lost = sum(
            one.gpus * (startup + checkpoint * (one.checkpoint > 0.0)) for one in self.changes
        )
        return lost / self.live.gpu_seconds

    @property
    def modelled(self) -> float:
        """The same with the seconds that were played."""
        lost = sum(one.gpus * (one.startup + one.checkpoint) for one in self.changes)
        return lost / self.live.gpu_seconds


def _rho(app: AppResult) -> float:
    return app.rho[Convention.FAIR_SHARE]


def _load(path: Path, kind: type) -> object | None:
    try:
        return decode(kind, loads(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, RefusedError):
        return None


def _lives(results: Results) -> dict[int, LiveRun]:
    found = {
        config.seed: _load(_live_path(results, config), LiveRun) for config in configs(results)
    }
    return {seed: live for seed, live in found.items() if isinstance(live, LiveRun)}


def _pairs(results: Results, lives: dict[int, LiveRun]) -> list[AppPair]:
    pairs = []
    for config in configs(results):
        record, live = results.find(config), lives.get(config.seed)
        if record is None or live is None:
            continue
        played = {app.app: app for app in live.apps}
        for app in record.apps:
            changes = tuple(one for one in live.changes if one.app == app.app)
            if app.app in played:
                pairs.append(AppPair(config.seed, app.app, app, played[app.app], changes))
    return pairs


def _rho_claim(pairs: Sequence[AppPair]) -> Claim:
    found, verdict = NOTHING, Verdict.OPEN
    why = "Nothing was played yet."
    if pairs:
        worst = max(pairs, key=lambda pair: abs(pair.apart))
        exact = sum(abs(pair.apart) < 1e-9 for pair in pairs)
        found = told(100.0 * abs(worst.apart), ".2f", " %")
        verdict = Verdict.HOLDS if abs(worst.apart) <= CLOSE else Verdict.FAILS
        why = (
            f"The largest of {len(pairs)} apps, {worst.app}; {exact} apps end at the same moment "
            "in both. What differs is what nodes and agents know when: they hear of progress when "
            "nodes report, the simulator's at once."
        )
    return alike("rho per app, live against simulated", Told("5 %", 5.0), found, verdict, why)


def _replay_claim(lives: dict[int, LiveRun]) -> Claim:
    if not lives:
        return alike(
            "The logs of the live run, replayed, give the same decisions",
            NOTHING, NOTHING, Verdict.OPEN, "Nothing was played yet.",
        )  # fmt: skip
    different = next((live.difference for live in lives.values() if live.difference), "")
    bids, starts, stops = (sum(live.decisions[k] for live in lives.values()) for k in range(3))
    return alike(
        "The logs of the live run, replayed, give the same decisions",
        Told("yes"),
        Told("no" if different else "yes"),
        Verdict.FAILS if different else Verdict.HOLDS,
        different
        or f"{sum(live.events for live in lives.values())} events of the arbiter with all grants, "
        f"{bids} bids, {starts} starts and {stops} stops of agents, fed to fresh cores.",
    )


def _times(values: Sequence[float]) -> Told:
    if not values:
        return NOTHING
    median, high = quantile(values, 0.5), quantile(values, 0.95)
    return Told(f"{median:.2f} ({high:.2f}) s", median)


def _hands_claims(handed: Handed | None, pairs: Sequence[AppPair]) -> list[Claim]:
    startups = handed.startups if handed else ()
    checkpoints = handed.checkpoints if handed else ()
    why = (
        f"Median (95th percentile) of {len(startups)} processes under the node's engine "
        f"({handed.control}), with a program that loads nothing: what Themis itself takes. The "
        "paper's time has container images and frameworks in it, which the simulator therefore "
        "goes on to assume."
        if handed
        else "Nothing was measured yet."
    )
    # Not the whole of what the paper measured, so it decides nothing about that.
    verdict = Verdict.OPEN
    claims = [
        alike("A change of containers", Told(PAPER_STARTUP), _times(startups), verdict, why),
        alike("A checkpoint", Told(PAPER_CHECKPOINT), _times(checkpoints), verdict, why),
    ]
    share, text, modelled = NOTHING, "Nothing was played yet.", list[float]()
    if pairs and handed:
        each = (quantile(startups, 0.5), quantile(checkpoints, 0.5))
        own = [100.0 * pair.share(*each) for pair in pairs]
        modelled = [100.0 * pair.modelled for pair in pairs]
        mean = math.fsum(modelled) / len(modelled)
        share = Told(f"{mean:.1f} ({max(modelled):.1f}) %", mean)
        text = (
            "Mean over apps (most of one), with the paper's times, which were played for each of "
            f"the {sum(len(pair.changes) for pair in pairs)} processes of the live run, as a share "
            "of the time that its app held GPUs. With the medians measured here it is "
            f"{math.fsum(own) / len(own):.3f} %."
        )
    claims.append(
        alike(
            "Changes of containers and checkpoints, of the apps' duration",
            Told("0.2 (2) %"), share, _overhead(modelled), text,
        )
    )  # fmt: skip
    return claims


def _overhead(played: Sequence[float]) -> Verdict:
    """By the times that were played, which are the paper's; ours have no containers in them."""
    if not played:
        return Verdict.OPEN
    return Verdict.HOLDS if math.fsum(played) / len(played) <= PAPER_OVERHEAD else Verdict.FAILS


def _table(pairs: Sequence[AppPair], handed: Handed | None) -> NumberTable:
    startup = quantile(handed.startups, 0.5) if handed else math.nan
    checkpoint = quantile(handed.checkpoints, 0.5) if handed else math.nan
    rows: list[Row] = [
        (
            pair.seed,
            pair.app,
            _rho(pair.simulated),
            _rho(pair.live),
            100.0 * pair.apart,
            len(pair.changes),
            quantile([one.startup for one in pair.changes], 0.5),
            quantile([one.checkpoint for one in pair.changes if one.checkpoint], 0.5),
            100.0 * pair.modelled,
            100.0 * pair.share(startup, checkpoint),
        )
        for pair in pairs
    ]
    return NumberTable(
        "apps",
        "rho (fair_share) in both worlds; what changes of hands take of the time that GPUs were "
        "held, with the times that were played and with those measured on this machine",
        (Column("seed"), Column("app"), Column("simulated", ".3f"), Column("live", ".3f"),
         Column("apart, %", "+.2f"), Column("processes"), Column("start-up, s", ".1f"),
         Column("checkpoint, s", ".1f"), Column("share, %", ".2f"),
         Column("measured, %", ".3f")),
        tuple(rows),
    )  # fmt: skip


def study(results: Results) -> Findings:
    """Hold the two against each other."""
    lives = _lives(results)
    pairs = _pairs(results, lives)
    found = _load(_handed_path(results), Handed)
    handed = found if isinstance(found, Handed) else None
    killed = sum(live.killed for live in lives.values())
    return Findings(
        claims=(_rho_claim(pairs), _replay_claim(lives), *_hands_claims(handed, pairs)),
        tables=(_table(pairs, handed),),
        notes=(
            ("Played with the service, its SQLite store, a node for every machine and an agent for "
            "every app as they run in production, in one process and in virtual time: it passes as "
            "soon as nothing is left to do. A job is a timer that starts, trains and saves as the "
            "simulator's do. Calls are not sent over gRPC, which knows no time but the real one."),
            ("Time was not compressed by a factor: at 500 times the speed the 0.2 s that a process "
            "takes to start would count as 100 s, and a busy machine would decide the auction."),
            (f"Heartbeats are {OPTIONS['heartbeat']:g} s apart in both, not 2 s, and rounds open "
            "that much earlier. Agents learn slowdowns in both."),
            *((f"{killed} processes had to be killed.",) if killed else ()),
        ),
    )  # fmt: skip


EXPERIMENT = Experiment(
    "E17",
    "The live system against the simulator",
    "The simulator is faithful to the testbed: rho per app within 5 %. A change of containers "
    "takes 35 (50) s and a checkpoint 5-10 s.",
    study,
    plan,
    pieces,
)
