"""Commands to runs: in order for each run, at the same time for different runs."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from themis.errors import ThemisError
from themis.node.runs import RunHandle, Runs

_LOG = logging.getLogger(__name__)

RunCommand = Callable[[RunHandle], Coroutine[Any, Any, None]]


class CommandQueue:
    """A queue for each run, so that a slow start does not hold up a kill of another run."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._last: dict[int, asyncio.Task[None]] = {}
        """The latest command of each run."""

    def put(self, number: int, command: RunCommand) -> None:
        """Do something with a run, after all earlier commands to it."""
        run = self._runs.by_number.get(number)
        if run is None:
            return
        before = self._last.get(number)

        async def step() -> None:
            if before is not None:
                await asyncio.wait({before})
            try:
                await command(run)
            except (ThemisError, OSError) as error:
                # A run that has ended cannot be renewed or killed; its end is on its way to us.
                _LOG.debug("run %s: %s", number, error)

        task = self._last[number] = asyncio.create_task(step())
        task.add_done_callback(partial(self._done, number))

    def cancel(self) -> None:
        """Cancel all commands; jobs go on."""
        for task in self._last.values():
            task.cancel()

    def _done(self, number: int, task: "asyncio.Task[None]") -> None:
        if self._last.get(number) is task:
            del self._last[number]
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a command to run %s failed", number, exc_info=task.exception())
