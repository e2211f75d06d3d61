"""The engine of Slurm against the contract, on a real Slurm."""

from pathlib import Path

import pytest

from themis.engines.base import Engine
from themis.engines.owners import Owners
from themis.engines.slurm.cluster import SlurmCluster as Slurm
from themis.testing.engines import EngineContract, OpenEngine
from themis.testing.slurm import SlurmCluster

pytestmark = pytest.mark.slurm


class TestSlurm(EngineContract):
    @pytest.fixture
    def open_engine(self, state: Path, owners: Owners, slurm: SlurmCluster) -> OpenEngine:
        async def open_one() -> Engine:
            cluster = Slurm(state)
            await cluster.look()
            return await cluster.open("n0", owners)

        return open_one
