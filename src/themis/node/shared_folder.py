"""Marks in shared storage, by which the service sees that nodes share one folder.

    storage = SharedStorage(Path("/shared/themis"), "m0")
    storage.look("3f09a1b2")        # 3f09a1b2.m1.77aa...: the mark that m1 left, before all others

A node draws a new text for its mark whenever it does not find the old one: if the folder is now
another one, the node is not mistaken for one that still sees the former. The oldest mark counts, so
that machines which join later change nothing for the others. All methods block.
"""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

MARKS = ".themis"
_NONCE = re.compile(r"[0-9a-z]{1,64}\Z")
_TEXT = re.compile(r"[0-9a-f]{16}\Z")


class SharedFolder:
    """The shared folder as one node sees it."""

    def __init__(self, root: Path, node: str) -> None:
        self.root = root
        self._node = node
        self._text = ""

    def look(self, nonce: str) -> str:
        """Leave a mark, and return the oldest there is.

        Args:
            nonce: The prefix of marks that count; the service draws another at every start.

        Raises:
            OSError: The folder does not exist or cannot be written to.
        """
        if not _NONCE.match(nonce):
            raise ValueError(nonce)
        if not self.root.is_dir():
            raise FileNotFoundError(2, "it is not there; is it mounted?", str(self.root))
        folder = self.root / MARKS
        with suppress(FileExistsError):
            folder.mkdir()
            # Nodes that are not root may be different users.
            folder.chmod(0o755 if os.geteuid() == 0 else 0o1777)
        own = folder / f"{nonce}.{self._node}"
        if not self._text or _text_of(own) != self._text:
            self._leave(own)
        marks = []
        for path in folder.glob(f"{nonce}.*"):
            with suppress(FileNotFoundError):
                marks.append((path.stat().st_mtime_ns, path.name, path))
        for _, name, path in sorted(marks):
            if text := _text_of(path):
                return f"{name}.{text}"
        return ""

    def _leave(self, own: Path) -> None:
        self._text = secrets.token_hex(8)
        draft = own.with_name(f".{self._node}.{self._text}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(draft, flags, 0o644)
        try:
            os.fchmod(fd, 0o644)
            os.write(fd, self._text.encode())
        finally:
            os.close(fd)
        draft.replace(own)
        for old in own.parent.glob(f"*.{self._node}"):
            if old != own and "." not in old.name.removesuffix(f".{self._node}"):
                old.unlink(missing_ok=True)


def marked_by(root: Path) -> list[str]:
    """The nodes that have left marks in a shared folder, at any time."""
    try:
        names = [path.name for path in (root / MARKS).iterdir() if path.name[:1] != "."]
    except OSError:
        return []
    return sorted({name.partition(".")[2] for name in names if "." in name})


def _text_of(path: Path) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.read(fd, 64).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
    return text if _TEXT.match(text) else ""
