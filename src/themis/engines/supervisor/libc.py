"""The system calls that Python has no function for."""

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
IN_MODIFY = 0x00000002

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_REC, _MS_SLAVE = 0x4000, 0x80000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.setfsuid.restype = ctypes.c_uint
_libc.setfsgid.restype = ctypes.c_uint


def unshare(flags: int) -> None:
    """Make new namespaces for this process, or (process ids) for its later children."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def become_subreaper() -> None:
    """Make orphans among the descendants of this process its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal: int) -> None:
    """Get this signal when the parent dies. The setting is lost when the user changes."""
    _prctl(_PR_SET_PDEATHSIG, signal)


def forbid_new_privileges() -> None:
    """Programs of this process gain no rights by a setuid bit or file capabilities."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def mount_own_proc() -> None:
    """Give this mount namespace a /proc of its own process ids; mounts of the host still arrive."""
    _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None), "mount /")
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _check(_libc.mount(b"proc", b"/proc", b"proc", flags, None), "mount /proc")


@contextmanager
def files_as(owner: tuple[int, int] | None) -> Iterator[None]:
    """Open files as this user and group inside of it, if there is one and this process is root."""
    if owner is None or os.geteuid() != 0:
        yield
        return
    own = os.geteuid(), os.getegid()
    try:
        set_file_identity(*owner)
        yield
    finally:
        set_file_identity(*own)


def set_file_identity(uid: int, gid: int) -> None:
    """Open files as this user, in the calling thread only.

    Raises:
        PermissionError: The kernel did not let it.
    """
    # These two report no error; asked for an impossible id they return the present one.
    _libc.setfsgid(ctypes.c_uint(gid))
    _libc.setfsuid(ctypes.c_uint(uid))
    impossible = ctypes.c_uint(0xFFFFFFFF)
    if _libc.setfsuid(impossible) != uid or _libc.setfsgid(impossible) != gid:
        raise PermissionError(errno.EPERM, f"cannot open files as uid {uid}, gid {gid}")


def inotify() -> int:
    """A descriptor that becomes readable when a watched file changes."""
    flags = ctypes.c_int(os.O_NONBLOCK | os.O_CLOEXEC)
    return _check(_libc.inotify_init1(flags), "inotify")


def inotify_watch(fd: int, path: str) -> None:
    """Watch one file for writes."""
    mask = ctypes.c_uint32(IN_MODIFY)
    _check(_libc.inotify_add_watch(ctypes.c_int(fd), os.fsencode(path), mask), path)


def _prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    given = ctypes.c_ulong(value)
    _check(_libc.prctl(ctypes.c_int(option), given, zero, zero, zero), f"prctl {option}")


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
