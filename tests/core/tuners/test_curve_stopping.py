"""Performance-curve stopping: who is stopped, when, and what is forecast for the others."""

import csv
import math
from pathlib import Path
from random import Random
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_sims import sim_app
from themis.core.model import JobId, JobSpec, Phase
from themis.core.tuners import (
    CurveRule,
    Curves,
    CurveShape,
    Decision,
    Finished,
    IterationForecast,
    LossCurve,
    NextPhase,
    Outlook,
    StopTraining,
    tuner_for,
)
from themis.core.tuners.curve_stopping import MOST_POINTS
from themis.errors import ConfigError, RefusedError

FALLING = LossCurve(CurveShape.EXPONENTIAL, 0.1, 2.0, 0.05)
MOST = 100


def _jobs(count: int) -> tuple[JobSpec, ...]:
    return tuple(JobSpec(JobId(f"j{i}"), 2.0, max_gpus=4, min_gpus=2) for i in range(count))


def _tuner(count: int, rule: CurveRule | None = None) -> Curves:
    tuner = Curves.of(_jobs(count), MOST, rule)
    tuner.begin()
    return tuner


def _feed(
    tuner: Curves, number: int, losses: list[float], start: int = 1
) -> tuple[list[IterationForecast], StopTraining | None]:
    forecasts: list[IterationForecast] = []
    for iteration, loss in enumerate(losses, start=start):
        outlook: Outlook | None = tuner.observe(JobId(f"j{number}"), iteration, loss)
        if isinstance(outlook, StopTraining):
            return forecasts, outlook
        if outlook is not None:
            forecasts.append(outlook)
    return forecasts, None


def _losses(curve: LossCurve, count: int) -> list[float]:
    return [curve.loss(n) for n in range(1, count + 1)]


def test_without_losses_every_job_trains_to_its_maximum_and_the_best_wins() -> None:
    tuner = Curves(_jobs(3), (Phase(3, 7, (5, 6, 7)),))
    assert tuner.begin() == NextPhase(0, ((JobId("j0"), 5), (JobId("j1"), 6), (JobId("j2"), 7)))
    assert tuner.reached(JobId("j2"), 0.3) is None
    assert tuner.reached(JobId("j0"), 0.2) is None
    assert tuner.reached(JobId("j1"), 0.4) == Finished(JobId("j0"))


def test_no_trial_is_judged_before_the_grace_ends() -> None:
    tuner = _tuner(2)
    _feed(tuner, 0, _losses(FALLING, 29))
    assert _feed(tuner, 1, [5.0] * 29) == ([], None)
    _, stop = _feed(tuner, 1, [5.0], start=30)
    assert stop == StopTraining(JobId("j1"))


def test_hopeless_job_is_stopped_and_promising_job_is_kept() -> None:
    tuner = _tuner(3)
    _feed(tuner, 0, _losses(FALLING, 60))
    _, hopeless = _feed(tuner, 1, _losses(LossCurve(CurveShape.EXPONENTIAL, 1.0, 2.0, 0.05), 60))
    _, hopeful = _feed(tuner, 2, _losses(LossCurve(CurveShape.EXPONENTIAL, 0.01, 2.0, 0.04), 60))
    assert hopeless == StopTraining(JobId("j1"))
    assert hopeful is None


def test_late_starter_is_kept_while_it_may_still_beat_the_best() -> None:
    tuner = _tuner(2)
    _feed(tuner, 0, _losses(FALLING, 100))
    slow = LossCurve(CurveShape.EXPONENTIAL, 0.0, 2.0, 0.04)
    assert slow.loss(40) > 3 * FALLING.loss(100)
    assert _feed(tuner, 1, _losses(slow, 40))[1] is None


def test_a_job_whose_loss_is_flat_has_converged() -> None:
    tuner = _tuner(1)
    quick = LossCurve(CurveShape.EXPONENTIAL, 0.5, 2.0, 0.3)
    _, stop = _feed(tuner, 0, _losses(quick, 100))
    assert stop == StopTraining(JobId("j0"), Finished(JobId("j0")))


def test_a_job_whose_loss_rises_has_converged() -> None:
    tuner = _tuner(1)
    losses = [*_losses(FALLING, 20), *(1.0 + 0.05 * n for n in range(30))]
    assert _feed(tuner, 0, losses)[1] is not None


def test_forecasts_say_where_the_curve_will_flatten() -> None:
    rule = CurveRule()
    forecasts, _ = _feed(_tuner(1, rule), 0, _losses(FALLING, 60))
    truth = FALLING.stop_at(rule.window * MOST, rule.tolerance * FALLING.loss(60), MOST)
    assert forecasts
    assert forecasts[-1].until == pytest.approx(truth, abs=3)
    assert all(forecast.until <= MOST for forecast in forecasts)


def test_the_longest_forecast_counts() -> None:
    # A power law flattens later than the exponential that fits the same points.
    slow = LossCurve(CurveShape.POWER, 0.0, 2.0, 0.5)
    forecasts, stop = _feed(_tuner(1), 0, _losses(slow, 40))
    assert stop is None
    assert {forecast.until for forecast in forecasts} == {MOST}


def test_the_jobs_remaining_are_those_not_stopped_with_what_they_can_use() -> None:
    tuner = _tuner(3)
    _feed(tuner, 0, _losses(FALLING, 60))
    _feed(tuner, 1, [5.0] * 40)
    first, second = tuner.jobs_remaining()
    assert (first.job, second.job) == ("j0", "j2")
    assert 0 < first.iterations_left <= 40
    assert second.iterations_left == MOST
    assert (second.iteration_time, second.min_gpus, second.max_gpus) == (2.0, 2, 4)
    assert tuner.jobs_in_phase(0) == tuner.jobs_remaining()


def test_last_stopped_job_ends_the_search_with_the_best_loss() -> None:
    tuner = _tuner(2)
    assert _feed(tuner, 0, [0.2] * 40)[1] == StopTraining(JobId("j0"))
    assert _feed(tuner, 1, [0.3] * 40)[1] == StopTraining(JobId("j1"), Finished(JobId("j0")))


def test_diverged_job_fails_and_never_wins() -> None:
    tuner = _tuner(2)
    _, stop = _feed(tuner, 0, [0.01, *[math.nan] * 3])
    assert stop == StopTraining(JobId("j0"))
    assert _feed(tuner, 1, _losses(FALLING, 40))[1] is None
    assert tuner.reached(JobId("j1"), 0.2) == Finished(JobId("j1"))
    tuner = _tuner(2)
    _, stop = _feed(tuner, 0, [math.nan, math.inf, math.nan])
    assert stop == StopTraining(JobId("j0"))
    assert tuner.reached(JobId("j1"), 9.0) == Finished(JobId("j1"))


def test_single_nan_loss_is_ignored() -> None:
    losses = _losses(FALLING, 60)
    losses[40] = math.nan
    forecasts, stop = _feed(_tuner(1), 0, losses)
    assert stop is None
    assert forecasts


def test_work_done_again_after_a_loss_replaces_what_was_seen() -> None:
    tuner = _tuner(1)
    _feed(tuner, 0, [*_losses(FALLING, 25), *[9.0] * 4])
    forecasts, stop = _feed(tuner, 0, _losses(FALLING, 60)[25:], start=26)
    assert stop is None
    plain, _ = _feed(_tuner(1), 0, _losses(FALLING, 60))
    assert forecasts[-1].until == pytest.approx(plain[-1].until, abs=2)


def test_a_long_history_is_thinned_out_and_still_forecast() -> None:
    slow = LossCurve(CurveShape.EXPONENTIAL, 0.1, 2.0, 0.0005)
    tuner = Curves.of(_jobs(1), 10_000)
    tuner.begin()
    forecasts, _ = _feed(tuner, 0, _losses(slow, 6000))
    rule = CurveRule()
    truth = slow.stop_at(rule.window * 10_000, rule.tolerance * slow.loss(6000), 10_000)
    assert forecasts[-1].until == pytest.approx(truth, rel=0.05)
    assert len(tuner._histories[JobId("j0")].points) < 2 * MOST_POINTS


def test_late_reports_of_a_stopped_job_change_nothing() -> None:
    tuner = _tuner(2)
    assert _feed(tuner, 0, [0.2] * 40)[1] == StopTraining(JobId("j0"))
    assert tuner.observe(JobId("j0"), 41, 0.0) is None
    assert tuner.reached(JobId("j0"), 0.0) is None
    assert tuner.reached(JobId("j1"), 0.1) == Finished(JobId("j1"))


def test_an_evaluation_before_any_training_is_overlooked() -> None:
    assert _tuner(1).observe(JobId("j0"), 0, 3.0) is None


def test_strangers_and_iterations_that_are_no_numbers_are_refused() -> None:
    tuner = _tuner(1)
    with pytest.raises(RefusedError, match="does not train it"):
        tuner.observe(JobId("x"), 1, 0.5)
    with pytest.raises(RefusedError, match="does not train it"):
        tuner.reached(JobId("x"), 0.5)
    with pytest.raises(RefusedError, match="an iteration is a number"):
        tuner.observe(JobId("j0"), math.nan, 0.5)


@pytest.mark.parametrize(
    "options",
    [
        {"tolerance": -0.1},
        {"window": 0.0},
        {"grace": 1.5},
        {"least_points": 1},
        {"floor": math.nan},
    ],
)
def test_rules_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        CurveRule(**options)  # type: ignore[arg-type]  # Wrong on purpose.


@given(
    losses=st.lists(
        st.lists(st.floats(-10, 10) | st.just(math.nan), min_size=30, max_size=30),
        min_size=1,
        max_size=4,
    ),
    order=st.randoms(use_true_random=False),
)
def test_every_search_ends_once_with_one_of_its_jobs(
    losses: list[list[float]], order: Random
) -> None:
    tuner = Curves.of(_jobs(len(losses)), 30)
    tuner.begin()
    left = {number: list(enumerate(row, start=1)) for number, row in enumerate(losses)}
    decision: Decision | None = None
    while left:
        assert decision is None
        number = order.choice(sorted(left))
        name = JobId(f"j{number}")
        if left[number]:
            outlook = tuner.observe(name, *left[number].pop(0))
            if isinstance(outlook, StopTraining):
                del left[number]
                decision = outlook.then
        else:
            del left[number]
            decision = tuner.reached(name, losses[number][-1])
        assert len(tuner.jobs_remaining()) == len(left)
    assert isinstance(decision, Finished)


def _search(curves: list[list[float]]) -> tuple[float, float]:
    """The share of epochs trained, and how much worse than the best loss of all the result is."""
    jobs = _jobs(len(curves))
    tuner = Curves.of(jobs, len(curves[0]))
    tuner.begin()
    running = dict(enumerate(curves))
    trained = 0
    best: JobId | None = None
    reached = [math.inf] * len(curves)
    for epoch in range(len(curves[0])):
        for number in list(running):
            trained += 1
            reached[number] = min(reached[number], curves[number][epoch])
            outlook = tuner.observe(jobs[number].id, epoch + 1, curves[number][epoch])
            if isinstance(outlook, StopTraining):
                del running[number]
                best = outlook.then.best if isinstance(outlook.then, Finished) else best
    for number in running:
        decision = tuner.reached(jobs[number].id, curves[number][-1])
        best = decision.best if isinstance(decision, Finished) else best
    assert best is not None
    ideal = min(map(min, curves))
    return trained / sum(map(len, curves)), reached[int(best[1:])] / ideal - 1.0


def test_real_searches_find_nearly_the_best_in_half_the_epochs(themis_data: Path) -> None:
    curves: dict[int, list[float]] = {}
    with (themis_data / "hpo_digits_curves.csv").open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            curves.setdefault(int(row["config"]), []).append(float(row["val_loss"]))
    names = sorted(curves)
    Random(1).shuffle(names)
    searches = [
        _search([curves[name] for name in names[start : start + 20]])
        for start in range(0, len(names), 20)
    ]
    shares, regrets = zip(*searches, strict=True)
    # Measured over three shuffles: 44 % of the epochs; regret 0 in the median, 8 % for one search
    # in ten and 13 % at worst, where noise decides which of several good ones is best.
    assert fmean(shares) < 0.5
    assert median(regrets) < 0.01
    assert max(regrets) < 0.2


def test_curves_are_asked_for_by_name() -> None:
    app = sim_app("a", jobs=2, phases=(Phase(2, 9),))
    assert isinstance(tuner_for(app.spec, "curves"), Curves)
    assert not isinstance(tuner_for(app.spec), Curves)
