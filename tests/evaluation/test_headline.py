"""The figure for a first page: everything on it can be read, also without colours."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from themis.evaluation.comparisons import Factor
from themis.evaluation.experiment import Scope
from themis.evaluation.experiments import e15_all_policies as e15
from themis.evaluation.figures.headline import FAR, plot_headline, ranked
from themis.sim.config import RunConfig

SCOPE = Scope(quick=True, seeds=tuple(range(1, 9)), cluster="demo16", apps=1)


@pytest.fixture(autouse=True)
def _figures() -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_best_policy_is_on_top_and_policies_without_runs_are_omitted() -> None:
    nothing = Factor(math.nan, seeds=0)
    marks = {
        "a": {"x": Factor(3.0), "y": Factor(2.0), "z": nothing},
        "b": {"x": Factor(1.0), "y": Factor(2.0), "z": nothing},
    }
    assert ranked(marks) == ["x", "y"]


def test_themis_has_its_own_marker_and_far_values_are_numbers() -> None:
    points = {"themis": Factor(1.1, 1.05, 1.15, 30), "fifo": Factor(80.0, 70.0, 90.0, 30)}
    drawing = plot_headline({"W1": points}, {"W1": 1.04}, "themis", "max rho_ref")
    axes: Any = drawing.figure.axes[0]
    assert texts(axes) == ["1.10", "80 \N{RIGHTWARDS ARROW}"]
    assert axes.get_xlim()[1] < 2 * FAR
    (mark,) = [line for line in axes.lines if line.get_marker() == "D"]
    assert list(mark.get_xdata()) == [1.1]
    bold = [
        label.get_text() for label in axes.get_yticklabels() if label.get_fontweight() == "bold"
    ]
    assert bold == ["themis"]


def test_it_is_800_pixels_wide(tmp_path: Path) -> None:
    points = {"themis": Factor(1.1), "fifo": Factor(2.0)}
    panels = dict.fromkeys(("W1", "W2", "W1 2x", "W2 2x"), points)
    svg, _ = plot_headline(panels, {}, "themis", "max rho_ref").save(tmp_path / "headline")
    width = re.search(r'width="([0-9.]+)pt"', svg.read_text("utf-8"))
    assert width is not None
    assert float(width[1]) * 96 / 72 == pytest.approx(800, abs=1)


def test_policies_are_shown_on_the_same_seeds_and_fewer_are_named(begun: Any) -> None:
    def numbers(config: RunConfig) -> dict[str, Any]:
        # The last seed, which SLAQ lacks, would make everybody else worse.
        return {"rho": 50.0 if config.seed == 8 else 2.0}

    def there(config: RunConfig) -> bool:
        most = {"themis-paper": 6 if config.contention == 1 else 1, "slaq": 7}
        return config.seed <= most.get(config.policy, 8)

    findings = e15.study(begun(e15.EXPERIMENT, SCOPE, numbers, there))
    assert findings.figures[0].name == "headline"
    figure = findings.figures[0].draw().figure
    assert [axes.get_title() for axes in figure.axes] == [
        "W1", "W2", "W1, half the machines", "W2, half the machines",
    ]  # fmt: skip
    for axes in figure.axes:
        assert set(texts(axes)) == {"2.00"}
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "themis-paper, 6 seeds" in names
    # One seed is no mean: it is left out of a panel in which it has no more.
    assert len(texts(figure.axes[0])) == len(texts(figure.axes[2])) + 1
    assert "over seeds 1-7 of 1-8, 95 % interval" in figure.get_supxlabel()


def test_policy_with_few_seeds_costs_the_others_none(begun: Any) -> None:
    def there(config: RunConfig) -> bool:
        return config.seed <= {"themis-paper": 0, "slaq": 1}.get(config.policy, 7)

    findings = e15.study(begun(e15.EXPERIMENT, SCOPE, lambda _: {"rho": 2.0}, there))
    figure = findings.figures[0].draw().figure
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "slaq" not in names
    assert "themis" in names
    assert "over seeds 1-7 of 1-8, 95 % interval" in figure.get_supxlabel()


def test_seeds_are_named_where_scenarios_have_different_ones(begun: Any) -> None:
    def there(config: RunConfig) -> bool:
        return config.seed <= (7 if config.contention == 1 else 6)

    findings = e15.study(begun(e15.EXPERIMENT, SCOPE, lambda _: {"rho": 2.0}, there))
    figure = findings.figures[0].draw().figure
    first, *_, last = (axes.get_title() for axes in figure.axes)
    assert first == "W1\nseeds 1-7"
    assert last == "W2, half the machines\nseeds 1-6"
    assert "over the seeds named of 1-8" in figure.get_supxlabel()


def test_no_interval_strikes_through_a_number() -> None:
    points = {"themis": Factor(1.1, 1.05, 1.15, 30), "gandiva": Factor(5.5, 3.6, 8.4, 30)}
    figure = plot_headline({"W2": points}, {}, "themis", "max rho_ref").figure
    figure.draw_without_rendering()
    (axes,) = figure.axes
    for text, point in zip(axes.texts, points.values(), strict=True):
        box = text.get_window_extent()
        assert point.low is not None
        assert point.high is not None
        low, high = (axes.transData.transform((end, 0.0))[0] for end in (point.low, point.high))
        assert box.x1 < low or box.x0 > high
