"""An event loop whose time passes as soon as nothing is left to do: hours in a moment.

    run_virtually(service_for_a_day())

For tests, and for rehearsals of the whole service. Nothing in it may wait for the real world:
threads of the loop's own do their work at once, other processes would be outrun.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from themis.engines.host.detached_thread import OwnThreadExecutor

_Value = TypeVar("_Value")


class _Selector(selectors.SelectSelector):
    """Does not wait: moves the clock instead, unless there is nothing to wait for but a file."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            return super().select(None)
        self.loop.passed += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock begins at 0 and runs ahead of the real one."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.passed = 0.0
        super().__init__(selector)

    def time(self) -> float:
        """Seconds since it was made."""
        return self.passed

    def run_in_executor(  # type: ignore[override] # as `BaseEventLoop` has it, with less to say
        self, executor: Executor | None, func: Callable[..., _Value], *args: Any
    ) -> "asyncio.Future[_Value]":
        """Call it at once, unless somebody brings an executor: a thread would be outrun."""
        if executor is None or isinstance(executor, OwnThreadExecutor):
            executor = AtOnce()
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)


def run_virtually(work: Coroutine[Any, Any, _Value]) -> _Value:
    """Run something to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class AtOnce(Executor):
    """Does everything at once in the caller's thread, so that no time passes."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Call it."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # as a thread would
            future.set_exception(error)
        return future
