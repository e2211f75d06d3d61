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
from pathlib import Path

from themis.engines.attempt.attempt import Attempt
from themis.engines.attempt.layout import EngineLimits, StateFolder
from themis.engines.attempt.lease_timing import KILL, LOST, RESUMABLE, RUN, LeaseTimer
from themis.engines.base import Capabilities, CouldNotKill, Discovered, FoundProgram
from themis.engines.common.engine import PagedEngine, WatchedStart
from themis.engines.host import boottime
from themis.engines.host.accounts import Account, Owners
from themis.engines.host.batched_thread import Together
from themis.engines.host.detached_thread import aside
from themis.engines.host.gpu_inventory import Inventory
from themis.engines.host.stable_gpu_ids import read_numbers, steady, write_numbers
from themis.engines.supervisor import libc, processes
from themis.engines.supervisor.cgroups import Cgroup
from themis.engines.supervisor.control_probe import ChosenControl, choose, sweep
from themis.engines.supervisor.spawn import spawn
from themis.engines.supervisor.supervisor import EXITED, STOPPING, STUCK
from themis.engines.task import FILE, Task
from themis.errors import UnavailableError

_LOOK_WITHOUT_NOTICES = 0.05
_BURYING = 0.02


class LocalEngine(PagedEngine):
    """Starts jobs on this machine."""

    def __init__(
        self, folder: StateFolder, inventory: Inventory, owners: Owners, choice: ChosenControl
    ) -> None:
        super().__init__(folder, owners)
        self._inventory = inventory
        self._choice = choice
        self._together = Together()
        self._first: Discovered | None = None
        """The machine as it was when its GPUs got their numbers."""
        self._devices: tuple[str, ...] = ()
        self._launching: set[asyncio.Task[None]] = set()
        self._notices = -1

    @classmethod
    async def open(
        cls,
        state: Path,
        inventory: Inventory,
        owners: Owners,
        *,
        control: str = "",
        limits: EngineLimits | None = None,
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
        folder = StateFolder(state, limits or EngineLimits(), checkpoints)
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

    async def discover(self) -> tuple[Discovered, ...]:
        """This machine."""
        found = await asyncio.to_thread(lambda: self._inventory.discover(self._our_processes()))
        if self._first is None:
            self._first = await asyncio.to_thread(self._number, found)
            self._devices = tuple(gpu.device for gpu in self._first.gpus)
            self._gpus = len(self._devices)
        return (steady(self._first, found),)

    def _number(self, found: Discovered) -> Discovered:
        """Give numbers to GPUs; those that jobs may be running under stay."""
        path = self._folder.path / "devices.json"
        kept = read_numbers(path) if self._folder.attempts() else None
        if kept is None:
            write_numbers(path, found)
        return kept or found

    async def reattach(self) -> tuple[FoundProgram, ...]:
        """Take over the jobs of an earlier engine in the same folder."""
        found = []
        for attempt in await asyncio.to_thread(self._folder.attempts):
            if attempt.task.job not in self._watched:
                found.append(await self._take_over(attempt))
            elif attempt.task.run != self._watched[attempt.task.job].attempt.task.run:
                # Started again since, so its end was known; only the tidying up is missing.
                await asyncio.to_thread(self._folder.retire, attempt)
        if self._choice.base:
            await asyncio.to_thread(sweep, self._choice.base, self._folder.prefix)
        return tuple(found)

    async def start(self, task: Task) -> None:
        """Start a job under a supervisor."""
        self._check(task)
        self._check_tokens(task)
        account = self._owners.account(task.owner)
        self._starting[task.job] = task.gpus
        # The thread cannot be called back: what it started must be known even if we are cancelled.
        launch = self._begin(self._launch(task, account))
        self._launching.add(launch)
        launch.add_done_callback(self._launching.discard)
        await asyncio.shield(launch)

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

    async def _launch(self, task: Task, account: Account | None) -> None:
        try:
            if task.job in self._watched:  # who starts it again knows how it ended
                await self.forget(task.job, self._watched[task.job].attempt.task.token)
            attempt, pid = await aside(self._spawn, task, account)
        except OSError as error:
            raise UnavailableError(f"{task.job}: cannot be started here: {error}") from error
        finally:
            del self._starting[task.job]
        watched = WatchedStart(
            attempt, LeaseTimer(task.token, task.end, task.grace), self._together
        )
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
        held = task.replace(control=self._choice.name, group=self._choice.base)
        attempt = self._folder.create(held, account, devices)
        file, errors = attempt.folder / FILE, attempt.folder / "errors"
        return attempt, spawn("themis.engines.supervisor.supervisor", str(file), errors=str(errors))

    async def _take_over(self, attempt: Attempt) -> FoundProgram:
        lease = attempt.lease or LeaseTimer(attempt.task.token, 0.0, 0.0)
        watched = self._watched[attempt.task.job] = WatchedStart(attempt, lease, self._together)
        page = await asyncio.to_thread(attempt.settled)
        if page.get("state") != EXITED and page.get("boot") != boottime.boot_id():
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

    def _follow(self, watched: WatchedStart, handle: int) -> None:
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

    def _look(self, watched: WatchedStart) -> None:
        if not watched.over and (page := watched.attempt.status) is not None:
            self._take(watched, page)

    def _supervisor_ended(self, watched: WatchedStart) -> None:
        self._let_go(watched)
        with contextlib.suppress(ChildProcessError):  # a child of an earlier engine's
            os.waitpid(watched.pid, os.WNOHANG)
        self._look(watched)
        if not watched.over:
            self._begin(self._bury(watched))

    async def _bury(self, watched: WatchedStart, why: str = "") -> None:
        """Kill what a dead supervisor left, see it dead, and tell."""
        attempt = watched.attempt
        tries = self._folder.limits.patience / _BURYING
        while not await asyncio.to_thread(attempt.kill_leftovers):
            tries -= 1
            if tries < 0 and not watched.stuck_told:
                watched.stuck_told = True
                reason = "its supervisor is gone, and something of it cannot be killed"
                self._events.put_nowait(CouldNotKill(attempt.task.job, attempt.task.token, reason))
            await asyncio.sleep(_BURYING)
        killed = watched.lease.stop == KILL or boottime.now() >= watched.lease.end
        attempt.write_end(RESUMABLE if killed else LOST, why or attempt.complaint())
        self._look(watched)

    async def _abandon(self, watched: WatchedStart, why: str) -> None:
        """Kill a supervisor that nobody can follow, and then what it left."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(watched.pid, signal.SIGKILL)  # Our child and not reaped: the id is its own.
            await asyncio.to_thread(os.waitpid, watched.pid, 0)
        await self._bury(watched, why)

    async def _insist(self, watched: WatchedStart) -> None:
        """Kill without the supervisor if that does not do it, because it is stopped or hangs."""
        await asyncio.sleep(self._folder.limits.patience)
        page = watched.attempt.status or {}
        if not watched.over and page.get("state") != STUCK and watched.handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watched.handle, signal.SIGKILL)

    async def _tell(self, watched: WatchedStart) -> None:
        watched.attempt.write_lease(watched.lease)
        if watched.lease.stop != RUN and watched.handle >= 0:
            self._wake(watched)

    def _wake(self, watched: WatchedStart) -> None:
        if (watched.attempt.status or {}).get("supervisor"):
            # Before it has blocked this signal it would die of it; then it will look anyway.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watched.handle, signal.SIGUSR1)

    def _let_go(self, watched: WatchedStart) -> None:
        if watched.handle >= 0:
            asyncio.get_running_loop().remove_reader(watched.handle)
            os.close(watched.handle)
            watched.handle = -1

    def _our_processes(self) -> "_Members":
        return _Members([item for item in self._watched.values() if not item.over])


class _Members:
    """Whether a process belongs to one of these jobs; looked up when first asked."""

    def __init__(self, watched: list[WatchedStart]) -> None:
        self._watched = watched
        self._pids: set[int] | None = None

    def __call__(self, pid: int) -> bool:
        if self._pids is None:
            self._pids = set()
            for item in self._watched:
                self._pids.update(processes.descendants(item.pid))
                if item.attempt.task.group:
                    self._pids.update(Cgroup(item.attempt.task.group).members())
        return pid in self._pids
