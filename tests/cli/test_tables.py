"""Tables that are printed without Rich look as if Rich had printed them."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from themis.cli.common.tables import WIDTH, Listing, listing

_TEXTS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=14)


def _by_rich(table: Listing, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, color_system=None).print(table)
    return out.getvalue().splitlines()


@given(st.data(), st.lists(st.sampled_from(["app", "-GPUs", "=reason"]), min_size=1, max_size=5))
def test_a_table_looks_as_rich_prints_it(data: st.DataObject, columns: list[str]) -> None:
    rows = data.draw(st.lists(st.tuples(*[_TEXTS] * len(columns)), max_size=5))
    table = listing(data.draw(st.sampled_from(["", "a"])), columns, rows)
    lines = table.lines(WIDTH)
    assert lines is None or lines == _by_rich(table, WIDTH)


def test_wide_or_non_latin_tables_are_left_to_rich() -> None:
    assert listing("", ("app", "owner"), [("a" * 40, "b" * 38)]).lines(WIDTH) is not None
    assert listing("", ("app", "owner"), [("a" * 40, "b" * 39)]).lines(WIDTH) is None
    assert listing("", ("app",), [("模型",)]).lines(WIDTH) is None
    assert listing("a long title", ("app",), []).lines(WIDTH) is None


def test_long_texts_are_cut_and_what_names_something_is_not_folded() -> None:
    reason = "3 min ago: failed: " + "no such file or directory " * 5
    table = listing("", ("app", "owner", "~reason"), [("resnet-lr-2", "vision", reason)])
    lines = table.fitting(WIDTH).lines(WIDTH)
    assert lines is not None
    assert lines[-1].startswith("resnet-lr-2  vision  3 min ago: failed: no such file")
    assert lines[-1].rstrip().endswith("...")
    assert max(map(len, lines)) <= WIDTH


def test_fitting_names_are_not_cut_and_too_long_names_are_folded() -> None:
    short = listing("", ("app", "~reason"), [("a", "SERVED")])
    assert short.fitting(WIDTH) == short
    wide = listing("", ("app", "~reason"), [("a" * 100, "PENDING_EVALUATION")]).fitting(WIDTH)
    assert wide.rows == (("a" * 100, "PENDING_EVALUATION"),)
    assert wide.lines(WIDTH) is None
    assert max(map(len, _by_rich(wide, WIDTH))) <= WIDTH
