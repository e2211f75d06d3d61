"""The engine of one machine: each job a process of this machine under its own supervisor.

    engine = await LocalEngine.open(state, Pretend("m0", slots=(2, 2)), Owners.trusting())

Supervisors are in sessions of their own and outlive the engine. It speaks to them through pages in
their folders and hears of changes through inotify and process descriptors; with all of that lost,
it looks every two seconds.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, cast

from themis.engines import clock, libc, processes
from themis.engines.aside import aside
from themis.engines.attempts import Attempt
from themis.engines.base import (
    Capabilities,
    CouldNotKill,
    Discovered,
    Event,
    Found,
    LogPiece,
    Started,
    Task,
)
from themis.engines.cgroups import Group
from themis.engines.deadlines import CHECKPOINT, FINISHED, KILL, LOST, RESUMABLE, RUN, Lease
from themis.engines.fences import highest_token
from themis.engines.folders import Limits, StateFolder
from themis.engines.gpus import Inventory
from themis.engines.logs import piece_of, tail
from themis.engines.metrics import Sample, Stretch
from themis.engines.numbering import read_numbers, steady, write_numbers
from themis.engines.owners import Account, Owners
from themis.engines.probe import Choice, choose, sweep
from themis.engines.recall import keep_sample, recall_sample
from themis.engines.sources import TENSORBOARD, check_source, reader_for
from themis.engines.spawn import spawn
from themis.engines.supervisor import EXITED, STOPPING, STUCK
from themis.engines.together import Together
from themis.errors import RefusedError, UnavailableError

_LOOK_WITHOUT_NOTICES = 0.05
_BURYING = 0.02
_FRESH = 0.5
"""Seconds for which what was read ahead is as good as read now."""


class _Watched:
    """A start of a job that this engine follows."""

    def __init__(self, attempt: Attempt, lease: Lease, together: Together) -> None:
        self.attempt = attempt
        self.lease = lease
        self.reader = reader_for(attempt.source, attempt)
        self.points = reader_for(attempt.source, attempt)
        """Not the one that measures progress, which never waits for anybody."""
        self.asked: tuple[int, int] | None = None
        """From where, and how many points at most, somebody will probably want next."""
        self.ahead: tuple[int, Stretch, float] | None = None
        """Points read ahead: from where, what was found, and when."""
        self.reading = asyncio.Lock()
        # Event files are on storage that may be a file server's, and that may be down.
        self.aloof = aside if attempt.source.kind == TENSORBOARD else together
        self.handle = -1
        self.pid = 0
        self.started_told = False
        self.stuck_told = False
        self.over = False
        self.said: Sample | None = None
        """The last that it reported,"""
        self.kept: Sample | None = None
        """and that was written down for later starts."""
        self.past: tuple[Sample, ...] | None = None
        """What an earlier start said last, once somebody has looked."""
        self.follow_up: asyncio.Task[None] | None = None

    def look(self) -> tuple[Sample, ...]:
        """Measure, and read ahead: to go to another thread and back takes longer than to read."""
        samples, self.ahead = self.reader.read(), None
        if samples and self.asked is not None:
            since, most = self.asked
            self.ahead = since, self.points.stretch(since, most), clock.now()
        return samples

    def take_ahead(self, since: int, most: int) -> Stretch | None:
        """What was read ahead just now, if it is what is wanted."""
        ahead, self.ahead = self.ahead, None
        if ahead is None or ahead[0] != since or clock.now() > ahead[2] + _FRESH:
            return None
        return ahead[1] if len(ahead[1].samples) <= most else None


class LocalEngine:
    """Starts jobs on this machine."""

    def __init__(
        self, folder: StateFolder, inventory: Inventory, owners: Owners, choice: Choice
    ) -> None:
        self._folder = folder
        self._inventory = inventory
        self._owners = owners
        self._choice = choice
        self._watched: dict[str, _Watched] = {}
        self._together = Together()
        self._starting: dict[str, tuple[int, ...]] = {}
        self._first: Discovered | None = None
        """The machine as it was when its GPUs got their numbers."""
        self._devices: tuple[str, ...] = ()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._launching: set[asyncio.Task[None]] = set()
        self._notices = -1
        self._closed = False

    @classmethod
    async def open(
        cls,
        state: Path,
        inventory: Inventory,
        owners: Owners,
        *,
        control: str = "",
        limits: Limits | None = None,
        checkpoints: Path | None = None,
    ) -> "LocalEngine":
        """Make the folders and find out how processes can be killed here.

        Args:
            state: A folder on a local disk that stays. Owners must be able to pass through the
                folders above it.
            inventory: Where the GPUs are.
            owners: Whom jobs run as.
            control: cgroup, namespace or tree; empty for the best that works.
            limits: Sizes and patience.
            checkpoints: Where jobs that name no folder keep theirs, as `Checkpoints` has it; on
                storage that other machines see, if jobs are to go on there. None: in `state`.

        Raises:
            UnavailableError: The folder or the wanted control cannot be used.
        """
        folder = StateFolder(state, limits or Limits(), checkpoints)
        try:
            choice = await asyncio.to_thread(choose, control)
            await asyncio.to_thread(folder.prepare)
        except (OSError, RuntimeError) as error:
            raise UnavailableError(f"{state}: {error}") from error
        engine = cls(folder, inventory, owners, choice)
        await engine.discover()
        engine._listen()
        return engine

    @property
    def capabilities(self) -> Capabilities:
        """It can do everything; owners are separate where they have accounts."""
        return Capabilities(
            engine="local",
            chooses_indices=True,
            control=self._choice.name,
            control_reasons=self._choice.reasons,
            separates_owners=self._owners.separate,
        )

    def change(self, owners: Owners) -> None:
        """Run later jobs as these say; what runs already goes on."""
        self._owners = owners

    async def discover(self) -> tuple[Discovered, ...]:
        """This machine."""
        found = await asyncio.to_thread(lambda: self._inventory.discover(self._our_processes()))
        if self._first is None:
            self._first = await asyncio.to_thread(self._number, found)
            self._devices = tuple(gpu.device for gpu in self._first.gpus)
        return (steady(self._first, found),)

    def _number(self, found: Discovered) -> Discovered:
        """Give numbers to GPUs; those that jobs may be running under stay."""
        path = self._folder.path / "devices.json"
        kept = read_numbers(path) if self._folder.attempts() else None
        if kept is None:
            write_numbers(path, found)
        return kept or found

    async def reattach(self) -> tuple[Found, ...]:
        """Take over the jobs of an earlier engine in the same folder."""
        found = []
        for attempt in await asyncio.to_thread(self._folder.attempts):
            if attempt.job not in self._watched:
                found.append(await self._take_over(attempt))
            elif attempt.run != self._watched[attempt.job].attempt.run:
                # Started again since, so its end was known; only the tidying up is missing.
                await asyncio.to_thread(self._folder.retire, attempt)
        if self._choice.base:
            await asyncio.to_thread(sweep, self._choice.base, self._folder.prefix)
        return tuple(found)

    async def start(self, task: Task) -> None:
        """Start a job under a supervisor."""
        self._check(task)
        account = self._owners.account(task.owner)
        self._starting[task.job] = task.gpus
        # The thread cannot be called back: what it started must be known even if we are cancelled.
        launch = self._begin(self._launch(task, account))
        self._launching.add(launch)
        launch.add_done_callback(self._launching.discard)
        await asyncio.shield(launch)

    async def renew(self, job: str, token: int, end: float, grace: float | None = None) -> None:
        """Move the end of its lease."""
        watched = self._find(job, token)
        watched.lease.end = end
        if grace is not None:
            watched.lease.grace = grace
        watched.attempt.write_lease(watched.lease)

    async def checkpoint(self, job: str, token: int) -> None:
        """Ask for a checkpoint."""
        watched = self._find(job, token)
        if watched.lease.stop == RUN:
            self._want(watched, CHECKPOINT)

    async def kill(self, job: str, token: int) -> None:
        """Kill it, by its supervisor or without."""
        watched = self._find(job, token)
        self._want(watched, KILL)
        if watched.follow_up is None:
            watched.follow_up = self._begin(self._insist(watched))

    async def watch(self) -> AsyncIterator[Event]:
        """Events, in the order in which they were noticed."""
        while (event := await self._events.get()) is not None:
            yield event

    async def measure(self, job: str) -> tuple[Sample, ...]:
        """New samples of its latest start."""
        watched = self._watched.get(job)
        if watched is None:
            return ()
        async with watched.reading:
            samples = await watched.aloof(watched.look)
            if samples:
                watched.said = samples[-1]
            if watched.over and watched.said is None:
                return await self._recall(watched)
            if watched.over and watched.said is not watched.kept:
                watched.kept = watched.said
                self._begin(self._keep(watched.attempt, watched.said))
            return samples

    async def points(self, job: str, since: int, most: int) -> Stretch:
        """Samples of its latest start from a place on, as long as it is not forgotten."""
        watched = self._watched.get(job)
        if watched is None:
            return Stretch((), since, more=False)
        async with watched.reading:
            found = watched.take_ahead(since, most)
            if found is None:
                found = await watched.aloof(watched.points.stretch, since, most)
            if watched.over and not since and not found.samples:
                past = await self._recall(watched)
                found = Stretch(past, past[-1].end, more=False) if past else found
            watched.asked = (found.end, most)
            return found

    async def tail(self, job: str, limit: int = 4096) -> str:
        """The end of its output, whole lines if there are any."""
        watched = self._watched.get(job)
        log = watched.attempt.folder / "log" if watched else None
        return await asyncio.to_thread(self._tail, job, log, limit)

    async def output(self, tag: str, offset: int, most: int) -> LogPiece | None:
        """Part of the output of a start, by its tag."""
        return await asyncio.to_thread(self._log, tag, offset, most)

    async def forget(self, job: str, token: int) -> None:
        """Keep only its log."""
        watched = self._watched.get(job)
        if watched is not None and watched.over and watched.attempt.token <= token:
            del self._watched[job]
            await asyncio.to_thread(self._folder.retire, watched.attempt)

    async def close(self) -> None:
        """Stop listening. Jobs and their supervisors run on."""
        if self._closed:
            return
        self._closed = True
        if self._launching:
            # What is started now is better known to whoever comes next; but not at any price.
            await asyncio.wait(self._launching, timeout=self._folder.limits.patience)
        for task in sorted(self._tasks, key=id):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for watched in self._watched.values():
            self._let_go(watched)
        if self._notices >= 0:
            asyncio.get_running_loop().remove_reader(self._notices)
            os.close(self._notices)
        self._events.put_nowait(None)

    def _check(self, task: Task) -> None:
        if self._closed:
            raise UnavailableError("the engine is closed")
        running = {job: item for job, item in self._watched.items() if not item.over}
        if task.job in running or task.job in self._starting:
            raise RefusedError(task.job, "it runs already")
        check_source(task.source)
        if task.end <= clock.now():
            raise RefusedError(task.job, "its lease is over")
        in_use = {gpu: job for job, item in running.items() for gpu in item.attempt.gpus}
        in_use |= {gpu: job for job, gpus in self._starting.items() for gpu in gpus}
        tokens = task.tokens or (task.token,) * len(task.gpus)
        for gpu, token in zip(task.gpus, tokens, strict=True):
            if gpu >= len(self._devices):
                raise RefusedError(task.job, f"there is no GPU {gpu} here")
            if gpu in in_use:
                raise RefusedError(task.job, f"GPU {gpu} is in use by {in_use[gpu]}")
            highest = highest_token(str(self._folder.gpus), str(gpu))
            if token < highest:
                raise RefusedError(
                    task.job, f"token {token} for GPU {gpu} is stale: it has seen {highest}"
                )

    async def _launch(self, task: Task, account: Account | None) -> None:
        try:
            if task.job in self._watched:  # who starts it again knows how it ended
                await self.forget(task.job, self._watched[task.job].attempt.token)
            attempt, pid = await aside(self._spawn, task, account)
        except OSError as error:
            raise UnavailableError(f"{task.job}: cannot be started here: {error}") from error
        finally:
            del self._starting[task.job]
        watched = _Watched(attempt, Lease(task.token, task.end, task.grace), self._together)
        watched.pid = pid
        self._watched[task.job] = watched
        try:
            self._follow(watched, os.pidfd_open(pid))
        except OSError as error:
            # It runs, or is about to: it is over when it was seen dead, and `Exited` tells that.
            self._let_go(watched)
            watched.lease.stop = KILL
            self._begin(self._abandon(watched, f"it could not be followed: {error}"))

    def _spawn(self, task: Task, account: Account | None) -> tuple[Attempt, int]:
        devices = [self._devices[gpu] for gpu in task.gpus]
        attempt = self._folder.create(task, devices, account, self._choice.name, self._choice.base)
        file, errors = attempt.folder / "task.json", attempt.folder / "errors"
        return attempt, spawn("themis.engines.supervisor", str(file), errors=str(errors))

    async def _take_over(self, attempt: Attempt) -> Found:
        lease = attempt.lease or Lease(attempt.token, 0.0, 0.0)
        watched = self._watched[attempt.job] = _Watched(attempt, lease, self._together)
        page = await asyncio.to_thread(attempt.settled)
        if page.get("state") != EXITED and page.get("boot") != clock.boot_id():
            attempt.write_end(LOST, "the machine has restarted")
            page = attempt.status or page
        if page.get("state") == EXITED:
            watched.over = True
            return attempt.found(lease.end, page)
        watched.started_told = page.get("began") is not None
        watched.stuck_told = page.get("state") == STUCK
        watched.pid, started = processes.identity(page.get("supervisor"))
        handle = processes.handle_of(watched.pid, started)
        if handle is None:
            self._begin(self._bury(watched))  # not waited for: it may be hard to kill
            return attempt.found(lease.end, page | {"state": STOPPING})
        self._follow(watched, handle)
        return attempt.found(lease.end, page)

    def _follow(self, watched: _Watched, handle: int) -> None:
        watched.handle = handle
        asyncio.get_running_loop().add_reader(handle, self._supervisor_ended, watched)
        if self._notices >= 0:
            with contextlib.suppress(OSError):
                libc.inotify_watch(self._notices, str(watched.attempt.folder / "status"))
        self._look(watched)

    def _listen(self) -> None:
        """Hear of writes to status pages; without, or if one was missed, look from time to time."""
        look = self._folder.limits.look
        try:
            self._notices = libc.inotify()
        except OSError:  # users may have few of them
            look = _LOOK_WITHOUT_NOTICES
        else:
            asyncio.get_running_loop().add_reader(self._notices, self._noticed)
        self._begin(self._look_often(look))

    async def _look_often(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            self._look_at_all()

    def _noticed(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._notices, 1 << 16)
        self._look_at_all()

    def _look_at_all(self) -> None:
        for watched in list(self._watched.values()):
            self._look(watched)

    def _look(self, watched: _Watched) -> None:
        """Tell what is new in its status page."""
        if watched.over or (page := watched.attempt.status) is None:
            return
        attempt, state = watched.attempt, page.get("state")
        # A short job may be over before anybody looks; it did run.
        if page.get("began") is not None and not watched.started_told:
            watched.started_told = True
            gpus = cast("list[str]", page.get("gpus", []))
            self._events.put_nowait(Started(attempt.job, attempt.token, tuple(gpus)))
        if state == STUCK and not watched.stuck_told:
            watched.stuck_told = True
            reason = str(page.get("reason", ""))
            self._events.put_nowait(CouldNotKill(attempt.job, attempt.token, reason))
        if state == EXITED:
            watched.over = True
            self._events.put_nowait(attempt.exited(page))

    def _supervisor_ended(self, watched: _Watched) -> None:
        self._let_go(watched)
        with contextlib.suppress(ChildProcessError):  # a child of an earlier engine's
            os.waitpid(watched.pid, os.WNOHANG)
        self._look(watched)
        if not watched.over:
            self._begin(self._bury(watched))

    async def _bury(self, watched: _Watched, why: str = "") -> None:
        """Kill what a dead supervisor left, see it dead, and tell."""
        attempt = watched.attempt
        tries = self._folder.limits.patience / _BURYING
        while not await asyncio.to_thread(attempt.kill_leftovers):
            tries -= 1
            if tries < 0 and not watched.stuck_told:
                watched.stuck_told = True
                reason = "its supervisor is gone, and something of it cannot be killed"
                self._events.put_nowait(CouldNotKill(attempt.job, attempt.token, reason))
            await asyncio.sleep(_BURYING)
        killed = watched.lease.stop == KILL or clock.now() >= watched.lease.end
        attempt.write_end(RESUMABLE if killed else LOST, why or attempt.complaint())
        self._look(watched)

    async def _abandon(self, watched: _Watched, why: str) -> None:
        """Kill a supervisor that nobody can follow, and then what it left."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(watched.pid, signal.SIGKILL)  # Our child and not reaped: the id is its own.
            await asyncio.to_thread(os.waitpid, watched.pid, 0)
        await self._bury(watched, why)

    async def _insist(self, watched: _Watched) -> None:
        """Kill without the supervisor if that does not do it, because it is stopped or hangs."""
        await asyncio.sleep(self._folder.limits.patience)
        page = watched.attempt.status or {}
        if not watched.over and page.get("state") != STUCK and watched.handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watched.handle, signal.SIGKILL)

    async def _keep(self, attempt: Attempt, said: Sample | None) -> None:
        """Write down how far a job is, for a start of it that will find nothing left to do."""
        # Of parts on several machines only the first speaks for the job.
        if said is not None and attempt.checkpoint and not attempt.rank:
            await aside(keep_sample, attempt.checkpoint, said, attempt.account)

    async def _recall(self, watched: _Watched) -> tuple[Sample, ...]:
        """What an earlier start of a job said last, if this one ended well without a word."""
        attempt, page = watched.attempt, watched.attempt.status or {}
        # Of parts on several machines only the first speaks for the job.
        if attempt.rank or not attempt.checkpoint or page.get("outcome") != FINISHED:
            return ()
        if watched.past is None:
            watched.past = ()
            # Nobody waits for a file server that is down: other jobs want to be heard too.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._folder.limits.patience):
                    found = await aside(
                        recall_sample, attempt.checkpoint, attempt.account, attempt.source.name
                    )
                    watched.past = (found,) if found is not None else ()
        return watched.past

    def _want(self, watched: _Watched, stop: str) -> None:
        watched.lease.stop = stop
        watched.attempt.write_lease(watched.lease)
        if watched.handle >= 0 and (watched.attempt.status or {}).get("supervisor"):
            # Before it has blocked this signal it would die of it; then it will look anyway.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watched.handle, signal.SIGUSR1)

    def _find(self, job: str, token: int) -> _Watched:
        watched = self._watched.get(job)
        if watched is None or watched.over:
            raise RefusedError(job, "it does not run here")
        if watched.attempt.token != token:
            raise RefusedError(job, f"token {token} is not its: it has {watched.attempt.token}")
        return watched

    def _let_go(self, watched: _Watched) -> None:
        if watched.handle >= 0:
            asyncio.get_running_loop().remove_reader(watched.handle)
            os.close(watched.handle)
            watched.handle = -1

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _our_processes(self) -> "_Members":
        return _Members([item for item in self._watched.values() if not item.over])

    def _log(self, tag: str, offset: int, most: int) -> LogPiece | None:
        items = list(self._watched.values())
        watched = next((item for item in items if item.attempt.tag == tag), None)
        if watched is not None:
            # Before the file: what is over by now has all that it will ever have.
            over, path = watched.over, Path(watched.attempt.log)
            piece = piece_of(str(path), offset, most, final=over)
            if not over or path.exists():
                return LogPiece(piece.offset, piece.text, piece.next, piece.size, over)
        kept = self._folder.kept_log(tag)  # It may have been moved just now.
        if kept is None:
            return None
        piece = piece_of(str(kept), offset, most, final=True)
        return LogPiece(piece.offset, piece.text, piece.next, piece.size, over=True)

    def _tail(self, job: str, log: Path | None, limit: int) -> str:
        log = log or self._folder.last_log(job)
        text = tail(str(log), limit) if log else b""
        if len(text) == limit and b"\n" in text:
            text = text.partition(b"\n")[2]
        return text.decode("utf-8", "replace")


class _Members:
    """Whether a process belongs to one of these jobs; looked up when first asked."""

    def __init__(self, watched: list[_Watched]) -> None:
        self._watched = watched
        self._pids: set[int] | None = None

    def __call__(self, pid: int) -> bool:
        if self._pids is None:
            self._pids = set()
            for item in self._watched:
                self._pids.update(processes.descendants(item.pid))
                if item.attempt.group:
                    self._pids.update(Group(item.attempt.group).members())
        return pid in self._pids
