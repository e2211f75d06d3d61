"""The calls of training programs under Themis. Standard library only.

    import themis

    folder = themis.checkpoint_dir()
    for iteration in range(start + 1, themis.max_iterations(1000) + 1):
        loss = train(lr=themis.params().get("lr", 0.1))
        themis.report(iteration, loss, accuracy=0.9)
        if themis.should_stop():
            save(folder)
            sys.exit(themis.GRACEFUL_EXIT)
        if themis.checkpoint_due():
            save(folder)

Outside Themis it reports nothing, never stops, and returns the defaults: the calls can stay in the
program.
"""

import contextlib
import json
import math
import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, SupportsFloat, overload

GRACEFUL_EXIT = 75
"""The exit code of a program that has saved and wants to be started again."""

JOB_VARIABLE = "THEMIS_JOB_ID"
METRICS_VARIABLE = "THEMIS_METRICS"
CHECKPOINT_VARIABLE = "THEMIS_CHECKPOINT_DIR"
EVERY_VARIABLE = "THEMIS_CHECKPOINT_EVERY"
LIMIT_VARIABLE = "THEMIS_MAX_ITERATIONS"
PARAMETERS_VARIABLE = "THEMIS_PARAMS"


def report(
    it: SupportsFloat, loss: SupportsFloat | None = None, **values: SupportsFloat | None
) -> None:
    """Report that iteration `it` is done, with its loss and other values if there are any.

    Of several processes only the first should call it. A metric that is no finite number counts as
    the worst. A file that cannot be written to does not stop training.

    Args:
        it: Iterations done since the very beginning, not since the last restart.
        loss: Anything that `float` takes, such as a tensor with one element.
        **values: Others by name, such as `accuracy=0.9`; seven are passed on beside a loss, with
            names of at most 64 characters.
    """
    path = os.environ.get(METRICS_VARIABLE)
    if not path:
        return
    number = float(it)
    record = {
        "it": int(number) if number.is_integer() else number,
        "loss": None if loss is None else float(loss),
        "t": time.time(),
    }
    for name, value in values.items():
        record.setdefault(name, None if value is None else float(value))
    line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line)  # one write, so that lines of several processes do not mix
        finally:
            os.close(fd)
    except OSError:
        return


class StopNotice:
    """Whether SIGTERM came since `watch` was called first."""

    def __init__(self) -> None:
        self.came = False
        self._before: Any = None
        self.watches = False
        self._knows_of_forks = False
        self._mask = threading.local()

    def watch(self) -> None:
        """Handle SIGTERM from now on, if this is the main thread."""
        # Only the main thread may set a signal handler.
        if self.watches or threading.current_thread() is not threading.main_thread():
            return
        self._before = signal.signal(signal.SIGTERM, self.note)
        self.watches = True
        if not self._knows_of_forks:
            os.register_at_fork(
                before=self._hold_back,
                after_in_parent=self._let_through,
                after_in_child=self._in_child,
            )
            self._knows_of_forks = True

    def _hold_back(self) -> None:
        # A signal during the fork must reach the child after its handler is reset.
        self._mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _let_through(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask.before)

    def _in_child(self) -> None:
        # Data loader processes are ended with SIGTERM and never call `should_stop`.
        if self.watches:
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)
            self.came = self.watches = False
        self._let_through()

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        self.came = True
        if callable(self._before):
            self._before(number, frame)


stop_notice = StopNotice()
"""The notice of this process, read by `should_stop`."""


def should_stop() -> bool:
    """Whether Themis wants the GPUs back: save now, then exit with `GRACEFUL_EXIT`.

    It handles SIGTERM from its first call on, which must be made in the main thread, and is cheap
    enough for every iteration. A program that a SIGTERM ends before that is started again too. An
    earlier handler is still called.
    """
    if JOB_VARIABLE not in os.environ:
        return False
    stop_notice.watch()
    return stop_notice.came


def checkpoint_dir(default: str | os.PathLike[str] = "checkpoints") -> Path:
    """The folder for checkpoints, the same after every start; it is there when this returns.

    Save to another name in it, then rename: a program may be killed at any time.

    Args:
        default: The folder outside Themis.
    """
    folder = Path(os.environ.get(CHECKPOINT_VARIABLE) or default)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class _Pace:
    """When a checkpoint is due."""

    def __init__(self) -> None:
        self.last = time.monotonic()


_pace = _Pace()


def checkpoint_due() -> bool:
    """Whether it is time for a periodic checkpoint, as `checkpoint: {every: 5m}` said.

    True once for each period, counted from the import of this module and then from the last time it
    was true; never where nothing was said.
    """
    every = _number(EVERY_VARIABLE)
    now = time.monotonic()
    if every is None or now - _pace.last < every:
        return False
    _pace.last = now
    return True


@overload
def max_iterations(default: int) -> int: ...
@overload
def max_iterations(default: None = None) -> int | None: ...
def max_iterations(default: int | None = None) -> int | None:
    """Where to stop: save there and exit with 0. It may be larger at the next start.

    Args:
        default: What it is outside Themis, and for jobs without a limit.
    """
    limit = _number(LIMIT_VARIABLE)
    return default if limit is None else int(limit)


def params() -> dict[str, Any]:
    """The parameters of this trial by name, as the app file's `search` has them; else nothing."""
    try:
        found = json.loads(os.environ.get(PARAMETERS_VARIABLE) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(variable: str) -> float | None:
    try:
        number = float(os.environ[variable])
    except (KeyError, ValueError):
        return None
    return number if math.isfinite(number) else None
