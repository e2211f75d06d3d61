"""Figures can be read beside each other: a policy looks the same in all of them."""

from typing import Any

import pytest

from themis.core.policies import POLICIES
from themis.sim.figures.plot_style import COLOURS, POLICY_LOOKS, aside, looks

MAIN = (
    "themis", "equal-share", "worst-first", "min-max-rho", "gandiva", "tiresias", "tiresias+pack",
    "optimus", "optimus+pack", "slaq",
)  # fmt: skip


def test_every_policy_has_a_look_of_its_own() -> None:
    assert list(POLICY_LOOKS) == list(POLICIES)
    found = looks(POLICIES)
    assert len({(look.colour, look.dashes) for look in found.values()}) == len(POLICIES)
    assert len({look.marker for look in found.values()}) == len(POLICIES)
    assert {look.colour for look in found.values()} <= set(COLOURS)


def test_ten_lines_are_distinguishable_without_colours() -> None:
    assert len({str(look.dashes) for look in looks(MAIN).values()}) == len(MAIN)


def test_policy_has_the_same_look_beside_any_others() -> None:
    few, many = looks(["slaq", "equal-share, 5 of 6 seeds"]), looks(POLICIES)
    assert few["slaq"] == many["slaq"]
    assert few["equal-share, 5 of 6 seeds"] == many["equal-share"]


def test_non_policy_line_takes_a_remaining_style() -> None:
    names = ["themis", *(f"lab:Policy{number}" for number in range(15))]
    found = looks(names)
    assert list(found) == names
    assert found["themis"] == looks(["themis"])["themis"]
    assert len({(look.colour, look.dashes) for look in found.values()}) == len(names)


def test_cases_of_one_policy_differ() -> None:
    found = looks(["themis, f = 0.8", "themis, f = 0"])
    assert len(set(found.values())) == 2


def test_figures_draw_policies_in_their_looks() -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    from themis.evaluation.figures.charts import ChartLine, Panel, Sweep, plot_cdfs, plot_sweeps  # noqa: PLC0415
    from themis.sim.compare import Estimate  # noqa: PLC0415 - both need matplotlib to be of use
    from themis.sim.figures.run_figures import plot_placement, plot_usage  # noqa: PLC0415 - as above

    def colours(drawing: Any) -> dict[str, str]:
        handles, labels = drawing.figure.axes[0].get_legend_handles_labels()
        # Of a line with intervals the first part is the line.
        lines = [getattr(handle, "lines", (handle,))[0] for handle in handles]
        return {
            label.partition(" (")[0]: line.get_color()
            for label, line in zip(labels, lines, strict=True)
        }

    points = [Estimate(1.0, None, 1), Estimate(2.0, None, 1)]
    for names in (["slaq", "themis"], ["gandiva", "slaq", "drf"]):
        sweep = Sweep("x", [ChartLine(name, points) for name in names])
        curves = {name: ([1.0, 2.0], [0.5, 1.0]) for name in names}
        drawings = (
            plot_sweeps("f", [1, 2], [sweep]),
            plot_cdfs([Panel("t", "x", curves)]),
            plot_placement({name: [(0.5, 1.0)] for name in names}),
        )
        for drawing in drawings:
            assert colours(drawing)["slaq"] == POLICY_LOOKS["slaq"][0]
        assert plot_usage({name: (3600.0, [1.0, 2.0]) for name in names}, 4).figure.axes


@pytest.mark.parametrize("places", [(1.0, 2.0, 4.0), (0.0, 1.0, 100.0), (5.0,)])
@pytest.mark.parametrize("lines", [1, 2, 7, 15])
def test_points_stand_beside_each_other_near_where_they_belong(
    lines: int, places: tuple[float, ...]
) -> None:
    shifts = [aside(index, lines, places) for index in range(lines)]
    assert shifts == sorted(set(shifts))
    assert sum(shifts) == pytest.approx(0.0)
    # Seven policies at 2x contention are all drawn within a twentieth of 2.
    assert max(shifts) <= 0.1 * min(1.0, places[-1] - places[0] or 1.0)
    assert aside(6, 7, (1.0, 2.0, 4.0)) < 0.06
