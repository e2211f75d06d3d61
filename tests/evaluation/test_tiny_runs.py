"""Experiments from simulation to report, as small as they can be: nothing here is made up."""

from pathlib import Path

import pytest

from themis.evaluation import Scope, Verdict, chosen, reproduce

TINY = Scope(quick=True, seeds=(1,), cluster="demo16", apps=1)


@pytest.mark.slow
def test_simulated_experiments_give_a_report(tmp_path: Path) -> None:
    chapters = reproduce(chosen(["E1", "E3", "E5", "E6", "E15"]), TINY, tmp_path, workers=1)
    one, three, five, six, fifteen = chapters
    assert one.origin.runs == 14
    assert {chapter.origin.seeds for chapter in chapters} == {"1"}
    # E5 shares 1x with E1 and 2x with E15, E6 has no runs of its own.
    runs = len(list((tmp_path / "runs").glob("*.json")))
    assert runs == three.origin.runs + five.origin.runs + fifteen.origin.runs - 7 - 7
    for chapter in (one, three, five, fifteen):
        # One app on one seed decides nothing.
        assert {claim.verdict for claim in chapter.claims} == {Verdict.UNDECIDED}
    assert six.claims[0].themis.text.endswith(" ms")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "that the auction assigned" in text
    assert all(f'<h2 id="{chapter.id}">' in text for chapter in chapters)
