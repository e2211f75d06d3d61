"""The worked example of docs/concepts/solver.md: the solver prints what the page says."""

import re
from math import exp, log
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "solver.md"
CODE = re.compile(r"```python\n(.*?)```\n+```\n(.*?)```", re.DOTALL)


def _example() -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index("## An example") : text.index("## The question")]


def test_the_solver_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    ((code, shown),) = CODE.findall(_example())
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == shown


def test_the_table_holds_the_gains_of_its_rows() -> None:
    rows = re.findall(r"\| (\w+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| (.*?) \|", _example())
    assert [row[0] for row in rows] == ["ann", "bob", "cyd"]
    for _, nothing, two, four, gains in rows:
        computed = [log(float(nothing) / float(rho)) for rho in (two, four)]
        assert gains == ", ".join(f"{gain:.3f}" for gain in computed)


def test_the_prices_and_fractions_are_those_of_the_page() -> None:
    text = " ".join(_example().split())
    ann, bob, cyd = (log(8 / 4), log(8 / 2)), (log(6 / 3), log(6 / 2)), (log(3 / 2), log(3 / 1.5))
    price = cyd[0] / 2
    worth = 6 * price
    left = [max(0.0, two - 2 * price, four - 4 * price) for two, four in (ann, bob, cyd)]
    assert worth + sum(left) == pytest.approx(ann[1] + bob[0])
    assert f"cost {price:.4f}" in text
    assert f"worth {worth:.3f}" in text
    assert f"leaves her {left[0]:.3f}, bob's leaves him {left[1]:.3f}, cyd's nothing" in text
    assert left[2] == pytest.approx(0.0)
    assert f"{worth + sum(left):.3f} together" in text
    assert exp(bob[0] - bob[1] - cyd[0]) == pytest.approx(4 / 9)
    assert exp(-cyd[0]) == pytest.approx(2 / 3)
    assert f"exp({bob[0]:.3f} - {bob[1] + cyd[0]:.3f}) = 4/9" in text
    assert f"exp(-{cyd[0]:.3f}) = 2/3" in text
