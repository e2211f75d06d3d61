"""What is kept of apps that are over and of submissions, and for how long."""

from typing import get_args

import pytest

from tests.support.scripted_world import simple_app
from tests.support.subscribers import give, rows_in_memory
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.records import AppRecord
from themis.core.fairness.ideal_time import Convention
from themis.core.model import AppId, OwnerId
from themis.core.steward.rows import StewardRow
from themis.service import retained_rows
from themis.service.persistence.commit_queue import DurableRows
from themis.service.persistence.recovery import _KINDS
from themis.service.retained_rows import KEPT_FOR, EndedApp, EndedApps, SubmissionKeys

ANN, BOB = OwnerId("ann"), OwnerId("bob")


def record(name: str, end: float, owner: OwnerId = ANN) -> AppRecord:
    return AppRecord(AppId(name), owner, 1.0, 2.0, end, 3.0, 1.0, 1.0, 0.0, (), {}, "finished")


def test_the_end_of_an_app_is_known_for_a_week() -> None:
    kept: dict[str, str] = {"other": "row"}
    ended = EndedApps(rows_in_memory(kept), Convention.FAIR_SHARE)
    give(ended, cmd.RecordApp(record("a", end=10.0)))
    give(ended, cmd.RecordApp(record("b", end=20.0, owner=BOB)))
    assert ended.find(AppId("a")) == EndedApp(ANN, "finished", 2.0, 10.0, 3.0)
    assert not ended.old(10.0 + KEPT_FOR)
    ended.forget(ended.old(15.0 + KEPT_FOR))
    assert ended.find(AppId("a")) is None
    assert ended.find(AppId("b")) is not None
    again = EndedApps(rows_in_memory(kept), Convention.FAIR_SHARE)
    assert again.all() == ended.all()
    give(ended, events=(ev.AppArrived(30.0, simple_app("b", owner="bob")),))
    assert kept == {"other": "row"}
    assert not ended.all()


def test_refused_name_is_not_reused() -> None:
    ended = EndedApps(rows_in_memory(), Convention.FAIR_SHARE)
    give(ended, cmd.RecordApp(record("a", end=10.0)))
    arrival = ev.AppArrived(30.0, simple_app("a", owner="bob"))
    give(ended, cmd.Refuse("a", "of this name"), events=(arrival,))
    assert ended.find(AppId("a")) is not None


def test_ended_apps_are_listed_from_the_last_to_end() -> None:
    kept: dict[str, str] = {}
    ended = EndedApps(rows_in_memory(kept), Convention.FAIR_SHARE)
    for number in range(3):
        give(ended, cmd.RecordApp(record(f"a{number}", end=10.0 + number)))
    assert [app for app, _ in ended.all()] == ["a2", "a1", "a0"]
    # An app of the same name is another one.
    give(ended, cmd.RecordApp(record("a0", end=30.0, owner=BOB)))
    ended.forget([AppId("a1")])
    for each in (ended, EndedApps(rows_in_memory(kept), Convention.FAIR_SHARE)):
        assert [(app, end.owner) for app, end in each.all()] == [("a0", BOB), ("a2", ANN)]


def submit(rows: DurableRows, owner: OwnerId, key: str, app: str) -> None:
    """Used at 10 s, and at a later second by the number in the app's name."""
    rows.keep(SubmissionKeys(rows).row(owner, key, AppId(app), 10.0 + float(app[1:] or 0.0)))


def test_a_key_is_known_for_a_week_and_is_its_owners() -> None:
    rows = rows_in_memory()
    keys = SubmissionKeys(rows)
    submit(rows, ANN, "k/1", "a")
    submit(rows, BOB, "k/1", "b10")
    assert (keys.find(ANN, "k/1"), keys.find(BOB, "k/1")) == ("a", "b10")
    keys.forget_old(15.0 + KEPT_FOR, ())
    assert (keys.find(ANN, "k/1"), keys.find(BOB, "k/1")) == (None, "b10")


def test_submission_keys_stay_up_to_the_last_running_app() -> None:
    rows = rows_in_memory()
    keys = SubmissionKeys(rows)
    for number in range(3):
        submit(rows, ANN, f"tuner {number}", f"a{number}")
    submit(rows, BOB, "k", "b")
    keys.forget_old(20.0 + KEPT_FOR, {AppId("a1")})
    assert [keys.find(ANN, f"tuner {number}") for number in range(3)] == ["a0", "a1", None]
    assert keys.find(BOB, "k") is None
    keys.forget_old(20.0 + KEPT_FOR, ())
    assert not rows


def test_beyond_a_number_an_owner_loses_their_own_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_rows, "MOST_KEYS", 3)
    monkeypatch.setattr(retained_rows, "MOST_ENDED", 2)
    rows = rows_in_memory()
    keys, ended = SubmissionKeys(rows), EndedApps(rows, Convention.FAIR_SHARE)
    submit(rows, BOB, "k", "b")
    for number in range(5):
        submit(rows, ANN, f"k{number}", f"a{number}")
        give(ended, cmd.RecordApp(record(f"a{number}", end=float(number))))
    keys.forget_old(10.0, ())
    ended.forget(ended.old(10.0))
    assert [keys.find(ANN, f"k{number}") for number in range(5)] == [None, None, "a2", "a3", "a4"]
    assert keys.find(BOB, "k") == "b"
    assert [app for app, _ in ended.all()] == ["a4", "a3"]


def test_every_row_that_the_steward_keeps_can_be_read_again() -> None:
    """Else a service could not start again."""
    assert set(_KINDS.values()) == set(get_args(StewardRow))
