"""This machine as the doctor sees it (`themis.ops.doctor.MachineFacts`), and shared storage."""

import ctypes
import errno
import os
import pwd
import re
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from themis.config.addresses import Address
from themis.node.shared_folder import marked_by
from themis.ops.doctor import Probe

_MOUNTS = Path("/proc/self/mountinfo")
_TIME_ERROR = 5
"""What adjtimex(2) returns while no time service sets the clock."""


class LocalMachine:
    """The machine of this process; nothing that stays is changed."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    @property
    def probe(self) -> Probe:
        """What engines and stores know of it."""
        return self._probe

    def uid(self) -> int:
        """The user of this process."""
        return os.geteuid()

    def account_exists(self, account: str) -> bool:
        """Whether jobs can run as this user: a name, UID or UID:GID."""
        user, colon, _ = account.partition(":")
        if colon:
            return True
        try:
            if user.isdecimal():
                pwd.getpwuid(int(user))
            else:
                pwd.getpwnam(user)
        except (KeyError, OverflowError):
            return False
        return True

    def free_bytes(self, folder: Path) -> int:
        """The free space for a folder, which need not exist yet."""
        return shutil.disk_usage(_nearest(folder)).free

    def writable(self, folder: Path) -> bool:
        """Whether files can be made in a folder, or the folder itself made."""
        there = _nearest(folder)
        return there.is_dir() and os.access(there, os.W_OK | os.X_OK)

    def is_folder(self, folder: Path) -> bool:
        """Whether a folder exists."""
        return folder.is_dir()

    def marked_by(self, folder: Path) -> Sequence[str]:
        """The nodes whose marks a shared folder has."""
        return marked_by(folder)

    def filesystem(self, folder: Path) -> str:
        """The type of a folder's file system."""
        return filesystem_of(_nearest(folder).resolve(), _MOUNTS.read_text(errors="replace"))

    def clock_synchronised(self) -> bool | None:
        """Whether a time service sets the clock; None if the system cannot tell."""
        try:
            adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
        except (OSError, AttributeError):
            return None
        # All zero asks and changes nothing; struct timex is 208 bytes at most.
        state: int = adjtimex(ctypes.create_string_buffer(512))
        return None if state < 0 else state != _TIME_ERROR

    def port_free(self, address: Address) -> bool:
        """Whether a server could listen there now."""
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address.host, address.port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
                raise
        return True


def filesystem_of(folder: Path, mounts: str) -> str:
    """The type of the file system of a folder, from the text of /proc/self/mountinfo."""
    best, kind = -1, "unknown"
    for line in mounts.splitlines():
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = Path(_unescaped(fields[4]))
        # Later lines are mounted over earlier ones.
        if folder.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), rest[0]
    return kind


def _nearest(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    here = folder.absolute()
    while not here.exists() and here != here.parent:
        here = here.parent
    return here


def _unescaped(text: str) -> str:
    """Spaces in names of mount points are written as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
