"""Which agent session may speak for each app.

Sessions are fenced by number, as processes are by the tokens of their leases: a message of a
session that was replaced is refused, however late it arrives.
"""

from collections.abc import Iterable, Mapping

from themis.core.model import AppId
from themis.core.steward.rows import RowChanges, SessionRow, deleted, stored

REMEMBERED = 8
"""How many replaced sessions of an app are remembered."""


class AgentSessions:
    """The current session of each app."""

    def __init__(self, rows: Iterable[SessionRow] = (), *, epoch: int) -> None:
        self._sessions = {row.app: row for row in rows}
        self._epoch = epoch
        self._opened = 0
        """How many sessions this epoch has opened."""

    @property
    def by_app(self) -> Mapping[AppId, SessionRow]:
        """The current sessions; read only."""
        return self._sessions

    def is_current(self, app: AppId, fence: int) -> bool:
        """Whether messages with this fence are of the session that may speak for an app."""
        session = self._sessions.get(app)
        return fence == (session.fence if session is not None else 0)

    def open(self, app: AppId, session: str) -> tuple[SessionRow | None, RowChanges]:
        """Open a session in place of the current one, or find it open already.

        Returns None in its place if it was replaced before: its request to open arrived late.
        """
        known = self._sessions.get(app)
        if known is not None and known.session == session:
            return known, {}
        if known is not None and session in known.before:
            return None, {}
        before = (known.session, *known.before)[:REMEMBERED] if known is not None else ()
        self._opened += 1
        # Above all earlier fences, also of an app of the same name, and also of those that a
        # restored store has forgotten: epochs rise. There they are seconds since 1970, and with
        # them the number still has to fit into 62 bits.
        opened = SessionRow(app, (self._epoch << 30) + self._opened, session, before)
        self._sessions[app] = opened
        return opened, stored(opened)

    def close(self, app: AppId) -> RowChanges:
        """The app is gone."""
        session = self._sessions.pop(app, None)
        return deleted(session) if session is not None else {}
