"""Which jobs are left in, and which make an app together."""

import pytest

from themis.errors import ConfigError
from themis.sim.traces import Trace, TraceJob, group_apps, select
from themis.sim.traces.app_grouping import burst_sizes


def jobs(*rows: tuple[float, str, int] | tuple[float, str, int, str]) -> list[TraceJob]:
    return [
        TraceJob(line, row[0], 10.0, row[2], row[1], row[3] if len(row) == 4 else None)
        for line, row in enumerate(rows, start=2)
    ]


def lines(found: list[TraceJob], gap: float = 60.0, most: int = 100) -> list[list[int]]:
    apps = group_apps(found, burst_gap=gap, max_jobs=most)
    return [[job.line for job in app.jobs] for app in apps]


def test_similar_jobs_a_minute_apart_are_one_app_and_later_ones_two() -> None:
    assert lines(jobs((0, "a", 1), (60, "a", 1), (121, "a", 1))) == [[2, 3], [4]]


def test_another_owner_or_another_number_of_gpus_is_another_app() -> None:
    found = jobs((0, "a", 1), (1, "b", 1), (2, "a", 2), (3, "a", 1))
    assert lines(found) == [[2, 5], [3], [4]]


def test_a_long_burst_is_cut_at_the_most_jobs() -> None:
    assert lines(jobs(*[(n, "a", 1) for n in range(5)]), most=2) == [[2, 3], [4, 5], [6]]


def test_rows_are_sorted_and_ties_keep_their_line_order() -> None:
    found = jobs((90, "a", 1), (0, "a", 1), (50, "a", 1), (50, "a", 1))
    assert lines(found) == [[3, 4, 5, 2]]


def test_apps_that_the_trace_names_are_kept_whatever_the_gaps_and_counts() -> None:
    found = jobs((0, "a", 1, "x"), (5000, "a", 4, "x"), (5001, "b", 1, "x"), (5002, "a", 1))
    assert lines(found, most=1) == [[2, 3], [4], [5]]


def test_burst_sizes_ignore_names_and_the_most_jobs() -> None:
    found = jobs(*[(n, "a", 1, f"x{n}") for n in range(150)], (0, "b", 1))
    assert sorted(burst_sizes(found)) == [1, 150]


def test_owners_and_times_outside_are_dropped_with_a_count() -> None:
    found = tuple(jobs((10, "a", 1), (20, "probe", 1), (30, "a", 1), (40, "a", 1)))
    trace = Trace("csv", 5, found, dropped={"zero duration": 1})
    kept = select(trace, drop_owners=["probe"], start=20, until=40)
    assert [job.submit for job in kept.jobs] == [30]
    assert kept.dropped == {"outside the window": 2, "owner dropped": 1, "zero duration": 1}


def test_the_window_of_a_trace_with_dates_counts_from_its_first_submission() -> None:
    trace = Trace("sacct", 2, tuple(jobs((1000, "a", 1), (1100, "a", 1))), origin=1000.0)
    assert [job.submit for job in select(trace, start=50).jobs] == [1100]


@pytest.mark.parametrize("window", [(-1.0, None), (10.0, 10.0), (None, float("nan"))])
def test_a_window_that_holds_nothing_is_refused(window: tuple[float | None, float | None]) -> None:
    with pytest.raises(ConfigError):
        select(Trace("csv", 0, ()), start=window[0], until=window[1])


@pytest.mark.parametrize("most", [0, -1, 10**9])
def test_a_number_of_jobs_out_of_range_is_refused(most: int) -> None:
    with pytest.raises(ConfigError, match="max_jobs"):
        group_apps([], max_jobs=most)
