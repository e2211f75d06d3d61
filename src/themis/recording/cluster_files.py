"""Clusters as YAML files.

    name: lab
    racks:
      - name: r0
        machines:
          - {name: big, slots: [4, 4], gpu_model: v100, gpu_memory: 32G}
          - {count: 3, prefix: small-, slots: 2x2}      # small-0 to small-2: 2 slots x 2 GPUs

cluster("testbed64", contention=2)      # a preset
cluster("lab.yaml")                     # or a file

A rack without a name is called r0, r1, ... by its place. GPUs are P100 with 16 GB unless said.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from themis.core.model import Machine, Topology
from themis.core.model.ids import check_count, check_name, check_number
from themis.core.model.presets import PRESETS, contended, preset
from themis.errors import ConfigError, unknown_name
from themis.recording.yaml_documents import FilePosition, read_document, shown

MAX_GPUS = 100_000
MAX_GPU_MEMORY = 10_000.0
MAX_SLOTS = 4096
MAX_MISTAKES = 20
"""The most that are reported of one file."""

_TOP = ("name", "racks")
_RACK = ("name", "machines")
_MACHINE = ("name", "count", "prefix", "slots", "gpu_model", "gpu_memory")

_GRID = re.compile(r"([0-9]{1,4})x([0-9]{1,4})\Z")
_MEMORY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(?:G|GB|GiB)\Z")


def cluster(name_or_path: str, contention: int = 1) -> Topology:
    """The preset of this name, or the cluster in this file; 1/contention of each machine kind.

    Raises:
        ConfigError: Neither a preset nor a readable file, or something in the file is wrong.
    """
    if name_or_path in PRESETS:
        return preset(name_or_path, contention)
    path = Path(name_or_path)
    if not path.suffix and os.sep not in name_or_path and not _is_file(path):
        problem = unknown_name("cluster", name_or_path, PRESETS)
        raise ConfigError("cluster", shown(name_or_path), f"{problem.allowed}, or a YAML file")
    return contended(read_cluster(path), contention)


def read_cluster(path: Path | str, mistakes: list[ConfigError] | None = None) -> Topology:
    """The cluster in a YAML file.

    Args:
        path: The file.
        mistakes: Gets every mistake in the file, of which only the first is raised.

    Raises:
        ConfigError: Names the file, the line, the key, what it got and what is allowed.
    """
    data, place = read_document(Path(path))
    return _topology(data, place, [] if mistakes is None else mistakes)


def parse_cluster(data: object, where: str = "") -> Topology:
    """The cluster in plain data as YAML gives it; `where` goes into messages.

    Raises:
        ConfigError: Something is wrong with it.
    """
    return _topology(data, FilePosition(where), [])


def _topology(data: object, place: FilePosition, mistakes: list[ConfigError]) -> Topology:
    """The cluster in a document; reads on after a mistake, to find all of them."""
    top = place.mapped(data, _TOP, required=["racks"])
    racks = place.at("racks").listed(top["racks"])
    seen = _ParsedCluster()
    name = ""
    with _kept(mistakes):
        name = _name(top.get("name", "cluster"), place.at("name"))
    for index, item in enumerate(racks):
        with _kept(mistakes):
            _add_rack(item, place.at("racks", index), seen, mistakes)
    if mistakes:
        raise mistakes[0]
    return Topology(tuple(seen.machines), name)


@contextmanager
def _kept(mistakes: list[ConfigError]) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        if len(mistakes) >= MAX_MISTAKES:
            raise mistakes[0] from None
        mistakes.append(error)


@dataclass(slots=True)
class _ParsedCluster:
    """The part of a cluster that has been read."""

    racks: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    machines: list[Machine] = field(default_factory=list)
    gpus: int = 0

    def add(self, machine: Machine, place: FilePosition) -> None:
        self.gpus += machine.gpus
        if self.gpus > MAX_GPUS:
            raise place.error("more", f"at most {MAX_GPUS} GPUs in a cluster")
        if machine.name in self.names:
            raise place.error(machine.name, "a name that no other machine has")
        self.names.add(machine.name)
        self.machines.append(machine)


def _add_rack(
    item: object, place: FilePosition, seen: _ParsedCluster, mistakes: list[ConfigError]
) -> None:
    rack = place.mapped(item, _RACK, required=["machines"])
    name = _name(rack.get("name", f"r{place.steps[-1]}"), place.at("name"))
    if name in seen.racks:
        raise place.at("name").error(name, "a name that no other rack has")
    seen.racks.add(name)
    for number, entry in enumerate(place.at("machines").listed(rack["machines"])):
        at = place.at("machines", number)
        with _kept(mistakes):
            for machine in _machines(entry, name, at):
                seen.add(machine, at)


def _machines(entry: object, rack: str, place: FilePosition) -> Iterator[Machine]:
    """The machines of one entry, one by one, so that a huge count stops at the limit."""
    given = place.mapped(entry, _MACHINE, required=["slots"])
    slots = _slots(given["slots"], place.at("slots"))
    model = _name(given.get("gpu_model", "p100"), place.at("gpu_model"))
    memory = _memory(given.get("gpu_memory", 16.0), place.at("gpu_memory"))
    for name in _names(given, place):
        yield Machine(name, rack, slots, model, memory)


def _names(given: dict[str, object], place: FilePosition) -> Iterator[str]:
    keys = [key for key in ("name", "count", "prefix") if key in given]
    if keys == ["name"]:
        yield _name(given["name"], place.at("name"))
    elif keys == ["count", "prefix"]:
        with place.at("count").blamed():
            count = check_count("count", given["count"], high=MAX_GPUS)
        prefix = given["prefix"]
        if not isinstance(prefix, str):
            raise place.at("prefix").error(prefix, "the start of a name")
        for index in range(count):
            yield _name(f"{prefix}{index}", place.at("prefix"))
    else:
        raise place.error(" and ".join(keys) or None, "either name, or count and prefix")


def _name(value: object, place: FilePosition) -> str:
    with place.blamed():
        return check_name("name", shown(value))


def _slots(value: object, place: FilePosition) -> tuple[int, ...]:
    """`[2, 2]` or `2x2`: slots x GPUs in each."""
    if isinstance(value, str):
        grid = _GRID.match(value)
        if grid is None or not int(grid[1]) or not int(grid[2]):
            raise place.error(value, "slots x GPUs such as 2x2, or a list such as [2, 2]")
        value = [int(grid[2])] * int(grid[1])
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_SLOTS:
        raise place.error(value, f"1 to {MAX_SLOTS} slots, such as 2x2 or [2, 2]")
    with place.blamed():
        return tuple(check_count("slots", shown(size), high=MAX_SLOTS) for size in value)


def _memory(value: object, place: FilePosition) -> float:
    """Gigabytes: `16G` or 16."""
    if isinstance(value, str):
        found = _MEMORY.match(value)
        if found is None:
            raise place.error(value, "gigabytes such as 16G or 16")
        value = float(found[1])
    with place.blamed():
        return check_number("gpu_memory", shown(value), above=True, high=MAX_GPU_MEMORY)


def _is_file(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # a name too long, or with a NUL in it
        return False
