"""The parent of all processes of a demo: it ends them when the demo ends or is killed.

    command("themis.demo.cleanup_process", folder, "remove", *service)

It starts the service, adopts nodes and supervisors whose parents end, and waits until its standard
input is closed, which also happens when the demo is killed. Then it ends the service, sends SIGTERM
and later SIGKILL to the rest, removes the folder, and prints what all of it has cost as one line of
JSON. It has a session of its own, so that Ctrl-C reaches only the demo.
"""

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from themis.engines.supervisor import libc, processes

LOG = "service.log"
REMOVE, KEEP = "remove", "keep"
_PATIENCE = 12.0
"""Seconds that the service, and then the other processes, get to end by themselves."""
_LOOK = 0.2
_LOOK_FAST = 0.02
_TAIL = 2000


class ProcessTree:
    """A service and all processes below it."""

    def __init__(self, service: list[str]) -> None:
        self._signalled = False
        self._gone: dict[int, int] = {}
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)
        libc.become_subreaper()
        self._service = os.posix_spawn(
            service[0],
            service,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            ],
        )

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True

    def wait(self) -> bool:
        """Wait until the demo ends or is killed; False if the service ended before."""
        while not self._signalled:
            self._reap()
            if self._service in self._gone:
                return False
            if select.select([0], [], [], _LOOK)[0] and not os.read(0, 4096):
                return True
        return True

    def end(self) -> None:
        """End all processes: SIGTERM first, SIGKILL after the patience."""
        # The service first: it ends its own children, and would start them again.
        if self._service not in self._gone:
            os.kill(self._service, signal.SIGTERM)
            self._until(lambda: self._service in self._gone)
        # A supervisor asks its job to save, and ends when it has.
        for pid in processes.descendants(os.getpid()):
            # It may just have ended; its id is not used again before it is reaped here.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)
        self._until(lambda: not processes.descendants(os.getpid()))
        processes.kill_descendants()

    def _until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            self._reap()
            if done():
                return
            time.sleep(_LOOK_FAST)

    def _reap(self) -> None:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                self._gone[ended[0]] = ended[1]
        except ChildProcessError:
            return


def main(folder: str, fate: str, *service: str) -> int:
    """Run a service in this folder until standard input ends."""
    os.chdir(folder)
    tree = ProcessTree(list(service))
    asked = tree.wait()
    tree.end()
    report = {"cpu_seconds": _cpu_seconds(), "failed": "" if asked else _tail(Path(LOG))}
    if fate == REMOVE:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    try:
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the demo was killed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _cpu_seconds() -> float:
    """Of this process and all that have ended below it."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def _tail(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")[-_TAIL:].strip()
    except OSError:
        return "the service ended without a word"
