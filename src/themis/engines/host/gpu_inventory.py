"""Which GPUs a machine has: read from nvidia-smi, or pretended.

    Nvidia("m0").discover()
    Pretend("m0", slots=(2, 2)).discover()

The parsers follow the documented output and are tested on outputs in that form; none of this has
run on a machine with a GPU yet (docs/guides/jobs.md says so too).
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from themis.core.model import Machine
from themis.engines.base import Discovered, Gpu
from themis.errors import UnavailableError

FIELDS = (
    "index",
    "uuid",
    "name",
    "memory.total",
    "mig.mode.current",
    "ecc.errors.uncorrected.volatile.total",
    "retired_pages.pending",
    "remapped_rows.failure",
)
_NEEDED = 4
"""Without the first of them there is nothing to say; the others vary with driver and model."""
_TIMEOUT = 30.0
_NOT_A_FIELD = re.compile(r'Field "([^"]+)" is not a valid field')
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_UUID = re.compile(r"GPU-[0-9a-fA-F-]{8,64}\Z")
_BROKEN = ("error", "err!", "requires reset", "is lost", "unknown")
_CLOSE = ("PIX", "PXB")

Run = Callable[[Sequence[str]], str]
"""Runs nvidia-smi with some arguments and returns all that it printed."""
IsOurs = Callable[[int], bool]
"""Whether a process id belongs to a job of ours."""


class Inventory(Protocol):
    """Knows the GPUs of one machine."""

    def discover(self, is_ours: IsOurs) -> Discovered:
        """The machine as it is now."""


@dataclass(frozen=True, slots=True)
class Pretend:
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


@dataclass(frozen=True, slots=True)
class Nvidia:
    """The GPUs that the NVIDIA driver knows."""

    name: str
    rack: str = "r0"
    run: Run | None = None

    def discover(self, is_ours: IsOurs) -> Discovered:
        """Ask nvidia-smi.

        Raises:
            UnavailableError: It is not there, says nothing useful, or knows no GPU.
        """
        run = self.run or run_nvidia_smi
        rows, notes = query(run)
        busy = parse_processes(run(("--query-compute-apps=gpu_uuid,pid", *_CSV)))
        links = parse_links(run(("topo", "-m")))
        groups = group_by_links([row.index for row in rows], links)
        if not links and len(rows) > 1:
            notes = (*notes, "no topology in `nvidia-smi topo -m`: every GPU counts as a slot")
        by_index = {row.index: row for row in rows}
        ordered = [by_index[index] for group in groups for index in group]
        gpus = tuple(
            Gpu(
                number,
                row.uuid,
                row.model,
                row.trouble or _foreign(busy.get(row.uuid, ()), is_ours),
            )
            for number, row in enumerate(ordered)
        )
        return Discovered(_machine(self.name, self.rack, ordered, groups), gpus, notes)


@dataclass(frozen=True, slots=True)
class SmiRow:
    """One line of `nvidia-smi --query-gpu`."""

    index: int
    uuid: str
    model: str
    memory: float
    trouble: str


_CSV = ("--format=csv,noheader,nounits",)


def run_nvidia_smi(args: Sequence[str]) -> str:
    """All that nvidia-smi prints; it exits with errors and still tells of healthy GPUs."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise UnavailableError("nvidia-smi is not installed; pretend GPUs work without it")
    try:
        done = subprocess.run(
            [program, *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"nvidia-smi did not answer within {_TIMEOUT:g} s") from None
    return done.stdout + done.stderr


def query(run: Run) -> tuple[tuple[SmiRow, ...], tuple[str, ...]]:
    """All GPUs, and lines that speak of none; fields that the driver does not know are left out."""
    fields = list(FIELDS)
    while True:
        text = run((f"--query-gpu={','.join(fields)}", *_CSV))
        unknown = _NOT_A_FIELD.search(text)
        if unknown is None or unknown[1] not in fields[_NEEDED:]:
            break
        fields.remove(unknown[1])
    rows, notes = parse_gpus(text, fields)
    if not rows:
        raise UnavailableError(f"nvidia-smi tells of no GPU: {text.strip()[:200] or 'nothing'}")
    return rows, notes


def parse_gpus(text: str, fields: Sequence[str]) -> tuple[tuple[SmiRow, ...], tuple[str, ...]]:
    """The rows of a query for `fields`, and all other lines."""
    rows: list[SmiRow] = []
    notes: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        values = dict(zip(fields, cells, strict=False))
        if len(cells) == len(fields) and cells[0].isdigit() and _UUID.match(values["uuid"]):
            rows.append(_row(values))
        else:
            notes.append(line.strip()[:200])
    return tuple(sorted(rows, key=lambda row: row.index)), tuple(notes)


def _row(values: Mapping[str, str]) -> SmiRow:
    memory = values["memory.total"]
    mebibytes = float(memory) if memory.replace(".", "", 1).isdigit() else 0.0
    return SmiRow(
        int(values["index"]), values["uuid"], values["name"], mebibytes / 1024, _trouble(values)
    )


def _trouble(values: Mapping[str, str]) -> str:
    """Why a GPU must not be used. Values it does not have, like `[N/A]`, say nothing."""
    for name, value in values.items():
        if any(word in value.lower() for word in _BROKEN) and name != "name":
            return f"{name}: {value}"
    if values.get("mig.mode.current") == "Enabled":
        return "MIG is on: parts of GPUs are not leased"
    errors = values.get("ecc.errors.uncorrected.volatile.total", "0")
    if errors.isdigit() and int(errors) > 0:
        return f"{errors} uncorrectable memory errors since its driver was loaded"
    if values.get("retired_pages.pending") == "Yes":
        return "memory pages wait to be retired: it needs a reset"
    if values.get("remapped_rows.failure") in {"Yes", "1"}:
        return "broken memory rows could not be remapped"
    return ""


def parse_processes(text: str) -> dict[str, tuple[int, ...]]:
    """Process ids by the UUID of the GPU they compute on."""
    found: dict[str, list[int]] = {}
    for line in text.splitlines():
        uuid, _, pid = (part.strip() for part in line.partition(","))
        if _UUID.match(uuid) and pid.isdigit():
            found.setdefault(uuid, []).append(int(pid))
    return {uuid: tuple(sorted(pids)) for uuid, pids in sorted(found.items())}


def _foreign(pids: Sequence[int], is_ours: IsOurs) -> str:
    others = [pid for pid in pids if not is_ours(pid)]
    return f"used by process {others[0]}, which Themis did not start" if others else ""


def parse_links(text: str) -> dict[tuple[int, int], str]:
    """What lies between each two GPUs, from `nvidia-smi topo -m`: NV4, PIX, PXB, PHB, NODE, SYS."""
    lines = [_ESCAPES.sub("", line) for line in text.splitlines()]
    header = next((line.split() for line in lines if re.match(r"\s+GPU\d+", line)), [])
    columns = [int(name[3:]) for name in header if re.match(r"GPU\d+\Z", name)]
    links: dict[tuple[int, int], str] = {}
    for line in lines:
        name, *cells = line.split() or [""]
        if not re.match(r"GPU\d+\Z", name) or len(cells) < len(columns):
            continue
        row = int(name[3:])
        links |= {(row, column): cell for column, cell in zip(columns, cells, strict=False)}
    return {pair: cell for pair, cell in links.items() if pair[0] != pair[1]}


def group_by_links(
    indices: Sequence[int], links: Mapping[tuple[int, int], str]
) -> tuple[tuple[int, ...], ...]:
    """GPUs in slots: joined by NVLink, or where there is none by a PCIe switch."""
    nvlink = any(cell.startswith("NV") for cell in links.values())
    group_of = {index: index for index in indices}
    for (one, other), cell in sorted(links.items()):
        if one in group_of and other in group_of and _is_close(cell, nvlink=nvlink):
            low, high = sorted((group_of[one], group_of[other]))
            group_of = {i: low if g == high else g for i, g in group_of.items()}
    groups: dict[int, list[int]] = {}
    for index in sorted(indices):
        groups.setdefault(group_of[index], []).append(index)
    return tuple(tuple(group) for group in groups.values())


def _is_close(cell: str, *, nvlink: bool) -> bool:
    return cell.startswith("NV") if nvlink else cell in _CLOSE


def _machine(
    name: str, rack: str, rows: Sequence[SmiRow], groups: Sequence[Sequence[int]]
) -> Machine:
    models = {_slug(row.model) for row in rows}
    model = models.pop() if len(models) == 1 else "mixed"
    memory = round(min(row.memory for row in rows), 2)
    return Machine(name, rack, tuple(len(group) for group in groups), model, memory)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].strip("-") or "gpu"
