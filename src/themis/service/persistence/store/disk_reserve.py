"""The last of the disk, held back so that renewals can go on when it is full.

New work is refused while there is still some room, so the reserve is not spent on it. When a write
finds the disk full, the reserve is let go; it is taken again once there is room for it twice.
"""

import os
from pathlib import Path

DEFAULT_BYTES = 64 * 2**20
"""At 100 apps about a day of rounds (benchmarks/store.py prints how much one takes)."""


class Reserve:
    """A file of real blocks beside the store."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self._held = size > 0 and self._is_there()

    @property
    def held(self) -> bool:
        """Whether there is something to let go."""
        return self._held

    @property
    def size(self) -> int:
        """How much is held back."""
        return self._size

    def free_bytes(self) -> int:
        """Free on the disk, the reserve not counted."""
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize

    def has_room(self) -> bool:
        """Whether there is room for what is not essential. Takes the reserve if it is not held."""
        if self._size == 0:
            return True
        free = self.free_bytes()
        if not self._held and free >= 2 * self._size:
            self._held = self._take()
        return self._held and free >= self._size

    def release(self) -> bool:
        """Let it go; whether there was something to let go."""
        if not self._held:
            return False
        self._path.unlink(missing_ok=True)
        self._held = False
        return True

    def _is_there(self) -> bool:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        # In blocks: a sparse file holds nothing back.
        return found.st_size == self._size and found.st_blocks * 512 >= self._size

    def _take(self) -> bool:
        self._path.unlink(missing_ok=True)
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size)
            finally:
                os.close(descriptor)
        except OSError:
            self._path.unlink(missing_ok=True)
            return False
        return True
