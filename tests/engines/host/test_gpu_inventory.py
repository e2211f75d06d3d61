"""What nvidia-smi prints, and what becomes of it.

The outputs follow the tool's documentation; nothing here was recorded on a machine with a GPU.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from themis.engines.base import Gpu
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import (
    FIELDS,
    Nvidia,
    Pretend,
    Run,
    group_by_links,
    parse_gpus,
    parse_links,
    parse_processes,
    run_nvidia_smi,
)
from themis.engines.host.stable_gpu_ids import UNSEEN, read_numbers, steady, write_numbers
from themis.engines.local.engine import LocalEngine
from themis.errors import UnavailableError

OUTPUTS = Path(__file__).parent / "outputs"


def output(name: str) -> str:
    return (OUTPUTS / name).read_text(encoding="utf-8")


def smi(gpus: str, processes: str = "", topology: str = "") -> Run:
    """A nvidia-smi that prints these."""

    def run(args: Sequence[str]) -> str:
        if args[0].startswith("--query-gpu"):
            return gpus
        return processes if args[0].startswith("--query-compute-apps") else topology

    return run


def nobody_is_ours(_: int) -> bool:
    return False


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-aaaa-bbbb-cccc-0123456789ab"


def row(number: int, **changes: str) -> str:
    cells = {
        "index": str(number),
        "uuid": uuid(number),
        "name": "Tesla V100-SXM2-16GB",
        "memory.total": "16160",
        "mig.mode.current": "[N/A]",
        "ecc.errors.uncorrected.volatile.total": "0",
        "retired_pages.pending": "No",
        "remapped_rows.failure": "[N/A]",
    }
    return ", ".join((cells | changes).values()) + "\n"


def test_a_machine_of_eight_with_nvlink_is_one_slot() -> None:
    run = smi(output("a100x8-query.csv"), "", output("a100x8-topo.txt"))
    found = Nvidia("m0", "r1", run).discover(nobody_is_ours)
    assert found.machine.slots == (8,)
    assert (found.machine.gpu_model, found.machine.gpu_memory) == ("nvidia-a100-sxm4-80gb", 80.0)
    assert (found.machine.name, found.machine.rack) == ("m0", "r1")
    assert [gpu.index for gpu in found.gpus] == list(range(8))
    assert len({gpu.device for gpu in found.gpus}) == 8
    assert not any(gpu.trouble for gpu in found.gpus)
    assert found.notes == ()


def test_gpus_that_are_joined_crosswise_are_numbered_by_slot() -> None:
    run = smi("".join(map(row, range(4))), "", output("v100x4-crossed-topo.txt"))
    found = Nvidia("m0", run=run).discover(nobody_is_ours)
    assert found.machine.slots == (2, 2)
    # Number 1 is the second GPU of the first slot, whatever the driver calls it.
    assert [gpu.device for gpu in found.gpus] == [uuid(0), uuid(2), uuid(1), uuid(3)]


def test_without_nvlink_a_pcie_switch_makes_a_slot() -> None:
    links = parse_links(output("k80x4-topo.txt"))
    assert group_by_links(range(4), links) == ((0, 1), (2, 3))


def test_without_any_topology_each_gpu_is_its_own_slot_and_that_is_said() -> None:
    found = Nvidia("m0", run=smi(row(0) + row(1))).discover(nobody_is_ours)
    assert found.machine.slots == (1, 1)
    assert "no topology" in found.notes[0]


def test_links_to_network_cards_and_colours_are_not_mistaken_for_gpus() -> None:
    links = parse_links(output("a100x8-topo.txt"))
    assert len(links) == 8 * 7
    assert links[0, 7] == links[7, 0] == "NV12"
    assert parse_links("Failed to initialize NVML: Driver/library version mismatch") == {}


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        pytest.param({}, "", id="healthy"),
        pytest.param({"ecc.errors.uncorrected.volatile.total": "3"}, "3 uncorrectable", id="ecc"),
        pytest.param({"ecc.errors.uncorrected.volatile.total": "[N/A]"}, "", id="no ecc"),
        pytest.param({"retired_pages.pending": "Yes"}, "needs a reset", id="pages"),
        pytest.param({"remapped_rows.failure": "Yes"}, "could not be remapped", id="rows"),
        pytest.param({"mig.mode.current": "Enabled"}, "MIG is on", id="mig"),
        pytest.param({"mig.mode.current": "Disabled"}, "", id="no mig"),
        pytest.param({"memory.total": "[Unknown Error]"}, "memory.total: [Unknown", id="broken"),
        pytest.param({"memory.total": "[GPU requires reset]"}, "requires reset", id="reset"),
        pytest.param({"memory.total": "ERR!"}, "ERR!", id="error"),
    ],
)
def test_a_gpu_in_trouble_says_which(changes: dict[str, str], trouble: str) -> None:
    (found,), _ = parse_gpus(row(0, **changes), FIELDS)
    assert (trouble in found.trouble) if trouble else found.trouble == ""


def test_a_gpu_with_a_process_of_somebody_else_is_not_used() -> None:
    processes = f"{uuid(0)}, 4242\n{uuid(1)}, 77\n{uuid(1)}, 4243\n"
    assert parse_processes(processes) == {uuid(0): (4242,), uuid(1): (77, 4243)}
    run = smi(row(0) + row(1) + row(2), processes)
    found = Nvidia("m0", run=run).discover(lambda pid: pid != 77)
    assert [gpu.trouble for gpu in found.gpus] == [
        "",
        "used by process 77, which Themis did not start",
        "",
    ]


def test_a_lost_gpu_does_not_hide_the_others() -> None:
    complaint = "Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost."
    found = Nvidia("m0", run=smi(row(0) + complaint + "\n" + row(2))).discover(nobody_is_ours)
    assert [gpu.device for gpu in found.gpus] == [uuid(0), uuid(2)]
    assert complaint in found.notes


def test_fields_that_a_driver_does_not_know_are_left_out() -> None:
    asked = []

    def run(args: Sequence[str]) -> str:
        if not args[0].startswith("--query-gpu"):
            return ""
        asked.append(args[0])
        for name in ("remapped_rows.failure", "mig.mode.current"):
            if name in args[0]:
                return f'Field "{name}" is not a valid field to query.\n'
        return f"0, {uuid(0)}, Tesla K80, 11441, 0, No\n"

    found = Nvidia("m0", run=run).discover(nobody_is_ours)
    assert len(asked) == 3
    assert found.gpus == (Gpu(0, uuid(0), "Tesla K80"),)
    assert (found.machine.gpu_model, found.machine.gpu_memory) == ("tesla-k80", 11.17)


def test_unlike_gpus_count_as_the_smaller() -> None:
    other = row(1, **{"name": "Tesla V100-SXM2-32GB", "memory.total": "32480"})
    machine = Nvidia("m0", run=smi(row(0) + other)).discover(nobody_is_ours).machine
    assert (machine.gpu_model, machine.gpu_memory) == ("mixed", 15.78)


@pytest.mark.parametrize(
    "text", ["", "No devices were found\n", "NVIDIA-SMI has failed because ...\n", "0, x\n"]
)
def test_a_machine_without_gpus_is_told_as_such(text: str) -> None:
    with pytest.raises(UnavailableError, match="tells of no GPU"):
        Nvidia("m0", run=smi(text)).discover(nobody_is_ours)


def test_without_nvidia_smi_pretending_is_suggested(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="pretend"):
        run_nvidia_smi(["-L"])


def test_nvidia_smi_is_run_and_all_it_says_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{row(0).strip()}'; echo lost >&2; exit 15\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = Nvidia("m0").discover(nobody_is_ours)
    assert [gpu.device for gpu in found.gpus] == [uuid(0)]
    assert "lost" in found.notes


def test_pretend_gpus_are_numbered_slots() -> None:
    found = Pretend("m1", slots=(2, 1), rack="r3").discover(nobody_is_ours)
    assert (found.machine.slots, found.machine.rack) == ((2, 1), "r3")
    assert found.gpus == tuple(Gpu(n, "", "pretend") for n in range(3))


def test_a_gpu_keeps_its_number_whatever_the_driver_lists() -> None:
    first = Nvidia("m0", run=smi(row(0) + row(1) + row(2))).discover(nobody_is_ours)
    now = Nvidia("m0", run=smi(row(2) + row(3) + row(1))).discover(nobody_is_ours)
    found = steady(first, now)
    assert found.machine == first.machine
    assert [(gpu.index, gpu.device, gpu.trouble) for gpu in found.gpus] == [
        (0, uuid(0), UNSEEN), (1, uuid(1), ""), (2, uuid(2), "")
    ]  # fmt: skip
    assert any(uuid(3) in note for note in found.notes)


def test_numbers_are_kept_on_disk_and_never_guessed(tmp_path: Path) -> None:
    found = Nvidia("m0", run=smi(row(0) + row(1))).discover(nobody_is_ours)
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
    lists = [row(0) + row(1), row(1), row(0) + row(1)]

    async def work() -> None:
        def run(args: Sequence[str]) -> str:
            return smi(lists[0])(args)

        inventory = Nvidia("m0", run=run)
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
