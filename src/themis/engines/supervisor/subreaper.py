"""The process between a scheduler's own process and a supervisor: `main(task_file)`.

    holder (Ray's actor) -> subreaper -> supervisor -> job

When a Ray actor ends in order, Ray kills its children and nothing below them. If a supervisor were
such a child, its job would live on. So the child is this process: it dies with the holder, and the
supervisor sees that it is gone (`THEMIS_HOLDER`) and ends its job. Processes that a supervisor
leaves behind become children of this process, which kills them and writes the end of the start if
the supervisor has not. Imports little, because every start pays for it.
"""

import contextlib
import os
import signal

from themis.engines.attempt.lease_timing import KILL, LOST, NEVER_RAN, RESUMABLE
from themis.engines.attempt.record_file import read_page
from themis.engines.host import boottime
from themis.engines.supervisor import libc, processes, supervisor
from themis.engines.supervisor.supervisor import EXITED, HOLDER_VARIABLE, REFUSED_CODE


def main(path: str) -> int:
    """Run the task in this file in a child; returns the exit code of that."""
    holder = int(os.environ.get(HOLDER_VARIABLE, "0"))
    libc.die_with_parent(signal.SIGKILL)
    if os.getppid() != holder:  # the holder died before the line above
        return REFUSED_CODE
    libc.become_subreaper()
    own = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.environ[HOLDER_VARIABLE] = str(own)
        return supervisor.main(path)
    while (ended := os.waitpid(-1, 0))[0] != pid:
        pass
    processes.kill_descendants()
    with contextlib.suppress(OSError, ValueError, TypeError):
        _write_end(path, pid)
    return abs(os.waitstatus_to_exitcode(ended[1]))


def _write_end(path: str, pid: int) -> None:
    """Write the end of the start, unless its supervisor did, or another supervisor has the task."""
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
