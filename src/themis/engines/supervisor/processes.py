"""Processes as the kernel shows them, identified by id **and** start time: ids are used again."""

import os
import signal

_STATE, _PARENT, _START = 0, 1, 19
"""Fields of /proc/PID/stat after the name."""


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a living process; None for dead ones and zombies."""
    fields = _stat(pid)
    if fields is None or fields[_STATE] in {"Z", "X"}:
        return None
    return int(fields[_START])


def is_alive(pid: int, started: int) -> bool:
    """Whether that very process still runs."""
    return pid > 0 and start_time(pid) == started


def identity(value: object) -> tuple[int, int]:
    """Process id and start time as a status page has them; zeros, which nobody is, if not."""
    match value:
        case [int(pid), int(started)]:
            return pid, started
        case _:
            return 0, 0


def handle_of(pid: int, started: int) -> int | None:
    """A descriptor of that very process, or None if it is gone; close it."""
    if pid <= 0:
        return None
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    # Read after the handle was taken: now the id cannot change its meaning.
    fields = _stat(pid)
    if fields is not None and int(fields[_START]) == started:
        return handle
    os.close(handle)
    return None


def send(pid: int, started: int, number: int) -> bool:
    """Signal that very process; False if it is gone."""
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


def marked(mark: str) -> list[int]:
    """Living processes with `NAME=value` in the environment they were started with."""
    wanted = mark.encode()
    found = []
    for pid in all_processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                entries = file.read().split(b"\0")
        except OSError:  # gone, or not ours to look at
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
