"""An engine's calls to the scheduler of its machine, which knows starts by their names.

    calls = SchedulerCalls(launcher, times, prefix, begin, now)
    why = await calls.launch(start, gpus, changed)      # retried until the scheduler has it
    await calls.call_off(start, stuck)                  # retried until the scheduler has it no more
    calls.give_back(start.attempt)                      # a finished start holds its GPUs until then
    await calls.sweep(known)

All of them wait for a scheduler that does not answer, and conclude nothing from its silence.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from themis.engines.attempt.attempt import Attempt
from themis.engines.remote.launcher import Launcher, LaunchStage, RemoteTiming
from themis.engines.remote.tracked_start import RemoteStart
from themis.engines.task import FILE
from themis.errors import RefusedError, UnavailableError

_LOG = logging.getLogger(__name__)

_AGAIN = 1.0
"""Seconds between tries to launch a start,"""
_LOOK = 0.2
"""between looks whether a start is gone,"""
_PAUSE = 2.0
"""and between tries to give GPUs back."""

Begin = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Starts a task that ends with the engine."""


class SchedulerCalls:
    """Calls of one engine to one scheduler."""

    def __init__(
        self,
        launcher: Launcher,
        times: RemoteTiming,
        prefix: str,
        begin: Begin,
        now: Callable[[], float],
    ) -> None:
        self._launcher = launcher
        self._times = times
        self._prefix = prefix
        self._begin = begin
        self._now = now
        self._returning: set[asyncio.Task[None]] = set()

    def name(self, attempt: Attempt) -> str:
        """The scheduler's name of a start."""
        return f"{self._prefix}{attempt.task.run}"

    async def launch(self, start: RemoteStart, gpus: int, changed: Callable[[], None]) -> str:
        """Launch a start; retry while the scheduler is away.

        Returns:
            Why it never will run; empty once it is launched.
        """
        attempt = start.attempt
        name, errors = self.name(attempt), attempt.folder / "errors"
        argv = self._launcher.argv(attempt.folder / FILE)
        until, why = self._now() + self._times.pending, ""
        unwanted = self._begin(_until_set(start.unwanted))
        try:
            while self._now() < min(until, start.lease.end) and not unwanted.done():
                launch = self._begin(self._launcher.launch(name, argv, gpus, errors, changed))
                await asyncio.wait({launch, unwanted}, return_when=asyncio.FIRST_COMPLETED)
                if not launch.done():
                    launch.cancel()
                try:
                    await launch
                except asyncio.CancelledError:
                    if not unwanted.done():
                        raise
                except RefusedError as error:
                    return error.reason
                except UnavailableError as error:
                    _LOG.warning("%s cannot be launched yet: %s", attempt.task.job, error)
                    why = str(error)
                    await asyncio.sleep(_AGAIN)
                else:
                    return ""
            return why or "it was called off before it began"
        finally:
            unwanted.cancel()

    async def call_off(self, start: RemoteStart, stuck: Callable[[str], None]) -> None:
        """End a start, and wait until the scheduler or its supervisor says that it has ended.

        Args:
            start: The start.
            stuck: Called with the reason when that takes too long.
        """
        name, began = self.name(start.attempt), self._now()
        place: LaunchStage | None = LaunchStage("waiting")
        while not start.over:
            try:
                await self._launcher.cancel(name, hard=True)
                places = await self._launcher.places()
            except UnavailableError:
                places = None
            if places is not None:
                place = places.get(name)
                if LaunchStage.is_gone(place):
                    return
            if self._now() > began + self._times.patience:
                stuck(f"the scheduler does not end it: {place.why if place else 'no answer'}")
            await asyncio.sleep(_LOOK)

    def give_back(self, attempt: Attempt) -> None:
        """Give back the GPUs that the scheduler holds for a finished start."""
        task = self._begin(self._return(self.name(attempt)))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _return(self, name: str) -> None:
        while True:
            try:
                await self._launcher.cancel(name, hard=False)
            except UnavailableError:
                await asyncio.sleep(_PAUSE)
            else:
                return

    async def settle(self, seconds: float) -> None:
        """Wait until all GPUs are given back, but no longer than this."""
        if self._returning:
            await asyncio.wait(self._returning, timeout=seconds)

    async def sweep(self, known: Collection[str]) -> None:
        """Call off starts that no engine follows: they hold GPUs for nothing.

        Their engine died, or gave up a launch that the scheduler accepted after all.
        """
        for name, place in (await self._launcher.places() or {}).items():
            if name.startswith(self._prefix) and name not in known:
                with contextlib.suppress(UnavailableError):  # the next sweep tries again
                    await self._launcher.cancel(name, hard=True)
                    if place.state == "lost":
                        # No engine waits for its end, so the launcher need not remember it.
                        await self._launcher.cancel(name, hard=False)


async def _until_set(event: asyncio.Event) -> None:
    await event.wait()
