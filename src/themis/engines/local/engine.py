"""The engine of one machine: each job a process of this machine under its own supervisor.

    engine = await LocalEngine.open(state, PretendGpus("m0", slots=(2, 2)), Owners.trusting())

Supervisors are in sessions of their own and outlive the engine. The engine writes leases into their
folders and hears of changes through inotify and process descriptors; it also polls every two
seconds, in case a notice is lost.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from themis.engines.attempt.attempt import Attempt
from themis.engines.attempt.layout import EngineLimits, StateFolder
from themis.engines.attempt.lease_timing import KILL, LOST, RESUMABLE, RUN, LeaseTimer
from themis.engines.base import Capabilities, Discovered, FoundProgram
from themis.engines.common.engine import SupervisedEngine
from themis.engines.common.start_table import WatchedStart
from themis.engines.host import boottime
from themis.engines.host.accounts import Account, Owners
from themis.engines.host.batched_thread import BatchedThread
from themis.engines.host.detached_thread import in_own_thread
from themis.engines.host.gpu_inventory import GpuInventory
from themis.engines.host.stable_gpu_ids import read_numbers, with_stable_numbers, write_numbers
from themis.engines.supervisor import libc, processes
from themis.engines.supervisor.cgroups import Cgroup
from themis.engines.supervisor.control_probe import ChosenControl, choose, sweep
from themis.engines.supervisor.spawn import spawn
from themis.engines.supervisor.supervisor import EXITED, STOPPING, STUCK
from themis.engines.task import FILE, Task
from themis.errors import UnavailableError

_POLL_WITHOUT_INOTIFY = 0.05
_CLEAN_UP_EVERY = 0.02


class LocalStart(WatchedStart):
    """A start of a job on this machine."""

    def __init__(self, attempt: Attempt, lease: LeaseTimer, batched: BatchedThread) -> None:
        super().__init__(attempt, lease, batched)
        self.pid = 0
        """Of its supervisor."""
        self.handle = -1
        """The process descriptor of its supervisor, while that is followed."""


class LocalEngine(SupervisedEngine[LocalStart]):
    """Starts jobs on this machine."""

    def __init__(
        self, folder: StateFolder, inventory: GpuInventory, owners: Owners, choice: ChosenControl
    ) -> None:
        super().__init__(folder, owners)
        self._inventory = inventory
        self._choice = choice
        self._batched = BatchedThread()
        self._first: Discovered | None = None
        """The machine as it was when its GPUs got their numbers."""
        self._devices: tuple[str, ...] = ()
        self._launching: set[asyncio.Task[None]] = set()
        self._inotify = -1

    @classmethod
    async def open(
        cls,
        state: Path,
        inventory: GpuInventory,
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
            owners: The accounts that jobs run as.
            control: cgroup, namespace or tree; empty for the best one that works.
            limits: Sizes and timeouts.
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
        """The local engine can do everything; owners are separate where they have accounts."""
        return Capabilities(
            engine="local",
            chooses_indices=True,
            control=self._choice.name,
            control_reasons=self._choice.reasons,
            separates_owners=self._owners.separate,
        )

    async def discover(self) -> tuple[Discovered, ...]:
        """This machine."""
        is_ours = JobProcesses(self._starts.running)
        found = await asyncio.to_thread(self._inventory.discover, is_ours)
        if self._first is None:
            self._first = await asyncio.to_thread(self._number, found)
            self._devices = tuple(gpu.device for gpu in self._first.gpus)
            self._starts.gpus = len(self._devices)
        return (with_stable_numbers(self._first, found),)

    def _number(self, found: Discovered) -> Discovered:
        """Give numbers to GPUs; numbers that jobs may be running under stay."""
        path = self._folder.path / "devices.json"
        kept = read_numbers(path) if self._folder.attempts() else None
        if kept is None:
            write_numbers(path, found)
        return kept or found

    async def reattach(self) -> tuple[FoundProgram, ...]:
        """Take over the jobs of an earlier engine in the same folder."""
        found = []
        for attempt in await asyncio.to_thread(self._folder.attempts):
            latest = self._starts.get(attempt.task.job)
            if latest is None:
                found.append(await self._take_over(attempt))
            elif attempt.task.run != latest.attempt.task.run:
                # The job was started again, so this end was known and only needs tidying up.
                await asyncio.to_thread(self._folder.retire, attempt)
        if self._choice.base:
            await asyncio.to_thread(sweep, self._choice.base, self._folder.prefix)
        return tuple(found)

    async def start(self, task: Task) -> None:
        """Start a job under a supervisor."""
        self._check(task)
        self._folder.check_tokens(task)
        account = self._owners.account(task.owner)
        self._starts.reserve(task)
        # The thread cannot be called back: what it starts must be known even if we are cancelled.
        launch = self._background.begin(self._launch(task, account))
        self._launching.add(launch)
        launch.add_done_callback(self._launching.discard)
        await asyncio.shield(launch)

    async def close(self) -> None:
        """Stop listening. Jobs and their supervisors run on."""
        if self._closed:
            return
        self._closed = True
        if self._launching:
            # The next engine finds a complete start more easily, but a launch may hang.
            await asyncio.wait(self._launching, timeout=self._folder.limits.patience)
        await self._background.cancel()
        for start in self._starts:
            self._unfollow(start)
        if self._inotify >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify)
            os.close(self._inotify)
        self._events.put_nowait(None)

    # Starting

    async def _launch(self, task: Task, account: Account | None) -> None:
        try:
            await self._forget_former(task)
            attempt, pid = await in_own_thread(self._spawn, task, account)
        except OSError as error:
            raise UnavailableError(f"{task.job}: cannot be started here: {error}") from error
        finally:
            self._starts.release(task.job)
        start = LocalStart(attempt, LeaseTimer(task.token, task.end, task.grace), self._batched)
        start.pid = pid
        self._starts.add(start)
        try:
            self._follow(start, os.pidfd_open(pid))
        except OSError as error:
            # It runs, or is about to: `ProgramExited` follows when it has been seen dead.
            self._unfollow(start)
            start.lease.stop = KILL
            reason = f"it could not be followed: {error}"
            self._background.begin(self._kill_unfollowed(start, reason))

    def _spawn(self, task: Task, account: Account | None) -> tuple[Attempt, int]:
        devices = [self._devices[gpu] for gpu in task.gpus]
        held = task.replace(control=self._choice.name, group=self._choice.base)
        attempt = self._folder.create(held, account, devices)
        file, errors = attempt.folder / FILE, attempt.folder / "errors"
        return attempt, spawn("themis.engines.supervisor.supervisor", str(file), errors=str(errors))

    async def _take_over(self, attempt: Attempt) -> FoundProgram:
        lease = attempt.lease or LeaseTimer(attempt.task.token, 0.0, 0.0)
        start = LocalStart(attempt, lease, self._batched)
        self._starts.add(start)
        page = await asyncio.to_thread(attempt.settled)
        if page.get("state") != EXITED and page.get("boot") != boottime.boot_id():
            attempt.write_end(LOST, "the machine has restarted")
            page = attempt.status or page
        if page.get("state") == EXITED:
            start.over = True
            return attempt.found(lease.end, page)
        start.started_told = page.get("began") is not None
        start.stuck_told = page.get("state") == STUCK
        start.pid, started = processes.identity(page.get("supervisor"))
        handle = processes.handle_of(start.pid, started)
        if handle is None:
            self._background.begin(self._clean_up(start))  # not awaited: killing may take long
            return attempt.found(lease.end, page | {"state": STOPPING})
        self._follow(start, handle)
        return attempt.found(lease.end, page)

    # Following

    def _follow(self, start: LocalStart, handle: int) -> None:
        start.handle = handle
        asyncio.get_running_loop().add_reader(handle, self._supervisor_ended, start)
        if self._inotify >= 0:
            with contextlib.suppress(OSError):
                libc.inotify_watch(self._inotify, str(start.attempt.folder / "status"))
        self._look(start)

    def _unfollow(self, start: LocalStart) -> None:
        if start.handle >= 0:
            asyncio.get_running_loop().remove_reader(start.handle)
            os.close(start.handle)
            start.handle = -1

    def _listen(self) -> None:
        """Hear of writes to status pages, and poll in case a notice is missed."""
        poll = self._folder.limits.look
        try:
            self._inotify = libc.inotify()
        except OSError:  # a user may have few of them
            poll = _POLL_WITHOUT_INOTIFY
        else:
            asyncio.get_running_loop().add_reader(self._inotify, self._noticed)
        self._background.begin(self._poll(poll))

    async def _poll(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            self._look_at_all()

    def _noticed(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._inotify, 1 << 16)
        self._look_at_all()

    def _look_at_all(self) -> None:
        for start in self._starts:
            self._look(start)

    def _look(self, start: LocalStart) -> None:
        if not start.over and (page := start.attempt.status) is not None:
            self._take_status(start, page)

    # Ending

    def _supervisor_ended(self, start: LocalStart) -> None:
        self._unfollow(start)
        with contextlib.suppress(ChildProcessError):  # a child of an earlier engine
            os.waitpid(start.pid, os.WNOHANG)
        self._look(start)
        if not start.over:
            self._background.begin(self._clean_up(start))

    async def _clean_up(self, start: LocalStart, why: str = "") -> None:
        """Kill what a dead supervisor left, see it dead, and write its end."""
        attempt = start.attempt
        tries = self._folder.limits.patience / _CLEAN_UP_EVERY
        while not await asyncio.to_thread(attempt.kill_leftovers):
            tries -= 1
            if tries < 0:
                reason = "its supervisor is gone, and something of it cannot be killed"
                self._report_stuck(start, reason)
            await asyncio.sleep(_CLEAN_UP_EVERY)
        killed = start.lease.stop == KILL or boottime.now() >= start.lease.end
        attempt.write_end(RESUMABLE if killed else LOST, why or attempt.complaint())
        self._look(start)

    async def _kill_unfollowed(self, start: LocalStart, why: str) -> None:
        """Kill a supervisor that cannot be followed, and then what it left."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(start.pid, signal.SIGKILL)  # Our child and not reaped: the id is its own.
            await asyncio.to_thread(os.waitpid, start.pid, 0)
        await self._clean_up(start, why)

    async def _kill_without_supervisor(self, start: LocalStart) -> None:
        """Kill the supervisor if the job outlives the patience; `_clean_up` does the rest."""
        await asyncio.sleep(self._folder.limits.patience)
        page = start.attempt.status or {}
        if not start.over and page.get("state") != STUCK and start.handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(start.handle, signal.SIGKILL)

    async def _publish_lease(self, start: LocalStart) -> None:
        start.attempt.write_lease(start.lease)
        if start.lease.stop == RUN or start.handle < 0:
            return
        # A supervisor that has not written its name has not blocked the signal yet and would die of
        # it; it reads the lease after that.
        if (start.attempt.status or {}).get("supervisor"):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(start.handle, signal.SIGUSR1)


class JobProcesses:
    """Whether a process belongs to one of these starts; looked up at the first question."""

    def __init__(self, starts: list[LocalStart]) -> None:
        self._starts = starts
        self._pids: set[int] | None = None

    def __call__(self, pid: int) -> bool:
        """Whether it does."""
        if self._pids is None:
            self._pids = set()
            for start in self._starts:
                self._pids.update(processes.descendants(start.pid))
                if group := start.attempt.task.group:
                    self._pids.update(Cgroup(group).members())
        return pid in self._pids
