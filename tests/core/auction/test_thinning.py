"""Fewer rows, where there are too many to look at in time."""

import random

import pytest

from themis.core.auction.row_cap import FEWEST_ROWS, fair_rows, thinned
from themis.core.model import MACHINE, Chunk, Row


def rows(*pairs: tuple[int, float]) -> tuple[Row, ...]:
    return tuple(Row((Chunk(MACHINE, gpus),), seconds) for gpus, seconds in pairs)


def test_bidder_with_thousands_of_rows_displaces_no_small_bidder() -> None:
    counts = [9] * 1000 + [512] * 25
    most = fair_rows(counts, in_all=20_000)
    assert most == (20_000 - 9_000) // 25
    assert sum(min(count, most) for count in counts) <= 20_000


def test_all_rows_are_kept_while_there_is_room() -> None:
    assert fair_rows([3, 500, 40], in_all=543) == 500
    assert fair_rows([]) == FEWEST_ROWS


def test_every_bidder_keeps_a_few_rows() -> None:
    assert fair_rows([100] * 10_000, in_all=1000) == FEWEST_ROWS


@pytest.mark.parametrize("seed", range(20))
def test_the_quickest_rows_of_as_many_sizes_as_possible_are_kept(seed: int) -> None:
    rng = random.Random(seed)
    given = rows(*((rng.randint(1, 12), rng.uniform(1.0, 9.0)) for _ in range(60)))
    most = rng.randint(1, 60)
    kept = thinned(given, most)
    assert len(kept) == most
    assert [row for row in given if row in kept] == list(kept)
    sizes = {row.gpus for row in given}
    assert len({row.gpus for row in kept}) == min(most, len(sizes))
    for gpus in {row.gpus for row in kept}:
        quickest = min(row.seconds for row in given if row.gpus == gpus)
        assert quickest in {row.seconds for row in kept if row.gpus == gpus}


def test_sizes_that_are_kept_are_spread_evenly() -> None:
    given = rows(*((gpus, 1.0) for gpus in range(1, 101)))
    assert [row.gpus for row in thinned(given, 4)] == [1, 34, 67, 100]


def test_few_rows_stay_as_they_are() -> None:
    given = rows((2, 1.0), (2, 1.0), (1, 5.0))
    assert thinned(given, 3) == given
