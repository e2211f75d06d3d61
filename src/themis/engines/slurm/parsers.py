"""Parsers for the output of Slurm's commands, of several versions.

    nodes_from_json(text)       # sinfo --json of 21.08 and 22.05, scontrol show nodes --json after
    nodes_from_text(text)       # scontrol show nodes --oneliner, of all
    racks_from(text)            # scontrol show topology

States are a word, a word and flags, or a list; numbers are numbers or {"set": true, "number": 8};
fields that a version lacks keep their defaults. 22.05 was run; later versions are tested on outputs
in their documented form (tests/engines/slurm).
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from themis.engines.slurm.hostlists import expand

_GPU = re.compile(
    r"(?:^|,)(?:gres[/:])?gpu(?::([A-Za-z0-9_.-]*[A-Za-z_.-][A-Za-z0-9_.-]*))?[:=](\d+)"
)
"""gpu:8, gpu:a100:8(S:0-1), gres/gpu=8, gres:gpu:2."""
_FIELD = re.compile(r"(?:^|\s)([A-Za-z]+)=(.*?)(?=\s[A-Za-z]+=|$)")
_DOWN = {"DOWN", "FAIL", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "ERROR", "FUTURE"}
_CLOSED = {"DRAIN", "DRAINED", "DRAINING", "MAINT", "MAINTENANCE", "REBOOT", "REBOOT_REQUESTED",
           "REBOOT_ISSUED", "INVALID_REG", "FAILING", "BLOCKED"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One machine, as Slurm sees it."""

    name: str
    gpus: int
    model: str
    used: int
    """GPUs that are allocated, ours included."""
    states: frozenset[str]
    """IDLE, MIXED+DRAIN and the like, one by one."""
    partitions: tuple[str, ...] = ()
    reason: str = ""

    @property
    def down(self) -> str:
        """Why no job can run there, if so."""
        return self._told(self.states & _DOWN)

    @property
    def closed(self) -> str:
        """Why no new job may start there, if so."""
        return self._told(self.states & _CLOSED)

    def _told(self, states: Collection[str]) -> str:
        if not states:
            return ""
        words = f"Slurm lists it as {', '.join(sorted(states)).lower()}"
        return f"{words}: {self.reason[:200]}" if self.reason else words


def nodes_from_json(text: str) -> tuple[NodeFacts, ...]:
    """All machines of a JSON output.

    Raises:
        ValueError: It is no JSON, or has no list of nodes.
    """
    body = json.loads(text)
    rows = body.get("nodes") if isinstance(body, dict) else None
    if isinstance(rows, Mapping):  # as some versions wrap lists
        rows = rows.get("nodes")
    if not isinstance(rows, list):
        raise ValueError("no list of nodes in it")
    return tuple(_node(row) for row in rows if isinstance(row, dict) and row.get("name"))


def _node(row: Mapping[str, Any]) -> NodeFacts:
    gpus, model = gpus_in(_words(row.get("gres")))
    used, _ = gpus_in(_words(row.get("gres_used")))
    allocated, _ = gpus_in(_words(row.get("tres_used") or row.get("alloc_tres")))
    return NodeFacts(
        name=str(row["name"]),
        gpus=gpus or gpus_in(_words(row.get("tres")))[0],
        model=model,
        used=max(used, allocated),
        states=_states(row.get("state"), row.get("state_flags")),
        partitions=tuple(map(str, row.get("partitions") or ())),
        reason=_words(row.get("reason")),
    )


def nodes_from_text(text: str) -> tuple[NodeFacts, ...]:
    """All machines of `scontrol show nodes --oneliner`."""
    found = []
    for line in text.splitlines():
        row = {name: value.strip() for name, value in _FIELD.findall(line)}
        if "NodeName" not in row:
            continue
        gpus, model = gpus_in(row.get("Gres", ""))
        used = max(gpus_in(row.get("GresUsed", ""))[0], gpus_in(row.get("AllocTRES", ""))[0])
        partitions = tuple(filter(None, row.get("Partitions", "").split(",")))
        reason = row.get("Reason", "")
        states = _states(row.get("State", ""), None)
        found.append(NodeFacts(row["NodeName"], gpus, model, used, states, partitions, reason))
    return tuple(found)


def gpus_in(text: str) -> tuple[int, str]:
    """How many GPUs a list of generic resources has, and their type if it is one only."""
    typed: dict[str, int] = {}
    for kind, count in _GPU.findall(text):
        typed[kind] = typed.get(kind, 0) + int(count)
    # Accounting lists them with and without type: gres/gpu=4,gres/gpu:a100=4.
    named = {kind: count for kind, count in typed.items() if kind}
    total = typed[""] if "" in typed and "gres/" in text else sum(typed.values())
    return total, next(iter(named)) if len(named) == 1 else ""


def number_of(value: object, default: float = 0.0) -> float:
    """A number, plain or as {"set": true, "infinite": false, "number": 8}."""
    if isinstance(value, Mapping):
        if not value.get("set", True) or value.get("infinite"):
            return default
        value = value.get("number", default)
    if isinstance(value, bool):
        return default
    try:
        return float(str(value))
    except ValueError:
        return default


def _words(value: object) -> str:
    return value if isinstance(value, str) else ""


def _states(state: object, flags: object) -> frozenset[str]:
    """IDLE, idle*, MIXED+DRAIN, ["IDLE", "DRAIN"], with or without flags beside it."""
    words: list[str] = []
    for item in (state, flags):
        for text in item if isinstance(item, list) else [item]:
            words += re.split(r"[+\s]+", str(text)) if isinstance(text, str) else []
    found = set()
    for word in filter(None, words):
        bare = word.rstrip("*~#!%$@^-")
        found.add(bare.upper())
        if "*" in word[len(bare) :]:
            found.add("NOT_RESPONDING")
    return frozenset(found)


def racks_from(text: str) -> dict[str, str]:
    """The leaf switch of each machine, from `scontrol show topology`."""
    racks: dict[str, str] = {}
    for line in text.splitlines():
        row = {name: value.strip() for name, value in _FIELD.findall(line)}
        if "SwitchName" in row and row.get("Level", "0") == "0":
            racks |= dict.fromkeys(expand(row.get("Nodes", "")), row["SwitchName"])
    return racks


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One of our allocations."""

    name: str
    number: str
    state: str
    node: str
    gpus: int
    why: str = ""


JOB_FORMAT = "%j|%i|%T|%N|%b|%r"
"""For `squeue --noheader --format`: as old as Slurm itself, and the same in all versions."""


def jobs_from(text: str) -> tuple[JobFacts, ...]:
    """Allocations, from `squeue` in `JOB_FORMAT`."""
    found = []
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) == 6 and cells[1].strip().isdigit():
            name, number, state, node, gres, why = (cell.strip() for cell in cells)
            found.append(JobFacts(name, number, state, node, gpus_in(gres)[0], why))
    return tuple(found)


def steps_from(text: str) -> frozenset[str]:
    """Allocations that have a step, from `squeue --steps --format %i`."""
    parts = [line.strip().partition(".") for line in text.splitlines()]
    return frozenset(number for number, _, step in parts if step.split("+")[0].isdigit())
