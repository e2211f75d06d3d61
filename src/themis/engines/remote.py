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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from themis.engines import clock
from themis.engines.aside import aside
from themis.engines.attempts import Attempt, Page
from themis.engines.base import Capabilities, CouldNotKill, Discovered, Found, Task
from themis.engines.clocks import Clocks
from themis.engines.control import TREE
from themis.engines.deadlines import KILL, LOST, NEVER_RAN, RESUMABLE, RUN, Lease
from themis.engines.folders import Limits, StateFolder
from themis.engines.launching import Launcher, Place, Times
from themis.engines.owners import Account, Owners
from themis.engines.paged import PagedEngine, Watched
from themis.engines.supervisor import EXITED, OVERTIME, STOPPING
from themis.errors import RefusedError, UnavailableError

_LOG = logging.getLogger(__name__)

_BEATS = 3.0
"""Beats without which a supervisor is not alive, where its scheduler says so too."""


class _Far(Watched):
    """A start on another machine."""

    def __init__(self, attempt: Attempt, lease: Lease, heard: float) -> None:
        super().__init__(attempt, lease, None)
        self.launched = 0.0
        """When the scheduler took it; 0 before."""
        self.seen = False
        """Whether the scheduler has been heard to have it."""
        self.beat = 0.0
        """The last time that its supervisor has said,"""
        self.heard = heard
        """and when that was heard."""
        self.boot = ""
        """Whose clock its lease was written by."""
        self.calling_off = False
        self.unwanted = asyncio.Event()
        """Set when it is to go: what was not launched yet need not be."""
        self.telling = asyncio.Lock()


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
        self._releasing: set[asyncio.Task[None]] = set()
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
        limits: Limits | None = None,
        checkpoints: Path | None = None,
        now: Callable[[], float] = clock.now,
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
        folder = StateFolder(state, limits or Limits(), checkpoints)
        try:
            await aside(folder.prepare)
        except OSError as error:
            raise UnavailableError(f"{state}: {error}") from error
        engine = cls(folder, launcher, owners, times or Times(), now, boot or clock.boot_id())
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
        live = [item.attempt.gpus for item in self._far() if not item.over]
        busy = {gpu for gpus in (*live, *self._starting.values()) for gpu in gpus}
        found = await self._launcher.discover(busy)
        self._gpus = max(self._gpus, found.machine.gpus)
        self._begin(self._sweep())
        return (found,)

    async def reattach(self) -> tuple[Found, ...]:
        """Take over what an earlier engine left in the folder, and call off what nobody knows."""
        places = await self._launcher.places()
        found = []
        for attempt in await aside(self._folder.attempts):
            if attempt.job not in self._watched:
                found.append(await self._take_over(attempt, places))
            elif attempt.run != self._watched[attempt.job].attempt.run:
                await aside(self._folder.retire, attempt)
        self._reattached = True
        await self._sweep()
        return tuple(found)

    async def _sweep(self) -> None:
        """Call off starts that nobody follows: GPUs would be held for them, and for nothing.

        Their engine did not live to tell, or gave up a launch that the scheduler took after all.
        """
        places = await self._launcher.places() if self._reattached else None
        known = {self._name(item.attempt) for item in self._far() if not item.over}
        for name in places or ():
            if name.startswith(self._folder.prefix) and name not in known:
                with contextlib.suppress(UnavailableError):  # then the next time
                    await self._launcher.cancel(name, hard=True)

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
        if self._releasing:
            # What is over holds GPUs until the scheduler is told so; but not at any price.
            await asyncio.wait(self._releasing, timeout=self._folder.limits.patience)
        for task in sorted(self._tasks, key=id):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._events.put_nowait(None)

    # Starting

    async def _prepare(self, task: Task, account: Account | None) -> None:
        try:
            await aside(self._check_tokens, task)
            if task.job in self._watched:  # who starts it again knows how it ended
                await self.forget(task.job, self._watched[task.job].attempt.token)
            # A machine whose clock is known need not say first what time it has.
            there = self._clocks.last if self._clocks.knows(self._clocks.last, self._now()) else ""
            attempt = await aside(self._create, task, account, there)
        except OSError as error:
            raise UnavailableError(f"{task.job}: cannot be started here: {error}") from error
        finally:
            del self._starting[task.job]
        lease = Lease(task.token, task.end, task.grace)
        watched = _Far(attempt, lease, self._now())
        watched.boot = there or self._boot
        self._watched[task.job] = watched
        self._begin(self._launch(watched, len(task.gpus)))

    def _create(self, task: Task, account: Account | None, there: str) -> Attempt:
        more = {
            "found_in": list(self._launcher.found_in),
            "look": 2 * self._times.look,
            "beat": self._times.beat,
            "hello": self._times.pending,
        }
        boot = there or self._boot
        machine, colon, port = task.rendezvous.rpartition(":")
        meet = f"{self._launcher.address(machine)}{colon}{port}" if colon else ""
        timed = replace(task, end=self._clocks.there(boot, task.end), rendezvous=meet)
        return self._folder.create(timed, [], account, TREE, "", boot=boot, more=more)

    async def _launch(self, watched: _Far, gpus: int) -> None:
        attempt = watched.attempt
        name, errors = self._name(attempt), attempt.folder / "errors"
        argv = self._launcher.argv(attempt.folder / "task.json")
        until, why = self._now() + self._times.pending, ""
        unwanted = self._begin(_until_set(watched.unwanted))
        while self._now() < min(until, watched.lease.end) and not unwanted.done():
            launch = self._begin(self._launcher.launch(name, argv, gpus, errors, self._changed.set))
            await asyncio.wait({launch, unwanted}, return_when=asyncio.FIRST_COMPLETED)
            if not launch.done():
                launch.cancel()
            try:
                await launch
            except asyncio.CancelledError:
                if not unwanted.done():
                    raise
            except RefusedError as error:
                await self._end(watched, NEVER_RAN, error.reason)
                return
            except UnavailableError as error:
                _LOG.warning("%s cannot be launched yet: %s", attempt.job, error)
                why = str(error)
                await asyncio.sleep(1.0)
            else:
                unwanted.cancel()
                watched.launched = watched.heard = self._now()
                self._changed.set()
                return
        unwanted.cancel()
        await self._end(watched, NEVER_RAN, why or "it was called off before it began")

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
                pages = await aside(_read_pages, [item.attempt for item in live])
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
        busy = any(not item.started_told or item.lease.stop != RUN for item in live)
        return self._times.look if busy else self._times.idle

    async def _hear(self, watched: _Far, page: Page) -> None:
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
            self._release(watched.attempt)
            return
        late = watched.lease.stop != RUN or now > watched.launched + self._times.pending
        if not page.get("supervisor") and watched.launched and late and not watched.calling_off:
            watched.calling_off = True
            self._begin(self._call_off(watched))

    async def _locate(self, live: list[_Far]) -> None:
        """See what is gone without a last word."""
        places = await self._launcher.places()
        if places is None:
            return
        for watched in live:
            place = places.get(self._name(watched.attempt))
            if watched.over or not watched.launched:
                continue
            if Place.is_gone(place):
                # A scheduler that has forgotten everything does not know better than its own beat.
                silent = self._now() > watched.heard + _BEATS * self._times.beat
                settled = self._now() > watched.launched + self._times.settle
                if silent and (watched.seen or settled):
                    await self._bury(watched, "")
            elif place is not None and place.state == "lost":
                # Its machine may only be cut off: it is over when its supervisor has ended it.
                if self._now() > watched.lease.end + OVERTIME + self._times.beat:
                    await self._bury(watched, place.why)
            else:
                watched.seen = True

    async def _bury(self, watched: _Far, why: str) -> None:
        """The scheduler says that nothing of it is alive: write that down if it could not."""
        page = (await aside(_read_pages, [watched.attempt]))[0]
        if page.get("state") == EXITED or watched.over:
            await self._hear(watched, page)
            return
        killed = watched.lease.stop == KILL or self._now() >= watched.lease.end
        ran = page.get("began") is not None
        complaint = await aside(watched.attempt.complaint)
        outcome = NEVER_RAN if not ran else RESUMABLE if killed else LOST
        await self._end(watched, outcome, why or complaint)

    async def _end(self, watched: _Far, outcome: str, reason: str) -> None:
        """The last word in place of a supervisor."""
        try:
            await aside(watched.attempt.write_end, outcome, reason)
            page = (await aside(_read_pages, [watched.attempt]))[0]
        except OSError as error:
            _LOG.warning("the end of %s cannot be written: %s", watched.attempt.job, error)
            page = {"state": EXITED, "outcome": outcome, "reason": reason}
        self._take(watched, page)
        self._release(watched.attempt)

    # Ending

    async def _tell(self, watched: Watched) -> None:
        assert isinstance(watched, _Far)
        async with watched.telling:  # The last one counts, whichever thread is quicker.
            boot, lease = watched.boot or self._boot, watched.lease
            end = self._clocks.there(boot, lease.end)
            await aside(
                watched.attempt.write_lease, Lease(lease.token, end, lease.grace, lease.stop, boot)
            )
        if lease.stop != RUN:
            watched.unwanted.set()
            self._changed.set()

    async def _insist(self, watched: Watched) -> None:
        assert isinstance(watched, _Far)
        await asyncio.sleep(self._folder.limits.patience)
        if not watched.over and not watched.calling_off:
            watched.calling_off = True
            await self._call_off(watched)

    async def _call_off(self, watched: _Far) -> None:
        """Have the scheduler end it, and wait until it says that it has."""
        name, began = self._name(watched.attempt), self._now()
        place: Place | None = Place("waiting")
        while not watched.over:
            try:
                await self._launcher.cancel(name, hard=True)
                places = await self._launcher.places()
            except UnavailableError:
                places = None
            if places is not None:
                place = places.get(name)
                if Place.is_gone(place):
                    why = "" if watched.started_told else self._why_not(watched)
                    await self._bury(watched, why)
                    return
            if self._now() > began + self._times.patience and not watched.stuck_told:
                watched.stuck_told = True
                reason = f"the scheduler does not end it: {place.why if place else 'no answer'}"
                self._events.put_nowait(
                    CouldNotKill(watched.attempt.job, watched.attempt.token, reason)
                )
            await asyncio.sleep(0.2)

    def _why_not(self, watched: _Far) -> str:
        if watched.lease.stop != RUN:
            return "it was called off before it began"
        return f"the scheduler did not start it within {self._times.pending:g} s"

    def _release(self, attempt: Attempt) -> None:
        """Give back what the scheduler holds for a start that is over."""
        task = self._begin(self._cancel(self._name(attempt)))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def _cancel(self, name: str) -> None:
        while True:
            try:
                await self._launcher.cancel(name, hard=False)
            except UnavailableError:
                await asyncio.sleep(2.0)
            else:
                return

    # Coming back

    async def _take_over(self, attempt: Attempt, places: Mapping[str, Place] | None) -> Found:
        lease = await aside(lambda: attempt.lease) or Lease(attempt.token, 0.0, 0.0)
        page = (await aside(_read_pages, [attempt]))[0]
        now, boot, time = self._now(), page.get("boot"), page.get("clock")
        watched = _Far(attempt, lease, now)
        watched.launched, watched.boot = now, lease.boot
        if isinstance(boot, str) and isinstance(time, float):
            watched.beat = time
            self._clocks.learn(boot, time, now)
        if self._clocks.knows(lease.boot, now):
            lease.end = self._clocks.here(lease.boot, lease.end)
        else:
            # Written by a clock that nobody has, and nobody has taken it up.
            lease.end = now
        self._watched[attempt.job] = watched
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

    def _name(self, attempt: Attempt) -> str:
        return f"{self._folder.prefix}{attempt.run}"

    def _far(self) -> list[_Far]:
        return [item for item in self._watched.values() if isinstance(item, _Far)]


async def _until_set(event: asyncio.Event) -> None:
    await event.wait()


def _read_pages(attempts: Sequence[Attempt]) -> list[Page]:
    return [attempt.status or {} for attempt in attempts]
