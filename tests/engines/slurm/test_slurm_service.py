"""`themis serve --engine slurm` for real: sweeps, kills, power cuts, a Slurm that is away."""

import pytest

from tests.support.real_clusters import OpenCluster
from tests.support.service_contract import ServiceContract
from tests.support.slurm import require_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


class TestSlurmService(ServiceContract):
    @pytest.fixture
    def open_cluster(self) -> OpenCluster:
        require_slurm()
        return slurm_cluster
