"""A place for stages."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real clocks and real processes by the dozen need a machine to themselves."""
    if os.environ.get("THEMIS_CHAOS"):
        return
    skip = pytest.mark.skip(reason="faults for real: run by `make chaos`")
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(skip)


@pytest.fixture
def place() -> Iterator[Path]:
    # Not tmp_path, whose parents only root may enter: jobs run as another user.
    folder = Path(tempfile.mkdtemp(prefix="themis-stage-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
