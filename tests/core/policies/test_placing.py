"""Which GPUs are chosen: together, near what an app has, own ones first."""

import random

import pytest

from themis.core.model import GpuId, Machine, Topology
from themis.core.policies.placing import Pool

# GPUs 0-3 in two slots, 4-5 in one slot, 6-9 in one slot; the last machine is in another rack.
RACKS = Topology(
    (
        Machine("m0", "r0", (2, 2)),
        Machine("m1", "r0", (2,)),
        Machine("m2", "r1", (4,)),
    )
)
ALL = tuple(map(GpuId, range(10)))


def _ids(*numbers: int) -> tuple[GpuId, ...]:
    return tuple(map(GpuId, numbers))


@pytest.mark.parametrize(
    ("free", "count", "gang", "taken"),
    [
        pytest.param(ALL, 4, 4, _ids(6, 7, 8, 9), id="a slot that fits"),
        pytest.param(ALL, 2, 2, _ids(0, 1), id="the tightest slot, not the largest"),
        pytest.param(_ids(0, 1, 2, 3, 4, 5), 4, 4, _ids(0, 1, 2, 3), id="else one machine"),
        pytest.param(_ids(0, 1, 4, 5, 6), 4, 4, _ids(0, 1, 4, 5), id="else one rack"),
        pytest.param(_ids(0, 4, 6), 3, 3, _ids(0, 4, 6), id="else anywhere"),
        pytest.param(_ids(0, 1), 4, 4, _ids(0, 1), id="what there is"),
        pytest.param(ALL, 6, 2, _ids(0, 1, 2, 3, 4, 5), id="several gangs, each together"),
        pytest.param((), 3, 1, (), id="nothing"),
    ],
)
def test_a_gang_takes_its_tightest_home(
    free: tuple[GpuId, ...], count: int, gang: int, taken: tuple[GpuId, ...]
) -> None:
    pool = Pool(RACKS, free)
    assert pool.take(count, gang=gang) == taken
    assert pool.gpus() == tuple(gpu for gpu in free if gpu not in taken)


def test_own_gpus_come_first() -> None:
    assert Pool(RACKS, ALL).take(4, gang=4, own=_ids(1, 2, 5, 9)) == _ids(1, 2, 5, 9)


def test_whole_gangs_are_kept_of_surplus_own_gpus() -> None:
    assert Pool(RACKS, ALL).take(4, gang=4, own=_ids(0, 4, 6, 7, 8, 9)) == _ids(6, 7, 8, 9)


def test_a_broken_gang_is_made_whole_where_it_is() -> None:
    # A slot of four is free elsewhere, but three GPUs there would split the gang.
    assert Pool(RACKS, ALL).take(4, gang=4, own=_ids(0)) == _ids(0, 1, 2, 3)
    assert Pool(RACKS, _ids(2, 3, 4, 5, 6)).take(1, gang=2, near=_ids(7)) == _ids(6)
    assert Pool(RACKS, _ids(1, 2, 3)).take(1, gang=4, near=_ids(0)) == _ids(1)


def test_only_allowed_machines_are_used() -> None:
    pool = Pool(RACKS, ALL)
    assert pool.count(frozenset({1, 2})) == 6
    assert pool.take(9, gang=2, machines=frozenset({1})) == _ids(4, 5)
    assert pool.take_from(ALL, 9, random.Random(1), machines=frozenset({0})) == list(
        _ids(0, 1, 2, 3)
    )
    assert pool.take(2, machines=frozenset({0, 1})) == ()
    assert len(pool) == 4


def test_returned_gpus_can_be_taken_again() -> None:
    pool = Pool(RACKS, _ids(0, 1))
    (gpu,) = pool.take(1)
    assert gpu not in pool
    pool.put_back(gpu)
    assert pool.gpus() == _ids(0, 1)
    assert pool.take(2, gang=2) == _ids(0, 1)


def test_taking_anywhere_is_blind_to_distance() -> None:
    seen = {tuple(Pool(RACKS, ALL).take_from(ALL, 2, random.Random(seed))) for seed in range(50)}
    assert {RACKS.level(pair) for pair in seen} == {0, 1, 2, 3}
