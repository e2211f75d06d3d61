"""Apps that were submitted as files: what was written, and which of them need an agent of ours.

    sheets.note(sheet)                      # rows to store with the app
    await sheets.list(owner, revision)      # for a host of agents: waits for another answer
    sheets.sheet(app)                       # for its agent, and nobody else

A file has the environment of its jobs in it, which may be secret: it is stored, and told to hosts
of the app's owner only.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from themis.apps import Minder
from themis.core.model import AppId, OwnerId
from themis.errors import RefusedError, UnknownAppError
from themis.protocol.agent_messages import Hosted, SubmittedApp
from themis.recording.codec import decode, dumps, loads

POLL = 20.0
"""Seconds after which a host without news is answered."""

_SHEET = "sheet/"


class SubmittedApps:
    """What is kept of submitted files."""

    def __init__(self, kept: Mapping[str, str], active: Callable[[], Collection[AppId]]) -> None:
        self._kept = kept
        self._active = active
        self._owners: dict[AppId, OwnerId] = {}
        self._own: set[AppId] = set()
        """Those that a process of their owner's speaks for."""
        self._stops: dict[AppId, str] = {}
        self._revision = 1
        self._changed = asyncio.Event()
        for key, text in kept.items():
            if key.startswith(_SHEET):
                self._note(_read(text))

    def _note(self, sheet: SubmittedApp) -> None:
        self._owners[sheet.app] = sheet.owner
        body: Any = json.loads(sheet.body)
        if body.get("tuner") == Minder.OWN:
            self._own.add(sheet.app)
        stop = body.get("stop")
        self._stops[sheet.app] = str(stop.get("method", "")) if isinstance(stop, dict) else ""

    def note(self, sheet: SubmittedApp) -> dict[str, str | None]:
        """The row of a new app; `tell` when it is there."""
        self._note(sheet)
        return {_SHEET + sheet.app: dumps(sheet)}

    def forget(self, app: AppId) -> dict[str, str | None]:
        """The row may go."""
        self._owners.pop(app, None)
        self._own.discard(app)
        self._stops.pop(app, None)
        return {_SHEET + app: None} if _SHEET + app in self._kept else {}

    def __contains__(self, app: AppId) -> bool:
        return app in self._owners

    def sheet(self, app: AppId) -> SubmittedApp:
        """What was submitted.

        Raises:
            UnknownAppError: It was not submitted as a file, or is forgotten.
        """
        text = self._kept.get(_SHEET + app)
        if text is None:
            raise UnknownAppError(app, "there is no such app, or it was not submitted as a file")
        return _read(text)

    def stop_of(self, app: AppId) -> str:
        """The rule by which its trials are stopped, if a file says so.

        Kept apart: files are long, and forecasts ask for that of all apps.
        """
        return self._stops.get(app, "")

    # Who needs an agent

    def hosting(self) -> set[OwnerId]:
        """Owners with apps that need an agent."""
        return set(self._hosted().values())

    def _hosted(self) -> dict[AppId, OwnerId]:
        active = self._active()
        return {
            app: owner
            for app, owner in self._owners.items()
            if app in active and app not in self._own
        }

    def tell(self) -> None:
        """Apps came or went."""
        self._revision += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def hosting_changed(self, seconds: float) -> None:
        """Wait until apps came or went, so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def list(self, owner: OwnerId, revision: int) -> Hosted:
        """The apps of an owner that need an agent; at once if that may have changed since."""
        if revision == self._revision:
            await self.hosting_changed(POLL)
        mine = [app for app, whose in self._hosted().items() if whose == owner]
        return Hosted(self._revision, tuple(sorted(mine)))


def _read(text: str) -> SubmittedApp:
    try:
        return decode(SubmittedApp, loads(text))
    except RefusedError as error:
        raise RefusedError("sheet", f"a stored app cannot be read: {error.reason}") from None
