"""What is kept of apps that are over and of submissions, and for how long."""

from typing import get_args

import pytest

from themis.core.arbiter.records import AppRecord
from themis.core.fairness.ideal_time import Convention
from themis.core.model import AppId, OwnerId
from themis.core.steward.rows import StewardRow
from themis.recording.codec import loads
from themis.service import retained_rows
from themis.service.persistence.recovery import _KINDS
from themis.service.retained_rows import KEPT_FOR, EndedApp, EndedApps, Rows, SubmissionKeys

ANN, BOB = OwnerId("ann"), OwnerId("bob")


def apply(kept: dict[str, str], rows: Rows) -> None:
    for key, text in rows.items():
        if text is None:
            del kept[key]
        else:
            kept[key] = text


def record(name: str, end: float, owner: OwnerId = ANN) -> AppRecord:
    return AppRecord(AppId(name), owner, 1.0, 2.0, end, 3.0, 1.0, 1.0, 0.0, (), {}, "finished")


def test_the_end_of_an_app_is_known_for_a_week() -> None:
    kept: dict[str, str] = {"other": "row"}
    departed = EndedApps(kept, Convention.FAIR_SHARE)
    apply(kept, departed.note(record("a", end=10.0)))
    apply(kept, departed.note(record("b", end=20.0, owner=BOB)))
    assert departed.find(AppId("a")) == EndedApp(ANN, "finished", 2.0, 10.0, 3.0)
    assert not departed.old(10.0 + KEPT_FOR)
    apply(kept, departed.old(15.0 + KEPT_FOR))
    assert departed.find(AppId("a")) is None
    assert departed.find(AppId("b")) is not None
    apply(kept, departed.forget(AppId("b")))
    assert kept == {"other": "row"}
    assert departed.forget(AppId("b")) == {}


def test_who_lists_all_ends_has_each_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def note(text: str) -> object:
        read.append(text)
        return loads(text)

    monkeypatch.setattr(retained_rows, "loads", note)
    kept: dict[str, str] = {"other": "row"}
    departed = EndedApps(kept, Convention.FAIR_SHARE)
    for number in range(3):
        apply(kept, departed.note(record(f"a{number}", end=10.0 + number)))
    for _ in range(2):
        assert [app for app, _ in departed.all()] == ["a2", "a1", "a0"]
    assert not departed.old(20.0)
    assert len(read) == 3
    # One whose name was used anew is another.
    apply(kept, departed.note(record("a0", end=30.0, owner=BOB)))
    apply(kept, departed.forget(AppId("a1")))
    assert [(app, ended.owner) for app, ended in departed.all()] == [("a0", BOB), ("a2", ANN)]
    assert len(read) == 4


def test_a_key_is_known_for_a_week_and_is_its_owners() -> None:
    kept: dict[str, str] = {}
    keys = SubmissionKeys(kept)
    apply(kept, keys.note(ANN, "k/1", AppId("a"), 10.0))
    apply(kept, keys.note(BOB, "k/1", AppId("b"), 20.0))
    assert (keys.find(ANN, "k/1"), keys.find(BOB, "k/1")) == ("a", "b")
    apply(kept, keys.old(15.0 + KEPT_FOR))
    assert (keys.find(ANN, "k/1"), keys.find(BOB, "k/1")) == (None, "b")


def test_keys_stay_up_to_the_last_of_an_app_that_is_under_way() -> None:
    kept: dict[str, str] = {}
    keys = SubmissionKeys(kept)
    for number in range(3):
        apply(kept, keys.note(ANN, f"tuner {number}", AppId(f"a{number}"), 10.0 + number))
    apply(kept, keys.note(BOB, "k", AppId("b"), 5.0))
    apply(kept, keys.old(20.0 + KEPT_FOR, active={AppId("a1")}))
    assert [keys.find(ANN, f"tuner {number}") for number in range(3)] == ["a0", "a1", None]
    assert keys.find(BOB, "k") is None
    apply(kept, keys.old(20.0 + KEPT_FOR))
    assert not kept


def test_beyond_a_number_an_owner_loses_their_own_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_rows, "MOST_KEYS", 3)
    monkeypatch.setattr(retained_rows, "MOST_ENDED", 2)
    kept: dict[str, str] = {}
    keys, departed = SubmissionKeys(kept), EndedApps(kept, Convention.FAIR_SHARE)
    apply(kept, keys.note(BOB, "k", AppId("b"), 0.0))
    for number in range(5):
        apply(kept, keys.note(ANN, f"k{number}", AppId(f"a{number}"), float(number)))
        apply(kept, departed.note(record(f"a{number}", end=float(number))))
    apply(kept, keys.old(10.0))
    apply(kept, departed.old(10.0))
    assert [keys.find(ANN, f"k{number}") for number in range(5)] == [None, None, "a2", "a3", "a4"]
    assert keys.find(BOB, "k") == "b"
    assert [departed.find(AppId(f"a{number}")) is None for number in range(5)] == [True] * 3 + [
        False
    ] * 2


def test_a_key_without_a_time_is_dated_when_it_is_found() -> None:
    kept = {"submit/ann/k": "sweep"}
    keys = SubmissionKeys(kept)
    assert keys.find(ANN, "k") == "sweep"
    apply(kept, keys.old(100.0))
    assert keys.find(ANN, "k") == "sweep"
    assert keys.old(100.0 + KEPT_FOR) == {}
    assert keys.old(101.0 + KEPT_FOR) == {"submit/ann/k": None}


def test_every_row_that_the_steward_keeps_can_be_read_again() -> None:
    """Else a service could not start again."""
    assert set(_KINDS.values()) == set(get_args(StewardRow))
