"""Figures of several experiments: what is on them can be read."""

import math
from itertools import pairwise
from typing import Any

import pytest

from themis.evaluation.comparisons import Factor
from themis.evaluation.figures.charts import (
    Bars,
    ChartLine,
    Sweep,
    plot_bars,
    plot_behind,
    plot_cdfs,
    plot_ranges,
    plot_sweeps,
)
from themis.evaluation.figures.charts import Panel as Curves
from themis.sim.compare import Estimate

NO_VALUE = Estimate(math.nan, None, 0)


@pytest.fixture(autouse=True)
def _figures() -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")


def ticks(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_far_outlier_is_a_number_and_leaves_room_for_the_others() -> None:
    near = {f"p{number}": Factor(1.0 + number) for number in range(8)}
    marks = {"a": {**near, "static": Factor(5000.0)}, "b": {**near, "static": Factor(6.0)}}
    (axes,) = plot_ranges("t", "x", marks, log=True).figure.axes
    assert [text.get_text() for text in axes.texts] == ["5000 \N{RIGHTWARDS ARROW}"]
    assert axes.get_xlim()[1] < 30.0
    assert "static" in ticks(axes.yaxis)


def test_values_that_rise_without_a_gap_are_all_marked() -> None:
    marks = {"a": {f"p{number}": Factor(2.0**number) for number in range(12)}}
    (axes,) = plot_ranges("t", "x", marks, log=True).figure.axes
    assert not axes.texts
    assert axes.get_xlim()[1] > 2048.0


@pytest.mark.parametrize("largest", [3.0, 30.0, 2000.0])
def test_ticks_of_a_logarithmic_axis_keep_apart(largest: float) -> None:
    marks = {"a": {"x": Factor(1.0), "y": Factor(math.sqrt(largest)), "z": Factor(largest)}}
    (axes,) = plot_ranges("t", "x", marks, log=True).figure.axes
    places = [math.log(float(text)) for text in ticks(axes.xaxis)]
    low, high = (math.log(end) for end in axes.get_xlim())
    assert 0.0 in places
    assert len(places) > 1
    gaps = [after - before for before, after in pairwise(places)]
    assert min(gaps) >= 0.05 * (high - low)


def test_a_value_at_which_nothing_was_run_says_so() -> None:
    lines = [
        ChartLine("themis", [Estimate(1.0, None, 1), NO_VALUE]),
        ChartLine("slaq", [NO_VALUE, NO_VALUE]),
    ]
    (axes,) = plot_sweeps("contention", (1, 4), [Sweep("rho", lines)]).figure.axes
    assert ticks(axes.xaxis) == ["1", "4\nnot run"]


def test_no_bar_reaches_the_legend() -> None:
    shown = {"bid": Bars(["themis"], {"median": [1.0], "95th percentile": [2.0]})}
    figure = plot_bars("", "ms", shown).figure
    figure.draw_without_rendering()
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    top = max(bar.get_window_extent().y1 for bar in axes.patches)
    assert legend.get_window_extent().y0 > top


def test_the_others_are_one_entry_of_the_legend() -> None:
    drawing = plot_cdfs([Curves("t", "x", {"themis": ([1.0, 2.0], [0.5, 1.0])})])
    plot_behind(drawing, [([1.0, 9.0], [0.5, 1.0]), ([2.0, 5.0], [0.5, 1.0])])
    (axes,) = drawing.figure.axes
    assert axes.get_legend_handles_labels()[1] == ["themis", "others"]
    assert len(axes.lines) == 3
    assert axes.get_xlim()[1] >= 9.0
