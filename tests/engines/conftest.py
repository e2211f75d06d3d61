"""A place for an engine's state that jobs of other users can pass through, and that ends empty."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from themis.engines import processes
from themis.engines.owners import Owners
from themis.engines.pages import read_page


@pytest.fixture
def state() -> Iterator[Path]:
    """A fresh folder; fails the test if a supervisor outlives it."""
    # Not tmp_path, whose parents only root may enter.
    place = Path(tempfile.mkdtemp(prefix="themis-engine-"))
    place.chmod(0o755)
    folder = place / "state"
    try:
        yield folder
        assert left_running(folder) == []
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def owners() -> Owners:
    """Everybody the same, unprivileged user."""
    return Owners.trusting("nobody")


def left_running(folder: Path) -> list[str]:
    left = []
    for file in folder.glob("tasks/*/task.json"):
        page = read_page(str(file.parent / "status")) or {}
        pid, started = processes.identity(page.get("supervisor"))
        state = page.get("state")
        if (state != "exited" and processes.is_alive(pid, started)) or processes.marked(
            f"THEMIS_RUN={json.loads(file.read_text())['run']}"
        ):
            left.append(f"{file.parent.name}: {state}")
    return left


def is_root() -> bool:
    return os.geteuid() == 0
