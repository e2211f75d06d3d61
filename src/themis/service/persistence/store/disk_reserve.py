"""A reserve of disk space, so that renewals can go on when the disk is full.

New work is refused while there is still some room, so it does not use the reserve. When a write
finds the disk full, the reserve is released; it is taken again once there is room for it twice.
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
        """Whether there is space to release."""
        return self._held

    @property
    def size(self) -> int:
        """Bytes of the reserve."""
        return self._size

    def free_bytes(self) -> int:
        """Free on the disk, the reserve not counted."""
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize

    def has_room(self) -> bool:
        """Whether there is room for more than the essential; takes a reserve that is not held."""
        if self._size == 0:
            return True
        free = self.free_bytes()
        if not self._held and free >= 2 * self._size:
            self._held = self._take()
        return self._held and free >= self._size

    def release(self) -> bool:
        """Release the reserve; whether it was held."""
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
