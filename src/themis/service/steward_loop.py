"""The loop around the steward: an event goes in; its outcome is stored, then subscribers get it.

    loop = StewardLoop(state, queue)
    loop.at_once = (rows, auctions)         # they take each outcome as soon as it is decided
    loop.subscribers = (agents, log)        # they take it when it is durable, in this order
    loop.answers = nodes                    # before them: answers to reports
    outcome = loop.apply(event)

A subscriber is any object with `take(event, outcome)`. Most heartbeats change nothing: an outcome
without changes and commands goes to `answers` only. The loop never waits for the disk or for an
auction, and no subscriber owns the service: one that has events of its own holds the loop.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Protocol

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.steward.commands import Outcome, TellPoints
from themis.core.steward.events import StewardEvent
from themis.errors import RefusedError, UnavailableError
from themis.ops.log_format import current_request, marked
from themis.security.audit import AuditRow
from themis.service.persistence.commit_queue import CommitQueue, DurableRows, Rows
from themis.service.persistence.log_entries import body_of
from themis.service.persistence.recovery import RecoveredState, steward_texts
from themis.service.persistence.store.base import LogEntry

_LOG = logging.getLogger(__name__)


class Subscriber(Protocol):
    """Gets outcomes in the order in which events were handled."""

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Act on the outcome of an event."""


class StewardLoop:
    """Drives the steward. All methods belong to one event loop."""

    def __init__(self, state: RecoveredState, queue: CommitQueue) -> None:
        self.steward = state.steward
        self.queue = queue
        self.rows = DurableRows(state.rows, queue)
        self.handled = 0
        """How many outcomes the steward has made that change or command something."""
        self.answers: Subscriber | None = None
        self.at_once: tuple[Subscriber, ...] = ()
        self.subscribers: tuple[Subscriber, ...] = ()
        self._clock = state.clock
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def now(self) -> float:
        """The cluster's time."""
        return self._clock.now()

    def until(self, at: float) -> float:
        """Seconds from now until a time; never negative."""
        return self._clock.until(at)

    # Life

    def stop(self) -> None:
        """Accept no more requests; what is under way goes on."""
        self._closing = True

    def check_open(self) -> None:
        """Raise if no request is accepted any more.

        Raises:
            UnavailableError: The service is stopping.
        """
        if self._closing or self.queue.failed.done():
            raise UnavailableError("the service is stopping")

    async def close(self) -> None:
        """End timers and tasks, and write what is left."""
        self.stop()
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.queue.close()

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run something beside the loop until the service stops."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a task of the service failed", exc_info=task.exception())

    # Events

    def apply(self, event: StewardEvent) -> Outcome:
        """Hand an event to the steward, and its outcome to the store and the subscribers."""
        outcome = self._handle(event)
        self.publish(event, outcome)
        return outcome

    async def carry_out(
        self, event: StewardEvent, audit: AuditRow | None = None, rows: Rows | None = None
    ) -> Outcome:
        """Apply an event that a person asked for, and wait until it is durable.

        Args:
            event: What was asked for.
            audit: Its row of the audit log; a refusal is for the caller to audit.
            rows: Rows of the service's own to store with it, unless the steward refuses it.

        Raises:
            RefusedError: The steward refused it.
            ThemisError: It cannot be stored.
        """
        outcome = self._handle(event)
        refusal = outcome.refusal
        if refusal is not None:
            self.publish(event, outcome)
            await self.queue.settled()
            raise RefusedError(refusal.who, refusal.reason.removeprefix(f"{refusal.who}: "))
        self.rows.keep(rows or {})
        self.publish(event, outcome, audit)
        await self.queue.settled()
        return outcome

    def _handle(self, event: StewardEvent) -> Outcome:
        """The outcome of an event. A bug ends the service: the steward's state is half changed."""
        try:
            return self.steward.handle(event)
        except Exception as error:
            with marked(round=self._round_of()):
                _LOG.critical("the steward failed at %s", type(event).__name__, exc_info=error)
            self.queue.fail(error)
            raise UnavailableError("the service failed and is stopping") from error

    def publish(self, event: StewardEvent, outcome: Outcome, audit: AuditRow | None = None) -> None:
        """Store an outcome; subscribers get it when it is durable."""
        if _is_active(outcome):
            for subscriber in self.at_once:
                subscriber.take(event, outcome)
            self.handled += 1
        # It is told by the task that wrote it; its log lines belong to the request that asked.
        tell = partial(self._tell, event, outcome, current_request(), self._round_of(outcome))
        rows = steward_texts(outcome.changes.rows)
        # Even without anything to store it waits for what was decided before to be durable.
        self.queue.add(self._entry(outcome), rows, audit, tell)
        self._wake_at(outcome.wake)

    def _entry(self, outcome: Outcome) -> LogEntry | None:
        events = outcome.changes.events
        if not events:
            return None
        passing = cmd.WakeMe | TellPoints
        commands = [item for item in outcome.commands if not isinstance(item, passing)]
        return LogEntry(self.steward.arbiter.now, body_of(events, commands))

    def _tell(
        self, event: StewardEvent, outcome: Outcome, request: str, round_: int | None
    ) -> None:
        with marked(request=request, round=round_):
            if self.answers is not None and outcome.answers:
                self.answers.take(event, outcome)
            for subscriber in self.subscribers if _is_active(outcome) else ():
                subscriber.take(event, outcome)

    def _round_of(self, outcome: Outcome | None = None) -> int | None:
        """The round that an outcome belongs to: the one it ends, else the one under way."""
        for command in outcome.commands if outcome is not None else ():
            if isinstance(command, cmd.RecordRound):
                return command.record.round
        arbiter = self.steward.arbiter
        return arbiter.rounds if arbiter.round_open else None

    def _wake_at(self, at: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None and not self._closing:
            loop = asyncio.get_running_loop()
            # In a context of its own: it rings long after the request that happened to set it.
            self._timer = loop.call_later(self.until(at), self._woken, at, context=Context())

    def _woken(self, at: float) -> None:
        with suppress(UnavailableError):  # which ends the service by itself
            self.apply(ev.Woken(max(at, self.now())))  # Timers may ring a hair early.


def _is_active(outcome: Outcome) -> bool:
    return bool(outcome.commands) or outcome.changes.any
