"""A place for stages."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def place() -> Iterator[Path]:
    # Not tmp_path, whose parents only root may enter: jobs run as another user.
    folder = Path(tempfile.mkdtemp(prefix="themis-stage-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
