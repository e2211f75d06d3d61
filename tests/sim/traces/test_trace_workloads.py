"""From a trace to a workload, to a file, and through the simulator."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.core.fairness.loads import total_work
from themis.core.model import AppId, OwnerId
from themis.core.model.ids import check_name
from themis.errors import ConfigError, CorruptLogError, InvariantError, MissingFileError
from themis.recording.codec import dumps
from themis.sim import RunConfig, prepare, run
from themis.sim.traces import (
    CompactApp,
    ImportOptions,
    NoJobsError,
    Trace,
    TraceJob,
    TracePlan,
    header_of,
    plan_workload,
    read_trace,
    read_workload,
    trace_stats,
    write_workload,
)
from themis.sim.traces.compact_apps import draw_model
from themis.sim.traces.trace_workload import Names
from themis.sim.traces.workload_files import for_cluster
from themis.sim.workloads import Workload, generate_w2, true_phases

HOUR, DAY, WEEK = 3600.0, 86400.0, 604800.0


def trace_of(*rows: tuple[float, float, int, str], origin: float = 0.0) -> Trace:
    jobs = tuple(TraceJob(line, *row) for line, row in enumerate(rows, start=2))
    return Trace("csv", len(jobs), jobs, origin=origin)


def plan_of(*rows: tuple[float, float, int, str], **options: Any) -> TracePlan:
    return plan_workload(trace_of(*rows), "mine", ImportOptions(**options))


def write(plan: TracePlan, path: Path) -> Path:
    write_workload(path, plan.header, plan.lines())
    return path


THREE = ((100.0, 50.0, 4, "Ann"), (130.0, 0.2, 4, "Ann"), (7300.0, 60.0, 1, "bob"))


# What becomes of the jobs


def test_job_needs_its_used_gpu_time_on_its_allocated_gpus() -> None:
    first, second = plan_of(*THREE).workload().apps
    assert [job.max_gpus for job in first.spec.jobs] == [4, 4]
    assert [job.min_gpus for job in first.spec.jobs] == [1, 1]
    assert first.spec.phases[0].targets == (200, 1)
    assert total_work(true_phases(first)) == 201
    assert (first.arrival, second.arrival) == (0.0, 7200.0)
    assert (first.spec.id, second.spec.id) == ("line-2", "line-4")
    assert (first.spec.owner, second.spec.owner) == ("ann", "bob")


def test_durations_scale_and_the_load_with_them() -> None:
    whole, half = plan_of(*THREE), plan_of(*THREE, duration_scale=0.5)
    assert whole.header.load == pytest.approx(261 / (64 * 2 * HOUR))
    assert [app.spec.phases[0].targets for app in half.workload().apps] == [(100, 1), (30,)]


@pytest.mark.parametrize(
    ("last", "horizon"),
    [
        pytest.param(0.0, HOUR, id="a single moment"),
        pytest.param(3601.0, 2 * HOUR, id="hours"),
        pytest.param(5.2 * DAY, 6 * DAY, id="days"),
        pytest.param(12.7 * DAY, 2 * WEEK, id="weeks"),
    ],
)
def test_the_horizon_is_the_submissions_in_whole_units(last: float, horizon: float) -> None:
    plan = plan_of((5.0, 1.0, 1, "a"), (5.0 + last, 1.0, 1, "a"))
    assert plan.header.horizon == pytest.approx(horizon)


def test_a_window_sets_the_clock_and_the_horizon() -> None:
    plan = plan_of(*THREE, start=90.0, until=190.0)
    assert [line.arrival for line in plan.lines()] == [10.0]
    assert plan.header.horizon == 100.0
    assert plan_of(*THREE, horizon=5.0).header.horizon == 5.0


def test_fewer_apps_leave_the_others_as_they_are_and_are_counted() -> None:
    plan = plan_of(*THREE, limit_apps=1)
    assert list(plan.lines()) == list(plan_of(*THREE).lines())[:1]
    assert plan.trace.dropped == {"beyond the limit of apps": 1}


def test_another_window_changes_no_other_app() -> None:
    (late,) = plan_of(*THREE, start=200.0).lines()
    *_, same = plan_of(*THREE).lines()
    assert dataclasses.replace(late, arrival=0.0) == dataclasses.replace(same, arrival=0.0)


def test_the_seed_draws_models_by_the_papers_mix() -> None:
    models = [draw_model(1, f"app-{n}") for n in range(4000)]
    assert models != [draw_model(2, f"app-{n}") for n in range(4000)]
    speech = sum(model in {"WaveNet", "DeepSpeech"} for model in models)
    assert speech / len(models) == pytest.approx(0.30, abs=0.03)


def test_trace_without_jobs_left_lists_the_dropped_ones() -> None:
    with pytest.raises(NoJobsError) as caught:
        plan_of(*THREE, drop_owners=("Ann", "bob"))
    assert caught.value.trace.dropped == {"owner dropped": 3}


@pytest.mark.parametrize(
    "options",
    [
        {"duration_scale": 0.0},
        {"duration_scale": math.nan},
        {"gpus": 0},
        {"seed": -1},
        {"limit_apps": 0},
        {"horizon": 0.0},
        {"hardware": "abacus"},
        {"burst_gap": -1.0},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        plan_of(*THREE, **options)


def test_a_scale_that_makes_a_job_endless_names_its_line() -> None:
    with pytest.raises(ConfigError, match="line 2 gets too long"):
        plan_of((0.0, 1e10, 100_000, "a"), duration_scale=2.0)


def test_names_are_valid_and_unique_whatever_the_trace_calls_them() -> None:
    names = Names()
    texts = ["ann", "Ann", "a n n", "", "--", "é", "x" * 200, "x" * 201, "-a-", "a", "\ud800"]
    given = [names.new(text, f"line-{index}") for index, text in enumerate(texts)]
    assert given[0] == "ann"
    assert len(set(given)) == len(given)
    for name in given:
        check_name("name", name)


def test_apps_of_the_same_name_are_distinguished() -> None:
    jobs = (TraceJob(2, 0.0, 1.0, 1, "a", "x"), TraceJob(3, 1.0, 1.0, 1, "b", "x"))
    plan = plan_workload(Trace("csv", 2, jobs), "mine")
    assert [line.app for line in plan.lines()] == ["x", "x-line-3"]


# Files


def test_a_workload_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    plan = plan_of(*THREE)
    assert read_workload(write(plan, tmp_path / "w.jsonl")) == plan.workload()


@given(
    texts=st.tuples(st.text(), st.text(), st.text()),
    arrival=st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    jobs=st.lists(st.tuples(st.integers(), st.integers()), max_size=3),
)
def test_a_line_is_written_as_the_codec_would(
    texts: tuple[str, str, str], arrival: float, jobs: list[tuple[int, int]]
) -> None:
    gpus, seconds = tuple(each[0] for each in jobs), tuple(each[1] for each in jobs)
    line = CompactApp(AppId(texts[0]), OwnerId(texts[1]), arrival, texts[2], gpus, seconds)
    assert line.to_json() == dumps(line)


@pytest.mark.parametrize("arrival", [math.nan, math.inf])
def test_an_app_that_never_arrives_is_not_written(arrival: float) -> None:
    with pytest.raises(InvariantError, match="arrives at"):
        CompactApp(AppId("a"), OwnerId("o"), arrival, "GNMT", (1,), (1,)).to_json()


def test_a_generated_workload_can_be_written_too(tmp_path: Path) -> None:
    workload = generate_w2(seed=3, apps=2)
    write_workload(tmp_path / "w.jsonl", header_of(workload, 64), workload.apps)
    assert read_workload(tmp_path / "w.jsonl") == workload


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path) -> None:
    plan, path = plan_of(*THREE), tmp_path / "w.jsonl"
    path.write_text("old")

    def broken() -> list[CompactApp]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_workload(path, plan.header, (line for _ in (1,) for line in broken()))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_or_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a file to write"):
        write(plan_of(*THREE), tmp_path / "missing" / "w.jsonl")
    with pytest.raises(MissingFileError, match=r"missing\.jsonl: there is no such file"):
        read_workload(tmp_path / "missing.jsonl")
    with pytest.raises(ConfigError, match="a readable file"):
        read_workload(tmp_path)


APP = '{"app":"x","owner":"a","arrival":0.0,"model":"GNMT","gpus":[1],"gpu_seconds":[5]}'


@pytest.mark.parametrize(
    ("change", "line", "reason"),
    [
        pytest.param(lambda text: "", 1, "empty", id="empty"),
        pytest.param(lambda text: "hello\n", 1, "not a workload file", id="some other file"),
        pytest.param(lambda text: text[:-9], 3, "cut off", id="cut in a line"),
        pytest.param(lambda text: text[: text[:-1].rindex("\n") + 1], 3, "counts 2", id="cut off"),
        pytest.param(lambda text: text + APP + "\n", 5, "counts 2", id="an app too many"),
        pytest.param(lambda text: text.replace('"ann"', '"Ann"'), 2, "owner", id="a bad name"),
        pytest.param(lambda text: text.replace("[4,4]", "[4]"), 2, "one for each", id="uneven"),
        pytest.param(lambda text: text.replace("200,1]", "200,true]"), 2, "whole", id="a bool"),
        pytest.param(
            lambda text: text.replace('arrival":7200.0', 'arrival":1e999'),
            3,
            "finite",
            id="infinite",
        ),
        pytest.param(
            lambda text: text.replace('workload":1', 'workload":2'),
            1,
            "themis_workload",
            id="newer",
        ),
    ],
)
def test_damaged_file_is_reported_with_its_line(
    tmp_path: Path, change: Callable[[str], str], line: int, reason: str
) -> None:
    path = write(plan_of(*THREE), tmp_path / "w.jsonl")
    path.write_text(change(path.read_text()))
    with pytest.raises(CorruptLogError, match=reason) as caught:
        read_workload(path)
    assert caught.value.line == line


def test_the_load_is_that_of_the_cluster_and_can_be_set() -> None:
    workload = plan_of(*THREE).workload()
    assert for_cluster(workload, 32).load == pytest.approx(2 * workload.load)
    stretched = for_cluster(workload, 64, 0.5)
    assert stretched.load == 0.5
    ratio = stretched.horizon / workload.horizon
    assert stretched.apps[1].arrival == pytest.approx(7200.0 * ratio)
    assert ratio == pytest.approx(workload.load / 0.5)


# In the simulator


def test_a_run_reads_a_workload_file_and_does_all_its_work(tmp_path: Path) -> None:
    path = write(plan_of(*THREE), tmp_path / "w.jsonl")
    result = run(RunConfig(cluster="demo16", workload=str(path), policy="equal-share"))
    assert result.summary["apps"] == 2
    assert result.summary["workload"] == "mine"
    assert result.summary["gpu_hours_spent"]["useful"] * HOUR == pytest.approx(261)


def test_a_workload_file_has_its_own_apps_and_options(tmp_path: Path) -> None:
    path = str(write(plan_of(*THREE), tmp_path / "w.jsonl"))
    with pytest.raises(ConfigError, match="limit-apps"):
        prepare(RunConfig(workload=path, apps=1))
    with pytest.raises(ConfigError, match="eta"):
        prepare(RunConfig(workload=path, options={"eta": 3}))
    with pytest.raises(ConfigError, match="or a workload file"):
        prepare(RunConfig(workload="w22"))


# Statistics


def test_statistics_describe_what_would_be_imported() -> None:
    stats = trace_stats(plan_of(*THREE, duration_scale=2.0))
    assert (stats["jobs"], stats["apps"], stats["owners"], stats["bursts"]) == (3, 2, 2, 1)
    assert stats["gpu_hours"] * HOUR == pytest.approx(2 * (50 * 4 + 0.2 * 4 + 60))
    assert stats["duration_s"]["max"] == 120.0
    assert stats["gpus_per_job"]["median"] == 4
    assert stats["owners_by_jobs"] == {"Ann": 2, "bob": 1}


# The measured data


def test_the_85_philly_apps_have_the_published_load(themis_data: Path) -> None:
    trace = read_trace(themis_data / "philly_85apps_2weeks.csv")
    plan = plan_workload(trace, "philly")
    assert (len(trace.jobs), plan.header.apps, trace.clean) == (3873, 85, True)
    assert plan.header.horizon == 14 * DAY
    assert plan.header.load == pytest.approx(1.10, abs=0.005)
    scaled = plan_workload(trace, "philly", ImportOptions(duration_scale=0.83))
    assert scaled.header.load == pytest.approx(0.91, abs=0.005)


def test_bursts_of_the_philly_jobs_are_those_in_the_data(themis_data: Path) -> None:
    trace = read_trace(themis_data / "philly_jobs.csv")
    published = (themis_data / "philly_bursts.csv").read_text().splitlines()[1:]
    stats = trace_stats(plan_workload(trace, "philly"))
    assert stats["rows"] == stats["jobs"] == 82_247
    assert stats["bursts"] == len(published)
    assert stats["jobs_in_bursts"] == sum(int(row.split(",")[4]) for row in published)


def test_the_probe_of_the_philly_cluster_can_be_left_out(themis_data: Path) -> None:
    trace = read_trace(themis_data / "philly_jobs.csv")
    plan = plan_workload(trace, "philly", ImportOptions(drop_owners=("11cb48",)))
    assert plan.trace.dropped == {"owner dropped": 16_091}
    assert len(plan.trace.jobs) == 82_247 - 16_091


def philly_slice(data: Path) -> Workload:
    trace = read_trace(data / "philly_85apps_2weeks.csv")
    options = ImportOptions(duration_scale=0.1, start=2 * DAY, until=5 * DAY, limit_apps=4)
    return plan_workload(trace, "slice", options).workload()


def test_a_slice_of_philly_runs_end_to_end(themis_data: Path, tmp_path: Path) -> None:
    workload = philly_slice(themis_data)
    path = tmp_path / "slice.jsonl"
    write_workload(path, header_of(workload, 64), workload.apps)
    result = run(RunConfig(cluster="testbed64", workload=str(path)))
    work = sum(total_work(true_phases(app)) for app in workload.apps)
    assert result.summary["apps"] == 4
    assert result.summary["gpu_hours_spent"]["useful"] * HOUR == pytest.approx(work)


@pytest.mark.slow
def test_all_philly_apps_run_end_to_end(themis_data: Path, tmp_path: Path) -> None:
    trace = read_trace(themis_data / "philly_85apps_2weeks.csv")
    plan = plan_workload(trace, "philly", ImportOptions(duration_scale=0.01))
    path = write(plan, tmp_path / "philly.jsonl")
    result = run(RunConfig(workload=str(path), policy="worst-first"))
    work = plan.header.load * plan.header.gpus * plan.header.horizon
    assert (result.summary["apps"], result.summary["jobs"]) == (85, 3873)
    assert result.summary["gpu_hours_spent"]["useful"] * HOUR == pytest.approx(work)
