"""Read all GPUs through NVML and print them as JSON.

    python -c 'from themis.engines.host.nvml_reader import main; main()'

A process of its own, because a call into a driver that hangs never returns and holds its thread;
`gpu_inventory` kills it. What NVML refuses says nothing where this GPU or driver cannot know it,
and is trouble otherwise.
"""

import json
import sys
from collections.abc import Sequence
from itertools import combinations
from typing import Any

NVLINK, SWITCH, FAR = "nvlink", "switch", "far"
"""What joins two GPUs: NVLink; one or more PCIe switches; the processor."""


def main() -> int:
    """Print what `read_devices` finds, or the reason why nothing can be read."""
    import pynvml  # noqa: PLC0415 - the parent imports this module too, and never the library

    try:
        answer = read_devices(pynvml)
    except pynvml.NVMLError as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))
    return 0


def read_devices(nvml: Any) -> dict[str, Any]:
    """All GPUs, the links between them, and notes on those that do not answer.

    Raises:
        nvml.NVMLError: The library or the driver is not there.
    """
    nvml.nvmlInit()
    devices: list[_Device] = []
    notes = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            devices.append(_Device(nvml, index))
        except nvml.NVMLError as error:
            notes.append(f"GPU {index}: {error}")
    return {
        "gpus": [device.read() for device in devices],
        "links": [
            [one.index, other.index, kind]
            for one, other in combinations(devices, 2)
            if (kind := _link(nvml, one.handle, other.handle))
        ],
        "notes": notes,
    }


class _Device:
    """A GPU that has at least told its UUID and its model."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self.index = index
        self.handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self._uuid = nvml.nvmlDeviceGetUUID(self.handle)
        self._model = nvml.nvmlDeviceGetName(self.handle)
        self._troubles: list[str] = []
        self._says_nothing = {
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_NO_PERMISSION,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
        }

    def read(self) -> dict[str, Any]:
        """What a node wants to know of it; memory in bytes."""
        memory = self._ask("MemoryInfo")
        processes = self._ask("ComputeRunningProcesses") or ()
        self._troubles += self._reasons_against_it()
        return {
            "index": self.index,
            "uuid": self._uuid,
            "model": self._model,
            "memory": memory.total if memory else 0,
            "pids": sorted(process.pid for process in processes),
            "trouble": next(iter(self._troubles), ""),
        }

    def _reasons_against_it(self) -> list[str]:
        nvml = self._nvml
        mig: Sequence[int] = self._ask("MigMode") or (0, 0)
        errors = self._ask(
            "TotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
        pages = self._ask("RetiredPagesPendingStatus")
        rows: Sequence[int] = self._ask("RemappedRows") or (0, 0, 0, 0)
        reasons = {
            "MIG is on: parts of GPUs are not leased": mig[0] == nvml.NVML_DEVICE_MIG_ENABLE,
            f"{errors} uncorrectable memory errors since its driver was loaded": errors,
            "memory pages wait to be retired: it needs a reset": pages,
            "broken memory rows could not be remapped": rows[3],
        }
        return [reason for reason, applies in reasons.items() if applies]

    def _ask(self, what: str, *args: int) -> Any:
        try:
            return getattr(self._nvml, f"nvmlDeviceGet{what}")(self.handle, *args)
        except self._nvml.NVMLError as error:
            if error.value not in self._says_nothing:
                self._troubles.append(f"{what}: {error}")
            return None


def _link(nvml: Any, one: Any, other: Any) -> str:
    """What joins two GPUs; empty if NVML does not know."""
    try:
        status = nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        if status == nvml.NVML_P2P_STATUS_OK:
            return NVLINK
    except nvml.NVMLError:
        pass  # GPUs and drivers from before NVLink
    try:
        level = nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
    except nvml.NVMLError:
        return ""
    return SWITCH if level <= nvml.NVML_TOPOLOGY_MULTIPLE else FAR
