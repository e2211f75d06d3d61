"""Processes in /proc, identified by id **and** start time, because ids are reused."""

import contextlib
import os
import signal

_KILL_EVERY = 0.01
_STATE, _PARENT, _START = 0, 1, 19
"""Fields of /proc/PID/stat after the name."""


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a living process; None for dead ones and zombies."""
    fields = _stat(pid)
    if fields is None or fields[_STATE] in {"Z", "X"}:
        return None
    return int(fields[_START])


def is_alive(pid: int, started: int) -> bool:
    """Whether exactly this process still runs."""
    return pid > 0 and start_time(pid) == started


def identity(value: object) -> tuple[int, int]:
    """Process id and start time from a status page; zeros, which no process has, if damaged."""
    match value:
        case [int(pid), int(started)]:
            return pid, started
        case _:
            return 0, 0


def handle_of(pid: int, started: int) -> int | None:
    """A descriptor of exactly this process, or None if it is gone; to be closed."""
    if pid <= 0:
        return None
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    # Read after the handle was taken: now the id cannot be reused.
    fields = _stat(pid)
    if fields is not None and int(fields[_START]) == started:
        return handle
    os.close(handle)
    return None


def send(pid: int, started: int, number: int) -> bool:
    """Signal exactly this process; False if it is gone."""
    handle = handle_of(pid, started)
    if handle is None:
        return False
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def descendants(of: int) -> list[int]:
    """Living processes below one, nearest first."""
    children: dict[int, list[int]] = {}
    for pid in all_processes():
        fields = _stat(pid)
        if fields is not None and fields[_STATE] not in {"Z", "X"}:
            children.setdefault(int(fields[_PARENT]), []).append(pid)
    found: list[int] = []
    todo = [of]
    while todo:
        below = children.get(todo.pop(0), [])
        found += below
        todo += below
    return found


def kill_descendants() -> None:
    """Kill all processes below this one, and reap them; orphans come to it if it is a subreaper."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    while True:
        # Stopped first, so that they do not fork faster than they are found.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return
        signal.sigtimedwait((signal.SIGCHLD,), _KILL_EVERY)


def marked(mark: str) -> list[int]:
    """Living processes with `NAME=value` in the environment they were started with."""
    wanted = mark.encode()
    found = []
    for pid in all_processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                entries = file.read().split(b"\0")
        except OSError:  # gone, or not readable
            continue
        if wanted in entries and start_time(pid) is not None:
            found.append(pid)
    return found


def all_processes() -> list[int]:
    """Every process id that /proc shows."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _stat(pid: int) -> list[str] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name may hold spaces and brackets; nothing after the last bracket can.
    return text[text.rindex(b")") + 2 :].decode("ascii").split()
