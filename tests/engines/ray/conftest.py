"""A small Ray for the tests of one process."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.support.ray import RayCluster, ray_cluster, require_ray

HELD = """
import json, ray
ray.init("auto", namespace="themis", log_to_driver=False)
groups = ray.util.placement_group_table().values()
print(json.dumps([group["name"] for group in groups if group["state"] != "REMOVED"]))
"""


@pytest.fixture(scope="session")
def small() -> Iterator[RayCluster]:
    require_ray()
    with ray_cluster(nodes=2, gpus=4) as cluster:
        yield cluster


@pytest.fixture
def ray(small: RayCluster, monkeypatch: pytest.MonkeyPatch) -> RayCluster:
    """With what a driver has to be told."""
    for name, value in small.environment.items():
        monkeypatch.setenv(name, value)
    return small


@pytest.fixture
def tidy(ray: RayCluster) -> Iterator[RayCluster]:
    """Fails the test if a placement group outlives it."""
    yield ray
    until = time.monotonic() + 60.0
    while left := json.loads(ray.run(HELD).splitlines()[-1]):
        assert time.monotonic() < until, f"GPUs are still held: {left}"
