"""What NVML answers, and the machine that comes of it.

The answers follow NVML's documentation; nothing here was recorded on a machine with a GPU.
"""

import asyncio
import sys
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.support.fake_nvml import FakeNvml, uuid, v100
from themis.engines.base import Discovered, Gpu
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import NvidiaGpus, NvmlProcess, PretendGpus, group_by_links
from themis.engines.host.nvml_reader import FAR, SWITCH, read_devices
from themis.engines.host.stable_gpu_ids import (
    UNSEEN,
    read_numbers,
    with_stable_numbers,
    write_numbers,
)
from themis.engines.local.engine import LocalEngine
from themis.errors import UnavailableError

SINGLE, HOST, SYSTEM = (
    pynvml.NVML_TOPOLOGY_SINGLE, pynvml.NVML_TOPOLOGY_HOSTBRIDGE, pynvml.NVML_TOPOLOGY_SYSTEM
)  # fmt: skip


def nobody_is_ours(_: int) -> bool:
    return False


def found_by(nvml: FakeNvml, name: str = "m0", rack: str = "r0") -> Discovered:
    return NvidiaGpus(name, rack, lambda: read_devices(nvml)).discover(nobody_is_ours)


def test_a_machine_of_eight_with_nvlink_is_one_slot() -> None:
    a100 = {"Name": "NVIDIA A100-SXM4-80GB", "MemoryInfo": 80 << 30, "MigMode": [0, 0]}
    more = a100 | {"RetiredPagesPendingStatus": "unsupported", "RemappedRows": (0, 0, 0, 0)}
    gpus = [v100(n, **more) for n in range(8)]
    found = found_by(FakeNvml(gpus, list(combinations(range(8), 2))), "m0", "r1")
    assert found.machine.slots == (8,)
    assert (found.machine.gpu_model, found.machine.gpu_memory) == ("nvidia-a100-sxm4-80gb", 80.0)
    assert (found.machine.name, found.machine.rack) == ("m0", "r1")
    assert [gpu.index for gpu in found.gpus] == list(range(8))
    assert len({gpu.device for gpu in found.gpus}) == 8
    assert not any(gpu.trouble for gpu in found.gpus)
    assert found.notes == ()


def test_gpus_that_are_joined_crosswise_are_numbered_by_slot() -> None:
    levels = dict.fromkeys(combinations(range(4), 2), SYSTEM)
    found = found_by(FakeNvml([v100(n) for n in range(4)], [(0, 2), (1, 3)], levels))
    assert found.machine.slots == (2, 2)
    # Number 1 is the second GPU of the first slot, whatever the driver calls it.
    assert [gpu.device for gpu in found.gpus] == [uuid(0), uuid(2), uuid(1), uuid(3)]


def test_without_nvlink_a_pcie_switch_makes_a_slot() -> None:
    levels = dict.fromkeys(combinations(range(4), 2), HOST) | {(0, 1): SINGLE, (2, 3): SINGLE}
    found = found_by(FakeNvml([v100(n) for n in range(4)], levels=levels))
    assert found.machine.slots == (2, 2)
    assert group_by_links(range(3), {(0, 1): FAR, (1, 2): SWITCH}) == ((0,), (1, 2))


def test_without_topology_each_gpu_is_its_own_slot_with_a_message() -> None:
    found = found_by(FakeNvml([v100(0), v100(1)]))
    assert found.machine.slots == (1, 1)
    assert "no topology" in found.notes[0]


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        pytest.param({}, "", id="healthy"),
        pytest.param({"TotalEccErrors": 3}, "3 uncorrectable", id="ecc"),
        pytest.param({"TotalEccErrors": "unsupported"}, "", id="no ecc"),
        pytest.param({"RetiredPagesPendingStatus": 1}, "needs a reset", id="pages"),
        pytest.param({"RemappedRows": (0, 1, 0, 1)}, "could not be remapped", id="rows"),
        pytest.param({"RemappedRows": (0, 1, 1, 0)}, "", id="remapped rows"),
        pytest.param({"MigMode": [1, 1]}, "MIG is on", id="mig"),
        pytest.param({"MigMode": [0, 1]}, "", id="no mig until a reset"),
        pytest.param({"MigMode": "unknown function"}, "", id="a driver from before MIG"),
        pytest.param({"MemoryInfo": "unknown"}, "MemoryInfo: Unknown Error", id="broken"),
        pytest.param({"MemoryInfo": "reset"}, "requires restart", id="reset"),
        pytest.param({"ComputeRunningProcesses": "lost"}, "GPU is lost", id="lost"),
    ],
)
def test_a_gpu_in_trouble_says_which(changes: dict[str, Any], trouble: str) -> None:
    (found,) = found_by(FakeNvml([v100(0, **changes)])).gpus
    assert (trouble in found.trouble) if trouble else found.trouble == ""


def test_gpu_with_a_foreign_process_is_not_used() -> None:
    pids = [(4242,), (4243, 77), ()]
    nvml = FakeNvml([v100(n, ComputeRunningProcesses=each) for n, each in enumerate(pids)])
    found = NvidiaGpus("m0", ask=lambda: read_devices(nvml)).discover(lambda pid: pid != 77)
    assert [gpu.trouble for gpu in found.gpus] == [
        "",
        "used by process 77, which Themis did not start",
        "",
    ]


def test_a_lost_gpu_does_not_hide_the_others() -> None:
    found = found_by(FakeNvml([v100(0), "lost", v100(2)]))
    assert [gpu.device for gpu in found.gpus] == [uuid(0), uuid(2)]
    assert "GPU 1: GPU is lost" in found.notes


def test_gpu_without_a_uuid_is_left_out() -> None:
    found = found_by(FakeNvml([v100(0), v100(1, UUID="all")]))
    assert [gpu.device for gpu in found.gpus] == [uuid(0)]
    assert "GPU 1: 'all' is no UUID" in found.notes


def test_an_old_gpu_and_driver_need_not_know_everything() -> None:
    unknown = dict.fromkeys(("MigMode", "RetiredPagesPendingStatus", "RemappedRows"), "unsupported")
    old = v100(0, Name="Tesla K80", MemoryInfo=11441 << 20, **unknown)
    found = found_by(FakeNvml([old | {"ComputeRunningProcesses": "unsupported"}]))
    assert found.gpus == (Gpu(0, uuid(0), "Tesla K80"),)
    assert (found.machine.gpu_model, found.machine.gpu_memory) == ("tesla-k80", 11.17)


def test_unlike_gpus_count_as_the_smaller() -> None:
    other = v100(1, Name="Tesla V100-SXM2-32GB", MemoryInfo=32480 << 20)
    machine = found_by(FakeNvml([v100(0), other])).machine
    assert (machine.gpu_model, machine.gpu_memory) == ("mixed", 15.78)


@pytest.mark.parametrize("gpus", [(), ("lost",)])
def test_machine_without_gpus_is_reported_as_such(gpus: tuple[str, ...]) -> None:
    with pytest.raises(UnavailableError, match="knows no GPU"):
        found_by(FakeNvml(gpus))


def child(*lines: str) -> NvmlProcess:
    return NvmlProcess([sys.executable, "-c", "\n".join(("import sys, time", *lines))], 30.0)


def child_with(nvml: str) -> NvmlProcess:
    """The child as it is, with another NVML."""
    return child(
        f"sys.path[:0] = {sys.path!r}",
        "from tests.support.fake_nvml import FakeNvml, v100",
        f"sys.modules['pynvml'] = {nvml}",
        "from themis.engines.host.nvml_reader import main",
        "main()",
    )


def test_nvml_is_read_in_a_child() -> None:
    found = NvidiaGpus("m0", ask=child_with("FakeNvml([v100(0), v100(1)], [(0, 1)])")).discover(
        nobody_is_ours
    )
    assert [gpu.device for gpu in found.gpus] == [uuid(0), uuid(1)]
    assert found.machine.slots == (2,)


def test_without_a_driver_pretending_is_suggested() -> None:
    with pytest.raises(UnavailableError, match="Driver Not Loaded; pretend GPUs work"):
        child_with("FakeNvml((), broken='no driver')")()


def test_the_child_of_a_node_finds_the_library() -> None:
    try:
        found = NvmlProcess()()
    except UnavailableError as error:  # here is no driver
        assert "NVML: " in str(error)  # noqa: PT017 - it need not be raised
    else:
        assert set(found) == {"gpus", "links", "notes"}


def test_crashed_drivers_output_is_reported() -> None:
    crash = child("sys.stderr.write('double free'); sys.stderr.flush()", "import os; os.abort()")
    with pytest.raises(UnavailableError, match="cannot be read: double free"):
        crash()


def test_a_child_in_a_driver_that_hangs_is_killed() -> None:
    hanging = NvmlProcess([sys.executable, "-c", "import time; time.sleep(600)"], 0.2)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"did not answer within 0\.2 s"):
            hanging()
        assert hanging._stuck is not None
        assert hanging._stuck.returncode == -9


def test_a_child_that_cannot_be_killed_is_the_only_one() -> None:
    class Stuck:
        def poll(self) -> None:
            return None

    asks = child("raise SystemExit('was started')")
    asks._stuck = Stuck()  # type: ignore[assignment]
    with pytest.raises(UnavailableError, match="cannot be killed"):
        asks()


def test_pretend_gpus_are_numbered_slots() -> None:
    found = PretendGpus("m1", slots=(2, 1), rack="r3").discover(nobody_is_ours)
    assert (found.machine.slots, found.machine.rack) == ((2, 1), "r3")
    assert found.gpus == tuple(Gpu(n, "", "pretend") for n in range(3))


def test_a_gpu_keeps_its_number_whatever_the_driver_lists() -> None:
    first = found_by(FakeNvml([v100(0), v100(1), v100(2)]))
    now = found_by(FakeNvml([v100(2), v100(3), v100(1)]))
    found = with_stable_numbers(first, now)
    assert found.machine == first.machine
    assert [(gpu.index, gpu.device, gpu.trouble) for gpu in found.gpus] == [
        (0, uuid(0), UNSEEN), (1, uuid(1), ""), (2, uuid(2), "")
    ]  # fmt: skip
    assert any(uuid(3) in note for note in found.notes)


def test_numbers_are_kept_on_disk_and_never_guessed(tmp_path: Path) -> None:
    found = found_by(FakeNvml([v100(0), v100(1)]))
    path = tmp_path / "devices.json"
    assert read_numbers(path) is None
    write_numbers(path, found)
    kept = read_numbers(path)
    assert kept is not None
    assert (kept.machine, [gpu.device for gpu in kept.gpus]) == (
        found.machine, [uuid(0), uuid(1)]
    )  # fmt: skip
    path.write_text(path.read_text()[:20])
    with pytest.raises(UnavailableError, match="remove it when no job runs"):
        read_numbers(path)


def test_an_engine_starts_jobs_on_the_gpu_that_had_the_number_first(
    tmp_path: Path, owners: Owners
) -> None:
    lists = [[v100(0), v100(1)], [v100(1)]]

    async def work() -> None:
        def ask() -> Mapping[str, Any]:
            return read_devices(FakeNvml(lists[0]))

        inventory = NvidiaGpus("m0", ask=ask)
        engine = await LocalEngine.open(tmp_path, inventory, owners, control="tree")
        try:
            before = engine._devices
            lists.pop(0)
            (found,) = await engine.discover()
            assert engine._devices == before == (uuid(0), uuid(1))
            assert [gpu.trouble for gpu in found.gpus] == [UNSEEN, ""]
        finally:
            await engine.close()

    asyncio.run(work())
