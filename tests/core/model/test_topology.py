import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.core.model import CLUSTER, MACHINE, RACK, SLOT, GpuId, Machine, Topology, level_of
from themis.errors import ConfigError, DuplicateError


def two_racks() -> Topology:
    return Topology(
        (
            Machine("m0", "r0", (2, 2)),
            Machine("m1", "r0", (2,)),
            Machine("m2", "r1", (1, 1)),
        )
    )


def ids(*numbers: int) -> list[GpuId]:
    return [GpuId(number) for number in numbers]


@pytest.mark.parametrize(
    ("gpus", "level"),
    [
        pytest.param(ids(), SLOT, id="nothing"),
        pytest.param(ids(7), SLOT, id="one GPU"),
        pytest.param(ids(0, 1), SLOT, id="one slot"),
        pytest.param(ids(0, 2), MACHINE, id="two slots of one machine"),
        pytest.param(ids(6, 7), MACHINE, id="two slots of one GPU each"),
        pytest.param(ids(0, 1, 2, 3), MACHINE, id="a whole machine"),
        pytest.param(ids(0, 4), RACK, id="two machines of a rack"),
        pytest.param(ids(0, 2, 4), RACK, id="a machine and one more"),
        pytest.param(ids(4, 0, 2), RACK, id="the far one first"),
        pytest.param(ids(0, 6), CLUSTER, id="two racks"),
        pytest.param(ids(0, 1, 2, 3, 4, 5, 6, 7), CLUSTER, id="everything"),
    ],
)
def test_the_level_says_how_far_apart_gpus_are(gpus: list[GpuId], level: int) -> None:
    assert two_racks().level(gpus) == level


@given(st.permutations(range(8)), st.integers(0, 8))
def test_the_level_does_not_depend_on_order_and_never_falls(order: list[int], size: int) -> None:
    topology = two_racks()
    some = ids(*order[:size])
    assert topology.level(some) == topology.level(sorted(some))
    assert topology.level(some) <= topology.level(ids(*order[: size + 1]))


def test_seats_number_slots_and_machines_across_the_cluster() -> None:
    seats = two_racks().seats
    assert [seat.gpu for seat in seats] == list(range(8))
    assert [seat.slot for seat in seats] == [0, 0, 1, 1, 2, 2, 3, 4]
    assert [seat.machine for seat in seats] == [0, 0, 0, 0, 1, 1, 2, 2]
    assert [seat.rack for seat in seats] == [0, 0, 0, 0, 0, 0, 1, 1]


def test_machines_know_their_gpus_and_slots() -> None:
    topology = two_racks()
    assert topology.gpus == 8
    assert topology.gpus_of == ((0, 1, 2, 3), (4, 5), (6, 7))
    assert topology.slots_of == ((0, 1), (2,), (3, 4))
    assert topology.number_of == {"m0": 0, "m1": 1, "m2": 2}
    assert topology.racks == ("r0", "r1")


def test_locality_order_brings_the_machines_of_a_rack_together() -> None:
    mixed = [Machine("a", "x", (1,)), Machine("b", "y", (1,)), Machine("c", "x", (1,))]
    topology = Topology.in_locality_order(mixed)
    assert [machine.name for machine in topology.machines] == ["a", "c", "b"]
    assert [seat.rack for seat in topology.seats] == [0, 0, 1]


def test_a_machine_that_joins_changes_no_id() -> None:
    before = two_racks()
    after = before.joined_by(Machine("m3", "r0", (2,)))
    assert after.seats[: before.gpus] == before.seats
    assert after.gpus_of[3] == (8, 9)
    # It joined the first rack although its ids come last.
    assert after.level(ids(0, 8)) == RACK
    assert after.level(ids(6, 8)) == CLUSTER


def test_two_machines_of_one_name_are_refused() -> None:
    with pytest.raises(DuplicateError) as caught:
        two_racks().joined_by(Machine("m0", "r1", (1,)))
    assert caught.value.who == "m0"


@pytest.mark.parametrize(
    ("name", "rack", "slots"),
    [
        pytest.param("M0", "r0", (1,), id="upper-case machine"),
        pytest.param("m0", "", (1,), id="no rack"),
        pytest.param("m0", "r0", (), id="no slot"),
        pytest.param("m0", "r0", (2, 0), id="an empty slot"),
        pytest.param("m0", "r0", (-2,), id="a negative slot"),
        pytest.param("m0", "r0", (True,), id="a bool slot"),
        pytest.param("m0", "r0", (5000,), id="a huge slot"),
    ],
)
def test_an_impossible_machine_is_refused(name: str, rack: str, slots: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError):
        Machine(name, rack, slots)


def test_a_topology_survives_pickling_with_its_caches_dropped() -> None:
    topology = two_racks()
    assert topology.gpus == 8
    copy = pickle.loads(pickle.dumps(topology))
    assert copy == topology
    assert copy.seats == topology.seats


def test_the_level_of_seats_is_the_level_of_their_gpus() -> None:
    topology = two_racks()
    assert level_of(topology.seats[:4]) == topology.level(ids(0, 1, 2, 3)) == MACHINE
