"""Results of the simulator as notebooks show them."""

from pathlib import Path

from tests.support.notebooks import terminal_text
from themis.core.fairness.ideal_time import Convention
from themis.display import shown
from themis.sim import RunConfig, compare, run

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "notebooks.md"
SMALL = RunConfig(cluster="demo16", policy="equal-share", apps=2, seed=1, load=0.8)


def test_a_run_is_a_table_with_the_worst_off_app_first() -> None:
    result = run(SMALL)
    html = result._repr_html_()
    assert "equal-share on demo16: w2, 2 apps, seed 1" in html
    assert html.count("<tr>") == 3
    worst = max(result.apps, key=lambda app: app.rho_ref[Convention.FAIR_SHARE]).app
    lines = terminal_text(result).splitlines()
    assert lines[3].startswith(worst)
    assert f"max rho_ref {result.summary['max_rho_ref']['fair_share']:.2f}" in html


def test_guide_table_equals_the_run_that_it_names() -> None:
    text = GUIDE.read_text("utf-8")
    told = (
        f'cluster="{SMALL.cluster}", policy="{SMALL.policy}", apps={SMALL.apps}, seed=1, load=0.8'
    )
    assert f"`run(RunConfig({told}))`" in text
    (table,) = run(SMALL)._sheet().tables
    rows = [
        f"| {' | '.join(shown(item) for item in row)} |" for row in (table.columns, *table.rows)
    ]
    page = [line for line in text.splitlines() if line.startswith("| ")]
    assert page == rows


def test_a_comparison_is_the_table_of_the_command_line() -> None:
    comparison = compare(["fifo", "equal-share"], seeds=[1], base=SMALL, workers=1)
    html = comparison._repr_html_()
    assert html.count("<tr>") == 3
    found = comparison.estimates("fifo")["max_rho_ref"].shown(".2f")
    assert f">{found}<" in html
    assert "max rho_ref" in terminal_text(comparison)
