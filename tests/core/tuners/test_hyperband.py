"""Hyperband: brackets in sequence, fresh jobs for each, the best of all brackets wins."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_sims import sim_app, simulate, workload_of
from themis.core.arbiter.app_state import AppState
from themis.core.fairness.loads import declared_phases, total_work
from themis.core.fairness.schedules import hyperband
from themis.core.model import AppId, AppSpec, JobId, JobSpec, Machine, OwnerId, Phase, Topology
from themis.core.tuners import (
    Decision,
    Finished,
    Hyperband,
    NextPhase,
    has_brackets,
    hyperband_phases,
    jobs_needed,
    tuner_for,
)
from themis.errors import ConfigError
from themis.sim.workloads import true_phases

SMALL = hyperband_phases(9, eta=3)
"""9 jobs x 1, 3 x 2, 1 x 6; then 5 fresh ones x 3, 1 x 6; then 3 fresh ones x 9."""


def _jobs(count: int) -> tuple[JobSpec, ...]:
    return tuple(JobSpec(JobId(f"j{i}"), 1.0 + i) for i in range(count))


def _run(tuner: Hyperband, metric: dict[int, float]) -> tuple[list[NextPhase], JobId]:
    """Play a whole search in which each job always has the same metric."""
    steps: list[NextPhase] = []
    decision: Decision | None = tuner.begin()
    while isinstance(decision, NextPhase):
        steps.append(decision)
        for name, _ in decision.targets:
            decision = tuner.reached(name, metric.get(int(name[1:]), 1.0))
    assert isinstance(decision, Finished)
    return steps, decision.best


def test_the_phases_are_those_of_all_brackets_in_order() -> None:
    assert [(p.jobs, p.iterations) for p in SMALL] == [
        (9, 1),
        (3, 2),
        (1, 6),
        (5, 3),
        (1, 6),
        (3, 9),
    ]
    assert jobs_needed(SMALL) == 9 + 5 + 3
    assert jobs_needed(hyperband_phases(81)) == 81 + 34 + 15 + 8 + 5


@given(most=st.integers(1, 100_000), eta=st.integers(2, 9))
def test_a_growing_number_of_jobs_is_exactly_where_a_bracket_begins(most: int, eta: int) -> None:
    brackets = hyperband(most, eta)
    phases = hyperband_phases(most, eta)
    assert jobs_needed(phases) == sum(bracket.jobs for bracket in brackets)
    assert has_brackets(phases) == (len(brackets) > 1)


def test_a_new_bracket_trains_the_next_jobs_from_their_start() -> None:
    steps, _ = _run(Hyperband(_jobs(17), SMALL), {})
    trained = [[int(name[1:]) for name, _ in step.targets] for step in steps]
    assert trained == [
        list(range(9)),
        [0, 1, 2],
        [0],
        list(range(9, 14)),
        [9],
        [14, 15, 16],
    ]
    assert [step.targets[0][1] for step in steps] == [1, 3, 9, 3, 9, 9]


@pytest.mark.parametrize("best", [4, 11, 16])
def test_the_best_over_all_brackets_wins(best: int) -> None:
    _, winner = _run(Hyperband(_jobs(17), SMALL), {best: 0.1})
    assert winner == f"j{best}"


def test_a_metric_of_a_job_stopped_on_the_way_does_not_win() -> None:
    # At the first rung j7 is best; three times as far it has gone bad.
    tuner = Hyperband(_jobs(17), SMALL)
    decision: Decision | None = tuner.begin()
    while isinstance(decision, NextPhase):
        for name, target in decision.targets:
            metric = 1.0 if name != "j7" else (0.0 if target == 1 else 5.0)
            decision = tuner.reached(name, metric)
    assert decision == Finished(JobId("j0"))


def test_a_job_whose_metric_is_no_number_never_wins() -> None:
    _, winner = _run(Hyperband(_jobs(17), SMALL), dict.fromkeys(range(16), math.nan))
    assert winner == "j16"


def test_phases_of_later_brackets_copy_the_median_job() -> None:
    jobs = _jobs(17)
    tuner = Hyperband(jobs, SMALL)
    tuner.begin()
    spec = AppSpec(AppId("a"), OwnerId("o"), jobs, SMALL)
    for number, phase in enumerate(declared_phases(spec)):
        infos = tuner.jobs_in_phase(number)
        work = [info.iterations_left * info.iteration_time for info in infos]
        assert work == [load.work for load in phase]


def test_fewer_jobs_than_the_brackets_start_are_refused() -> None:
    with pytest.raises(ConfigError, match="the 17 its brackets start"):
        Hyperband(_jobs(16), SMALL)
    with pytest.raises(ConfigError):
        Hyperband.of(_jobs(100), 81)


def test_an_app_whose_jobs_grow_in_number_is_tuned_by_hyperband() -> None:
    app = sim_app("a", jobs=17, phases=SMALL)
    assert isinstance(tuner_for(app.spec), Hyperband)
    assert isinstance(tuner_for(app.spec, "hyperband"), Hyperband)


def test_tuners_are_found_by_name_and_wrong_names_get_a_suggestion() -> None:
    app = sim_app("a", jobs=2, phases=(Phase(2, 5),))
    with pytest.raises(ConfigError, match="did you mean 'curves'"):
        tuner_for(app.spec, "curve")
    with pytest.raises(ConfigError):
        tuner_for(sim_app("b", jobs=2, phases=(Phase(2, 5), Phase(1, 5))).spec, "curves")


@given(seed=st.integers(0, 10**6), most=st.integers(1, 30), eta=st.integers(2, 4))
def test_the_arbiter_follows_a_hyperband_search_to_its_end(seed: int, most: int, eta: int) -> None:
    phases = hyperband_phases(most, eta)
    rng = Random(seed)
    qualities = [rng.random() for _ in range(jobs_needed(phases))]
    app = sim_app("a", jobs=len(qualities), phases=phases, qualities=qualities)
    state = AppState(app.spec, 0.0)
    tuner = tuner_for(app.spec)
    decision: Decision | None = tuner.begin()
    for phase in true_phases(app):
        assert isinstance(decision, NextPhase)
        if decision.phase:
            state.start_phase(decision.phase, decision.targets)
        assert sorted(job.left for job in state.jobs.values()) == sorted(x.work for x in phase)
        for name, target in decision.targets:
            state.measure(name, target)
            decision = tuner.reached(name, qualities[int(name[1:])])
    assert isinstance(decision, Finished)
    assert state.work_left == 0.0
    assert total_work(state.ran()) == total_work(true_phases(app))


@pytest.mark.parametrize("rule", ["themis", "equal-share", "fifo"])
def test_a_simulated_hyperband_app_trains_exactly_its_brackets(rule: str) -> None:
    app = sim_app("a", jobs=17, phases=hyperband_phases(9), max_gpus=2)
    other = sim_app("b", jobs=2, work=200.0, max_gpus=2, arrival=5.0)
    topology = Topology((Machine("m0", "r0", (2, 2)),))
    outcome = simulate(topology, workload_of(app, other), rule)
    assert not outcome.refused
    assert outcome.apps[app.spec.id].phases == true_phases(app)
    assert outcome.spent[app.spec.id].useful == pytest.approx(total_work(true_phases(app)))
