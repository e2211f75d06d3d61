import math
from collections.abc import Callable

import pytest

from themis.core.model import AppId, AppSpec, Constraint, JobId, JobSpec, Machine, OwnerId, Phase
from themis.errors import ConfigError, DuplicateError


def job(number: int = 0) -> JobSpec:
    return JobSpec(JobId(f"j{number}"), serial_iteration_time=1.0, max_gpus=4)


def app(
    *,
    name: str = "sweep",
    owner: str = "ann",
    jobs: tuple[JobSpec, ...] = (job(0), job(1)),
    phases: tuple[Phase, ...] = (Phase(2, 8), Phase(1, 16)),
    weight: float = 1.0,
    budget: float = 0.0,
) -> AppSpec:
    return AppSpec(AppId(name), OwnerId(owner), jobs, phases, weight=weight, budget=budget)


def test_a_plain_app_is_accepted() -> None:
    assert app().weight == 1.0


@pytest.mark.parametrize(
    ("build", "key"),
    [
        pytest.param(lambda: app(name="A"), "app", id="a bad name"),
        pytest.param(lambda: app(owner=""), "owner", id="no owner"),
        pytest.param(lambda: app(weight=0.0), "weight of sweep", id="zero weight"),
        pytest.param(lambda: app(weight=1e-320), "weight of sweep", id="hardly any weight"),
        pytest.param(lambda: app(weight=-1.0), "weight of sweep", id="negative weight"),
        pytest.param(lambda: app(weight=math.nan), "weight of sweep", id="NaN weight"),
        pytest.param(lambda: app(weight=math.inf), "weight of sweep", id="infinite weight"),
        pytest.param(lambda: app(weight=True), "weight of sweep", id="a bool as weight"),
        pytest.param(lambda: app(budget=-1.0), "budget of sweep", id="negative budget"),
        pytest.param(lambda: app(jobs=()), "jobs of sweep", id="no jobs"),
        pytest.param(lambda: app(phases=()), "phases of sweep", id="no phases"),
        pytest.param(
            lambda: app(phases=(Phase(3, 8),)),
            "jobs in the first phase of sweep",
            id="more jobs in a phase than there are",
        ),
        pytest.param(lambda: Phase(0, 8), "jobs of a phase", id="a phase of nobody"),
        pytest.param(lambda: Phase(1, 0), "iterations of a phase", id="a phase without work"),
        pytest.param(lambda: Phase(2, 8, (8,)), "targets of a phase", id="too few targets"),
        pytest.param(lambda: Phase(1, 8, (0,)), "targets of a phase", id="a zero target"),
        pytest.param(lambda: JobSpec(JobId("j"), 0.0), "serial_iteration_time of j", id="no time"),
        pytest.param(
            lambda: JobSpec(JobId("j"), math.nan), "serial_iteration_time of j", id="NaN time"
        ),
        pytest.param(lambda: JobSpec(JobId("j"), 1.0, 0), "max_gpus of j", id="no GPUs"),
        pytest.param(
            lambda: JobSpec(JobId("j"), 1.0, 2, 3), "min_gpus of j", id="gang above its maximum"
        ),
        pytest.param(lambda: JobSpec(JobId("j"), 1.0, 10**400), "max_gpus of j", id="endless GPUs"),
        pytest.param(lambda: Constraint(gpu_memory=-1.0), "gpu_memory", id="negative memory"),
        pytest.param(lambda: Constraint(gpu_model="A 100"), "gpu_model", id="a bad GPU model"),
    ],
)
def test_invalid_field_is_refused_by_name(build: Callable[[], object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build()
    assert caught.value.key == key


def test_two_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(DuplicateError) as caught:
        app(jobs=(job(0), job(0)))
    assert caught.value.who == "sweep"


@pytest.mark.parametrize(
    ("constraint", "allowed"),
    [
        pytest.param(Constraint(), True, id="anything goes"),
        pytest.param(Constraint(gpu_model="p100"), True, id="the model it has"),
        pytest.param(Constraint(gpu_model="v100"), False, id="another model"),
        pytest.param(Constraint(gpu_memory=16.0), True, id="just enough memory"),
        pytest.param(Constraint(gpu_memory=16.1), False, id="a little too much memory"),
        pytest.param(Constraint("p100", 32.0), False, id="the model but not the memory"),
    ],
)
def test_a_constraint_picks_machines(constraint: Constraint, allowed: bool) -> None:
    assert constraint.allows(Machine("m", "r", (1,), "p100", 16.0)) is allowed


def test_only_a_constraint_that_asks_for_nothing_is_trivial() -> None:
    assert Constraint().trivial
    assert not Constraint(gpu_model="p100").trivial
    assert not Constraint(gpu_memory=1.0).trivial
