import json
from dataclasses import replace

import pytest

from themis.apps.app_file import Goal
from themis.apps.search_space import Choice, Range, Space
from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.core.model.presets import preset
from themis.protocol.agent_messages import AgentStart, PhaseStart, Reached, TrialParams

optuna = pytest.importorskip("optuna", reason="the package optuna is not installed")

from themis.integrations.optuna_search import OptunaSearch  # noqa: E402 - only where optuna is

SPACE: Space = {
    "x": Range("uniform", -4.0, 4.0),
    "lr": Range("log", 1e-5, 1e-1),
    "depth": Range("int", 1, 5),
    "kind": Choice((True, 1, "a")),
}


def standing(trials: list[TrialParams], reached: list[Reached]) -> AgentStart:
    jobs = (JobSpec(JobId("0"), 1.0),)
    spec = AppSpec(AppId("a"), OwnerId("ann"), jobs, (Phase(1, 1),))
    return AgentStart(spec, preset("demo16"), (), (), 0, (), tuple(trials), tuple(reached))


def test_values_are_of_the_space_and_choices_keep_their_kind() -> None:
    search = OptunaSearch(SPACE, Goal.MINIMIZE, 1, seed=1)
    kinds = set()
    for number in range(30):
        params = search.choose(JobId(str(number)))
        assert -4.0 <= float(params["x"]) <= 4.0
        assert 1e-5 <= float(params["lr"]) <= 1e-1
        assert params["depth"] in range(1, 6)
        kinds.add(repr(params["kind"]))
    assert kinds == {"True", "1", "'a'"}


@pytest.mark.parametrize("goal", list(Goal))
def test_it_learns_from_what_was_reached(goal: Goal) -> None:
    """After a while trials gather where the metric is good."""
    search = OptunaSearch({"x": Range("uniform", -4.0, 4.0)}, goal, 1, seed=3)
    sign = 1.0 if goal is Goal.MINIMIZE else -1.0
    seen = []
    for number in range(60):
        job = JobId(str(number))
        x = float(search.choose(job)["x"])
        seen.append(abs(x - 2.0))
        search.learn([Reached(job, 1.0, sign * (x - 2.0) ** 2)])
    assert sum(seen[-20:]) < 0.7 * sum(seen[:20])


def test_it_is_where_it_was_after_a_restart() -> None:
    first = OptunaSearch(SPACE, Goal.MINIMIZE, 1, seed=5)
    trials, reached = [], []
    for number in range(15):
        job = JobId(str(number))
        params = first.choose(job)
        trials.append(TrialParams(job, json.dumps(dict(params))))
        if number < 12:
            reached.append(Reached(job, 1.0, float(number)))
            first.learn([reached[-1]])
    again = OptunaSearch(SPACE, Goal.MINIMIZE, 1, seed=5)
    again.replay(standing(trials, reached))
    values = [trial.value for trial in again._study.trials]
    assert values[:12] == [float(number) for number in range(12)]
    assert [trial.params for trial in again._study.trials] == [
        trial.params for trial in first._study.trials
    ]


class Sweep:
    """A study, with what the service keeps of it; `begins` is when it begins anew, if ever."""

    def __init__(self, phases: int, begins: int = -1) -> None:
        self.phases, self.begins = phases, begins
        self.search = self.begun()
        self.trials: list[TrialParams] = []
        self.reached: list[Reached] = []
        self.steps = 0

    def begun(self) -> OptunaSearch:
        return OptunaSearch(SPACE, Goal.MINIMIZE, self.phases, seed=5)

    def step(self, phase: int, *targets: int) -> None:
        self.steps += 1
        if self.steps == self.begins:
            now = standing(self.trials, self.reached)
            jobs = tuple((JobId(str(job)), 8.0) for job in targets)
            self.search = self.begun()
            self.search.replay(replace(now, phase=phase, targets=jobs))

    def choose(self, number: int) -> None:
        job = JobId(str(number))
        self.trials.append(TrialParams(job, json.dumps(dict(self.search.choose(job)))))

    def reach(self, number: int, iterations: float, failed: str = "") -> None:
        params = json.loads(self.trials[number].params)
        metric = None if failed else float(params["x"]) ** 2 + float(params["depth"])
        self.reached.append(Reached(JobId(str(number)), iterations, metric, failed))
        self.search.learn([self.reached[-1]])

    def known(self) -> list[tuple[object, ...]]:
        return [
            (trial.number, trial.params, trial.state, trial.value, trial.intermediate_values)
            for trial in self.search._study.trials
        ]

    def one_by_one(self) -> "Sweep":
        """Trials of one phase, some at the same time, some that fail."""
        for number in range(30):
            self.choose(number)
            if number >= 2:
                self.reach(number - 2, 1.0, "boom" if number % 7 == 0 else "")
            self.step(0, *range(30))
        return self

    def by_halves(self) -> "Sweep":
        """Sixteen trials, of which eight go on, then four."""
        for number in range(16):
            self.choose(number)
        going_on = list(range(16))
        for phase in (0, 1):
            for number in going_on:
                self.reach(number, 4.0 * (phase + 1))
                self.step(phase, *going_on)
            going_on = going_on[: len(going_on) // 2]
            jobs = tuple((JobId(str(job)), 8.0) for job in going_on)
            self.search.learn([PhaseStart(phase + 1, jobs)])
            self.step(phase + 1, *going_on)
        return self


@pytest.mark.parametrize("begins", [1, 4, 12, 25])
def test_study_continues_after_a_restart_without_any_difference(begins: int) -> None:
    whole, again = Sweep(1).one_by_one(), Sweep(1, begins).one_by_one()
    assert again.trials == whole.trials
    assert again.known() == whole.known()
    assert len({trial.params for trial in again.trials}) == 30, "none is chosen twice"


@pytest.mark.parametrize("begins", [5, 17, 20, 26])
def test_a_study_knows_after_a_restart_which_trials_did_not_go_on(begins: int) -> None:
    whole, again = Sweep(3).by_halves(), Sweep(3, begins).by_halves()
    assert again.known() == whole.known()
    again.choose(16)
    whole.choose(16)
    assert again.trials == whole.trials


def test_failed_and_pruned_trials_are_recorded_as_such() -> None:
    search = OptunaSearch(SPACE, Goal.MINIMIZE, 2, seed=7)
    for number in range(4):
        search.choose(JobId(str(number)))
    search.learn([Reached(JobId("0"), 0.0, None, "boom")])
    for number in (1, 2, 3):
        search.learn([Reached(JobId(str(number)), 4.0, float(number))])
    search.learn([PhaseStart(1, ((JobId("1"), 8.0),))])
    states = [trial.state.name for trial in search._study.trials]
    assert states == ["FAIL", "RUNNING", "PRUNED", "PRUNED"]
