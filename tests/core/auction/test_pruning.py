"""Rows that cannot matter are dropped, and no others."""

import pytest

from themis.core.auction import Candidate
from themis.core.auction.solvers.dominance import useful_shapes
from themis.core.model import Chunk


def _row(rho: float, *chunks: Chunk) -> Candidate:
    return Candidate(chunks, rho)


def _useful(rows: tuple[Candidate, ...], rho_nothing: float) -> tuple[Candidate, ...]:
    return tuple(rows[index] for index, _ in useful_shapes(rows, rho_nothing))


def test_rows_not_better_than_nothing_are_dropped() -> None:
    rows = (_row(2.0, Chunk(0, 1)), _row(3.0, Chunk(0, 2)), _row(1.0, Chunk(0, 4)))
    assert _useful(rows, 2.0) == (rows[2],)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param(_row(1, Chunk(1, 2)), _row(1, Chunk(1, 2)), id="the same twice"),
        pytest.param(_row(1, Chunk(1, 2)), _row(2, Chunk(1, 4)), id="more GPUs for less"),
        pytest.param(_row(1, Chunk(2, 2)), _row(1, Chunk(1, 2)), id="closer for nothing"),
        pytest.param(_row(1, Chunk(1, 2)), _row(2, Chunk(1, 2, machine=0)), id="a pin for nothing"),
        pytest.param(
            _row(1, Chunk(1, 2), Chunk(1, 2)), _row(2, Chunk(1, 4)), id="two parts of one chunk"
        ),
        pytest.param(_row(1, Chunk(3, 6)), _row(2, Chunk(1, 3), Chunk(1, 3)), id="the sum will do"),
        pytest.param(_row(1, Chunk(3, 1)), _row(2, Chunk(0, 1)), id="one GPU at any level"),
        pytest.param(
            _row(1, Chunk(0, 1, machine=0)), _row(2, Chunk(3, 2, machine=0)), id="part of a pin"
        ),
    ],
)
def test_a_row_beaten_in_every_respect_is_dropped(better: Candidate, worse: Candidate) -> None:
    assert _useful((better, worse), 8.0) == (better,)
    assert _useful((worse, better), 8.0) == (better,)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(_row(1, Chunk(1, 4)), _row(2, Chunk(1, 2)), id="fewer GPUs"),
        pytest.param(_row(1, Chunk(0, 2)), _row(2, Chunk(1, 2)), id="further apart"),
        pytest.param(_row(1, Chunk(1, 2, machine=0)), _row(2, Chunk(1, 2)), id="no pin"),
        pytest.param(
            _row(1, Chunk(1, 2, machine=0)), _row(2, Chunk(1, 2, machine=1)), id="another pin"
        ),
        pytest.param(_row(1, Chunk(1, 4)), _row(2, Chunk(1, 2), Chunk(1, 2)), id="in two parts"),
        pytest.param(_row(1, Chunk(2, 3)), _row(2, Chunk(3, 3)), id="across racks"),
    ],
)
def test_a_row_that_fits_elsewhere_stays(one: Candidate, other: Candidate) -> None:
    assert _useful((one, other), 8.0) == (one, other)
