"""The cases of a what-if: one thing changed at a time, and clear words where that cannot be."""

from typing import Any

import pytest

from themis.apps import AppFile, SweepPlan, parse_app, plan_app, whatif_cases
from themis.apps.whatif_cases import CaseChanges, cases_of, delay_of, more_machines
from themis.core.model import AppId, Machine, OwnerId, Topology
from themis.errors import ConfigError, RefusedError
from themis.recording.forecast_questions import ForecastCase

TOPOLOGY = Topology(
    (Machine("big", "r0", (4, 4)), Machine("s0", "r0", (2,)), Machine("s1", "r1", (2,)))
)
FILE: dict[str, Any] = {
    "name": "sweep",
    "command": ["train", "{lr}"],
    "env": {"TOKEN": "secret"},
    "search": {"n": 4, "params": {"lr": [0.1, 0.2]}},
    "stop": {"method": "halving", "max_iterations": 100},
    "gpus": {"per_job_max": 2, "per_job_min": 2},
    "iteration_seconds": 1.5,
}


def cases(wishes: CaseChanges, **change: Any) -> tuple[ForecastCase, ...]:
    app = parse_app(FILE | change)
    return cases_of(
        app, wishes, name=AppId("sweep-2"), owner=OwnerId("ann"), seed=1, topology=TOPOLOGY
    )


def test_app_as_written_comes_first_and_each_case_changes_one_thing() -> None:
    wishes = CaseChanges((4,), ("none", "halving,eta=4"), ("+8h", 60.0), ("fifo",), (2,))
    written, wider, none, quarter, tonight, soon, fifo, more = cases(wishes)
    assert (written.label, written.spec.id, written.tuner) == ("as written", "sweep-2", "halving")
    assert {job.max_gpus for job in wider.spec.jobs} == {4}
    assert (len(none.spec.phases), none.tuner) == (1, "single")
    assert [phase.jobs for phase in quarter.spec.phases] == [4, 1]
    assert (tonight.delay, tonight.label, tonight.spec) == (28800.0, "at +8h", written.spec)
    assert (soon.delay, soon.label) == (60.0, "at +60s")
    assert (fifo.policy, fifo.spec) == ("fifo", written.spec)
    assert [machine.name for machine in more.machines] == ["s0-more", "s0-more-2"]
    assert {machine.slots for machine in more.machines} == {(2,)}


def test_app_is_planned_once_for_all_cases_that_leave_it_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned: list[str] = []

    def plan(app: AppFile, name: AppId, owner: OwnerId, seed: int) -> SweepPlan:
        planned.append(name)
        return plan_app(app, name, owner, seed)

    monkeypatch.setattr(whatif_cases, "plan_app", plan)
    cases(CaseChanges((4,), ("none",), ("+8h", 60.0), ("fifo",), (2,)))
    assert len(planned) == 3
    with pytest.raises(ConfigError, match="at most 7 things"):
        cases(CaseChanges(gpus=tuple(range(2, 10))))
    assert len(planned) == 3  # Too many wishes are not planned at all.


def test_nothing_of_what_would_run_is_in_a_case() -> None:
    told = repr(cases(CaseChanges(), command=["run-me", "{lr}"]))
    assert "secret" not in told
    assert "run-me" not in told


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        pytest.param(CaseChanges(gpus=(1,)), "gpus", id="fewer than a job needs"),
        pytest.param(CaseChanges(stop=("halfing",)), "did you mean|halving", id="an unknown rule"),
        pytest.param(CaseChanges(stop=("halving,eta=x",)), "eta=N", id="an option that is none"),
        pytest.param(CaseChanges(stop=("halving,depth=3",)), "eta=N", id="an option nobody knows"),
        pytest.param(
            CaseChanges(stop=("hyperband",)), "trials", id="a rule that wants other trials"
        ),
        pytest.param(CaseChanges(at=("tomorrow",)), "at", id="a time that is none"),
        pytest.param(CaseChanges(at=("-5m",)), "positive", id="a time that has passed"),
        pytest.param(CaseChanges(at=("400d",)), "30 days", id="too far off"),
        pytest.param(CaseChanges(policy=("os:system",)), "policy", id="code from outside"),
        pytest.param(CaseChanges(add_machines=(0,)), "add_machines", id="no machine"),
        pytest.param(CaseChanges(add_machines=(True,)), "add_machines", id="neither"),
        pytest.param(CaseChanges(add_machines=(10**9,)), "1000", id="too many"),
        pytest.param(CaseChanges(gpus=tuple(range(2, 11))), "at most 7", id="too many things"),
    ],
)
def test_impossible_case_is_reported(wishes: CaseChanges, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        cases(wishes)


def test_machines_of_a_list_get_names_that_are_free() -> None:
    wish = [
        {"name": "big", "rack": "r9", "slots": [8]},
        {"name": "new", "rack": "r9", "slots": [8]},
    ]
    made = more_machines(wish, TOPOLOGY)
    assert [machine.name for machine in made] == ["big-2", "new"]
    with pytest.raises(RefusedError, match="slots"):
        more_machines([{"name": "x", "rack": "r"}], TOPOLOGY)
    with pytest.raises(ConfigError, match="none to copy"):
        more_machines(1, Topology(()))


def test_only_operators_may_change_policy_and_machines() -> None:
    assert CaseChanges(policy=("fifo",)).of_operators
    assert CaseChanges(add_machines=(2,)).of_operators
    assert not CaseChanges(stop=("none",)).of_operators


def test_a_delay_is_seconds_or_a_time_from_now() -> None:
    assert (delay_of("+8h"), delay_of("90s"), delay_of(5)) == (28800.0, 90.0, 5.0)
