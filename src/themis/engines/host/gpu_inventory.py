"""Which GPUs a machine has: read through NVML, or pretended.

    NvidiaGpus("m0").discover(is_ours)
    PretendGpus("m0", slots=(2, 2)).discover(is_ours)

Tested on answers in the form that NVML's documentation gives; none of this has run on a machine
with a GPU yet (docs/guides/jobs.md says so too).
"""

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from themis.core.model import Machine
from themis.engines.base import Discovered, Gpu
from themis.engines.host.nvml_reader import NVLINK, SWITCH
from themis.engines.supervisor.spawn import command
from themis.errors import UnavailableError

_TIMEOUT = 30.0
_UUID = re.compile(r"GPU-[0-9a-fA-F-]{8,64}\Z")

Ask = Callable[[], Mapping[str, Any]]
"""Returns what `nvml_reader.read_devices` does."""
IsOurs = Callable[[int], bool]
"""Whether a process id belongs to a job of ours."""


class GpuInventory(Protocol):
    """Knows the GPUs of one machine."""

    def discover(self, is_ours: IsOurs) -> Discovered:
        """The machine as it is now."""


@dataclass(frozen=True, slots=True)
class PretendGpus:
    """Numbered slots without hardware, for demos and tests: jobs get the numbers."""

    name: str
    slots: tuple[int, ...] = (1,)
    rack: str = "r0"
    model: str = "pretend"
    memory: float = 16.0

    def discover(self, is_ours: IsOurs) -> Discovered:
        """Always the same."""
        machine = Machine(self.name, self.rack, self.slots, self.model, self.memory)
        gpus = tuple(Gpu(index, model=self.model) for index in range(machine.gpus))
        return Discovered(machine, gpus)


class NvmlProcess:
    """Reads NVML in a child that is killed when the driver hangs."""

    def __init__(self, line: Sequence[str] = (), timeout: float = _TIMEOUT) -> None:
        self._line = line or command("themis.engines.host.nvml_reader", site=True)
        self._timeout = timeout
        self._stuck: subprocess.Popen[str] | None = None

    def __call__(self) -> Mapping[str, Any]:
        """Start the child and return its answer.

        Raises:
            UnavailableError: It gave none in time, or there is no driver.
        """
        # The kernel does not kill a process inside a hanging driver: one of them is enough.
        if self._stuck is not None and self._stuck.poll() is None:
            raise UnavailableError("the NVIDIA driver hangs; a process in it cannot be killed")
        child = subprocess.Popen(
            self._line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        try:
            answer, complaint = child.communicate(timeout=self._timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            self._stuck = child
            with suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=1.0)
            reason = f"the NVIDIA driver did not answer within {self._timeout:g} s"
            raise UnavailableError(reason) from None
        return _parsed(answer, complaint)


def _parsed(answer: str, complaint: str) -> Mapping[str, Any]:
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError:
        said = complaint.strip()[-200:] or "nothing"
        raise UnavailableError(f"the NVIDIA driver cannot be read: {said}") from None
    if "error" in found:
        raise UnavailableError(f"NVML: {found['error']}; pretend GPUs work without a driver")
    return found


class NvidiaGpus:
    """The GPUs that the NVIDIA driver knows."""

    def __init__(self, name: str, rack: str = "r0", ask: Ask | None = None) -> None:
        self._name = name
        self._rack = rack
        self._ask = ask or NvmlProcess()

    def discover(self, is_ours: IsOurs) -> Discovered:
        """Ask NVML.

        Raises:
            UnavailableError: It does not answer, or knows no GPU.
        """
        answer = self._ask()
        found = {gpu["index"]: gpu for gpu in answer["gpus"] if _UUID.match(gpu["uuid"])}
        odd = [f"GPU {gpu['index']}: {gpu['uuid']!r} is no UUID" for gpu in answer["gpus"]
               if gpu["index"] not in found]  # fmt: skip
        notes = (*answer["notes"], *odd)
        if not found:
            raise UnavailableError(f"NVML knows no GPU: {'; '.join(notes)[:200] or 'none'}")
        links = {(one, other): kind for one, other, kind in answer["links"]}
        if not links and len(found) > 1:
            notes = (*notes, "NVML knows no topology: every GPU counts as a slot")
        groups = group_by_links(list(found), links)
        ordered = [found[index] for group in groups for index in group]
        gpus = tuple(
            Gpu(n, gpu["uuid"], gpu["model"], gpu["trouble"] or _foreign(gpu["pids"], is_ours))
            for n, gpu in enumerate(ordered)
        )
        slots = tuple(len(group) for group in groups)
        model, memory = _common(ordered)
        return Discovered(Machine(self._name, self._rack, slots, model, memory), gpus, notes)


def _foreign(pids: Sequence[int], is_ours: IsOurs) -> str:
    others = [pid for pid in pids if not is_ours(pid)]
    return f"used by process {others[0]}, which Themis did not start" if others else ""


def group_by_links(
    indices: Sequence[int], links: Mapping[tuple[int, int], str]
) -> tuple[tuple[int, ...], ...]:
    """GPUs in slots: joined by NVLink, or where there is none by a PCIe switch."""
    near = NVLINK if NVLINK in links.values() else SWITCH
    group_of = {index: index for index in indices}
    for (one, other), kind in sorted(links.items()):
        if one in group_of and other in group_of and kind == near:
            low, high = sorted((group_of[one], group_of[other]))
            group_of = {i: low if g == high else g for i, g in group_of.items()}
    groups: dict[int, list[int]] = {}
    for index in sorted(indices):
        groups.setdefault(group_of[index], []).append(index)
    return tuple(tuple(group) for group in groups.values())


def _common(gpus: Sequence[Mapping[str, Any]]) -> tuple[str, float]:
    """The model of a machine's GPUs, and the memory in GiB of the smallest."""
    models = {_slug(gpu["model"]) for gpu in gpus}
    model = models.pop() if len(models) == 1 else "mixed"
    return model, round(min(gpu["memory"] for gpu in gpus) / 2**30, 2)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].strip("-") or "gpu"
