"""The live system in virtual time against the simulator: the same decisions, and logs that tell."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support.log_contradictions import contradiction
from tests.support.small_sims import sim_app, workload_of
from themis.core.agent import events as agent_ev
from themis.core.arbiter import Arbiter
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.model import Phase, Slowdown, Topology
from themis.core.policies import policy
from themis.evaluation.rehearsal.rehearsal import Rehearsed, rehearse
from themis.recording.agent_log import AgentEntry, AgentLog, replay_agents
from themis.recording.codec import loads
from themis.recording.replay import Difference, Stepper
from themis.service.persistence.log_entries import commands_in, events_in
from themis.service.persistence.log_replay import replay_store
from themis.service.persistence.store import open_store
from themis.sim.config import PreparedRun, RunConfig, prepare
from themis.sim.driver import Simulation
from themis.sim.outcome import SimulationOutcome

VGG = Slowdown((1.0, 1.05, 1.29, 1.44))
COSTS = (7.5, 35.0)
WORKLOAD = workload_of(
    sim_app(
        "a", arrival=5.0, jobs=4, max_gpus=2, slowdown=VGG, costs=COSTS,
        phases=(Phase(4, 900), Phase(2, 700), Phase(1, 1200)),
    ),
    sim_app("b", arrival=40.0, work=7000.0, jobs=2, max_gpus=8, slowdown=VGG, costs=COSTS),
    sim_app("c", arrival=900.0, work=900.0, jobs=6, max_gpus=4, costs=COSTS),
)  # fmt: skip


def prepared() -> PreparedRun:
    config = RunConfig(cluster="demo16", options={"heartbeat": 10.0, "learn": True})
    return replace(prepare(config), workload=WORKLOAD)


Logged = tuple[list[ev.Event], tuple[cmd.Command, ...]]


@dataclass
class Log:
    """What an arbiter was told and decided."""

    events: list[ev.Event] = field(default_factory=list)
    commands: list[cmd.Command] = field(default_factory=list)

    def handled(self, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
        self.events.append(event)
        self.commands.extend(commands)

    def starts_and_stops(self) -> list[tuple[object, ...]]:
        kinds = ev.JobStarted | ev.JobStopped
        told = [event for event in self.events if isinstance(event, kinds)]
        # At one moment several nodes report, in any order.
        return sorted((e.at, type(e).__name__, e.app, e.job, e.gpus) for e in told)

    def bids(self) -> list[tuple[object, ...]]:
        told = [event for event in self.events if isinstance(event, ev.BidReceived)]
        return sorted((e.at, e.round, e.app, len(e.bid.rows)) for e in told)

    def grants(self) -> Counter[tuple[object, ...]]:
        return Counter(
            (lease.app, lease.gpu, lease.start, lease.end, lease.source)
            for command in self.commands
            if isinstance(command, cmd.Assign)
            for lease in (*command.granted, *command.renewed)
        )


@pytest.fixture(scope="module")
def simulated() -> tuple[SimulationOutcome, Log, AgentLog]:
    setup, log, book = prepared(), Log(), AgentLog()
    outcome = Simulation(
        setup.topology, setup.workload, setup.policy, setup.settings,
        seed=setup.config.seed, costs=setup.costs, learning=setup.learning,
        observers=[log], make_agent=book.make_agent,
    ).run()  # fmt: skip
    return outcome, log, book


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    folder = tmp_path_factory.mktemp("rehearsal")
    return rehearse(prepared(), folder, patience=1e5, wire=True, book=AgentLog())


@pytest.fixture(scope="module")
def entries(played: Rehearsed) -> list[Logged]:
    """The service's log."""
    with open_store(f"sqlite:///{played.store}", read_only=True) as store:
        bodies = [loads(stored.entry.body) for stored in store.entries()]
    return [(events_in(body), commands_in(body)) for body in bodies]


def log_of(entries: Sequence[Logged]) -> Log:
    log = Log()
    for events, commands in entries:
        log.events += events
        log.commands += commands
    return log


def test_live_system_and_simulator_take_the_same_decisions(
    simulated: tuple[SimulationOutcome, Log, AgentLog], played: Rehearsed, entries: list[Logged]
) -> None:
    outcome, theirs, _ = simulated
    ours = log_of(entries)
    assert {app: record.end for app, record in played.apps.items()} == pytest.approx(
        {app: record.end for app, record in outcome.apps.items()}
    )
    for app, record in played.apps.items():
        # What rho is made of: no honest app is taken for a liar, for one.
        assert record.phases == outcome.apps[app].phases
        assert record.mean_contention == pytest.approx(outcome.apps[app].mean_contention)
        assert not record.contradicted
    assert ours.starts_and_stops() == theirs.starts_and_stops()
    assert ours.bids() == theirs.bids()
    assert ours.grants() == theirs.grants()
    assert len(played.changes) > 15
    assert played.killed == 0


def test_live_run_logs_replay_to_the_same_decisions(
    played: Rehearsed, entries: list[Logged]
) -> None:
    with open_store(f"sqlite:///{played.store}", read_only=True) as store:
        assert replay_store(store, resolve=True).same
    told = replay_agents(played.agents)
    assert told.first_difference is None
    log = log_of(entries)
    assert told.bids == sum(isinstance(event, ev.BidReceived) for event in log.events)
    assert told.starts > 15
    assert told.stops > 5
    assert not contradiction(played.agents, log.events, log.commands)


def test_the_logs_of_a_simulated_run_do_so_too(
    simulated: tuple[SimulationOutcome, Log, AgentLog],
) -> None:
    _, log, book = simulated
    assert replay_agents(book.entries).first_difference is None
    assert not contradiction(book.entries, log.events, log.commands)


def arbiter_replay(entries: Sequence[Logged]) -> Difference | None:
    """As `replay_store` does it, of entries that may have been tampered with."""
    setup = prepared()
    arbiter = Arbiter(Topology(()), policy("themis"), setup.settings, seed=setup.config.seed)
    stepper = Stepper(arbiter, "log", resolve=False)
    for number, (events, commands) in enumerate(entries, start=1):
        difference = stepper.step(
            number,
            events,
            commands,
            lambda got: tuple(item for item in got if not isinstance(item, cmd.WakeMe)),
        )
        if difference is not None:
            return difference
    return None


def swapped(items: Sequence[object], left: int, right: int) -> list[object]:
    changed = list(items)
    changed[left], changed[right] = changed[right], changed[left]
    return changed


@pytest.mark.parametrize("kind", [ev.BidReceived, ev.Solved, ev.AppArrived])
def test_swapped_arbiter_records_are_located(entries: list[Logged], kind: type) -> None:
    assert arbiter_replay(entries) is None
    places = [
        place
        for place, (events, commands) in enumerate(entries)
        if any(isinstance(event, kind) for event in events) and commands
    ]
    first, second = places[:2]
    difference = arbiter_replay(swapped(entries, first, second))  # type: ignore[arg-type]
    assert difference is not None
    assert first + 1 <= difference.line <= second + 1


@pytest.mark.parametrize("kind", [agent_ev.Asked, agent_ev.LeasesChanged, agent_ev.JobReached])
def test_swapped_agent_records_are_located(played: Rehearsed, kind: type) -> None:
    of_b = [entry for entry in played.agents if entry.app == ("a" if kind is agent_ev.JobReached
                                                              else "b")]  # fmt: skip
    places = [place for place, entry in enumerate(of_b) if isinstance(entry.event, kind)]
    first, second = places[0], places[-1]
    mixed: list[AgentEntry] = swapped(of_b, first, second)  # type: ignore[assignment]
    found = replay_agents(mixed)
    assert found.first_difference is not None
    assert first < found.entries <= second + 1
    assert found.first_difference.app == of_b[0].app


def test_reordered_bid_contradicts_the_agent_logs(played: Rehearsed, entries: list[Logged]) -> None:
    log = log_of(entries)
    of_b = [
        place
        for place, event in enumerate(log.events)
        if isinstance(event, ev.BidReceived) and event.app == "b"
    ]
    mixed: list[ev.Event] = swapped(log.events, of_b[0], of_b[1])  # type: ignore[assignment]
    assert contradiction(played.agents, mixed, log.commands).startswith("b: bids, number 1")


def test_a_rehearsal_leaves_nothing_behind_but_its_folder(played: Rehearsed) -> None:
    assert isinstance(played.store, Path)
    assert {change.job for change in played.changes} >= {"j0", "j1"}
    assert all(change.startup > 0.0 for change in played.changes)
