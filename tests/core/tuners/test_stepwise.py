"""Tuners that people write: questions are asked, answers are checked, the past is told."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.core.tuners import (
    AppProgress,
    Finished,
    Known,
    NextPhase,
    ResumableTuner,
    Stepwise,
    StopTraining,
    Trial,
    hyperband_phases,
    jobs_needed,
    tuner_for,
)
from themis.core.tuners.stepwise import MOST_POINTS
from themis.errors import RefusedError, TunerError

HALVING = (Phase(4, 4), Phase(2, 4), Phase(1, 8))


def app(phases: Sequence[Phase] = HALVING, jobs: int = 4) -> AppSpec:
    specs = tuple(JobSpec(JobId(f"j{n:03d}"), 1.0, 2) for n in range(jobs))
    return AppSpec(AppId("sweep"), OwnerId("ann"), specs, tuple(phases))


def entered(tuner: Stepwise, spec: AppSpec | None = None, *, maximize: bool = False) -> Stepwise:
    spec = spec or app()
    params = {job.id: {"lr": 0.1 * (n + 1)} for n, job in enumerate(spec.jobs)}
    return tuner.enter(spec, params, maximize=maximize)


def job(number: int) -> JobId:
    return JobId(f"j{number:03d}")


def quality(name: JobId) -> float:
    """Some order of jobs that is not the one they are declared in."""
    return float(int(name[1:]) * 7 % 11)


def played(tuner: Any) -> list[Any]:
    """All decisions when every job trains to its target."""
    decisions: list[Any] = [tuner.begin()]
    while isinstance(decisions[-1], NextPhase):
        told = [tuner.reached(name, quality(name)) for name, _ in decisions[-1].targets]
        assert all(each is None for each in told[:-1])
        decisions.append(told[-1])
    return decisions


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(app(), id="halving"),
        pytest.param(app((Phase(4, 9),)), id="one phase"),
        pytest.param(
            app(hyperband_phases(9, 3), jobs_needed(hyperband_phases(9, 3))), id="hyperband"
        ),
    ],
)
def test_without_own_answers_the_phases_decide(spec: AppSpec) -> None:
    assert played(entered(Stepwise(), spec)) == played(tuner_for(spec))


def test_jobs_in_phase_are_the_same_as_those_of_halving() -> None:
    own, known = entered(Stepwise()), tuner_for(app())
    own.begin()
    known.begin()
    assert [own.jobs_in_phase(n) for n in range(3)] == [known.jobs_in_phase(n) for n in range(3)]


def test_it_satisfies_what_agents_need() -> None:
    assert isinstance(entered(Stepwise()), ResumableTuner)


class Impatient(Stepwise):
    def should_stop(self, trial: Trial) -> bool:
        return trial.cost > 2.0 * min(other.cost for other in self.training)


def test_stopped_trial_stays_where_it_is_and_does_not_resume() -> None:
    tuner = entered(Impatient())
    tuner.begin()
    assert tuner.observe(job(0), 1.0, 1.0) is None
    assert tuner.observe(job(1), 1.0, 3.0) == StopTraining(job(1), None)
    assert tuner.observe(job(1), 2.0, 9.0) is None, "it is over"
    assert tuner.trials["j001"].stopped
    assert tuner.reached(job(2), 1.5) is None
    assert tuner.reached(job(3), 1.6) is None
    decision = tuner.reached(job(0), 1.4)
    assert decision == NextPhase(1, ((job(0), 8.0), (job(2), 8.0)))


def test_the_last_one_to_be_stopped_ends_the_phase() -> None:
    tuner = entered(Impatient(), app((Phase(2, 9),), jobs=2))
    tuner.begin()
    tuner.observe(job(0), 3.0, 1.0)
    assert tuner.reached(job(0), 1.0) is None
    assert tuner.observe(job(1), 3.0, 5.0) == StopTraining(job(1), Finished(job(0)))


def test_costs_fall_where_more_is_better() -> None:
    tuner = entered(Impatient(), maximize=True)
    tuner.begin()
    tuner.observe(job(0), 1.0, -0.75)  # As agents tell it: less is better.
    trial = tuner.trials["j000"]
    assert (trial.metric, trial.cost, trial.curve) == (0.75, -0.75, [(1.0, 0.75)])


class Choosy(Stepwise):
    chosen: Iterable[Any] = ()

    def choose(self, ranked: Sequence[Trial], count: int) -> Iterable[Trial]:
        self.ranked, self.count = ranked, count
        return self.chosen


def ended(tuner: Stepwise) -> Any:
    tuner.begin()
    costs = zip(tuner.trials, (3.0, 1.0, 2.0, 4.0), strict=True)
    return [tuner.reached(JobId(name), cost) for name, cost in costs][-1]


def test_promoted_trials_are_the_best_of_the_ended_ones() -> None:
    tuner = Choosy()
    entered(tuner)
    tuner.chosen = (tuner.trials["j003"],)
    assert ended(tuner) == NextPhase(1, ((job(3), 8.0),))
    assert [trial.name for trial in tuner.ranked] == ["j001", "j002", "j000", "j003"]
    assert tuner.count == 2


def test_app_without_promoted_trials_ends_with_the_best_one() -> None:
    assert ended(entered(Choosy())) == Finished(job(1))


@pytest.mark.parametrize("chosen", [("j000", "j001", "j002"), ("j009",)])
def test_a_choice_that_cannot_be_is_refused_with_what_could(chosen: tuple[str, ...]) -> None:
    tuner = Choosy()
    tuner.chosen = chosen
    with pytest.raises(TunerError, match="at most 2 of j001, j002, j000, j003"):
        ended(entered(tuner))


def test_failed_trial_does_not_continue() -> None:
    tuner = entered(Stepwise())
    tuner.begin()
    tuner.observe(job(0), 1.0, 0.1)
    for number, cost in ((0, float("inf")), (1, 3.0), (2, 2.0)):
        tuner.reached(job(number), cost)
    decision = tuner.reached(job(3), 9.0)
    assert decision == NextPhase(1, ((job(1), 8.0), (job(2), 8.0)))


def test_a_job_of_another_phase_is_refused() -> None:
    tuner = entered(Choosy())
    with pytest.raises(RefusedError):
        tuner.reached(job(0), 1.0)


def test_invalid_winner_is_refused() -> None:
    class Wrong(Stepwise):
        def winner(self, ranked: Sequence[Trial]) -> Trial:
            return Trial("j999", {})

    tuner = entered(Wrong(), app((Phase(1, 1),), jobs=1))
    tuner.begin()
    with pytest.raises(TunerError, match="winner"):
        tuner.reached(job(0), 1.0)


def test_suggested_parameters_follow_earlier_results() -> None:
    class Near(Stepwise):
        def suggest(self, trial: Trial) -> Mapping[str, Any]:
            best = min(self.trials.values(), key=lambda other: other.cost)
            return {"lr": best.params["lr"] / 2} if best.metric is not None else trial.params

    tuner = entered(Near())
    tuner.begin()
    assert tuner.suggested(job(0), None) == {"lr": 0.1}
    tuner.observe(job(0), 1.0, 0.3)
    assert tuner.suggested(job(1), {"lr": 7.0}) == {"lr": 0.05}
    assert tuner.trials["j001"].params == {"lr": 0.05}


@pytest.mark.parametrize("given", [{}, {"lr": 1, "more": 2}, None])
def test_parameters_without_the_names_of_the_search_are_refused(given: Any) -> None:
    class Wrong(Stepwise):
        def suggest(self, trial: Trial) -> Mapping[str, Any]:
            return given  # type: ignore[no-any-return]

    with pytest.raises(TunerError, match="values for lr"):
        entered(Wrong()).suggested(job(0), None)


def test_trial_targets_are_pushed() -> None:
    told = []

    class Watching(Stepwise):
        def placed(self, trial: Trial, gpus: int) -> None:
            told.append((trial.name, gpus))

    tuner = entered(Watching())
    tuner.note_placement({job(1): (0, 1)})
    tuner.note_placement({job(1): (2, 3), job(2): (0,)})
    tuner.note_placement({job(2): (0,)})
    assert told == [("j001", 2), ("j002", 1), ("j001", 0)]


def test_remaining_work_counts_from_the_last_report() -> None:
    tuner = entered(Stepwise())
    tuner.begin()
    tuner.observe(job(1), 3.0, 1.0)
    tuner.reached(job(0), 1.0)
    left = {info.job: info.iterations_left for info in tuner.jobs_remaining()}
    assert left == {job(1): 1.0, job(2): 4.0, job(3): 4.0}


def test_a_curve_is_thinned_out_and_lost_work_is_forgotten() -> None:
    trial = Trial("j000", {})
    for iteration in range(1, 5 * MOST_POINTS):
        trial.note(float(iteration), 1.0 / iteration)
    assert len(trial.curve) <= MOST_POINTS
    assert trial.metric == 1.0 / (5 * MOST_POINTS - 1)
    trial.note(9.0, 7.0)
    assert trial.curve[-1] == (9.0, 7.0)
    assert trial.curve[-2][0] < 9.0
    assert trial.metric_at(0.5) is None
    assert trial.metric_at(1.5) == 1.0


class Dice(Stepwise):
    """Would decide differently each time."""

    asked = 0

    def choose(self, ranked: Sequence[Trial], count: int) -> Iterable[Trial]:
        type(self).asked += 1
        return ranked[-count:]


def test_earlier_decision_is_not_requested_again() -> None:
    tuner = entered(Dice())
    past = AppProgress(
        1,
        ((job(1), 8.0), (job(2), 6.0)),
        (
            Known(job(0), (4.0,), ((2.0, 9.0), (4.0, 8.0))),
            Known(job(1), (4.0,), ((4.0, 5.0), (6.0, 3.0)), {"lr": 0.7}),
            Known(job(2), (4.0, 6.0), ((4.0, 5.0),)),
            Known(job(3), (2.0,), (), None, failed=True),
        ),
    )
    tuner.resume(past)
    assert tuner.begin() == NextPhase(1, past.targets)
    assert tuner.phase == 1
    trials = tuner.trials
    assert trials["j001"].params == {"lr": 0.7}
    assert trials["j001"].iterations == 6.0
    assert [name for name, trial in trials.items() if trial.stopped] == ["j002"]
    assert [name for name, trial in trials.items() if trial.failed] == ["j003"]
    assert Dice.asked == 0
    tuner.reached(job(2), 5.0)
    assert tuner.reached(job(1), 3.0) == NextPhase(2, ((job(1), 16.0),))
    assert Dice.asked == 1
