"""Apps that were submitted as files: what was written, and which of them the service hosts.

    files.file(app)                             # for the app's agent, and for no one else
    await files.hosted_by(owner, revision)      # for a host of agents: waits for a change

A file has the environment of its jobs in it, which may be secret: it is stored, and told to hosts
of the app's owner only.
"""

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from themis.apps import TunedBy
from themis.core.arbiter import commands as cmd
from themis.core.model import AppId, OwnerId
from themis.core.steward.commands import Outcome
from themis.core.steward.events import StewardEvent
from themis.core.steward.steward import Steward
from themis.errors import RefusedError, UnknownAppError
from themis.protocol.agent_messages import HostedApps, SubmittedApp
from themis.recording.codec import decode, dumps, loads
from themis.service.persistence.commit_queue import DurableRows, Rows

HOST_POLL = 20.0
"""Seconds after which a host without news is answered."""

_FILE = "file/"


class SubmittedApps:
    """The stored files."""

    def __init__(self, rows: DurableRows, steward: Steward) -> None:
        self._rows = rows
        self._steward = steward
        self._owners: dict[AppId, OwnerId] = {}
        self._own: set[AppId] = set()
        """Apps whose agent is a process of their owner's."""
        self._stops: dict[AppId, str] = {}
        """Apart from the files, which are long: forecasts ask for it of all apps."""
        self._revision = 1
        self._changed = asyncio.Event()
        for key, text in rows.items():
            if key.startswith(_FILE):
                self._note(_read(text))

    def _note(self, file: SubmittedApp) -> None:
        self._owners[file.app] = file.owner
        body: Any = json.loads(file.body)
        if body.get("tuner") == TunedBy.OWN:
            self._own.add(file.app)
        stop = body.get("stop")
        self._stops[file.app] = str(stop.get("method", "")) if isinstance(stop, dict) else ""

    def add(self, file: SubmittedApp) -> Rows:
        """Note a new app; returns the row to store with it. `notify` when it is there."""
        self._note(file)
        return {_FILE + file.app: dumps(file)}

    def forget(self, apps: Iterable[AppId]) -> None:
        """Drop the files of apps."""
        for app in apps:
            if self._owners.pop(app, None) is not None:
                self._own.discard(app)
                self._stops.pop(app)
                if _FILE + app in self._rows:
                    self._rows.keep({_FILE + app: None})

    def __contains__(self, app: AppId) -> bool:
        return app in self._owners

    def file(self, app: AppId) -> SubmittedApp:
        """What was submitted.

        Raises:
            UnknownAppError: It was not submitted as a file, or is forgotten.
        """
        text = self._rows.get(_FILE + app)
        if text is None:
            raise UnknownAppError(app, "there is no such app, or it was not submitted as a file")
        return _read(text)

    def stop_rule(self, app: AppId) -> str:
        """The rule by which its trials are stopped, if a file says so."""
        return self._stops.get(app, "")

    # Which apps need an agent of the service's

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Wake hosts when apps are over."""
        if any(isinstance(command, cmd.RecordApp) for command in outcome.commands):
            self.notify()

    def hosting(self) -> set[OwnerId]:
        """Owners with apps that need an agent."""
        return set(self._hosted().values())

    def _hosted(self) -> dict[AppId, OwnerId]:
        active = self._steward.arbiter.world.apps
        return {
            app: owner
            for app, owner in self._owners.items()
            if app in active and app not in self._own
        }

    def notify(self) -> None:
        """Wake hosts: apps came or went."""
        self._revision += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def hosting_changed(self, seconds: float) -> None:
        """Wait until apps came or went, so many seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def hosted_by(self, owner: OwnerId, revision: int) -> HostedApps:
        """The apps of an owner that need an agent; at once if that may have changed since."""
        if revision == self._revision:
            await self.hosting_changed(HOST_POLL)
        mine = [app for app, whose in self._hosted().items() if whose == owner]
        return HostedApps(self._revision, tuple(sorted(mine)))


def _read(text: str) -> SubmittedApp:
    try:
        return decode(SubmittedApp, loads(text))
    except RefusedError as error:
        raise RefusedError("app file", f"a stored app cannot be read: {error.reason}") from None
