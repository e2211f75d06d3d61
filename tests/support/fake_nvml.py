"""The NVML library of a machine that is not there: the answers and errors that it is given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

REFUSED = {
    "unsupported": pynvml.NVML_ERROR_NOT_SUPPORTED,
    "unknown function": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    "lost": pynvml.NVML_ERROR_GPU_IS_LOST,
    "reset": pynvml.NVML_ERROR_RESET_REQUIRED,
    "unknown": pynvml.NVML_ERROR_UNKNOWN,
    "no driver": pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
}
V100 = {
    "UUID": "",
    "Name": "Tesla V100-SXM2-16GB",
    "MemoryInfo": 16160 << 20,
    "MigMode": "unsupported",
    "TotalEccErrors": 0,
    "RetiredPagesPendingStatus": 0,
    "RemappedRows": "unsupported",
    "ComputeRunningProcesses": (),
}
"""What `nvmlDeviceGet...` returns for one GPU, or the name of the error that it raises."""


def uuid(number: int) -> str:
    """The UUID of a made-up GPU."""
    return f"GPU-{number:08x}-aaaa-bbbb-cccc-0123456789ab"


def v100(number: int, **changes: Any) -> dict[str, Any]:
    """A healthy GPU, but for the changes."""
    return V100 | {"UUID": uuid(number)} | changes


@dataclass
class FakeNvml:
    """Stands for the module `pynvml`."""

    gpus: Sequence[Mapping[str, Any] | str]
    """The answers of each GPU; a text is the error of a GPU that gives no handle."""
    nvlinks: Sequence[tuple[int, int]] = ()
    levels: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """How far two GPUs are apart on PCIe; NVML knows nothing of other pairs."""
    broken: str = ""
    """The error of `nvmlInit`, if there is one."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            return getattr(pynvml, name)  # constants and errors
        what = name.removeprefix("nvmlDeviceGet")
        return lambda gpu, *_: self._answer(what, gpu)

    def _answer(self, what: str, gpu: Mapping[str, Any]) -> Any:
        value = _checked(gpu[what], what)
        if what == "MemoryInfo":
            return SimpleNamespace(total=value)
        if what == "ComputeRunningProcesses":
            return [SimpleNamespace(pid=pid) for pid in value]
        return value

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's name
        """Begin."""
        _checked(self.broken, "")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's name
        """How many GPUs there are."""
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802 - NVML's name
        """The answers of a GPU."""
        return _checked(self.gpus[index], "")

    def nvmlDeviceGetP2PStatus(self, one: Any, other: Any, _: int) -> int:  # noqa: N802 - NVML's name
        """Whether NVLink joins two GPUs."""
        joined = self._pair(one, other) in self.nvlinks
        return int(pynvml.NVML_P2P_STATUS_OK if joined else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED)

    def nvmlDeviceGetTopologyCommonAncestor(self, one: Any, other: Any) -> Any:  # noqa: N802 - as above
        """How far two GPUs are apart on PCIe."""
        return _checked(self.levels.get(self._pair(one, other), "unsupported"), "")

    def _pair(self, one: Any, other: Any) -> tuple[int, int]:
        low, high = sorted((self.gpus.index(one), self.gpus.index(other)))
        return low, high


def _checked(value: Any, what: str) -> Any:
    if isinstance(value, str) and value in REFUSED and what not in {"UUID", "Name"}:
        raise pynvml.NVMLError(REFUSED[value])
    return value
