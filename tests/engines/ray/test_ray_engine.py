"""The engine of Ray against the contract, on a real Ray."""

from pathlib import Path

import pytest

from themis.engines.base import Engine
from themis.engines.owners import Owners
from themis.engines.ray.cluster import RayCluster as Ray
from themis.engines.ray.cluster import RaySettings
from themis.engines.remote import RemoteEngine
from themis.testing.engines import EngineContract, OpenEngine
from themis.testing.ray import RayCluster
from themis.testing.tools import only_engines

pytestmark = [pytest.mark.ray, only_engines]


class Whole:
    """An engine that takes its cluster with it when it is closed."""

    def __init__(self, cluster: Ray, engine: RemoteEngine) -> None:
        self._cluster = cluster
        self._engine = engine

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    async def close(self) -> None:
        await self._engine.close()
        await self._cluster.close()


class TestRay(EngineContract):
    @pytest.fixture
    def open_engine(self, state: Path, owners: Owners, ray: RayCluster) -> OpenEngine:
        async def open_one() -> Engine:
            cluster = Ray(state, settings=RaySettings(python=str(ray.python), pending=200.0))
            await cluster.look()
            return Whole(cluster, await cluster.open("n0", owners))  # type: ignore[return-value]

        return open_one
