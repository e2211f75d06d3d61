"""The engine of one machine of a cluster that another scheduler rules: Slurm, Ray.

    engine = await RemoteEngine.open(state, launcher, owners)

What such engines have in common is here. Jobs run under the same supervisor as everywhere; the
scheduler only starts it on the machine, with so many GPUs (`Launcher`). Engine and supervisor
speak through pages in a folder that both machines see. Nothing is concluded from a scheduler that
does not answer: leases are renewed in files, and supervisors hold them.

The scheduler chooses which GPUs a job gets. Tasks name numbers from 0 on, which are the ledger's:
tokens go with those. Which GPUs they stand for is told in `Started`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from themis.engines.attempt.attempt import Attempt, Page
from themis.engines.attempt.layout import EngineLimits, StateFolder
from themis.engines.attempt.lease_timing import NEVER_RAN, RUN, LeaseTimer
from themis.engines.base import Capabilities, CouldNotKill, Discovered, FoundProgram
from themis.engines.common.engine import PagedEngine, WatchedStart
from themis.engines.host import boottime
from themis.engines.host.accounts import Account, Owners
from themis.engines.host.detached_thread import aside
from themis.engines.remote.clock_offsets import Clocks
from themis.engines.remote.launcher import Launcher, LaunchStage, Times
from themis.engines.remote.scheduler_calls import Dealings
from themis.engines.remote.tracked_start import Far, read_pages
from themis.engines.supervisor.process_control import TREE
from themis.engines.supervisor.supervisor import EXITED, OVERTIME, STOPPING
from themis.engines.task import Task
from themis.errors import UnavailableError

_LOG = logging.getLogger(__name__)

_BEATS = 3.0
"""Beats without which a supervisor is not alive, where its scheduler says so too."""


class RemoteEngine(PagedEngine):
    """Starts jobs on one machine, through a launcher."""

    def __init__(
        self,
        folder: StateFolder,
        launcher: Launcher,
        owners: Owners,
        times: Times,
        now: Callable[[], float],
        boot: str,
    ) -> None:
        super().__init__(folder, owners, now)
        self._launcher = launcher
        self._times = times
        self._boot = boot
        self._clocks = Clocks(boot)
        self._changed = asyncio.Event()
        self._reattached = False
        """Whether what an earlier engine left is known."""
        self._dealings = Dealings(launcher, times, folder.prefix, self._begin, now)
        self._looked = 0.0
        """When the scheduler was last asked where its jobs are."""

    @classmethod
    async def open(
        cls,
        state: Path,
        launcher: Launcher,
        owners: Owners,
        *,
        times: Times | None = None,
        limits: EngineLimits | None = None,
        checkpoints: Path | None = None,
        now: Callable[[], float] = boottime.now,
        boot: str = "",
    ) -> "RemoteEngine":
        """Make the folders and look at the machine.

        Args:
            state: The machine's own folder, on storage that it shares with this one.
            launcher: The way to the machine.
            owners: Whom jobs run as.
            times: What to wait for.
            limits: Sizes and patience.
            checkpoints: Where jobs that name no folder keep theirs.
            now: The clock of leases here,
            boot: and its name, if it is not this machine's; for tests.

        Raises:
            UnavailableError: The folder cannot be used, or the scheduler does not answer.
        """
        folder = StateFolder(state, limits or EngineLimits(), checkpoints)
        try:
            await aside(folder.prepare)
        except OSError as error:
            raise UnavailableError(f"{state}: {error}") from error
        engine = cls(folder, launcher, owners, times or Times(), now, boot or boottime.boot_id())
        await engine.discover()
        engine._begin(engine._follow())
        return engine

    @property
    def capabilities(self) -> Capabilities:
        """What the launcher can do; owners are separate where they have accounts."""
        return replace(self._launcher.capabilities, separates_owners=self._owners.separate)

    @property
    def quiet(self) -> bool:
        """Whether nothing was heard for long of any supervisor that should be there."""
        running = [item for item in self._far() if not item.over and item.beat]
        late = self._now() - self._times.silence
        return bool(running) and all(item.heard < late for item in running)

    async def discover(self) -> tuple[Discovered, ...]:
        """This one machine."""
        live = [item.attempt.task.gpus for item in self._far() if not item.over]
        busy = {gpu for gpus in (*live, *self._starting.values()) for gpu in gpus}
        found = await self._launcher.discover(busy)
        self._gpus = max(self._gpus, found.machine.gpus)
        self._begin(self._sweep())
        return (found,)

    async def reattach(self) -> tuple[FoundProgram, ...]:
        """Take over what an earlier engine left in the folder, and call off what nobody knows."""
        found = []
        for attempt in await aside(self._folder.attempts):
            if attempt.task.job not in self._watched:
                found.append(await self._take_over(attempt))
            elif attempt.task.run != self._watched[attempt.task.job].attempt.task.run:
                await aside(self._folder.retire, attempt)
        self._reattached = True
        await self._sweep()
        return tuple(found)

    async def _sweep(self) -> None:
        if self._reattached:
            known = [item.attempt for item in self._far() if not item.over]
            await self._dealings.sweep({self._dealings.name(attempt) for attempt in known})

    async def start(self, task: Task) -> None:
        """Write the task and have its supervisor started."""
        self._check(task)
        account = self._owners.account(task.owner)
        self._starting[task.job] = task.gpus
        # The thread cannot be called back: what it wrote must be known even if we are cancelled.
        await asyncio.shield(self._begin(self._prepare(task, account)))

    async def close(self) -> None:
        """Stop listening. Jobs and their supervisors run on."""
        if self._closed:
            return
        self._closed = True
        await self._dealings.settle(self._folder.limits.patience)
        for task in sorted(self._tasks, key=id):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._events.put_nowait(None)

    # Starting

    async def _prepare(self, task: Task, account: Account | None) -> None:
        try:
            await aside(self._check_tokens, task)
            if task.job in self._watched:  # who starts it again knows how it ended
                await self.forget(task.job, self._watched[task.job].attempt.task.token)
            # A machine whose clock is known need not say first what time it has.
            there = self._clocks.last if self._clocks.knows(self._clocks.last, self._now()) else ""
            attempt = await aside(self._create, task, account, there)
        except OSError as error:
            raise UnavailableError(f"{task.job}: cannot be started here: {error}") from error
        finally:
            del self._starting[task.job]
        lease = LeaseTimer(task.token, task.end, task.grace)
        watched = Far(attempt, lease, self._now())
        watched.boot = there or self._boot
        self._watched[task.job] = watched
        self._begin(self._launch(watched, len(task.gpus)))

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

    async def _launch(self, watched: Far, gpus: int) -> None:
        why = await self._dealings.launch(watched, gpus, self._changed.set)
        if why:
            await self._end(watched, NEVER_RAN, why)
            return
        watched.launched = watched.heard = self._now()
        self._changed.set()

    # Following

    async def _follow(self) -> None:
        """Look at pages, and where the scheduler has its jobs; until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pace()):
                    await self._changed.wait()
            self._changed.clear()
            live = [item for item in self._far() if not item.over and not self._closed]
            try:
                pages = await aside(read_pages, [item.attempt for item in live])
                for watched, page in zip(live, pages, strict=True):
                    await self._hear(watched, page)
                if live and self._now() - self._looked >= self._times.places:
                    self._looked = self._now()
                    await self._locate(live)
            except OSError as error:
                _LOG.warning("the folder of %s cannot be used: %s", self._folder.path, error)
            except Exception:
                # Nobody else looks: whatever it was must not be the last thing that was seen.
                _LOG.exception("a look at %s failed", self._folder.path)

    def _pace(self) -> float:
        live = [item for item in self._far() if not item.over]
        if not live:
            return 3600.0
        busy = any(item.busy for item in live)
        return self._times.look if busy else self._times.idle

    async def _hear(self, watched: Far, page: Page) -> None:
        """Take what a supervisor has written."""
        now, boot, time = self._now(), page.get("boot"), page.get("clock")
        if isinstance(boot, str) and isinstance(time, float) and time != watched.beat:
            watched.beat, watched.heard = time, now
            self._clocks.learn(boot, time, now)
            if boot != watched.boot and page.get("state") != EXITED:
                watched.boot = boot
                await self._tell(watched)
        self._take(watched, page)
        if watched.over:
            self._dealings.give_back(watched.attempt)
            return
        late = watched.lease.stop != RUN or now > watched.launched + self._times.pending
        if not page.get("supervisor") and watched.launched and late and not watched.calling_off:
            watched.calling_off = True
            self._begin(self._call_off(watched))

    async def _locate(self, live: list[Far]) -> None:
        """See what is gone without a last word."""
        places = await self._launcher.places()
        if places is None:
            return
        for watched in live:
            place = places.get(self._dealings.name(watched.attempt))
            if watched.over or not watched.launched:
                continue
            if LaunchStage.is_gone(place):
                # A scheduler that has forgotten everything does not know better than its own beat.
                silent = self._now() > watched.heard + _BEATS * self._times.beat
                settled = self._now() > watched.launched + self._times.settle
                if place is not None and place.never:
                    await self._bury(watched, place.why)
                elif silent and (watched.seen or settled):
                    await self._bury(watched, "")
            elif place is not None and place.state == "lost":
                # Its machine may only be cut off: it is over when its supervisor has ended it.
                if self._now() > watched.lease.end + OVERTIME + self._times.beat:
                    await self._bury(watched, place.why)
            else:
                watched.seen = True

    async def _bury(self, watched: Far, why: str) -> None:
        """The scheduler says that nothing of it is alive: write that down if it could not."""
        page = (await aside(read_pages, [watched.attempt]))[0]
        if page.get("state") == EXITED or watched.over:
            await self._hear(watched, page)
            return
        complaint = await aside(watched.attempt.complaint)
        await self._end(watched, watched.outcome(page, self._now()), why or complaint)

    async def _end(self, watched: Far, outcome: str, reason: str) -> None:
        """The last word in place of a supervisor."""
        try:
            await aside(watched.attempt.write_end, outcome, reason)
            page = (await aside(read_pages, [watched.attempt]))[0]
        except OSError as error:
            _LOG.warning("the end of %s cannot be written: %s", watched.attempt.task.job, error)
            page = {"state": EXITED, "outcome": outcome, "reason": reason}
        self._take(watched, page)
        self._dealings.give_back(watched.attempt)

    # Ending

    async def _tell(self, watched: WatchedStart) -> None:
        assert isinstance(watched, Far)
        async with watched.telling:  # The last one counts, whichever thread is quicker.
            boot, lease = watched.boot or self._boot, watched.lease
            end = self._clocks.there(boot, lease.end)
            await aside(
                watched.attempt.write_lease,
                LeaseTimer(lease.token, end, lease.grace, lease.stop, boot),
            )
        if lease.stop != RUN:
            watched.unwanted.set()
            self._changed.set()

    async def _insist(self, watched: WatchedStart) -> None:
        assert isinstance(watched, Far)
        await asyncio.sleep(self._folder.limits.patience)
        if not watched.over and not watched.calling_off:
            watched.calling_off = True
            await self._call_off(watched)

    async def _call_off(self, watched: Far) -> None:
        job, token = watched.attempt.task.job, watched.attempt.task.token
        await self._dealings.call_off(
            watched, lambda why: self._events.put_nowait(CouldNotKill(job, token, why))
        )
        if not watched.over:
            await self._bury(watched, "" if watched.started_told else self._why_not(watched))

    def _why_not(self, watched: Far) -> str:
        if watched.lease.stop != RUN:
            return "it was called off before it began"
        return f"the scheduler did not start it within {self._times.pending:g} s"

    # Coming back

    async def _take_over(self, attempt: Attempt) -> FoundProgram:
        lease = await aside(lambda: attempt.lease) or LeaseTimer(attempt.task.token, 0.0, 0.0)
        page = (await aside(read_pages, [attempt]))[0]
        now, boot, time = self._now(), page.get("boot"), page.get("clock")
        watched = Far(attempt, lease, now)
        watched.launched, watched.boot = now, lease.boot
        if isinstance(boot, str) and isinstance(time, float):
            watched.beat = time
            self._clocks.learn(boot, time, now)
        if self._clocks.knows(lease.boot, now):
            lease.end = self._clocks.here(lease.boot, lease.end)
        else:
            # Written by a clock that nobody has, and nobody has taken it up.
            lease.end = now
        self._watched[attempt.task.job] = watched
        # If its scheduler does not have it, its beat is awaited all the same.
        watched.seen = True
        watched.over = page.get("state") == EXITED
        watched.started_told = page.get("began") is not None
        if not watched.over and not page.get("supervisor"):
            page |= {"state": STOPPING}
            watched.calling_off = True
            self._begin(self._call_off(watched))
        self._changed.set()
        found = attempt.found(lease.end, page)
        began = page.get("began")
        if isinstance(boot, str) and isinstance(began, float):
            return replace(found, age=max(0.0, now - self._clocks.here(boot, began)))
        return replace(found, age=0.0)

    def _far(self) -> list[Far]:
        return [item for item in self._watched.values() if isinstance(item, Far)]
