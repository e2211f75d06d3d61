"""Simulations: all work is done once, nobody shares a GPU, and time costs what it does live."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.requirements import examples
from tests.support.small_sims import NO_LEAD, Auditor, sim_app, simulate, workload_of
from themis.core.arbiter import RoundRecord, Settings, events
from themis.core.arbiter.commands import Ask, Command
from themis.core.fairness.loads import total_work
from themis.core.model import (
    NO_SLOWDOWN,
    AppId,
    Constraint,
    GpuId,
    LeaseSource,
    Machine,
    Phase,
    Slowdown,
    Topology,
)
from themis.core.policies import POLICIES, Allotment, DirectPolicy, Plan, View, policy
from themis.errors import InvariantError
from themis.sim.driver import STUCK_BEATS, Simulation
from themis.sim.modelled_jobs import NO_COSTS, JobCosts
from themis.sim.workloads import SimApp, Workload, true_phases

VGG = Slowdown((1.0, 1.05, 1.29, 1.44))
PAIR = Topology((Machine("m0", "r0", (2,)),))
EIGHT = Topology(
    (Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2,)), Machine("m2", "r1", (1, 1)))
)
FIXED = JobCosts(restart_median=30.0, restart_p95=30.0, checkpoint_low=5.0, checkpoint_high=5.0)
BELIEF = (5.0, 30.0)


def _random_app(rng: random.Random, number: int) -> SimApp:
    jobs = rng.choice([1, 2, 4])
    phases = []
    alive = jobs
    while True:
        phases.append(Phase(alive, rng.randint(1, 2000)))
        if alive == 1 or rng.random() < 0.2:
            break
        alive //= 2
    widest = rng.choice([1, 2, 4])
    return sim_app(
        f"app-{number}",
        arrival=rng.choice([0.0, rng.uniform(0.0, 3000.0)]),
        jobs=jobs,
        max_gpus=widest,
        min_gpus=rng.choice([1, 1, 1, widest]),
        phases=phases,
        qualities=[rng.random() for _ in range(jobs)],
        slowdown=rng.choice([VGG, NO_SLOWDOWN]),
        costs=(7.5, 35.0),
    )


def _random_workload(seed: int) -> Workload:
    rng = random.Random(seed)
    return workload_of(*(_random_app(rng, number) for number in range(rng.randint(1, 6))))


@examples(12)
@example(seed=6104, rule="worst-first")
@given(seed=st.integers(0, 10**6), rule=st.sampled_from(sorted(POLICIES)))
def test_every_job_of_every_phase_does_exactly_its_work(seed: int, rule: str) -> None:
    _check_run(seed, rule, Settings())


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_so_does_it_when_processes_must_leave_while_they_start(seed: int) -> None:
    # Leases are hardly longer than it takes to start: whoever waits for the slot begins at once.
    _check_run(seed, "tiresias", Settings(lease=120.0, idle_after=30.0))


def _check_run(seed: int, rule: str, settings: Settings) -> None:
    workload = _random_workload(seed)
    auditor = Auditor()
    outcome = simulate(EIGHT, workload, rule, settings, costs=JobCosts(), observers=[auditor])
    assert set(outcome.apps) == {app.spec.id for app in workload.apps}
    assert outcome.refused == []
    assert outcome.failed_rounds == 0
    assert auditor.running == {}
    for app in workload.apps:
        record, spent = outcome.apps[app.spec.id], outcome.spent[app.spec.id]
        phases = true_phases(app)
        assert record.phases == phases
        assert spent.useful == pytest.approx(total_work(phases))
        held = sum(record.attained.values())
        used = spent.useful + spent.slowed + spent.restart + spent.checkpoint
        assert used <= held * (1 + 1e-9)
        assert held <= EIGHT.gpus * (record.end - record.arrival) * (1 + 1e-9)


@pytest.mark.parametrize("rule", ["equal-share", "themis"])
def test_the_same_seed_gives_the_same_run_and_another_one_does_not(rule: str) -> None:
    workload = _random_workload(7)
    runs = [simulate(EIGHT, workload, rule, seed=seed, costs=JobCosts()) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_loser_saves_within_its_lease_and_winner_starts_afterwards() -> None:
    # The round for the beat at 600 s opens 38 s before it; a is told at once and needs 5 s.
    auditor = Auditor()
    workload = workload_of(
        sim_app("a", work=1200.0, max_gpus=2, costs=BELIEF),
        sim_app("b", arrival=100.0, work=600.0, max_gpus=2, costs=BELIEF),
    )
    outcome = simulate(PAIR, workload, "tiresias", costs=FIXED, observers=[auditor])
    lead = Settings().round_lead
    assert auditor.times("a")[:2] == [(0.0, "start", (0, 1)), (605.0 - lead, "stop", (0, 1))]
    assert auditor.times("b") == [
        (605.0 - lead, "start", (0, 1)),
        # 30 s to start, 600 s on two GPUs.
        (605.0 - lead + 30.0 + 300.0, "stop", (0, 1)),
    ]
    # Free GPUs are pooled for 30 s, then a does the rest of its 1200 s after another start.
    again = auditor.finished[AppId("b")] + Settings().pooling
    done = 2 * (600.0 - lead - 30.0)
    assert auditor.times("a")[2:] == [
        (again, "start", (0, 1)),
        (pytest.approx(again + 30.0 + (1200.0 - done) / 2), "stop", (0, 1)),
    ]
    spent = outcome.spent[workload.apps[0].spec.id]
    assert spent.checkpoint == pytest.approx(2 * 5.0)
    assert spent.restart == pytest.approx(2 * 2 * 30.0)
    assert outcome.moves == 1


def test_unreported_slot_passes_on_after_lease_and_guard() -> None:
    # A checkpoint of 50 s is written until 612 s; the lease ends at 600 s, the guard at 602 s.
    auditor = Auditor()
    slow = JobCosts(30.0, 30.0, 50.0, 50.0)
    workload = workload_of(
        sim_app("a", work=1200.0, max_gpus=2, costs=BELIEF),
        sim_app("b", arrival=100.0, work=600.0, max_gpus=2, costs=BELIEF),
    )
    simulate(PAIR, workload, "tiresias", costs=slow, observers=[auditor])
    leases = [lease for lease in auditor.leases.values() if lease.app == "b"]
    assert {lease.start for lease in leases} == {602.0}
    assert auditor.times("b")[0] == (612.0, "start", (0, 1))


def test_renewed_processes_are_not_touched() -> None:
    auditor = Auditor()
    workload = workload_of(sim_app("a", work=10_000.0, max_gpus=2))
    outcome = simulate(PAIR, workload, "themis", costs=FIXED, observers=[auditor])
    assert outcome.rounds > 5
    assert auditor.times("a") == [(0.0, "start", (0, 1)), (5030.0, "stop", (0, 1))]
    assert len(auditor.leases) == 2


def test_without_costs_or_lead_a_lone_job_ends_after_its_work() -> None:
    outcome = simulate(PAIR, workload_of(sim_app("a", work=5000.0, max_gpus=2)), "fifo", NO_LEAD)
    assert outcome.end == pytest.approx(2500.0)


def test_finished_apps_gpus_go_to_the_next_within_the_pooling_window() -> None:
    auditor = Auditor()
    workload = workload_of(
        sim_app("a", work=100.0, max_gpus=2), sim_app("b", arrival=1.0, work=100.0, max_gpus=2)
    )
    simulate(PAIR, workload, "fifo", Settings(pooling=7.0), observers=[auditor])
    assert auditor.times("b")[0] == (57.0, "start", (0, 1))


def test_an_app_that_can_never_run_is_refused_and_the_others_finish() -> None:
    workload = workload_of(
        sim_app("big", max_gpus=4, min_gpus=4), sim_app("small", arrival=5.0, work=100.0)
    )
    outcome = simulate(PAIR, workload, "themis")
    assert list(outcome.apps) == ["small"]
    assert len(outcome.refused) == 1
    assert "needs 4 GPUs at once" in outcome.refused[0]


class Miser(DirectPolicy):
    """Gives nothing to anybody."""

    name: ClassVar[str] = "miser"

    def plan(self, view: View, rng: random.Random) -> Plan:
        return Plan(())


def test_run_without_any_progress_is_aborted() -> None:
    workload = workload_of(sim_app("a", work=10.0), sim_app("b", arrival=700.0, work=10.0))
    with pytest.raises(InvariantError, match="2 apps wait and nothing has run since 700 s"):
        simulate(PAIR, workload, Miser())


def test_a_long_time_without_apps_is_no_reason_to_give_up() -> None:
    late = 10.0 * STUCK_BEATS * 600.0
    workload = workload_of(sim_app("a", work=10.0), sim_app("b", arrival=late, work=10.0))
    assert simulate(PAIR, workload, "fifo").end == pytest.approx(late + 10.0)


def test_auction_without_winners_is_held_again() -> None:
    # Both bid for the only GPU, the winner may lose it in the lottery, and without beats no lease
    # ends that would bring the next round.
    alone = Topology((Machine("m0", "r0", (1,)),))
    workload = workload_of(sim_app("a", work=3000.0), sim_app("b", work=3000.0))
    options = {"payment": "lottery", "f": 0.0}
    for seed in range(5):
        outcome = simulate(alone, workload, "themis-paper", seed=seed, options=options)
        assert set(outcome.apps) == {"a", "b"}


def test_without_beats_what_ends_is_offered_once() -> None:
    rounds: list[RoundRecord] = []
    Simulation(
        PAIR,
        workload_of(sim_app("a", work=5000.0)),  # the other GPU is free, and is offered each time
        policy("themis-paper"),
        Settings(),
        seed=1,
        costs=NO_COSTS,
        on_round=rounds.append,
    ).run()
    at_ends = [record.opened for record in rounds if record.trigger == "beat"]
    assert len(at_ends) == len(set(at_ends)) > 1


def test_the_record_of_every_round_and_lease_is_handed_on() -> None:
    rounds: list[RoundRecord] = []
    segments: list[tuple[GpuId, float, float]] = []
    simulation = Simulation(
        PAIR,
        workload_of(sim_app("a", work=2000.0, max_gpus=2)),
        policy("fifo"),
        Settings(),
        seed=1,
        costs=NO_COSTS,
        on_round=rounds.append,
        on_segment=lambda part: segments.append((part.gpu, part.start, part.end)),
    )
    outcome = simulation.run()
    assert [record.round for record in rounds] == list(range(1, outcome.rounds + 1))
    # What the arrival was given goes on as a lease of the beat: the source changes, not the holder.
    assert sorted(segments) == [
        (0, 0.0, 562.0),
        (0, 562.0, 1000.0),
        (1, 0.0, 562.0),
        (1, 562.0, 1000.0),
    ]


class LatestTakesAll(DirectPolicy):
    """Everything to whoever came last, whether it can use it or not."""

    name: ClassVar[str] = "latest-takes-all"

    def plan(self, view: View, rng: random.Random) -> Plan:
        latest = max(view.apps, key=lambda app: app.arrival)
        return Plan((Allotment(latest.app, view.offer, LeaseSource.DIRECT),))


class Releases:
    """Who gave GPUs back, and when."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, str]] = []

    def handled(self, event: events.Event, commands: Sequence[Command]) -> None:
        del commands
        if isinstance(event, events.GpusReleased):
            self.seen.append((event.at, event.app))


def test_a_promised_slot_that_is_given_back_is_not_waited_for() -> None:
    # At 562 s b is promised two GPUs on which a still writes a checkpoint, and can use one only.
    apart = Topology((Machine("m0", "r0", (1, 1)),))
    workload = workload_of(
        sim_app("a", work=3000.0, max_gpus=2),
        sim_app("b", arrival=1.0, work=100.0, max_gpus=2, slowdown=Slowdown((1.0, 9.0, 9.0, 9.0))),
    )
    releases = Releases()
    costs = JobCosts(0.0, 0.0, 20.0, 20.0)
    simulate(apart, workload, LatestTakesAll(), costs=costs, observers=[releases])
    assert releases.seen[0] == (562.0, "b")


def test_apps_run_only_where_their_constraint_allows() -> None:
    mixed = Topology((Machine("m0", "r0", (2,)), Machine("m1", "r0", (2,), gpu_model="k80")))
    app = sim_app("a", work=100.0, max_gpus=4)
    picky = replace(app, spec=replace(app.spec, constraint=Constraint(gpu_model="k80")))
    auditor = Auditor()
    simulate(mixed, workload_of(picky), "themis", observers=[auditor])
    assert auditor.times("a")[0] == (0.0, "start", (2, 3))


def test_forgetting_stale_ends_of_processes_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps = [sim_app(f"a{n}", arrival=90.0 * n, work=5000.0, jobs=3, max_gpus=2) for n in range(5)]
    machines = tuple(Machine(f"m{n}", "r0", (2,)) for n in range(2))

    def ends() -> dict[str, float]:
        outcome = simulate(Topology(machines), workload_of(*apps), "tiresias", costs=JobCosts())
        return {str(app): record.end for app, record in outcome.apps.items()}

    rarely = ends()
    monkeypatch.setattr("themis.sim.event_heap.LEAST_TO_TIDY", 1)
    assert ends() == rarely


class _Broken(DirectPolicy):
    name: ClassVar[str] = "broken"

    def plan(self, view: View, rng: random.Random) -> Plan:
        raise ValueError("boom")


def test_a_policy_that_always_fails_is_named_with_its_line() -> None:
    with pytest.raises(InvariantError, match=r"ValueError: boom \(test_driver\.py, line \d+\)"):
        simulate(PAIR, workload_of(sim_app("a")), _Broken())


def test_a_round_at_a_beat_knows_how_far_all_apps_are() -> None:
    class Watch:
        opened: ClassVar[list[str]] = []

        def handled(self, event: events.Event, commands: Sequence[Command]) -> None:
            if any(isinstance(command, Ask) for command in commands):
                self.opened.append(type(event).__name__)

    apps = (sim_app(f"a{n}", work=9000.0, jobs=2, max_gpus=8) for n in range(3))
    simulate(EIGHT, workload_of(*apps), "themis", observers=[Watch()])
    assert Watch.opened.count("Woken") > 5
    assert "ProgressMeasured" not in Watch.opened
