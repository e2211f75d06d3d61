"""Sessions of agents alone: which one may speak for an app, and what is stored of it."""

from themis.core.model import AppId
from themis.core.steward.agent_sessions import REMEMBERED, AgentSessions
from themis.core.steward.rows import SessionRow

A, B = AppId("a"), AppId("b")
EPOCH = 3
FIRST = (EPOCH << 30) + 1


def test_opening_a_session_stores_it_with_a_fence_above_all_others() -> None:
    sessions = AgentSessions(epoch=EPOCH)
    row = SessionRow(A, FIRST, "s1")
    assert sessions.open(A, "s1") == (row, {"session/a": row})
    later = SessionRow(B, FIRST + 1, "s1")
    assert sessions.open(B, "s1") == (later, {"session/b": later})


def test_opening_a_session_again_stores_nothing() -> None:
    sessions = AgentSessions(epoch=EPOCH)
    opened, _ = sessions.open(A, "s1")
    assert sessions.open(A, "s1") == (opened, {})


def test_a_replaced_session_can_neither_speak_nor_open_again() -> None:
    sessions = AgentSessions(epoch=EPOCH)
    first, _ = sessions.open(A, "s1")
    second, _ = sessions.open(A, "s2")
    assert first is not None
    assert second is not None
    assert second.before == ("s1",)
    assert not sessions.is_current(A, first.fence)
    assert sessions.is_current(A, second.fence)
    assert sessions.open(A, "s1") == (None, {})


def test_an_app_without_a_session_is_spoken_for_with_fence_0() -> None:
    assert AgentSessions(epoch=EPOCH).is_current(A, 0)


def test_only_the_last_replaced_sessions_are_remembered() -> None:
    sessions = AgentSessions(epoch=EPOCH)
    for number in range(REMEMBERED + 2):
        sessions.open(A, f"s{number}")
    assert len(sessions.by_app[A].before) == REMEMBERED
    assert sessions.open(A, "s0")[0] is not None, "it is forgotten, and takes over"


def test_a_restart_goes_on_with_stored_sessions_and_higher_fences() -> None:
    row = SessionRow(A, FIRST, "s1")
    sessions = AgentSessions([row], epoch=EPOCH + 1)
    assert sessions.is_current(A, FIRST)
    opened, _ = sessions.open(A, "s2")
    assert opened is not None
    assert opened.fence > FIRST


def test_closing_an_app_deletes_its_session_once() -> None:
    sessions = AgentSessions([SessionRow(A, FIRST, "s1")], epoch=EPOCH)
    assert sessions.close(A) == {"session/a": None}
    assert sessions.close(A) == {}
