"""What all tests share: how property tests run, the measured data, a folder for jobs of others."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.requirements import EXAMPLES, require_data

# A machine under load makes slow examples; that is no reason to fail.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=EXAMPLES,
    stateful_step_count=30,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz",
    parent=settings.get_profile("ci"),
    derandomize=False,
    max_examples=10 * EXAMPLES,
    stateful_step_count=100,
)
# `make fuzz` asks for the other one with --hypothesis-profile, which is applied after this.
settings.load_profile("ci")


@pytest.fixture(scope="session")
def themis_data() -> Path:
    """The folder of measured data; a test that wants it is skipped where there is none."""
    return require_data()


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that jobs of other users can enter, which they cannot with tmp_path."""
    folder = Path(tempfile.mkdtemp(prefix="themis-stage-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
