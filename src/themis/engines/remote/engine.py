"""The engine of one machine of a cluster that another scheduler rules: Slurm, Ray.

    engine = await RemoteEngine.open(state, launcher, owners)

Jobs run under the same supervisor as on a local engine. The scheduler only starts the supervisor
on its machine, with a number of GPUs (`Launcher`). Engine and supervisor share a folder that both
machines see. A scheduler that does not answer changes nothing: leases are renewed in files, and
supervisors hold them.

The scheduler chooses which GPUs a job gets. Tasks name the ledger's numbers, from 0 on, and tokens
belong to those; `ProgramStarted` names the GPUs that they stand for.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from themis.engines.attempt.attempt import Attempt, Page
from themis.engines.attempt.layout import EngineLimits, StateFolder
from themis.engines.attempt.lease_timing import NEVER_RAN, RUN, LeaseTimer
from themis.engines.base import Capabilities, Discovered, FoundProgram
from themis.engines.common.engine import SupervisedEngine
from themis.engines.host import boottime
from themis.engines.host.accounts import Account, Owners
from themis.engines.host.detached_thread import in_own_thread
from themis.engines.remote.clock_offsets import ClockOffsets
from themis.engines.remote.launcher import Launcher, LaunchStage, RemoteTiming
from themis.engines.remote.scheduler_calls import SchedulerCalls
from themis.engines.remote.tracked_start import RemoteStart, read_pages
from themis.engines.supervisor.process_control import TREE
from themis.engines.supervisor.supervisor import EXITED, OVERTIME, STOPPING
from themis.engines.task import Task
from themis.errors import UnavailableError

_LOG = logging.getLogger(__name__)

_BEATS = 3.0
"""A supervisor that missed so many beats is dead, if its scheduler does not list it either."""


class RemoteEngine(SupervisedEngine[RemoteStart]):
    """Starts jobs on one machine, through a launcher."""

    def __init__(
        self,
        folder: StateFolder,
        launcher: Launcher,
        owners: Owners,
        times: RemoteTiming,
        now: Callable[[], float],
        boot: str,
    ) -> None:
        super().__init__(folder, owners, now)
        self._launcher = launcher
        self._times = times
        self._boot = boot
        self._clocks = ClockOffsets(boot)
        self._changed = asyncio.Event()
        self._reattached = False
        """Whether the starts of an earlier engine are known."""
        self._scheduler = SchedulerCalls(
            launcher, times, folder.prefix, self._background.begin, now
        )
        self._looked = 0.0
        """When the scheduler was last asked for its jobs."""

    @classmethod
    async def open(
        cls,
        state: Path,
        launcher: Launcher,
        owners: Owners,
        *,
        times: RemoteTiming | None = None,
        limits: EngineLimits | None = None,
        checkpoints: Path | None = None,
        now: Callable[[], float] = boottime.now,
        boot: str = "",
    ) -> "RemoteEngine":
        """Make the folders and look at the machine.

        Args:
            state: The machine's own folder, on storage that it shares with this one.
            launcher: Starts and ends supervisors on the machine.
            owners: The accounts that jobs run as.
            times: Intervals and timeouts.
            limits: Sizes and timeouts.
            checkpoints: Where jobs that name no folder keep theirs.
            now: The clock of leases here,
            boot: and its name, if it is not this machine's; for tests.

        Raises:
            UnavailableError: The folder cannot be used, or the scheduler does not answer.
        """
        folder = StateFolder(state, limits or EngineLimits(), checkpoints)
        try:
            await in_own_thread(folder.prepare)
        except OSError as error:
            raise UnavailableError(f"{state}: {error}") from error
        engine = cls(
            folder, launcher, owners, times or RemoteTiming(), now, boot or boottime.boot_id()
        )
        await engine.discover()
        engine._background.begin(engine._follow())
        return engine

    @property
    def capabilities(self) -> Capabilities:
        """Those of the launcher; owners are separate where they have accounts."""
        return replace(self._launcher.capabilities, separates_owners=self._owners.separate)

    @property
    def quiet(self) -> bool:
        """Whether all supervisors that should be there have been silent for long."""
        running = [start for start in self._starts.running if start.beat]
        late = self._now() - self._times.silence
        return bool(running) and all(start.heard < late for start in running)

    async def discover(self) -> tuple[Discovered, ...]:
        """This one machine."""
        found = await self._launcher.discover(self._starts.busy_gpus)
        self._starts.gpus = max(self._starts.gpus, found.machine.gpus)
        self._background.begin(self._sweep())
        return (found,)

    async def reattach(self) -> tuple[FoundProgram, ...]:
        """Take over the starts of an earlier engine, and call off those without a folder."""
        found = []
        for attempt in await in_own_thread(self._folder.attempts):
            latest = self._starts.get(attempt.task.job)
            if latest is None:
                found.append(await self._take_over(attempt))
            elif attempt.task.run != latest.attempt.task.run:
                await in_own_thread(self._folder.retire, attempt)
        self._reattached = True
        await self._sweep()
        return tuple(found)

    async def _sweep(self) -> None:
        if self._reattached:
            known = [start.attempt for start in self._starts.running]
            await self._scheduler.sweep({self._scheduler.name(attempt) for attempt in known})

    async def start(self, task: Task) -> None:
        """Write the task and have its supervisor started."""
        self._check(task)
        account = self._owners.account(task.owner)
        self._starts.reserve(task)
        # The thread cannot be called back: what it wrote must be known even if we are cancelled.
        await asyncio.shield(self._background.begin(self._prepare(task, account)))

    async def close(self) -> None:
        """Stop listening. Jobs and their supervisors run on."""
        if self._closed:
            return
        self._closed = True
        await self._scheduler.settle(self._folder.limits.patience)
        await self._background.cancel()
        self._events.put_nowait(None)

    # Starting

    async def _prepare(self, task: Task, account: Account | None) -> None:
        try:
            await in_own_thread(self._folder.check_tokens, task)
            await self._forget_former(task)
            # A supervisor on a machine whose clock is known need not wait for its first lease.
            there = self._clocks.last if self._clocks.knows(self._clocks.last, self._now()) else ""
            attempt = await in_own_thread(self._create, task, account, there)
        except OSError as error:
            raise UnavailableError(f"{task.job}: cannot be started here: {error}") from error
        finally:
            self._starts.release(task.job)
        lease = LeaseTimer(task.token, task.end, task.grace)
        start = RemoteStart(attempt, lease, self._now())
        start.boot = there or self._boot
        self._starts.add(start)
        self._background.begin(self._launch(start, len(task.gpus)))

    def _create(self, task: Task, account: Account | None, there: str) -> Attempt:
        boot = there or self._boot
        machine, colon, port = task.rendezvous.rpartition(":")
        meet = f"{self._launcher.address(machine)}{colon}{port}" if colon else ""
        timed = task.replace(
            end=self._clocks.there(boot, task.end),
            boot=boot,
            rendezvous=meet,
            control=TREE,
            gpu_variables=self._launcher.gpu_variables,
            look_every=2 * self._times.look,
            beat_every=self._times.beat,
            lease_wait=self._times.pending,
        )
        return self._folder.create(timed, account)

    async def _launch(self, start: RemoteStart, gpus: int) -> None:
        why = await self._scheduler.launch(start, gpus, self._changed.set)
        if why:
            await self._end(start, NEVER_RAN, why)
            return
        start.launched = start.heard = self._now()
        self._changed.set()

    # Following

    async def _follow(self) -> None:
        """Read pages, and ask the scheduler for its jobs; until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pace()):
                    await self._changed.wait()
            self._changed.clear()
            live = [] if self._closed else self._starts.running
            try:
                pages = await in_own_thread(read_pages, [item.attempt for item in live])
                for start, page in zip(live, pages, strict=True):
                    await self._take_page(start, page)
                if live and self._now() - self._looked >= self._times.places:
                    self._looked = self._now()
                    await self._locate(live)
            except OSError as error:
                _LOG.warning("the folder of %s cannot be used: %s", self._folder.path, error)
            except Exception:
                # This loop must go on: nothing else reads the pages.
                _LOG.exception("a look at %s failed", self._folder.path)

    def _pace(self) -> float:
        live = self._starts.running
        if not live:
            return 3600.0
        busy = any(start.busy for start in live)
        return self._times.look if busy else self._times.idle

    async def _take_page(self, start: RemoteStart, page: Page) -> None:
        """Act on a page that a supervisor has written."""
        now, boot, time = self._now(), page.get("boot"), page.get("clock")
        if isinstance(boot, str) and isinstance(time, float) and time != start.beat:
            start.beat, start.heard = time, now
            self._clocks.learn(boot, time, now)
            if boot != start.boot and page.get("state") != EXITED:
                start.boot = boot
                await self._publish_lease(start)
        self._take_status(start, page)
        if start.over:
            self._scheduler.give_back(start.attempt)
            return
        late = start.lease.stop != RUN or now > start.launched + self._times.pending
        if not page.get("supervisor") and start.launched and late and not start.calling_off:
            start.calling_off = True
            self._background.begin(self._call_off(start))

    async def _locate(self, live: list[RemoteStart]) -> None:
        """Find starts that ended without a last page."""
        places = await self._launcher.places()
        if places is None:
            return
        for start in live:
            place = places.get(self._scheduler.name(start.attempt))
            if start.over or not start.launched:
                continue
            if LaunchStage.is_gone(place):
                # A scheduler that has lost its state is not believed while the supervisor beats.
                silent = self._now() > start.heard + _BEATS * self._times.beat
                settled = self._now() > start.launched + self._times.settle
                if place is not None and place.never:
                    await self._finish(start, place.why)
                elif silent and (start.seen or settled):
                    await self._finish(start, "")
            elif place is not None and place.state == "lost":
                # Its machine may only be cut off: wait until its supervisor has ended it.
                if self._now() > start.lease.end + OVERTIME + self._times.beat:
                    await self._finish(start, place.why)
            else:
                start.seen = True

    async def _finish(self, start: RemoteStart, why: str) -> None:
        """Nothing of it is alive, says the scheduler: write its end if its supervisor has not."""
        page = (await in_own_thread(read_pages, [start.attempt]))[0]
        if page.get("state") == EXITED or start.over:
            await self._take_page(start, page)
            return
        complaint = await in_own_thread(start.attempt.complaint)
        await self._end(start, start.outcome(page, self._now()), why or complaint)

    async def _end(self, start: RemoteStart, outcome: str, reason: str) -> None:
        """Write the end in place of a supervisor."""
        try:
            await in_own_thread(start.attempt.write_end, outcome, reason)
            page = (await in_own_thread(read_pages, [start.attempt]))[0]
        except OSError as error:
            _LOG.warning("the end of %s cannot be written: %s", start.attempt.task.job, error)
            page = {"state": EXITED, "outcome": outcome, "reason": reason}
        self._take_status(start, page)
        self._scheduler.give_back(start.attempt)

    # Ending

    async def _publish_lease(self, start: RemoteStart) -> None:
        async with start.publishing:  # so that the last lease is the last one written
            boot, lease = start.boot or self._boot, start.lease
            end = self._clocks.there(boot, lease.end)
            await in_own_thread(
                start.attempt.write_lease,
                LeaseTimer(lease.token, end, lease.grace, lease.stop, boot),
            )
        if lease.stop != RUN:
            start.unwanted.set()
            self._changed.set()

    async def _kill_without_supervisor(self, start: RemoteStart) -> None:
        await asyncio.sleep(self._folder.limits.patience)
        if not start.over and not start.calling_off:
            start.calling_off = True
            await self._call_off(start)

    async def _call_off(self, start: RemoteStart) -> None:
        await self._scheduler.call_off(start, partial(self._report_stuck, start))
        if not start.over:
            await self._finish(start, "" if start.started_told else self._why_not(start))

    def _why_not(self, start: RemoteStart) -> str:
        if start.lease.stop != RUN:
            return "it was called off before it began"
        return f"the scheduler did not start it within {self._times.pending:g} s"

    # Coming back

    async def _take_over(self, attempt: Attempt) -> FoundProgram:
        lease = await in_own_thread(lambda: attempt.lease) or LeaseTimer(
            attempt.task.token, 0.0, 0.0
        )
        page = (await in_own_thread(read_pages, [attempt]))[0]
        now, boot, time = self._now(), page.get("boot"), page.get("clock")
        start = RemoteStart(attempt, lease, now)
        start.launched, start.boot = now, lease.boot
        if isinstance(boot, str) and isinstance(time, float):
            start.beat = time
            self._clocks.learn(boot, time, now)
        if self._clocks.knows(lease.boot, now):
            lease.end = self._clocks.here(lease.boot, lease.end)
        else:
            # Written on an unknown clock, and its supervisor has not answered.
            lease.end = now
        self._starts.add(start)
        # Also if the scheduler does not list it: then its beat decides.
        start.seen = True
        start.over = page.get("state") == EXITED
        start.started_told = page.get("began") is not None
        if not start.over and not page.get("supervisor"):
            page |= {"state": STOPPING}
            start.calling_off = True
            self._background.begin(self._call_off(start))
        self._changed.set()
        found = attempt.found(lease.end, page)
        began = page.get("began")
        if isinstance(boot, str) and isinstance(began, float):
            return replace(found, age=max(0.0, now - self._clocks.here(boot, began)))
        return replace(found, age=0.0)
