"""The loop and its subscribers alone: no servers, no agents, no nodes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.scripted_world import simple_app
from themis.core.arbiter import events as ev
from themis.core.model import Machine
from themis.core.steward.commands import Outcome
from themis.core.steward.events import StewardEvent
from themis.errors import RefusedError, UnavailableError
from themis.protocol.node_messages import NodeReport, SlotReport, SlotState
from themis.service.log_requests import LogRequests
from themis.service.pending_reports import PendingReports
from themis.service.persistence.commit_queue import CommitQueue
from themis.service.persistence.recovery import recover
from themis.service.persistence.start_parameters import StartParameters
from themis.service.persistence.store import Store, open_store
from themis.service.steward_loop import StewardLoop


class Recorder:
    """Writes down its name and the event, and how many entries were stored then."""

    def __init__(self, name: str, store: Store, taken: list[tuple[str, str, int]]) -> None:
        self._name = name
        self._store = store
        self._taken = taken

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        stored = self._store.usage().next_entry - 1
        self._taken.append((self._name, type(event).__name__, stored))


def with_loop(
    path: Path, work: Callable[[StewardLoop, list[tuple[str, str, int]]], Awaitable[None]]
) -> None:
    async def run() -> None:
        with open_store(f"sqlite:///{path / 'store.sqlite'}", reserve_bytes=0) as store:
            state = recover(store, StartParameters("fifo"), "test")
            machine = Machine("m9", "r0", (2,))
            state.steward._lifecycle.feed(ev.MachineJoined(state.clock.now(), machine))
            loop = StewardLoop(state, CommitQueue(store, state.changed))
            taken: list[tuple[str, str, int]] = []
            loop.at_once = (Recorder("at once", store, taken),)
            loop.answers = Recorder("answers", store, taken)
            loop.subscribers = tuple(Recorder(name, store, taken) for name in ("agents", "log"))
            await work(loop, taken)
            await loop.close()

    asyncio.run(run())


def test_subscribers_take_an_outcome_in_order_when_it_is_stored(tmp_path: Path) -> None:
    async def work(loop: StewardLoop, taken: list[tuple[str, str, int]]) -> None:
        await loop.carry_out(ev.AppArrived(loop.now(), simple_app("sweep")))
        assert taken == [
            ("at once", "AppArrived", 0),
            ("agents", "AppArrived", 1),
            ("log", "AppArrived", 1),
        ]

    with_loop(tmp_path, work)


def test_an_outcome_that_changes_nothing_goes_to_no_subscriber(tmp_path: Path) -> None:
    async def work(loop: StewardLoop, taken: list[tuple[str, str, int]]) -> None:
        handled = loop.handled
        loop.apply(ev.Woken(loop.now()))
        await loop.queue.settled()
        assert not taken
        assert loop.handled == handled

    with_loop(tmp_path, work)


def test_rows_are_kept_unless_their_event_is_refused(tmp_path: Path) -> None:
    async def work(loop: StewardLoop, _: list[tuple[str, str, int]]) -> None:
        arrival = ev.AppArrived(loop.now(), simple_app("sweep"))
        await loop.carry_out(arrival, rows={"mine/1": "kept"})
        with pytest.raises(RefusedError):
            await loop.carry_out(arrival, rows={"mine/2": "lost"})
        assert [key for key in loop.rows if key.startswith("mine/")] == ["mine/1"]

    with_loop(tmp_path, work)


def test_a_loop_that_stops_accepts_no_requests(tmp_path: Path) -> None:
    async def work(loop: StewardLoop, _: list[tuple[str, str, int]]) -> None:
        loop.check_open()
        loop.stop()
        with pytest.raises(UnavailableError, match="stopping"):
            loop.check_open()

    with_loop(tmp_path, work)


def report(number: int, epoch: int = 0, revision: int = 0, machine: str = "m0") -> NodeReport:
    slots = (SlotReport(0, 0, SlotState.EMPTY),)
    return NodeReport("m0", 1, number, epoch, revision, slots, (), Machine(machine, "r0", (1,)))


def test_a_report_is_held_until_a_later_one_or_its_answer(tmp_path: Path) -> None:
    async def work(loop: StewardLoop, _: list[tuple[str, str, int]]) -> None:
        nodes = PendingReports(loop, LogRequests(loop))
        loop.answers = nodes
        with pytest.raises(RefusedError, match="its own machine"):
            await nodes.report(report(1, machine="m1"))
        epoch = loop.steward.epoch
        for number in (1, 2):
            orders = await nodes.report(report(number, epoch if number > 1 else 0))
            assert (orders.answers, orders.epoch) == (number, epoch)
        revision = loop.steward.nodes["m0"].revision
        held = asyncio.create_task(nodes.report(report(4, epoch, revision)))
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="later report"):
            await nodes.report(report(3, epoch, revision))
        nodes.stop()
        with pytest.raises(UnavailableError, match="stopping"):
            await held

    with_loop(tmp_path, work)
