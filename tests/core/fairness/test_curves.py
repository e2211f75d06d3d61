import math

from themis.core.fairness import JobLoad, forecast_load, shared_time_by_curves, stop_iteration
from themis.core.model import JobId, JobSpec

JOB = JobSpec(JobId("j"), serial_iteration_time=2.0, max_gpus=4, min_gpus=2)


def test_the_most_optimistic_curve_decides_up_to_the_maximum() -> None:
    assert stop_iteration((90, 120, 60), most=200) == 120
    assert stop_iteration((90, 500), most=200) == 200


def test_a_job_without_a_forecast_is_taken_to_run_to_its_maximum() -> None:
    assert stop_iteration((), most=200) == 200


def test_the_load_is_what_lies_between_now_and_the_forecast() -> None:
    assert forecast_load(JOB, done=40, forecasts=(90, 120), most=200) == JobLoad(160.0, 4, 2)
    assert forecast_load(JOB, done=150, forecasts=(90, 120), most=200).work == 0.0


def test_shared_time_is_one_phase_with_the_forecast_work() -> None:
    loads = [JobLoad(160.0, 4), JobLoad(40.0, 4)]
    assert shared_time_by_curves(50.0, loads, [2.0, 2.0], [4.0, 4.0]) == 100.0
    assert shared_time_by_curves(50.0, loads, [2.0, 2.0], [2.0, 4.0], restart=30.0) == 160.0
    assert shared_time_by_curves(50.0, loads, [0.0, 0.0], [0.0, 0.0]) == math.inf


def test_an_app_whose_jobs_have_all_stopped_takes_no_more_time() -> None:
    assert shared_time_by_curves(50.0, [JobLoad(0.0, 4)], [1.0], [1.0], restart=30.0) == 50.0
