"""Requests for the logs of jobs: nodes get them with their orders, and answer in reports.

    logs = LogRequests(loop)
    await logs.read("ann", app, job, offset=0, limit=65536, wait=20.0, caller="t1")
    logs.receive("m0", report.logs)

Nothing of it is stored: a reader that waits when the service ends asks again.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from themis.core.model import AppId, JobId, OwnerId
from themis.core.steward.events import LogsWanted
from themis.core.steward.rows import LoggedRun, LogsRow
from themis.core.steward.steward import Steward
from themis.errors import LimitError, UnavailableError
from themis.protocol.node_messages import MOST_LOG, LogPart, LogWanted
from themis.service.steward_loop import StewardLoop

MOST_WAITING = 64
"""Parts that calls wait for at one node, shared by the owners of the apps."""
MOST_READERS = 16
"""Calls of one caller at a time."""
ASK_EVERY = 0.05
"""Seconds between two requests to a node: each makes it report, and its reports are limited."""
LOOK = 0.25
"""Seconds between looks for a run that has not begun, or whose end is not known yet."""
PATIENCE = 10.0
"""Seconds beyond a heartbeat in which a node must answer."""
_FAR = 1 << 60
_RETRY = 1.0


Waiting = dict[LogWanted, asyncio.Future[LogPart]]


class LogRequests:
    """The calls that wait for parts of logs."""

    def __init__(self, loop: StewardLoop) -> None:
        self._loop = loop
        self._waiting: dict[str, Waiting] = {}
        self._asked: dict[str, float] = {}
        """When each node was last asked."""
        self._later: dict[str, asyncio.TimerHandle] = {}
        """Nodes that will be asked soon."""
        self._readers: dict[str, int] = {}
        self._count = 0
        self._closed = False

    def receive(self, node: str, parts: tuple[LogPart, ...]) -> None:
        """Give the parts in a node's report to the calls that wait for them."""
        waiting = self._waiting.get(node, {})
        by_number = {part.number: part for part in parts}
        for want, future in waiting.items():
            part = by_number.get(want.number)
            if part is not None and part.run == want.run and not future.done():
                future.set_result(part)

    def stop(self) -> None:
        """End all calls."""
        self._closed = True
        for timer in self._later.values():
            timer.cancel()
        for waiting in self._waiting.values():
            for future in waiting.values():
                if not future.done():
                    future.set_exception(UnavailableError("the service is stopping"))

    async def read(
        self,
        owner: OwnerId,
        app: AppId,
        job: JobId,
        *,
        offset: int,
        limit: int,
        wait: float,
        caller: str,
    ) -> dict[str, Any]:
        """A piece of a job's log, as soon as there is one, or nothing when time is up.

        Args:
            owner: The owner of the app.
            app: The app.
            job: Its job.
            offset: In bytes of the logs of all its runs; negative: so many before the end.
            limit: Bytes at most.
            wait: Seconds.
            caller: Calls are counted by caller.

        Raises:
            LimitError: Too many calls wait already.
            UnavailableError: The node that has the log does not answer.
        """
        with self._counted(caller):
            reader = _LogReader(self, self._loop.steward, owner, app, job, limit)
            return await reader.piece(offset, wait)

    async def ask(self, node: str, wanted: LogWanted, seconds: float) -> LogPart | None:
        """The part of a log that a node has; None if it does not answer in time.

        Raises:
            LimitError: Too many calls wait for this node. The owner with the most calls gets this
                also while a call waits.
            UnavailableError: The service is stopping.
        """
        waiting = self._waiting.setdefault(node, {})
        if self._closed:
            raise UnavailableError("the service is stopping")
        _make_room(node, waiting, wanted.owner)
        future: asyncio.Future[LogPart] = asyncio.get_running_loop().create_future()
        waiting[wanted] = future
        self._tell(node, 0.0)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return None
        finally:
            del waiting[wanted]
            self._tell(node, LOOK)  # Without hurry: a reader that goes on asks soon.

    def _tell(self, node: str, within: float) -> None:
        """Tell a node soon what calls wait for, with what others wait for by then."""
        loop = asyncio.get_running_loop()
        before = self._later.get(node)
        at = max(loop.time() + within, self._asked.get(node, -math.inf) + ASK_EVERY)
        if self._closed or (before is not None and before.when() <= at):
            return
        if before is not None:
            before.cancel()
        self._later[node] = loop.call_at(at, self._tell_now, node)

    def _tell_now(self, node: str) -> None:
        del self._later[node]
        self._asked[node] = asyncio.get_running_loop().time()
        wanted = tuple(_open(self._waiting[node]))
        with suppress(UnavailableError):  # which ends the service by itself
            self._loop.apply(LogsWanted(self._loop.now(), node, wanted))

    def number(self) -> int:
        """A number that was never used for a part."""
        self._count += 1
        return self._count

    @contextmanager
    def _counted(self, caller: str) -> Iterator[None]:
        if self._readers.get(caller, 0) >= MOST_READERS:
            raise LimitError(caller, f"{MOST_READERS} calls for logs are under way", _RETRY)
        self._readers[caller] = self._readers.get(caller, 0) + 1
        try:
            yield
        finally:
            self._readers[caller] -= 1
            if not self._readers[caller]:
                del self._readers[caller]


class _LogReader:
    """One call that reads a log."""

    def __init__(
        self,
        requests: LogRequests,
        steward: Steward,
        owner: OwnerId,
        app: AppId,
        job: JobId,
        limit: int,
    ) -> None:
        self._requests = requests
        self._steward = steward
        self._owner = owner
        self._app = app
        self._job = job
        self._limit = min(limit, MOST_LOG)

    async def piece(self, offset: int, wait: float) -> dict[str, Any]:
        until = asyncio.get_running_loop().time() + wait
        if offset < 0:
            offset = await self._from_end(-offset)
        while True:
            left = until - asyncio.get_running_loop().time()
            row = self._row()
            found = _located(row, offset)
            if found is not None:
                run, begin = found
                offset = max(offset, begin)
                text, following, again = await self._part(run, begin, offset, left)
                if text or not (run.over or again):
                    return self._told(offset, following, text, run.run)
                if run.over:
                    offset = begin + run.size  # On to the next.
                    continue
            last = row.runs[-1].run if row.runs else None
            if left <= 0.0 or self._is_over(row):
                return self._told(offset, offset, "", last)
            await asyncio.sleep(min(LOOK, left))

    def _row(self) -> LogsRow:
        row = self._steward.log_of(self._app, self._job)
        return row if row is not None else LogsRow(self._app, self._job, ())

    def _told(self, offset: int, following: int, text: str, run: int | None) -> dict[str, Any]:
        row = self._row()
        over = following >= row.size and self._is_over(row)
        told = {"job": self._job, "run": run, "offset": offset, "next": following}
        return {**told, "text": text, "over": over}

    async def _from_end(self, count: int) -> int:
        row = self._row()
        size = row.size
        if row.runs and not row.runs[-1].over:
            part = await self._ask(row.runs[-1], _FAR, now=True, seconds=self._patience)
            if part is not None:
                size += part.size - row.runs[-1].size
        return max(0, size - count)

    @property
    def _patience(self) -> float:
        return self._steward.arbiter.settings.heartbeat + PATIENCE

    async def _part(
        self, run: LoggedRun, begin: int, offset: int, left: float
    ) -> tuple[str, int, bool]:
        """Text from an offset on, where it ends, and whether to look again if there is none.

        Raises:
            UnavailableError: The run goes on, and its node does not answer.
        """
        at_once = run.over or left <= 0.0
        seconds = self._patience if at_once else left
        part = await self._ask(run, offset - begin, now=at_once, seconds=seconds)
        if part is not None and not part.missing:
            following = begin + part.next
            return part.text, min(following, begin + run.size) if run.over else following, part.end
        if run.over:
            return *_from_tail(run, begin, offset, self._limit), False
        if part is None and at_once and self._is_there(run):
            raise UnavailableError(
                f"node {run.node} does not answer about the log of run {run.run}"
            )
        return "", offset, part is not None or not self._is_there(run)

    async def _ask(
        self, run: LoggedRun, offset: int, *, now: bool, seconds: float
    ) -> LogPart | None:
        if not self._is_there(run):
            return None
        number, most = self._requests.number(), self._limit
        if run.over:
            most = max(1, min(most, run.size - offset))
        wanted = LogWanted(run.run, self._app, self._owner, self._job, offset, most, now, number)
        return await self._requests.ask(run.node, wanted, seconds)

    def _is_there(self, run: LoggedRun) -> bool:
        node = self._steward.nodes.get(run.node)
        return node is not None and node.present

    def _is_over(self, row: LogsRow) -> bool:
        """Whether the job prints nothing more, as far as the service knows."""
        state = self._steward.arbiter.world.apps.get(self._app)
        if state is None:
            return True
        if row.runs and not row.runs[-1].over:
            return False
        said = [each for each in self._steward.trials.reached(self._app) if each.job == self._job]
        if said and said[-1].failed:
            return True
        progress = state.jobs.get(self._job)
        if progress is None:
            return bool(said)
        return progress.done >= progress.target and state.phase + 1 >= len(state.spec.phases)


def _open(waiting: Waiting) -> list[LogWanted]:
    return [want for want, future in waiting.items() if not future.done()]


def _make_room(node: str, waiting: Waiting, owner: OwnerId) -> None:
    """Admit one more call of an owner, if need be instead of one of the owner with the most.

    Otherwise an owner who follows many logs would keep all others from reading theirs.

    Raises:
        LimitError: There is no room, and no owner has more than this one would have.
    """
    wanted = _open(waiting)
    if len(wanted) < MOST_WAITING:
        return
    counts = Counter(want.owner for want in wanted)
    greedy = max(sorted(counts), key=counts.__getitem__)
    full = LimitError(node, f"{MOST_WAITING} calls wait for its logs", _RETRY)
    if counts[owner] + 1 >= counts[greedy]:
        raise full
    first = next(want for want in wanted if want.owner == greedy)
    waiting[first].set_exception(full)


def _located(row: LogsRow, offset: int) -> tuple[LoggedRun, int] | None:
    """The run whose log has the byte at an offset, or will have it, and where its log begins."""
    for run, begin in zip(row.runs, row.begins(), strict=True):
        if not run.over or offset < begin + run.size:
            return run, begin
    return None


def _from_tail(run: LoggedRun, begin: int, offset: int, limit: int) -> tuple[str, int]:
    """The last lines of a run, in place of a log that no node has any more."""
    kept = run.tail.encode()
    first = begin + run.size - len(kept)
    start = max(offset, first)
    # Not half a character: it comes with the next piece.
    text = kept[start - first : start - first + limit].decode("utf-8", "ignore")
    return text, start + len(text.encode())
