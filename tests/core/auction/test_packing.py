"""The packing is exact: it agrees with trying every GPU."""

import functools
import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from themis.core.auction import OfferedMachine
from themis.core.auction.packing.exact import PackingLimitError, pack
from themis.core.auction.packing.free_gpus import ChunkNeed
from themis.core.auction.problem import normal
from themis.core.auction.solution import Place, place_level
from themis.core.model import Chunk


def _splits(room: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    if not room:
        if count == 0:
            yield ()
        return
    for part in range(min(room[0], count) + 1):
        for rest in _splits(room[1:], count - part):
            yield (part, *rest)


def _naive(machines: Sequence[OfferedMachine], needs: Sequence[ChunkNeed]) -> bool:
    """Every way to take every chunk from every slot."""
    seats = [(m, slot) for m in machines for slot in range(len(m.slots))]
    by_number = {m.machine: m for m in machines}

    @functools.cache
    def place(index: int, room: tuple[int, ...]) -> bool:
        if index == len(needs):
            return True
        need = needs[index]
        usable = [r if need.may_use(m) else 0 for (m, _), r in zip(seats, room, strict=True)]
        for split in _splits(usable, need.chunk.count):
            taken = tuple(
                (m.machine, slot, n) for (m, slot), n in zip(seats, split, strict=True) if n
            )
            if place_level(taken, by_number) <= need.chunk.level and place(
                index + 1, tuple(map(int.__sub__, room, split))
            ):
                return True
        return False

    return place(0, tuple(m.slots[slot] for m, slot in seats))


def _check(
    machines: Sequence[OfferedMachine], needs: Sequence[ChunkNeed], places: list[Place]
) -> None:
    by_number = {m.machine: m for m in machines}
    used: dict[tuple[int, int], int] = {}
    for need, place in zip(needs, places, strict=True):
        assert sum(n for _, _, n in place) == need.chunk.count
        assert place_level(place, by_number) <= need.chunk.level
        for machine, slot, count in place:
            assert count > 0
            assert need.may_use(by_number[machine])
            used[machine, slot] = used.get((machine, slot), 0) + count
    for (machine, slot), count in used.items():
        assert count <= by_number[machine].slots[slot]


def _case(seed: int) -> tuple[list[OfferedMachine], list[ChunkNeed]]:
    rng = random.Random(seed)
    shapes = [(2,), (3,), (2, 2), (1, 2), (0, 3)]
    machines = [
        OfferedMachine(i * 2, rng.randint(0, 1), rng.choice(shapes))
        for i in range(rng.randint(1, 4))
    ]
    total = sum(m.gpus for m in machines)
    needs: list[ChunkNeed] = []
    while total > 0 and len(needs) < 6:
        count = rng.randint(1, 4)
        total -= count
        pin = rng.choice(machines).machine if rng.random() < 0.15 else None
        allowed = None
        if rng.random() < 0.3:
            allowed = frozenset(m.machine for m in machines if rng.random() < 0.6)
        needs.append(ChunkNeed(normal(Chunk(rng.randint(0, 3), count, pin)), allowed))
    return machines, needs


def test_packing_agrees_with_trying_every_gpu() -> None:
    fitted = 0
    for seed in range(600):
        machines, needs = _case(seed)
        places = pack(machines, needs)
        assert (places is not None) == _naive(machines, needs), seed
        if places is not None:
            fitted += 1
            _check(machines, needs, places)
    assert 100 < fitted < 500


@pytest.mark.parametrize(
    ("level", "machines", "sizes"),
    [
        # Best fit puts the 4 into the 6; only 4 + 3 and 2 + 2 + 2 use every GPU.
        pytest.param(1, [(7,), (6,)], (4, 3, 2, 2, 2), id="machines"),
        # Best fit puts the 3 into the 4; only 3 + 2 and 2 + 2 do.
        pytest.param(0, [(5, 4)], (3, 2, 2, 2), id="slots of one machine"),
        pytest.param(0, [(5,), (4,)], (3, 2, 2, 2), id="slots of two machines"),
    ],
)
def test_best_fit_is_no_trap(
    level: int, machines: list[tuple[int, ...]], sizes: tuple[int, ...]
) -> None:
    offered = [OfferedMachine(i, 0, slots) for i, slots in enumerate(machines)]
    needs = [ChunkNeed(Chunk(level, size)) for size in sizes]
    places = pack(offered, needs)
    assert places is not None
    _check(offered, needs, places)


def test_racks_are_filled_without_a_trap() -> None:
    # The racks have 7 and 6 GPUs in machines of at most 2.
    shapes = [(2, 0), (2, 0), (2, 0), (1, 0), (2, 1), (2, 1), (2, 1)]
    machines = [OfferedMachine(i, rack, (size,)) for i, (size, rack) in enumerate(shapes)]
    needs = [ChunkNeed(Chunk(2, size)) for size in (4, 3, 3, 3)]
    places = pack(machines, needs)
    assert places is not None
    _check(machines, needs, places)
    assert pack(machines, [ChunkNeed(Chunk(2, size)) for size in (5, 4, 4)]) is None


def test_a_restricted_chunk_pushes_a_free_one_aside() -> None:
    machines = [OfferedMachine(0, 0, (2,)), OfferedMachine(1, 0, (2,)), OfferedMachine(2, 0, (2,))]
    needs = [
        ChunkNeed(Chunk(2, 3), frozenset({0, 1})),
        ChunkNeed(Chunk(2, 3), frozenset({1, 2})),
    ]
    for order in itertools.permutations(needs):
        places = pack(machines, order)
        assert places is not None
        _check(machines, order, places)


def test_big_holes_stay_whole() -> None:
    machines = [
        OfferedMachine(0, 0, (4, 4)),
        OfferedMachine(1, 0, (2,)),
        OfferedMachine(2, 0, (4,)),
    ]
    assert pack(machines, [ChunkNeed(Chunk(1, 2))]) == [((1, 0, 2),)]
    assert pack(machines, [ChunkNeed(Chunk(1, 3))]) == [((2, 0, 3),)]
    assert pack(machines, [ChunkNeed(Chunk(0, 1))]) == [((1, 0, 1),)]


def test_a_search_without_end_is_cut_off() -> None:
    machines = [OfferedMachine(i, 0, (7,)) for i in range(6)]
    needs = [ChunkNeed(Chunk(1, 3)) for _ in range(12)] + [ChunkNeed(Chunk(1, 2)) for _ in range(3)]
    assert pack(machines, needs) is None
    with pytest.raises(PackingLimitError):
        pack(machines, needs, limit=3)
