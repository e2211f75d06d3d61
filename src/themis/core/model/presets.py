"""The clusters of the evaluation, by name.

preset("testbed64").gpus                  # 64
preset("testbed64", contention=2).gpus    # half of the machines of each kind, rounded up

The paper does not say how machines stand in racks. Here racks are filled in the order given, with
at most 5 machines in testbed64, 2 in demo16 and 8 in the others.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from themis.core.model.ids import check_count
from themis.core.model.topology import Machine, Topology
from themis.errors import unknown_name

Item = TypeVar("Item")
Slots = tuple[int, ...]

ONE: Slots = (1,)
PAIR: Slots = (2,)
FOUR: Slots = (2, 2)
FOUR_APART: Slots = (1, 1, 1, 1)
EIGHT: Slots = (2, 2, 2, 2)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The slots of each machine, in rack order, and how many machines a rack takes."""

    machines: tuple[Slots, ...]
    per_rack: int


_PLANS = {
    # The paper's testbed: 8 machines of 2 GPUs and 12 of 4.
    "testbed64": _Plan(8 * (PAIR,) + 12 * (FOUR,), per_rack=5),
    # The paper says 256 GPUs, its footnote lists machines that add up to 168. One preset each.
    "sim256": _Plan(27 * (EIGHT,) + 6 * (FOUR_APART,) + 16 * (ONE,), per_rack=8),
    "footnote168": _Plan(16 * (EIGHT,) + 6 * (FOUR_APART,) + 16 * (ONE,), per_rack=8),
    # The truth-telling experiment: one good machine that every app wants.
    "truth64": _Plan((EIGHT,) + 28 * (PAIR,), per_rack=8),
    # The demo: small, yet with every locality level.
    "demo16": _Plan((FOUR, PAIR, FOUR, ONE, FOUR, ONE), per_rack=2),
}

PRESETS = tuple(_PLANS)
"""Names that `preset` knows."""

MAX_CONTENTION = 1000


def preset(name: str, contention: int = 1) -> Topology:
    """The cluster of this name, with 1/contention of the machines of each kind, rounded up.

    Raises:
        ConfigError: Unknown name, or a contention that is not a positive whole number.
    """
    plan = _PLANS.get(name)
    if plan is None:
        raise unknown_name("cluster", name, PRESETS)
    kept = thin(plan.machines, contention, kind=lambda slots: slots)
    machines = (
        Machine(f"r{index // plan.per_rack}m{index % plan.per_rack}", _rack(index, plan), slots)
        for index, slots in enumerate(kept)
    )
    return Topology(tuple(machines), name)


def contended(topology: Topology, contention: int) -> Topology:
    """Any cluster with 1/contention of the machines of each kind, in the racks they stand in."""
    kept = thin(topology.machines, contention, kind=lambda m: (m.slots, m.gpu_model, m.gpu_memory))
    return Topology(kept, topology.name)


def thin(
    items: Sequence[Item], contention: int, *, kind: Callable[[Item], Hashable]
) -> tuple[Item, ...]:
    """The first 1/contention of the items of each kind, rounded up, in their order."""
    check_count("contention", contention, high=MAX_CONTENTION)
    total = Counter(kind(item) for item in items)
    seen: Counter[Hashable] = Counter()
    kept: list[Item] = []
    for item in items:
        this = kind(item)
        if seen[this] < -(-total[this] // contention):
            kept.append(item)
        seen[this] += 1
    return tuple(kept)


def _rack(index: int, plan: _Plan) -> str:
    return f"r{index // plan.per_rack}"
