"""What an engine has to do with the scheduler that rules its machine: starts, by their names.

    dealings = Dealings(launcher, times, prefix, begin, now)
    why = await dealings.launch(watched, gpus, changed)     # until the scheduler has it
    await dealings.call_off(watched, stuck)                 # until it has not
    dealings.give_back(watched.attempt)                     # what is over holds GPUs until then
    await dealings.sweep(known)

All of it waits for a scheduler that is away, and concludes nothing from that.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from themis.engines.attempt.attempt import Attempt
from themis.engines.remote.launcher import Launcher, LaunchStage, Times
from themis.engines.remote.tracked_start import Far
from themis.engines.task import FILE
from themis.errors import RefusedError, UnavailableError

_LOG = logging.getLogger(__name__)

_AGAIN = 1.0
"""Seconds between tries to launch something,"""
_LOOK = 0.2
"""between looks whether something is gone,"""
_PAUSE = 2.0
"""and between tries to give something back."""

Begin = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Starts a task that ends with the engine."""


class Dealings:
    """Of one engine with one scheduler."""

    def __init__(
        self,
        launcher: Launcher,
        times: Times,
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
        """What the scheduler knows a start by."""
        return f"{self._prefix}{attempt.task.run}"

    async def launch(self, watched: Far, gpus: int, changed: Callable[[], None]) -> str:
        """Have it started, again and again if the scheduler is away.

        Returns:
            Nothing when it is, or why it never will be.
        """
        attempt = watched.attempt
        name, errors = self.name(attempt), attempt.folder / "errors"
        argv = self._launcher.argv(attempt.folder / FILE)
        until, why = self._now() + self._times.pending, ""
        unwanted = self._begin(_until_set(watched.unwanted))
        try:
            while self._now() < min(until, watched.lease.end) and not unwanted.done():
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

    async def call_off(self, watched: Far, stuck: Callable[[str], None]) -> None:
        """Have it ended, and wait until the scheduler says that it is, or it said so itself.

        Args:
            watched: Which.
            stuck: Called once with the reason if that takes too long.
        """
        name, began = self.name(watched.attempt), self._now()
        place: LaunchStage | None = LaunchStage("waiting")
        while not watched.over:
            try:
                await self._launcher.cancel(name, hard=True)
                places = await self._launcher.places()
            except UnavailableError:
                places = None
            if places is not None:
                place = places.get(name)
                if LaunchStage.is_gone(place):
                    return
            if self._now() > began + self._times.patience and not watched.stuck_told:
                watched.stuck_told = True
                stuck(f"the scheduler does not end it: {place.why if place else 'no answer'}")
            await asyncio.sleep(_LOOK)

    def give_back(self, attempt: Attempt) -> None:
        """Give back what the scheduler holds for a start that is over."""
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
        """Wait until all of that is given back; but not at any price."""
        if self._returning:
            await asyncio.wait(self._returning, timeout=seconds)

    async def sweep(self, known: Collection[str]) -> None:
        """Call off starts that nobody follows: GPUs would be held for them, and for nothing.

        Their engine did not live to tell, or gave up a launch that the scheduler took after all.
        """
        for name, place in (await self._launcher.places() or {}).items():
            if name.startswith(self._prefix) and name not in known:
                with contextlib.suppress(UnavailableError):  # then the next time
                    await self._launcher.cancel(name, hard=True)
                    if place.state == "lost":
                        # Nobody waits to see the end of it: there is nothing to remember it for.
                        await self._launcher.cancel(name, hard=False)


async def _until_set(event: asyncio.Event) -> None:
    await event.wait()
