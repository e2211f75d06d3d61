"""What people see of a long run without a terminal."""

import pytest

from themis.cli import output
from themis.cli.output import progress_bar, span


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


def test_a_long_run_says_how_far_it_is_and_how_long_it_still_takes(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("fifo", 80) as bar:
        for clock.now, done in ((1.0, 0), (6.0, 0), (7.9, 1), (12.0, 2), (60.0, 20), (61.0, 21)):
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


def test_the_time_left_goes_by_what_is_under_way_and_not_by_what_came_before(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("looking", 1) as bar:
        clock.now = 100.0
        bar.update(0, "3 of 9 runs", 1000)
        clock.now = 110.0
        bar.update(100, "4 of 9 runs", 1000)
    assert capsys.readouterr().err.splitlines()[-1] == "4 of 9 runs: 100 of 1000, about 90 s left"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (120, "2 min"), (9000, "2.5 h")]
)
def test_times_are_rounded_for_people(seconds: float, text: str) -> None:
    assert span(seconds) == text
