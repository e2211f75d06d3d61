"""Files below a folder in which somebody else is at work.

    files_named("ran", folder)

`Path.rglob` raises when a folder goes that it is about to look into, until Python 3.13.
"""

import os
from collections.abc import Iterator
from pathlib import Path


def files_below(folder: Path) -> Iterator[Path]:
    """All of them that stay long enough to be seen."""
    for where, _, names in os.walk(folder):
        for name in names:
            yield Path(where, name)


def files_named(name: str, folder: Path) -> list[Path]:
    """Those of one name, in any folder."""
    return [path for path in files_below(folder) if path.name == name]
