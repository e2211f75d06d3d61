"""The rules by which trials leave their nodes."""

import pytest

from themis.integrations.ray_tune.trial_node_server import TrialNode
from themis.integrations.ray_tune.trial_rules import (
    AWAY,
    CONTINUE,
    PAUSE,
    PAUSED,
    PENDING,
    RUNNING,
    TrialBook,
    TuneTrial,
    decide,
    gives_back,
    iteration_limit,
    may_leave,
    must_pause,
)

STAYS = TrialNode(key=7, world=1, gpus=1, widest=1, grace=10.0)
LEAVES = TrialNode(key=7, world=1, gpus=1, widest=1, grace=10.0, leaving_since=100.0)


def test_each_trial_has_its_own_job_until_none_is_left() -> None:
    books = TrialBook(["0", "1"])
    first, second = books.add("a"), books.add("b")
    assert first is not None
    assert second is not None
    assert (first.job, second.job) == ("0", "1")
    assert books.add("c") is None


def test_jobs_want_gpus_only_for_trials_that_should_run() -> None:
    books = TrialBook(["0", "1", "2"])
    books.add("a")
    books.add("b")
    assert books.parked(["b"], 0.0) == {"0", "2"}
    books.entries["b"].over = True
    assert books.parked(["b"], 0.0) == {"0", "1", "2"}
    assert books.unused == {"2"}


def test_trial_with_gpus_on_wrong_machines_releases_them_for_a_while() -> None:
    books = TrialBook(["0"])
    entry = books.add("a")
    assert entry is not None
    apart = TrialNode(key=7, world=2, gpus=2, widest=1, grace=10.0)
    together = TrialNode(key=8, world=1, gpus=2, widest=2, grace=10.0)
    assert not gives_back(entry, together, 2.0, 100.0)
    assert not gives_back(entry, apart, 1.0, 100.0), "one GPU for each of its parts"
    assert gives_back(entry, apart, 2.0, 100.0)
    assert books.parked(["a"], 100.0) == {"0"}
    assert books.parked(["a"], 100.0 + AWAY) == set()


def test_a_trial_goes_on_while_its_lease_does() -> None:
    entry = TuneTrial("0")
    assert decide(entry, CONTINUE, STAYS, saves=True) == CONTINUE
    assert not entry.by_lease


def test_a_trial_is_paused_where_it_has_saved_once_its_gpus_go() -> None:
    entry = TuneTrial("0")
    assert decide(entry, CONTINUE, LEAVES, saves=False) == CONTINUE
    assert decide(entry, CONTINUE, LEAVES, saves=True) == PAUSE
    assert entry.by_lease


@pytest.mark.parametrize("decided", ["STOP", "NOOP", PAUSE])
def test_wrapped_schedulers_decision_stays(decided: str) -> None:
    entry = TuneTrial("0", by_lease=True)
    assert decide(entry, decided, LEAVES, saves=True) == decided
    # One that it paused waits for it, and not for GPUs.
    assert entry.by_lease is (decided != PAUSE)


def test_silent_trial_is_paused_before_its_grace_ends() -> None:
    entry = TuneTrial("0", node=7)
    assert not must_pause(entry, STAYS, 1000.0)
    assert not must_pause(entry, LEAVES, 104.0)
    assert must_pause(entry, LEAVES, 105.0)


def test_a_trial_whose_node_is_gone_or_another_is_paused_at_once() -> None:
    assert must_pause(TuneTrial("0", node=7), None, 0.0)
    assert must_pause(TuneTrial("0", node=6), STAYS, 0.0)
    assert not must_pause(TuneTrial("0"), None, 0.0), "it was never seen on one"


def test_a_node_goes_when_its_trial_is_not_there() -> None:
    assert not may_leave(PAUSED, STAYS, 0.0, up=True), "nobody asked it to"
    assert may_leave(PAUSED, LEAVES, 100.0, up=True)
    assert not may_leave(RUNNING, LEAVES, 1000.0, up=True)
    # One that is being started there is waited for, but not into the kill.
    assert not may_leave(PENDING, LEAVES, 107.0, up=True)
    assert may_leave(PENDING, LEAVES, 108.0, up=True)
    assert may_leave(PENDING, LEAVES, 100.0, up=False)


def test_ends_of_leases_are_no_failures_of_a_trial() -> None:
    entry = TuneTrial("0", failures=1)
    assert entry.allowed == 1
    entry.losing = True
    assert entry.allowed == 2
    entry.losing, entry.lost = False, 3
    assert entry.allowed == 4
    assert TuneTrial("0", failures=-1, lost=3).allowed == -1


class Asha:
    _max_t = 100
    _time_attr = "epochs"


@pytest.mark.parametrize(
    ("wrapped", "criteria", "given", "found"),
    [
        (Asha(), {}, None, 100),
        (Asha(), {"epochs": 20}, None, 20),
        (Asha(), {"training_iteration": 20}, None, 100),
        (object(), {"training_iteration": 7.5}, None, 8),
        (object(), None, 12, 12),
        (object(), {"loss": 0.1}, None, 0),
    ],
)
def test_how_far_trials_train(
    wrapped: object, criteria: object, given: int | None, found: int
) -> None:
    assert iteration_limit(wrapped, criteria, given) == found
