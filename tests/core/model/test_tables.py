"""Tables by the column are the rows that they stand for."""

import math
import pickle

import pytest

from themis.core.auction.problem import check_bid
from themis.core.model import CLUSTER, MACHINE, SLOT, AppId, Bid, RowTable, TableRow, TableShape
from themis.core.model.tables import shape_of
from themis.errors import InvalidBidError
from themis.recording.codec import dumps

ROWS = (TableRow(SLOT, 1, 900.0), TableRow(MACHINE, 4, 300.0), TableRow(CLUSTER, 1, 950.0))


def test_a_table_is_equal_to_the_tuple_of_its_rows() -> None:
    table = RowTable.of(ROWS)
    assert table == ROWS
    assert hash(Bid(AppId("a"), (), table)) == hash(Bid(AppId("a"), (), ROWS))
    assert table != ROWS[:2]
    assert table != RowTable.of(ROWS[:2])
    assert (tuple(table), table[1], table[1:], len(table)) == (ROWS, ROWS[1], ROWS[1:], 3)
    assert pickle.loads(pickle.dumps(table)) == table


def test_a_table_is_written_down_as_its_rows() -> None:
    assert dumps(Bid(AppId("a"), (), RowTable.of(ROWS))) == dumps(Bid(AppId("a"), (), ROWS))
    assert repr(RowTable.of(ROWS)) == repr(ROWS)


def test_tables_with_the_same_levels_and_counts_share_their_shape() -> None:
    others = tuple(TableRow(row.level, row.count, 1.0) for row in ROWS)
    assert RowTable.of(ROWS).shape is RowTable.of(others).shape


def test_shape_lists_rows_of_a_level_by_count_in_any_input_order() -> None:
    shape = TableShape(((MACHINE, 4), (SLOT, 1), (MACHINE, 2), (MACHINE, 8)))
    counts, pick = shape.columns[MACHINE]
    assert counts == [2, 4, 8]
    assert list(pick((40.0, 10.0, 20.0, 80.0))) == [20.0, 40.0, 80.0]
    assert (shape.most, shape.alone) == (8, (1,))
    assert shape.columns[CLUSTER][0] == []


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [
        pytest.param(((0, 1), (0, 2)), (1.0, math.nan), id="NaN"),
        pytest.param(((0, 1), (0, 2)), (1.0, math.inf), id="infinity"),
        pytest.param(((0, 1), (0, 2)), (1.0, 0.0), id="no time at all"),
        pytest.param(((0, 1),), (1e16,), id="longer than anything"),
        pytest.param(((0, 1),), ("1",), id="words"),
        pytest.param(((9, 1),), (1.0,), id="a level that there is not"),
        pytest.param(((0, 0),), (1.0,), id="no GPUs"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(
    rows: tuple[tuple[int, int], ...], seconds: tuple[float, ...]
) -> None:
    with pytest.raises(InvalidBidError):
        check_bid(Bid(AppId("a"), (), RowTable(shape_of(rows), seconds)), ())


def test_a_table_that_makes_sense_is_taken() -> None:
    check_bid(Bid(AppId("a"), (), RowTable.of(ROWS)), ())
    check_bid(Bid(AppId("a"), (), ROWS), ())
