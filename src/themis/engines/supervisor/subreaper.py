"""The process between a scheduler's own one and a supervisor: `main(task_file)`.

    holder (Ray's actor) -> keeper -> supervisor -> job

Ray kills the children of a process of its own that ends in order, and only those. Were a supervisor
one of them, nobody would be left to end what its job started. So that child is this process: it
dies with the holder, however that dies, and the supervisor sees that it is gone (`THEMIS_HOLDER`)
and ends its job. What a supervisor leaves behind comes to this process, and is killed; then the
last word is written in its place. Imports little, because every start pays for it.
"""

import contextlib
import os
import signal

from themis.engines.attempt.lease_timing import KILL, LOST, NEVER_RAN, RESUMABLE
from themis.engines.attempt.record_file import read_page
from themis.engines.host import boottime
from themis.engines.supervisor import libc, processes, supervisor
from themis.engines.supervisor.supervisor import EXITED, HOLDER_VARIABLE, LOOK_KILL, REFUSED_CODE

_CHILD = (signal.SIGCHLD,)


def main(path: str) -> int:
    """Run the task in this file in a child; returns the exit code of that."""
    holder = int(os.environ.get(HOLDER_VARIABLE, "0"))
    libc.die_with_parent(signal.SIGKILL)
    if os.getppid() != holder:  # it died before the line above
        return REFUSED_CODE
    libc.become_subreaper()
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.environ[HOLDER_VARIABLE] = str(keeper)
        return supervisor.main(path)
    while (ended := os.waitpid(-1, 0))[0] != pid:
        pass
    _end_all()
    with contextlib.suppress(OSError, ValueError, KeyError):
        _last_word(path, pid)
    return abs(os.waitstatus_to_exitcode(ended[1]))


def _end_all() -> None:
    """Kill all below us, and see it dead."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _CHILD)
    while True:
        # Stopped first, so that they do not fork faster than they are found.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in processes.descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return
        signal.sigtimedwait(_CHILD, LOOK_KILL)


def _last_word(path: str, pid: int) -> None:
    """Say that it is over, unless its supervisor did, or was not the one that has the task."""
    page = read_page(os.path.join(os.path.dirname(path), "status")) or {}
    if page.get("state") == EXITED or processes.identity(page.get("supervisor"))[0] != pid:
        return
    from pathlib import Path  # noqa: PLC0415 - only needed where something went wrong

    from themis.engines.attempt.attempt import read_attempt  # noqa: PLC0415 - the same

    attempt = read_attempt(Path(path).parent)
    lease, outcome = attempt.lease, LOST
    if page.get("began") is None:
        outcome = NEVER_RAN
    elif lease is not None and lease.boot in {"", boottime.boot_id()}:
        over = lease.stop == KILL or boottime.now() >= lease.end
        outcome = RESUMABLE if over else LOST
    attempt.write_end(outcome, attempt.complaint())
