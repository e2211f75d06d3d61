"""A small Slurm for the tests of one process, and one that is made anew for those that break it."""

import os
import time
from collections.abc import Iterator

import pytest

from tests.support.slurm import SlurmCluster, require_slurm, slurm_cluster


@pytest.fixture(scope="session")
def small() -> Iterator[SlurmCluster]:
    require_slurm()
    with slurm_cluster(nodes=2, gpus=4) as cluster:
        yield cluster


@pytest.fixture
def slurm(small: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """With its commands on the PATH; fails the test if an allocation outlives it."""
    for name, value in small.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert os.environ["SLURM_CONF"]
    yield small
    until = time.monotonic() + 120.0
    while left := small.run("squeue", "-h", "-o", "%j %T"):
        assert time.monotonic() < until, f"GPUs are still held: {left}"
        time.sleep(0.1)
