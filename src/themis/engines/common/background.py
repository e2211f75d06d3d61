"""Tasks that an engine starts and nothing waits for."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from themis.errors import ThemisError

_LOG = logging.getLogger(__name__)


class BackgroundTasks:
    """Keeps tasks alive, logs those that fail, and cancels the rest at the end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def cancel(self) -> None:
        """Cancel all tasks and wait for their ends."""
        for task in sorted(self._tasks, key=id):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            level = logging.DEBUG if isinstance(error, ThemisError) else logging.ERROR
            _LOG.log(level, "%s failed", task.get_coro(), exc_info=error)
