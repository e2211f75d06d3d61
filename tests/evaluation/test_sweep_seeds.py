"""On which seeds the points of a sweep's figure are."""

import math

import pytest

from themis.evaluation.figures.measured import sweep_seeds_text
from themis.evaluation.run_matrix import Cell, MatrixNumbers, literal_notes

SEEDS = tuple(range(101, 111))
OURS, PRINTED = "themis", "themis-paper"


def measured(printed: int) -> MatrixNumbers:
    """Two values on ten seeds, of the mechanism as printed on the first so many."""
    counts = {OURS: len(SEEDS), PRINTED: printed}
    cells: dict[Cell, int] = {
        (f, name): count for f in (0.0, 1.0) for name, count in counts.items()
    }
    return MatrixNumbers(
        {cell: {"max_rho": [1.0] * n + [math.nan] * (len(SEEDS) - n)} for cell, n in cells.items()},
        SEEDS,
        {cell: SEEDS[:count] for cell, count in cells.items()},
    )


@pytest.mark.parametrize(("printed", "drawn"), [(0, 0), (1, 0), (5, 0), (6, 6), (10, 10)])
def test_printed_mechanism_is_drawn_on_sufficient_seeds_only(printed: int, drawn: int) -> None:
    found = measured(printed)
    same = found.on_common_seeds(found.by_cell)
    assert len(same.present[0.0, OURS]) == 10
    assert len(same.present[0.0, PRINTED]) == drawn
    assert (f"{PRINTED}: 101-106" in sweep_seeds_text(same)) == (drawn == 6)


@pytest.mark.parametrize(
    ("printed", "told"),
    [(0, ["is not run here"]), (1, ["may show chance"]), (6, []), (10, [])],
)
def test_report_explains_the_few_seeds_of_the_printed_mechanism(
    printed: int, told: list[str]
) -> None:
    notes = literal_notes(measured(printed))
    assert len(notes) == len(told)
    assert all(text in note for text, note in zip(told, notes, strict=True))
