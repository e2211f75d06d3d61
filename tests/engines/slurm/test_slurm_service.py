"""`themis serve --engine slurm` for real: sweeps, kills, power cuts, a Slurm that is away."""

import pytest

from themis.testing.real_clusters import OpenCluster
from themis.testing.services import ServiceContract
from themis.testing.slurm import require_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


class TestSlurmService(ServiceContract):
    @pytest.fixture
    def open_cluster(self) -> OpenCluster:
        require_slurm()
        return slurm_cluster
