"""What people see of a long run without a terminal."""

import pytest

from themis.cli.common import output
from themis.cli.common.output import progress_bar, span


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(output, "time", clock)
    return clock


def test_long_run_shows_its_progress_and_remaining_time(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("fifo", 80) as bar:
        for clock.now, done in ((1.0, 0), (6.0, 0), (7.4, 1), (12.0, 2), (60.0, 20), (61.0, 21)):
            bar.update(done)
        clock.now = 240.0
        bar.update(80)
    assert capsys.readouterr().err.splitlines() == [
        "fifo: 0 of 80, 6 s so far",
        "fifo: 2 of 80, about 8 min left",
        "fifo: 20 of 80, about 3 min left",
        "fifo: 80 of 80",
    ]


def test_a_quick_run_says_only_how_far_it_is(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("fifo", 2) as bar:
        clock.now = 0.5
        bar.update(1)
        bar.update(2)
    assert capsys.readouterr().err.splitlines() == ["fifo: 1 of 2", "fifo: 2 of 2"]


def test_remaining_time_depends_on_current_work_and_not_on_earlier_work(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("looking", 1) as bar:
        clock.now = 100.0
        bar.update(0, "3 of 9 runs", 1000)
        clock.now = 110.0
        bar.update(100, "4 of 9 runs", 1000)
    assert capsys.readouterr().err.splitlines()[-1] == "4 of 9 runs: 100 of 1000, about 90 s left"


def test_between_two_news_the_time_left_falls(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("", 1, numbers=False) as bar:
        bar.update(0, "0 of 4 runs", 400)
        for clock.now in (20.0, 24.0, 28.0, 45.0, 79.0, 81.0):
            bar.update(100, "1 of 4 runs", 400)
        clock.now = 90.0
        bar.update(200, "2 of 4 runs", 400)
    assert capsys.readouterr().err.splitlines() == [
        "1 of 4 runs, about 60 s left",
        "1 of 4 runs, about 56 s left",
        "1 of 4 runs, about 52 s left",
        "1 of 4 runs, about 35 s left",
        "1 of 4 runs, about 1 s left",
        "1 of 4 runs, longer than expected",
        "2 of 4 runs, about 90 s left",
    ]


def test_the_first_hundredth_says_nothing_of_the_rest(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("runs", 1000) as bar:
        for clock.now, done in ((10.0, 1), (30.0, 19), (40.0, 30)):
            bar.update(done)
    assert capsys.readouterr().err.splitlines() == [
        "runs: 1 of 1000, 10 s so far",
        "runs: 19 of 1000, 30 s so far",
        "runs: 30 of 1000, about 22 min left",
    ]


def test_small_news_do_not_raise_the_time_left(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("runs", 1000) as bar:
        for clock.now, done in ((10.0, 100), (13.0, 101), (16.0, 102), (19.0, 103), (22.0, 110)):
            bar.update(done)
    told = [line.split("about ")[1] for line in capsys.readouterr().err.splitlines()]
    assert told == ["90 s left", "87 s left", "84 s left", "81 s left", "3 min left"]


def test_start_of_a_step_is_printed_once_without_an_estimate(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("evaluating", 3, even=False) as bar:
        for clock.now in (0.1, 0.2):
            bar.begin(0, "E1: evaluating")
        bar.begin(0, "E1: drawing")
        clock.now = 10.0
        bar.begin(1, "E2: evaluating")
    assert capsys.readouterr().err.splitlines() == [
        "E1: evaluating: 0 of 3",
        "E1: drawing: 0 of 3",
        "E2: evaluating: 1 of 3",
    ]


def test_second_search_of_the_same_size_starts_anew(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("runs", 100) as bar:
        clock.now = 50.0
        bar.update(100)
        clock.now = 60.0
        bar.update(0)
        clock.now = 70.0
        bar.update(10)
    assert capsys.readouterr().err.splitlines()[-1] == "runs: 10 of 100, about 90 s left"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (120, "2 min"), (9000, "2.5 h")]
)
def test_times_are_rounded_for_people(seconds: float, text: str) -> None:
    assert span(seconds) == text
