from collections import Counter

import pytest

from themis.core.model import Machine, Topology
from themis.core.model.presets import PRESETS, contended, preset
from themis.errors import ConfigError


def sizes(topology: Topology) -> Counter[int]:
    return Counter(machine.gpus for machine in topology.machines)


def per_rack(topology: Topology) -> list[int]:
    counts = Counter(machine.rack for machine in topology.machines)
    return [counts[rack] for rack in topology.racks]


@pytest.mark.parametrize(
    ("name", "gpus", "machines"),
    [
        ("testbed64", 64, {2: 8, 4: 12}),
        ("sim256", 256, {8: 27, 4: 6, 1: 16}),
        ("footnote168", 168, {8: 16, 4: 6, 1: 16}),
        ("truth64", 64, {8: 1, 2: 28}),
        ("demo16", 16, {4: 3, 2: 1, 1: 2}),
    ],
)
def test_presets_are_the_clusters_of_the_evaluation(
    name: str, gpus: int, machines: dict[int, int]
) -> None:
    topology = preset(name)
    assert topology.name == name
    assert topology.gpus == gpus
    assert sizes(topology) == machines


def test_every_preset_is_tested_above() -> None:
    assert set(PRESETS) == {"testbed64", "sim256", "footnote168", "truth64", "demo16"}


@pytest.mark.parametrize(
    ("name", "racks"),
    [
        ("testbed64", [5, 5, 5, 5]),
        ("sim256", [8, 8, 8, 8, 8, 8, 1]),
        ("footnote168", [8, 8, 8, 8, 6]),
        ("truth64", [8, 8, 8, 5]),
        ("demo16", [2, 2, 2]),
    ],
)
def test_racks_are_filled_in_order(name: str, racks: list[int]) -> None:
    assert per_rack(preset(name)) == racks


def test_four_gpu_machines_have_two_slots_except_in_the_simulated_clusters() -> None:
    def slots(name: str) -> set[tuple[int, ...]]:
        return {machine.slots for machine in preset(name).machines}

    assert slots("testbed64") == {(2,), (2, 2)}
    assert slots("sim256") == {(2, 2, 2, 2), (1, 1, 1, 1), (1,)}
    assert slots("footnote168") == slots("sim256")
    assert slots("truth64") == {(2, 2, 2, 2), (2,)}


def test_the_demo_cluster_has_every_locality_level() -> None:
    topology = preset("demo16")
    pairs = [(a.gpu, b.gpu) for a in topology.seats for b in topology.seats if a.gpu < b.gpu]
    assert {topology.level(pair) for pair in pairs} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("name", "contention", "machines"),
    [
        ("testbed64", 2, {2: 4, 4: 6}),
        ("testbed64", 4, {2: 2, 4: 3}),
        ("sim256", 2, {8: 14, 4: 3, 1: 8}),
        ("sim256", 4, {8: 7, 4: 2, 1: 4}),
        ("truth64", 4, {8: 1, 2: 7}),
        ("demo16", 2, {4: 2, 2: 1, 1: 1}),
    ],
)
def test_contention_divides_the_machines_of_each_kind_and_rounds_up(
    name: str, contention: int, machines: dict[int, int]
) -> None:
    assert sizes(preset(name, contention)) == machines


def test_racks_of_a_contended_preset_are_filled_again() -> None:
    assert per_rack(preset("testbed64", 2)) == [5, 5]


def test_a_contended_cluster_keeps_its_racks_and_every_kind() -> None:
    topology = Topology(
        (
            Machine("a", "x", (2,)),
            Machine("b", "x", (2,), "v100"),
            Machine("c", "y", (2,)),
            Machine("d", "y", (2,)),
        )
    )
    kept = contended(topology, 2)
    assert [(m.name, m.rack) for m in kept.machines] == [("a", "x"), ("b", "x"), ("c", "y")]


@pytest.mark.parametrize("contention", [0, -1, True, 1.5, 10**9])
def test_a_contention_that_cannot_be_is_refused(contention: int) -> None:
    with pytest.raises(ConfigError, match="contention"):
        preset("testbed64", contention)


def test_an_unknown_preset_suggests_the_closest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'testbed64'"):
        preset("testbed46")
