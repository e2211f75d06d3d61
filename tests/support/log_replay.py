"""Logs of a real service and of agents, replayed: the same decisions, and no other order of them.

    logs = await spoken_for(stage, [first, second], begun)   # to the end of both
    await stage.kill(signal.SIGTERM)
    logs.check()

A service keeps the log of its arbiter. What agents are told they do not keep, so here they are
tasks of the test: the same code as in an agent host, with a book beside it.
"""

import asyncio
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.log_contradictions import contradiction
from tests.support.service_processes import Stage
from themis.agent_host.host import AgentRunner
from themis.client import Client
from themis.core.agent import events as agent_ev
from themis.core.arbiter import events as ev
from themis.core.arbiter.commands import Assign, Command
from themis.core.model import AppId
from themis.recording.agent_log import AgentEntry, AgentLog, replay_agents
from themis.recording.codec import loads
from themis.rpc.client import Connection, Credentials, HostClient
from themis.service.persistence.log_entries import commands_in, events_in
from themis.service.persistence.store import open_store

_REORDERED = (ev.BidReceived, ev.Solved, ev.AppArrived)
_RETOLD = (agent_ev.Asked, agent_ev.LeasesChanged, agent_ev.JobReached)


@dataclass(frozen=True, slots=True)
class _Logged:
    """One entry of the arbiter's log."""

    number: int
    events: Sequence[ev.Event]
    commands: Sequence[Command]


@dataclass(frozen=True, slots=True)
class Logs:
    """What a run has left behind."""

    store: Path
    agents: tuple[AgentEntry, ...]

    def check(self) -> None:
        """Both logs are replayed and agree; with two records exchanged neither is what it was."""
        code, told = replayed(self.store)
        assert code == 0, told
        assert "every command as in the log" in told
        agents = replay_agents(self.agents)
        assert agents.first_difference is None, agents.first_difference
        kinds = (agents.bids, agents.starts, agents.stops)
        assert all(kinds), f"bids, starts and stops: {kinds}"
        entries = self._entries()
        events = [event for entry in entries for event in entry.events]
        commands = [command for entry in entries for command in entry.commands]
        assert any(isinstance(item, Assign) and item.granted for item in commands)
        assert any(isinstance(event, ev.JobStopped) for event in events)
        assert not (said := contradiction(self.agents, events, commands)), said
        self._check_arbiter(entries)
        self._check_agents()

    def _entries(self) -> list[_Logged]:
        with open_store(f"sqlite:///{self.store}", read_only=True) as store:
            bodies = [(stored.number, loads(stored.entry.body)) for stored in store.entries()]
        return [
            _Logged(number, events_in(body), tuple(commands_in(body))) for number, body in bodies
        ]

    def _check_arbiter(self, entries: Sequence[_Logged]) -> None:
        """Two records of the store that change places are found where they are."""
        for kind in _REORDERED:
            first, second = [
                entry.number
                for entry in entries
                if entry.commands and any(isinstance(event, kind) for event in entry.events)
            ][:2]
            mixed = self.store.with_name(f"{kind.__name__}.sqlite")
            _exchange(self.store, mixed, first, second)
            code, told = replayed(mixed)
            assert code == 1, f"{kind.__name__}: {told}"
            assert "first difference at" in told
            assert first <= int(told.partition(": first")[0].rpartition(":")[2]) <= second

    def _check_agents(self) -> None:
        """And so are two of an agent."""
        for kind in _RETOLD:
            app = self.agents[0].app
            own = [entry for entry in self.agents if entry.app == app]
            places = [place for place, entry in enumerate(own) if isinstance(entry.event, kind)]
            first, second = places[0], places[-1]
            own[first], own[second] = own[second], own[first]
            found = replay_agents(own)
            assert found.first_difference is not None, f"{kind.__name__} in another order"
            assert first < found.entries <= second + 1


async def spoken_for(
    stage: Stage, apps: Sequence[Mapping[str, Any]], begun: Callable[[], bool]
) -> Logs:
    """Submit app files, let agents of this process speak for them, and wait until all are over.

    Args:
        stage: The service.
        apps: All but the first are submitted when `begun` says so.
        begun: Asked again and again.
    """
    book = AgentLog()
    async with asyncio.TaskGroup() as group:
        group.create_task(_speak(stage, apps[0], book))
        while not begun():
            await asyncio.sleep(0.1)
        for app in apps[1:]:
            group.create_task(_speak(stage, app, book))
    return Logs(stage.state / "themis.db", tuple(book.entries))


async def _speak(stage: Stage, app: Mapping[str, Any], book: AgentLog) -> None:
    token = await stage.tenant()
    client = Client(f"http://{stage.http}", token.read_text(encoding="utf-8").strip())
    # Or the service would have agents of its own for them.
    answer = await asyncio.to_thread(client.submit, {**app, "tuner": "own"})
    connection = Connection(stage.address, Credentials(token, stage.ca))
    try:
        service = HostClient(connection)
        sheet = await service.sheet(AppId(answer["app"]))
        rng = random.Random(str(answer["app"]))
        outcome = await AgentRunner.of_sheet(service, sheet, rng, make_agent=book.make_agent).run()
        assert outcome == "finished", outcome
    finally:
        await connection.close()


def replayed(store: Path) -> tuple[int, str]:
    """What `themis replay` says of a store, and its exit code."""
    command = [sys.executable, "-m", "themis", "replay", str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def _exchange(source: Path, copy: Path, first: int, second: int) -> None:
    """A copy of a store in which two entries of the log have changed places."""
    shutil.copy(source, copy)
    with closing(sqlite3.connect(copy)) as database, database:
        rows = {
            number: database.execute(
                "SELECT kind, body FROM entries WHERE number = ?", (number,)
            ).fetchone()
            for number in (first, second)
        }
        for number, row in zip((second, first), rows.values(), strict=True):
            database.execute(
                "UPDATE entries SET kind = ?, body = ? WHERE number = ?", (*row, number)
            )
