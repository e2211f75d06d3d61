import json
import math
from typing import Any

import pytest

from themis.apps import parse_app, plan_app
from themis.apps.app_file import AppFile
from themis.apps.plan import SweepPlan
from themis.apps.program import argv_of, environment
from themis.apps.search_space import Choice, Range, grid_trials, random_trials, written_value
from themis.core.model import AppId, OwnerId
from themis.core.tuners import tuner_for
from themis.errors import ConfigError


def app(**more: Any) -> AppFile:
    return parse_app({"name": "a", "command": ["train", "--lr={lr}"], **more})


def planned(written: AppFile, seed: int = 1) -> SweepPlan:
    return plan_app(written, AppId("a"), OwnerId("ann"), seed)


SEARCH = {"n": 16, "params": {"lr": {"log": [1e-5, 1e-1]}}}


def test_a_halving_sweep_trains_its_last_survivor_to_the_maximum() -> None:
    plan = planned(app(search=SEARCH, stop={"method": "halving", "max_iterations": 200}))
    assert [phase.jobs for phase in plan.spec.phases] == [16, 8, 4, 2, 1]
    assert sum(phase.iterations for phase in plan.spec.phases) == 200
    assert tuner_for(plan.spec, plan.tuner).begin().phase == 0


def test_hyperband_starts_as_many_jobs_as_its_brackets_need() -> None:
    search = {"params": {"lr": [0.1, 0.2]}}
    plan = planned(app(search=search, stop={"method": "hyperband", "max_iterations": 9, "eta": 3}))
    assert len(plan.trials) == 9 + 5 + 3
    tuner_for(plan.spec, plan.tuner)
    with pytest.raises(ConfigError, match="17"):
        planned(
            app(
                search=search | {"n": 5},
                stop={"method": "hyperband", "max_iterations": 9, "eta": 3},
            )
        )


def test_the_same_seed_draws_the_same_trials_and_another_others() -> None:
    written = app(search=SEARCH, stop={"max_iterations": 5})
    assert planned(written, 3) == planned(written, 3)
    assert planned(written, 3).trials != planned(written, 4).trials


def test_values_drawn_lie_within_their_ranges() -> None:
    space = {"a": Range("log", 1e-5, 1e-1), "b": Range("int", 2, 4), "c": Range("uniform", -1, 1)}
    drawn = random_trials(space, 300, seed=5)
    assert all(1e-5 <= float(each["a"]) <= 1e-1 for each in drawn)
    assert {each["b"] for each in drawn} == {2, 3, 4}
    assert all(-1 <= float(each["c"]) <= 1 for each in drawn)
    below = sum(float(each["a"]) < 1e-3 for each in drawn)
    assert 100 < below < 200, "half of a range by orders of magnitude is below its middle one"


def test_a_grid_has_every_combination_once() -> None:
    trials = grid_trials({"a": Choice((1, 2)), "b": Range("int", 0, 2)})
    assert len({tuple(each.items()) for each in trials}) == 6
    with pytest.raises(ConfigError, match="grid"):
        grid_trials({"a": Range("uniform", 0, 1)})
    with pytest.raises(ConfigError, match="combinations"):
        grid_trials({str(i): Choice(tuple(range(100))) for i in range(4)})


def test_optuna_chooses_its_trials_later() -> None:
    plan = planned(app(search=SEARCH | {"method": "optuna"}, stop={"max_iterations": 5}))
    assert [trial.params for trial in plan.trials] == [None] * 16


def test_holes_are_filled_and_braces_kept() -> None:
    filled = argv_of(("{a}", "x{b}y", "{{a}}", "{"), {"a": 1e-05, "b": True})
    assert filled == ("1e-05", "xtruey", "{a}", "{")


def test_a_hole_without_a_parameter_is_refused() -> None:
    with pytest.raises(ConfigError, match="momentum"):
        planned(parse_app({"name": "a", "command": ["{momentum}"]}))


def test_a_hole_cannot_smuggle_in_another_argument() -> None:
    assert argv_of(("--x={a}",), {"a": "1 --evil; rm"}) == ("--x=1 --evil; rm",)


def test_number_round_trips_through_text() -> None:
    for value in (0.1 + 0.2, 1e-5, 1e300, math.pi):
        assert float(written_value(value)) == value


def test_a_job_finds_its_parameters_and_the_period_of_its_checkpoints() -> None:
    found = dict(environment(app(checkpoint={"every": "90s"}, env={"A": "b"}), {"lr": 0.5}))
    assert json.loads(found["THEMIS_PARAMS"]) == {"lr": 0.5}
    assert found["THEMIS_CHECKPOINT_EVERY"] == "90"
    assert found["A"] == "b"


def test_unknown_values_are_marked_as_estimated() -> None:
    assert planned(app(search=SEARCH, stop={"max_iterations": 5})).spec.estimated
    known = app(search=SEARCH, stop={"max_iterations": 5}, iteration_seconds=0.5)
    assert not planned(known).spec.estimated
    assert planned(known).gpu_seconds == pytest.approx(16 * 5 * 0.5)


def test_jobs_in_order_of_their_names_are_in_order() -> None:
    names = [job.id for job in planned(app(search=SEARCH, stop={"max_iterations": 5})).spec.jobs]
    assert names == sorted(names)
    assert names[0] == "00"


def test_bids_use_the_files_checkpoint_and_restart_times() -> None:
    plan = planned(app(search=SEARCH, checkpoint={"save": 0.5, "restart": "2s"}))
    assert (plan.spec.checkpoint_seconds, plan.spec.restart_seconds) == (0.5, 2.0)


def test_too_many_trials_are_refused() -> None:
    with pytest.raises(ConfigError, match="1000"):
        planned(app(search=SEARCH | {"n": 1001}, stop={"max_iterations": 5}))
