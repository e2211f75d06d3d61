"""One start of a job: its folder on disk. All methods block for moments."""

import contextlib
import fcntl
import os
import signal
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from themis.engines.attempt.lease_timing import LOST, NEVER_RAN, LeaseTimer
from themis.engines.attempt.record_file import read_page, write_page
from themis.engines.base import FoundProgram, Outcome, ProgramExited
from themis.engines.host import boottime
from themis.engines.supervisor import processes
from themis.engines.supervisor.process_control import kill_leftovers
from themis.engines.supervisor.supervisor import EXITED, STARTING
from themis.engines.task import FILE, Task, read_task

Page = dict[str, object]
_State = Literal["starting", "running", "stopping", "stuck", "exited"]
_NAME_WAIT, _LOOK = 5.0, 0.01
_FLOCK = "hhqqi4x"
"""struct flock, of 64-bit Linux."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a job: its folder, and the task in it."""

    folder: Path
    task: Task

    @property
    def log(self) -> str:
        """The file of its output, until its end is known."""
        return str(self.folder / "log")

    @property
    def status(self) -> Page | None:
        """The status page, which its supervisor writes."""
        return read_page(str(self.folder / "status"))

    @property
    def lease(self) -> LeaseTimer | None:
        """The lease page, which the engine writes."""
        return LeaseTimer.from_page(read_page(str(self.folder / "lease")), self.task.token)

    def write_lease(self, lease: LeaseTimer) -> None:
        """Publish a lease to its supervisor."""
        write_page(str(self.folder / "lease"), lease.page())

    def write_end(self, outcome: str, reason: str) -> None:
        """Write the end in place of a supervisor that is gone."""
        page = self.status or first_page(self.task)
        page |= {"state": EXITED, "outcome": outcome, "code": None, "reason": reason[:600]}
        write_page(str(self.folder / "status"), page)

    def complaint(self) -> str:
        """Why its supervisor died, as far as its stderr says."""
        try:
            said = (self.folder / "errors").read_text(encoding="utf-8", errors="replace")
        except OSError:
            said = ""
        last = said.strip().rpartition("\n")[2][:300]
        return "its supervisor was gone" + (f": {last}" if last else "")

    def settled(self) -> Page:
        """Its status, once it names a supervisor or an end; without a supervisor it is called off.

        The holder of the lock decides: a supervisor that takes it later finds that the task ended.
        """
        until = boottime.now() + _NAME_WAIT
        while not _is_settled(page := self.status or {}):
            if self._call_off():
                return self.status or page
            if boottime.now() > until:  # the holder of the lock is stopped, or hangs
                self._kill_holder()
            time.sleep(_LOOK)
        return page

    def _call_off(self) -> bool:
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_settled(self.status or {}):
                # Usually there are none; a damaged page may hide some.
                if not self.kill_leftovers():
                    return False
                self.write_end(NEVER_RAN, "its node went away before it was started")
        except (BlockingIOError, PermissionError):
            return False
        else:
            return True
        finally:
            os.close(lock)

    def _kill_holder(self) -> None:
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        finally:
            os.close(fd)
        if kind != fcntl.F_UNLCK and pid > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_leftovers(self) -> bool:
        """Kill processes that have no supervisor; whether none is seen alive any more."""
        first = processes.identity((self.status or {}).get("first"))
        try:
            return kill_leftovers(self.task.group, first, self.task.run)
        except OSError:  # no process was seen dead
            return False

    def exited(self, page: Page) -> ProgramExited:
        """The event for the end in a status page."""
        code = page.get("code")
        return ProgramExited(
            self.task.job,
            self.task.token,
            cast("Outcome", page.get("outcome") or LOST),
            code if isinstance(code, int) else None,
            str(page.get("reason", "")),
        )

    def found(self, end: float, page: Page) -> FoundProgram:
        """What an engine that comes back reports of it."""
        state = cast("_State", page.get("state", STARTING))
        began = page.get("began")
        return FoundProgram(
            job=self.task.job,
            owner=self.task.owner,
            token=self.task.token,
            gpus=self.task.gpus,
            end=end,
            state=state,
            ended=self.exited(page) if state == EXITED else None,
            age=boottime.now() - began if isinstance(began, float) else 0.0,
        )


def _is_settled(page: Page) -> bool:
    return page.get("state", STARTING) != STARTING or bool(page.get("supervisor"))


def read_attempt(folder: Path) -> Attempt:
    """Read the start in a folder; raises ValueError or TypeError if it is damaged."""
    return Attempt(folder, read_task(folder / FILE))


def first_page(task: Task) -> Page:
    """The status of a start before its supervisor has written one."""
    return {"job": task.job, "token": task.token, "run": task.run, "state": STARTING}
