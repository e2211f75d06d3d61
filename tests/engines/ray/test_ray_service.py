"""`themis serve --engine ray` for real: sweeps, kills, power cuts, a Ray that is away."""

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.grpc_service import until
from tests.support.ray import RayCluster, ray_cluster, require_ray
from tests.support.real_clusters import (
    LONG,
    OpenCluster,
    RealCluster,
    check,
    play,
    staged,
    toys,
)
from tests.support.service_contract import ServiceContract

pytestmark = [pytest.mark.ray, pytest.mark.slow]


class TestRayService(ServiceContract):
    """The head keeps what it knows on disk: it is restarted, and training goes on."""

    machines: ClassVar[int] = 4

    @pytest.fixture
    def open_cluster(self) -> OpenCluster:
        require_ray()

        def opened(nodes: int, gpus: int) -> AbstractContextManager[RayCluster]:
            return ray_cluster(nodes, gpus, lasting=True)

        return opened

    def test_job_runs_through_the_client_port_too(
        self, open_cluster: OpenCluster, place: Path
    ) -> None:
        """From a machine that is not of the cluster."""

        async def scene(cluster: RealCluster) -> None:
            assert isinstance(cluster, RayCluster)
            async with staged(cluster, place, policy="fifo", engine=cluster.address) as stage:
                nodes = (await asyncio.to_thread(stage.client().nodes))["nodes"]
                assert {node["rack"] for node in nodes} == {"r0", "r1"}
                agent = await toys(stage, "one", 2)
                await until(lambda: agent.running == 2 and len(stage.starts()) == 2, LONG)
                agent.finish()
                await until(lambda: not stage.jobs_alive() and not cluster.held(), LONG)
                check(stage)

        play(open_cluster(2, 1), scene)

    def test_a_head_that_forgets_everything_ends_all_jobs_and_they_resume(
        self, place: Path
    ) -> None:
        require_ray()

        async def scene(cluster: RealCluster) -> None:
            async with staged(cluster, place, policy="fifo") as stage:
                agent = await toys(stage, "one", 2)
                await until(lambda: agent.running == 2 and len(stage.starts()) == 2, LONG)
                cluster.kill(cluster.head)
                cluster.start(cluster.head)
                await asyncio.to_thread(cluster.until_up)
                await until(lambda: agent.running == 2 and len(stage.starts()) >= 4, LONG)
                check(stage)

        play(ray_cluster(2, 1), scene)
