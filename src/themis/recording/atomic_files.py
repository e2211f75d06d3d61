"""Writing files that people name: whole or not at all.

write_whole(Path("table.csv"), data, "csv")
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from themis.errors import ConfigError


def write_whole(path: Path, data: bytes, key: str = "out", *, secret: bool = False) -> None:
    """Write a file that has its name only when all of it is there.

    Args:
        path: The file. A pipe or a device is written to directly.
        data: Its whole content.
        key: The option or key that named the path.
        secret: Whether only its owner may read it.

    Raises:
        ConfigError: It cannot be written; blames the key.
    """
    with writable(path, key):
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        draft = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            if secret:
                draft.touch(mode=0o600)
            draft.write_bytes(data)
            draft.replace(path)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


@contextmanager
def writable(path: Path, key: str = "out") -> Iterator[None]:
    """Turn an error of writing into one that names the path and the key it came from."""
    try:
        yield
    except OSError as error:
        # The error itself names the draft, which would puzzle the reader.
        allowed = f"a place that can be written ({error.strerror})"
        raise ConfigError(key, str(path), allowed) from error


def check_writable(path: Path, key: str) -> None:
    """Check that a file can be written, before much work is done for it.

    Raises:
        ConfigError: It cannot; blames the key.
    """
    folder = path.absolute().parent
    if path.is_dir():
        raise ConfigError(key, str(path), "a file, not a folder")
    if not folder.is_dir():
        raise ConfigError(key, str(path), f"a file in a folder that is there ({folder} is not)")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(key, str(path), f"a file in a folder that can be written ({folder})")


def check_folder(folder: Path, key: str, named: Path | None = None) -> None:
    """Check that files can be written into a folder that exists or will be made.

    Args:
        folder: The folder; those above it may be missing too.
        key: The option or key that named it.
        named: The path as it was named, if not the folder.

    Raises:
        ConfigError: They cannot; blames the key.
    """
    got = str(named or folder)
    nearest = folder.absolute()
    with writable(named or folder, key):
        while not nearest.exists():
            nearest = nearest.parent
    if not nearest.is_dir():
        raise ConfigError(key, got, f"a place that can be written ({nearest} is not a folder)")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(key, got, f"a place that can be written ({nearest} is not)")
