"""Three ways to hold all processes of a job, so that none of them outlives its lease.

    control = control_from("cgroup", group)
    control.launch(body, errors)    # `body` runs in the new process and ends in an exec
    control.terminate()             # SIGTERM to the job's first process
    control.kill()                  # SIGKILL to all of them; may be repeated
    control.is_empty(children=...)  # seen dead

A job may fork twice, start a session and ignore SIGTERM: killing its process group misses such a
process. engines/supervisor/control_probe.py finds out which way works here (decisions/0036).
"""

import contextlib
import os
import signal
from collections.abc import Callable

from themis.engines.supervisor import libc, processes
from themis.engines.supervisor.cgroups import Cgroup
from themis.engines.supervisor.job_exec import OWN_FAULT

CGROUP, NAMESPACE, TREE = "cgroup", "namespace", "tree"
CONTROLS = (CGROUP, NAMESPACE, TREE)
"""Best first."""
RUN_VARIABLE = "THEMIS_RUN"
"""Marks all processes of one start, so that a tree can be found without its supervisor."""


class Control:
    """Holds the processes of one job together. Each control launches once."""

    name = ""

    def __init__(self) -> None:
        self.pid = 0
        self.status: int | None = None
        """How the job's first process ended, as wait() gives it."""

    def launch(self, body: Callable[[], None], errors: int) -> None:
        """Start `body` as the job's first process. The caller has blocked its signals.

        Args:
            body: Does not return, unless it failed and has said so.
            errors: A descriptor for what goes wrong before `body` has the say.
        """
        raise NotImplementedError

    def terminate(self) -> None:
        """SIGTERM to the first process only: a checkpoint may need its data loader workers."""
        if self.status is None:  # not reaped yet, so the id is still its own
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to all processes. Returns before they are dead."""
        raise NotImplementedError

    def reaped(self, pid: int, status: int) -> None:
        """A child of this process has ended."""
        if pid == self.pid:
            self.status = status

    def is_empty(self, *, children: bool) -> bool:
        """Whether no process of the job is alive; `children`: whether this process has any."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove the control's own resources, after it was seen empty."""

    def described(self) -> dict[str, object]:
        """What another process needs to kill the job if this one cannot."""
        started = processes.start_time(self.pid) if self.pid else None
        return {"control": self.name, "first": [self.pid, started or 0]}

    def _kill_first(self) -> None:
        if self.pid and self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _fork(self, body: Callable[[], None], errors: int) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            try:
                body()
            except OSError as error:
                os.write(errors, f"{OWN_FAULT} process control: {error}".encode())
            finally:
                os._exit(OWN_FAULT)


class CgroupControl(Control):
    """A control group, which the job joins before its program starts; killed as a whole."""

    name = CGROUP

    def __init__(self, path: str) -> None:
        super().__init__()
        self.group = Cgroup(path)

    def launch(self, body: Callable[[], None], errors: int) -> None:
        """Fork; the child joins before it does anything else."""
        self.group.create()
        libc.become_subreaper()

        def joined() -> None:
            self.group.join()
            body()

        self._fork(joined, errors)

    def kill(self) -> None:
        """The group, and the first process in case it had not joined yet."""
        self.group.kill()
        self._kill_first()

    def is_empty(self, *, children: bool) -> bool:
        """Whether the kernel lists no process in the group."""
        return self.status is not None and self.group.is_empty()

    def clear(self) -> None:
        """Remove the group."""
        self.group.remove()

    def described(self) -> dict[str, object]:
        """The group's folder, and the first process."""
        return super().described() | {"group": self.group.path}


class NamespaceControl(Control):
    """A PID namespace: when number one dies, the kernel kills all others and waits."""

    name = NAMESPACE

    def __init__(self) -> None:
        super().__init__()
        self._report = -1

    def launch(self, body: Callable[[], None], errors: int) -> None:
        """Fork number one, which forks the job: the kernel ignores SIGTERM to number one."""
        _enter_namespace()
        parent = os.getpid()
        started = processes.start_time(parent) or 0
        self._report, write = os.pipe()
        self._fork(lambda: _be_number_one(body, write, parent, started), errors)
        os.close(write)

    def kill(self) -> None:
        """Kill number one; the kernel kills the others."""
        self._kill_first()

    def reaped(self, pid: int, status: int) -> None:
        """Number one exits with the job's status, unless it was killed."""
        if pid == self.pid:
            told = os.read(self._report, 16)
            os.close(self._report)
            self.status = int(told) if told else status

    def is_empty(self, *, children: bool) -> bool:
        """Number one is reaped only after everything else in its namespace."""
        return self.status is not None


class TreeControl(Control):
    """The last resort: a subreaper that stops and kills all its descendants."""

    name = TREE

    def launch(self, body: Callable[[], None], errors: int) -> None:
        """Fork, as a subreaper."""
        libc.become_subreaper()
        self._fork(body, errors)

    def kill(self) -> None:
        """Stopped first, so that they do not fork faster than they are found."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in processes.descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        self._kill_first()

    def is_empty(self, *, children: bool) -> bool:
        """Whether this process has no children: then it has no descendants either."""
        return not children


def control_from(name: str, group: str) -> Control:
    """The control of this name; `group` is the folder of the group to be made."""
    if name == CGROUP:
        return CgroupControl(group)
    if name == NAMESPACE:
        return NamespaceControl()
    if name == TREE:
        return TreeControl()
    raise ValueError(f"{name!r} is none of {', '.join(CONTROLS)}")


def kill_leftovers(group: str, first: tuple[int, int], run: str) -> bool:
    """Kill the processes of a dead supervisor; True once none of them is seen alive.

    Args:
        group: The folder of the job's group; there may be none.
        first: Process id and start time of the job's first process or number one.
        run: The mark in its environment. A job can remove it, which is why a tree is only the
            last resort.
    """
    held = Cgroup(group) if group and os.path.isdir(group) else None
    if held is not None:
        held.kill()
    processes.send(*first, signal.SIGKILL)
    strays = processes.marked(f"{RUN_VARIABLE}={run}")
    for pid in strays:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    if strays or processes.is_alive(*first) or not (held is None or held.is_empty()):
        return False
    if held is not None:
        held.remove()
    return True


def _enter_namespace() -> None:
    """Make the next child number one; without root this takes a user namespace too."""
    if os.geteuid() == 0:
        libc.unshare(libc.CLONE_NEWPID)
        return
    uid, gid = os.geteuid(), os.getegid()
    libc.unshare(libc.CLONE_NEWUSER | libc.CLONE_NEWPID)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _be_number_one(body: Callable[[], None], report: int, parent: int, started: int) -> None:
    """Start the job, pass SIGTERM on to it, reap orphans, tell how it ended, and die."""
    libc.die_with_parent(signal.SIGKILL)
    if not processes.is_alive(parent, started):  # the parent died before the line above
        return
    # Programs look themselves up in /proc; where mounting fails they see the machine's.
    with contextlib.suppress(OSError):
        libc.unshare(libc.CLONE_NEWNS)
        libc.mount_own_proc()
    job = os.fork()
    if job == 0:
        os.close(report)
        body()
        return
    # Close the supervisor's files: it waits until one of its pipes is closed.
    os.closerange(3, report)
    os.closerange(report + 1, 1 << 20)
    while True:
        if signal.sigwait({signal.SIGCHLD, signal.SIGTERM}) == signal.SIGTERM:
            os.kill(job, signal.SIGTERM)
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if ended[0] == job:
                os.write(report, b"%d" % ended[1])
                return
