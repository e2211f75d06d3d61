"""Finds the best control that works on this machine, by killing a victim.

    choice = choose()
    choice.name, choice.base, choice.reasons     # why the better ones were not taken

The victim does what a job may do: it forks twice, starts a session and ignores SIGTERM. It holds
one end of a pipe; only when the other end reports the end of file has every holder died. The code
that kills it is the code that will kill jobs, in a process of its own as a supervisor would be.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import uuid
from typing import NamedTuple

from themis.engines.host import boottime
from themis.engines.supervisor.cgroups import Cgroup, own_base
from themis.engines.supervisor.process_control import (
    CGROUP,
    CONTROLS,
    TREE,
    TreeControl,
    control_from,
)
from themis.engines.supervisor.spawn import command

_PATIENCE = 5.0
_HANGS_AFTER = 30.0
PREFIX = "themis-"
"""Prefix of our control groups."""


class ChosenControl(NamedTuple):
    """The control that a machine's jobs are held by."""

    name: str
    base: str = ""
    """The folder to make groups in, for `cgroup`."""
    reasons: tuple[str, ...] = ()
    """Why better ones were not taken."""


def choose(wanted: str = "") -> ChosenControl:
    """The best control that works here, or the wanted one if it works.

    Raises:
        RuntimeError: The wanted one does not work; says why.
    """
    reasons: list[str] = []
    for name in (wanted,) if wanted else CONTROLS:
        if name not in CONTROLS:
            raise RuntimeError(f"{name!r} is none of {', '.join(CONTROLS)}")
        base = (own_base() or "") if name == CGROUP else ""
        if name == CGROUP and not base:
            trouble = "no cgroup version 2 is mounted"
        else:
            trouble = "" if name == TREE else _tried(name, base)
        if not trouble:
            return ChosenControl(name, base, tuple(reasons))
        reasons.append(f"{name}: {trouble}")
    raise RuntimeError("; ".join(reasons))


def _tried(name: str, base: str) -> str:
    """Why a control does not work; empty if it does."""
    group = f"{base}/{PREFIX}probe-{uuid.uuid4().hex}" if base else ""
    try:
        result = subprocess.run(
            command("themis.engines.supervisor.control_probe", name, group),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_HANGS_AFTER,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "trying it out hung"
    finally:
        if group:
            Cgroup(group).remove()
    if result.returncode == 0:
        return ""
    return result.stdout.decode("utf-8", "replace").strip() or "trying it out failed"


def main(name: str, group: str) -> int:
    """Kill a victim under this control, in a process of its own; 0 if it was seen dead."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    control = control_from(name, group)
    alive, hold = os.pipe()
    try:
        control.launch(lambda: _victim(hold), hold)
    except OSError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    os.close(hold)
    ready = _next(alive)
    if ready != b"+":
        sys.stdout.write((ready or b"the victim did not start").decode("utf-8", "replace") + "\n")
        TreeControl().kill()
        return 1
    until = boottime.now() + _PATIENCE
    children, empty = True, False
    while not empty and boottime.now() < until:
        control.kill()
        signal.sigtimedwait({signal.SIGCHLD}, 0.01)
        try:
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                control.reaped(*ended)
        except ChildProcessError:
            children = False
        empty = control.is_empty(children=children)
    died = empty and _next(alive) == b""
    if empty:
        control.clear()
    if not died:
        sys.stdout.write("the victim was killed and did not die\n")
        TreeControl().kill()  # only the answer stays
    return 0 if died else 1


def _next(fd: int) -> bytes | None:
    """The next bytes of the pipe; empty at its end, None after a timeout."""
    return os.read(fd, 4096) if select.select([fd], [], [], _PATIENCE)[0] else None


def _victim(hold: int) -> None:
    """Fork twice, leave the session, ignore SIGTERM, and wait."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(hold, b"+")
        signal.alarm(60)  # it ends by itself if it cannot be killed
    while True:
        signal.pause()


def sweep(base: str, prefix: str) -> None:
    """Remove empty groups of supervisors that were killed."""
    with contextlib.suppress(OSError):
        for entry in sorted(os.listdir(base)):
            group = Cgroup(f"{base}/{entry}")
            if entry.startswith(prefix) and group.is_empty():
                group.remove()
