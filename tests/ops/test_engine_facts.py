"""What the doctor learns from engines and from the store."""

from pathlib import Path

import pytest

from themis.engines.base import Discovered
from themis.engines.host.gpu_inventory import IsOurs, PretendGpus
from themis.engines.supervisor.process_control import CONTROLS
from themis.errors import StoreError, UnavailableError
from themis.ops.doctor import GpuFound
from themis.ops.engine_facts import EngineProbe
from themis.service.persistence.store import Batch, LogEntry, open_store


class NoDriver:
    def discover(self, is_ours: IsOurs) -> Discovered:
        del is_ours
        raise UnavailableError("NVML: NVML Shared Library Not Found")


def test_process_control_is_probed_and_reported_with_reasons() -> None:
    probe = EngineProbe(NoDriver())
    kind = probe.control()
    assert kind in CONTROLS
    # One reason for each better way.
    assert len(probe.reasons()) == CONTROLS.index(kind)


def test_gpus_are_those_that_the_driver_knows() -> None:
    assert EngineProbe(NoDriver()).gpus() == ()
    found = EngineProbe(PretendGpus("m0", (2,))).gpus()
    assert found == (GpuFound("GPU 0 (pretend)"), GpuFound("GPU 1 (pretend)"))


def test_the_store_is_looked_into_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "themis.db"
    url = f"sqlite:///{path}"
    assert "none yet" in EngineProbe(NoDriver()).store(url)
    assert not path.exists()
    with open_store(url, reserve_bytes=0) as store:
        store.begin_epoch("test", 1)
        store.commit(Batch(entries=(LogEntry(1.0, "{}"),)))
        # Also while a service has it.
        told = EngineProbe(NoDriver()).store(url)
        assert "entries in its log: 1, epoch 1" in told
    path.write_bytes(b"x" * 10_000)
    with pytest.raises(StoreError):
        EngineProbe(NoDriver()).store(url)
