"""When a supervisor asks for a checkpoint, when it kills, and what an end counts as."""

import pytest

from themis.engines.attempt.lease_timing import (
    CHECKPOINT,
    FAILED,
    FINISHED,
    KILL,
    RESUMABLE,
    RUN,
    LeaseTimer,
    due,
    outcome_of,
    wait,
)


@pytest.mark.parametrize(
    ("now", "stop", "asked", "wanted"),
    [
        pytest.param(0.0, RUN, False, RUN, id="a young lease"),
        pytest.param(69.9, RUN, False, RUN, id="just before the grace"),
        pytest.param(70.0, RUN, False, CHECKPOINT, id="a grace before the end"),
        pytest.param(70.0, RUN, True, RUN, id="asked already"),
        pytest.param(100.0, RUN, False, KILL, id="at the end, asked or not"),
        pytest.param(100.0, RUN, True, KILL, id="at the end"),
        pytest.param(0.0, CHECKPOINT, False, CHECKPOINT, id="the node wants one"),
        pytest.param(0.0, CHECKPOINT, True, RUN, id="the node wanted one"),
        pytest.param(0.0, KILL, True, KILL, id="the node wants it dead"),
    ],
)
def test_due_actions_follow_the_lease_time(now: float, stop: str, asked: bool, wanted: str) -> None:
    assert due(now, LeaseTimer(1, end=100.0, grace=30.0, stop=stop), asked=asked) == wanted


def test_a_supervisor_sleeps_until_the_next_thing_is_due() -> None:
    lease = LeaseTimer(1, end=100.0, grace=30.0)
    assert wait(60.0, lease, asked=False, most=50.0) == 10.0
    assert wait(60.0, lease, asked=True, most=50.0) == 40.0
    assert wait(0.0, lease, asked=True, most=0.25) == 0.25
    assert wait(200.0, lease, asked=True, most=0.25) == 0.0


@pytest.mark.parametrize(
    ("status", "asked", "killed", "ending"),
    [
        pytest.param(0, False, False, (FINISHED, 0), id="zero"),
        pytest.param(0, True, False, (FINISHED, 0), id="zero after a checkpoint"),
        pytest.param(75 << 8, False, False, (RESUMABLE, 75), id="75"),
        pytest.param(15, True, False, (RESUMABLE, -15), id="died of our SIGTERM"),
        pytest.param(143 << 8, True, False, (RESUMABLE, 143), id="its program did, says its shell"),
        pytest.param(15, False, False, (FAILED, -15), id="died of somebody's SIGTERM"),
        pytest.param(143 << 8, False, False, (FAILED, 143), id="143 by itself"),
        pytest.param(9, True, False, (RESUMABLE, -9), id="killed by somebody while saving"),
        pytest.param(9, False, True, (RESUMABLE, -9), id="killed by us"),
        pytest.param(1 << 8, True, False, (RESUMABLE, 1), id="1 instead of 75, says its launcher"),
        pytest.param(1 << 8, False, False, (FAILED, 1), id="an error"),
    ],
)
def test_exit_is_classified_by_its_cause(
    status: int, asked: bool, killed: bool, ending: tuple[str, int]
) -> None:
    assert outcome_of(status, asked=asked, killed=killed) == ending


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(None, id="damaged"),
        pytest.param({"token": 2, "end": 1.0, "grace": 1.0, "stop": RUN}, id="another token"),
        pytest.param({"token": 1, "end": "1", "grace": 1.0, "stop": RUN}, id="an end in words"),
        pytest.param({"token": 1, "end": 1.0, "grace": 1.0, "stop": "?"}, id="an unknown order"),
    ],
)
def test_foreign_lease_page_is_not_adopted(page: dict[str, object] | None) -> None:
    assert LeaseTimer.from_page(page, 1) is None
    good = LeaseTimer(1, 5.0, 2.0, KILL)
    taken = LeaseTimer.from_page(good.page(), 1)
    assert taken is not None
    assert taken.page() == good.page()
