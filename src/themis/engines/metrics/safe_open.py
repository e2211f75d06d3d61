"""Opens files of a job's owner, who may have put anything there.

with opened(path, owner) as fd:         # None unless it is a plain file of the owner's
    ...

A file is opened as its owner, never through a link, and never blocking on the other end
of a pipe. Below a folder that is given every step is one of these too, so that no link on the way
leads elsewhere.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from themis.engines.supervisor import libc

Owner = tuple[int, int]
"""User and group."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = _FILE | os.O_DIRECTORY


@contextmanager
def opened(path: str, owner: Owner | None, folder: int | None = None) -> Iterator[int | None]:
    """A descriptor of a plain file that the owner owns and may read, else None.

    Args:
        path: Where it is; the folders on the way are ours, or `folder` is given.
        owner: Whose it is.
        folder: The descriptor of the folder that `path` is a name in.
    """
    fd = _open(path, _FILE, owner, folder)
    try:
        yield fd if fd is not None and _is_theirs(fd, owner) else None
    finally:
        if fd is not None:
            os.close(fd)


@contextmanager
def opened_folder(path: str, below: str, owner: Owner | None) -> Iterator[int | None]:
    """A descriptor of a folder that the owner may read, reached without following links.

    Args:
        path: A folder of a name that we chose.
        below: The way from there, which the owner chose: names with slashes, or nothing.
        owner: The user that must be able to go there.
    """
    fd = _open(path, _FOLDER, owner)
    try:
        for name in below.split("/"):
            if fd is not None and name not in {"", "."}:
                # Up is not below.
                inner = None if name == ".." else _open(name, _FOLDER, owner, fd)
                os.close(fd)
                fd = inner
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


def _open(path: str, flags: int, owner: Owner | None, folder: int | None = None) -> int | None:
    try:
        with libc.files_as(owner):
            return os.open(path, flags, dir_fd=folder)
    except (OSError, ValueError):  # a name with a zero byte is a ValueError
        return None


def _is_theirs(fd: int, owner: Owner | None) -> bool:
    about = os.fstat(fd)
    return stat.S_ISREG(about.st_mode) and (owner is None or about.st_uid == owner[0])
