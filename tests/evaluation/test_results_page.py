"""A finished folder as a page of the documentation, and where its numbers come from."""

import csv
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from themis.errors import ConfigError
from themis.evaluation import Scope, evaluate, reproduce, write_report
from themis.evaluation.claims import (
    NO_VALUE,
    OWN_BAR,
    CheckedClaim,
    Quantity,
    Verdict,
    quantity,
)
from themis.evaluation.experiment import Column, Experiment, Figure, Findings, NumberTable, Results
from themis.evaluation.experiments import e15_all_policies as e15
from themis.evaluation.figures.charts import Panel, plot_cdfs
from themis.evaluation.provenance import commit_here, seed_text
from themis.evaluation.report import html
from themis.evaluation.report.chapter import ChapterOrigin
from themis.evaluation.report.document import counted_claims, document, leads
from themis.evaluation.report.markdown import write_results
from themis.evaluation.run_estimates import GUESS, costs
from themis.evaluation.runner import missing, run_experiments
from themis.sim import RunConfig
from themis.sim.runs.result_cache import ResultCache
from themis.sim.runs.run_timing import Timing

HOSTILE = "a | b <script> [x](http://y) `c`"
SHORT = RunConfig(cluster="demo16", apps=1, policy="fifo", options={"lease": "4h"})


def forecast(todo: list[RunConfig], known: list[Timing]) -> float:
    """What all of them take."""
    return sum(costs(todo, known).values())


def ours(statement: str, *beside: str) -> CheckedClaim:
    """A claim that holds."""
    paper, found = Quantity("1"), Quantity("2")
    details = tuple(("beside", text) for text in beside)
    return CheckedClaim("a", statement, paper, found, found, Verdict.HOLDS, details)


def study(_: Results) -> Findings:
    claim = ours(HOSTILE, HOSTILE)
    table = NumberTable("t", "Numbers", (Column("n", ".1f"),), ((1.25,),))
    panel = Panel("Figure", "x", {"line": ([1.0, 2.0], [0.5, 1.0])})
    return Findings(
        (claim,), (table,), (Figure("one", HOSTILE, lambda: plot_cdfs([panel])),), lead=("First.",)
    )


PAGE = Experiment("E12", HOSTILE, HOSTILE, study)


def test_claims_of_a_quick_look_are_marked_and_not_counted_as_evidence(tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "results.md"
    reproduce([PAGE], Scope(quick=True), out)
    write_results(out, page)
    assert "1 claim of the paper: 1 hold." in page.read_text("utf-8")
    reproduce([replace(PAGE, id="E13")], Scope(), out)
    write_results(out, page)
    text = page.read_text("utf-8")
    assert "1 claim of the paper: 1 hold (and 1 of quick looks, not evidence)." in text
    assert text.count(" (quick look) |") == 1
    assert (out / "report.html").read_text("utf-8").count("(quick look)</span></td>") == 1
    rows = list(csv.DictReader((out / "claims.csv").read_text("utf-8").splitlines()))
    assert [(row["experiment"], row["scope"]) for row in rows] == [
        ("E12", "a quick look, not evidence"),
        ("E13", "as the evaluation asks for"),
    ]


def test_many_commits_are_counted_once_each(tmp_path: Path) -> None:
    (chapter,) = reproduce([PAGE], Scope(), tmp_path)

    def made_by(*commits: str) -> str:
        each = [replace(chapter, origin=replace(chapter.origin, commit=one)) for one in commits]
        return html.page(document(each, [], []), {})

    assert "commit a1, b2, c3. Verdicts" in made_by("b2; a1", "c3; a1")
    assert "4 commits, named with each experiment" in made_by("b2; a1", "c3; a1; d4")


@pytest.mark.parametrize("reads", [True, False])
def test_missing_data_is_reported_by_its_readers(tmp_path: Path, reads: bool) -> None:
    (chapter,) = reproduce([replace(PAGE, reads_data=reads)], Scope(), tmp_path)
    assert ("without measured data" in chapter.scope) == reads
    part = replace(chapter, origin=replace(chapter.origin, runs=3, wanted=4))
    told = "a part of what the evaluation asks for: 3 of 4 runs"
    assert part.share == told + "; without measured data" * reads


def test_the_page_comes_from_the_folder_alone(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    reproduce([PAGE], Scope(), tmp_path / "out")
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    files = write_results(tmp_path / "out", page)
    assert files == [page, tmp_path / "docs" / "results" / "E12-one.svg"]
    text = page.read_text("utf-8")
    assert text.index("First.") < text.index("## E12")
    assert "](results/E12-one.svg)" in text
    assert "<script>" not in re.sub(r"\\<", "", text)
    short, row = [line for line in text.splitlines() if "holds" in line]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in (short, row)] == [7, 7]
    assert short.startswith("| [E12](#e12-")
    assert "\n\n1 claim of the paper: 1 hold. Themis " in text
    before = page.read_bytes()
    write_results(tmp_path / "out", page)
    assert page.read_bytes() == before


def test_code_stays_code_and_everything_else_means_itself(tmp_path: Path) -> None:
    said = "`by_auction` and a_b, ` alone, `x|y`"
    claim = ours(said)
    one = Experiment("E12", "t", "p.", lambda _: Findings((claim,), notes=(said,)))
    reproduce([one], Scope(), tmp_path)
    page, *_ = write_results(tmp_path, tmp_path / "results.md")
    text = page.read_text("utf-8")
    assert "\n`by_auction` and a\\_b, ` alone, `x\\|y\\`\n" in text
    claim = ours("`x|y_z` [0]")
    reproduce([one], Scope(), tmp_path)
    write_results(tmp_path, page)
    assert "| `x\\|y_z` \\[0\\] |" in page.read_text("utf-8")


def test_other_pages_are_linked_where_they_are(tmp_path: Path) -> None:
    reproduce([replace(PAGE, study=lambda _: Findings(()))], Scope(), tmp_path / "out")
    page = tmp_path / "docs" / "results.md"
    write_results(tmp_path / "out", page)
    assert "again: `themis reproduce --help`.\n" in page.read_text("utf-8")
    for name in ("guides/reproduce.md", "concepts/rho.md", "concepts/simulator.md"):
        (page.parent / name).parent.mkdir(exist_ok=True)
        (page.parent / name).write_text("", "utf-8")
    write_results(tmp_path / "out", page)
    text = page.read_text("utf-8")
    assert "again: [reproduce](guides/reproduce.md)." in text
    assert "[rho, rho\\_ref and fair share](concepts/rho.md)" in text
    assert "[the floor](concepts/simulator.md#the-floor)" in text


@pytest.mark.parametrize(
    ("scope", "by_policy", "words"),
    [
        (
            "as the evaluation asks for",
            (("a, b", "none"),),
            "a part of what the evaluation asks for: {} (no seed has all of its runs)",
        ),
        (
            "as the evaluation asks for; seeds 1",
            (("a, b", "1"),),
            "a part of what the evaluation asks for; seeds 1: {} (all runs of seeds 1)",
        ),
        (
            "a quick look, not evidence",
            (("a", "1"), ("b", "none")),
            "a quick look, not evidence, not finished: {} (all runs of a on seeds 1; b on no seed)",
        ),
    ],
)
def test_a_part_says_what_it_is_a_part_of(
    tmp_path: Path, scope: str, by_policy: tuple[tuple[str, str], ...], words: str
) -> None:
    (chapter,) = reproduce([replace(PAGE, study=lambda _: Findings(()))], Scope(), tmp_path)
    given = ChapterOrigin("abc", "", "1", 2, 9, by_policy=by_policy)
    part = replace(chapter, scope=scope, origin=given)
    assert part.extent == words.format("2 of 9 runs, on seeds 1")


def test_later_chapter_on_the_same_topic_wins(tmp_path: Path) -> None:
    def saying(name: str, *texts: str) -> Experiment:
        return Experiment(name, "t", "p.", lambda _: Findings((), lead=texts))

    said = [saying("E1", "Share: W1 1 %."), saying("E15", "Best: 1.", "Share: W1 1 %, W2 2 %.")]
    assert leads(reproduce(said, Scope(), tmp_path)) == ["Best: 1.", "Share: W1 1 %, W2 2 %."]
    quick, _ = leads(reproduce(said, Scope(quick=True), tmp_path / "quick"))
    assert quick == "Best: 1. This is of a quick look, not evidence."
    text = (tmp_path / "report.html").read_text("utf-8")
    assert text.index("Best: 1.") < text.index("Share: W1") < text.index("no claims")


def test_a_hand_written_summary_comes_before_the_generated_part(tmp_path: Path) -> None:
    reproduce([replace(PAGE, study=lambda _: Findings(()))], Scope(), tmp_path / "out")
    page = tmp_path / "docs" / "results.md"
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "results" / "summary.md").write_text("## In short\n\nBetter.\n", "utf-8")
    write_results(tmp_path / "out", page)
    text = page.read_text("utf-8")
    assert text.index("# Results") < text.index("## In short\n\nBetter.\n\n") < text.index("[E12]")


def test_an_empty_folder_gives_no_page(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has finished"):
        write_results(tmp_path, tmp_path / "results.md")


def test_chapter_names_commit_seeds_and_command_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("themis.evaluation.runner.commit_here", lambda: "abc")
    experiment = Experiment("E13", "t", "p.", lambda _: Findings(()), lambda _: [SHORT])
    (chapter,) = reproduce([experiment], Scope(), tmp_path, workers=1)
    # Of the command what makes the experiment, and no folder of the machine that made it.
    assert chapter.origin == ChapterOrigin("abc", "themis reproduce E13", "1", 1)
    assert chapter.made.endswith("commit abc, 1 runs, seeds 1: themis reproduce E13.")
    # Evaluated by newer code, they stay runs of the older one.
    monkeypatch.setattr("themis.evaluation.runner.commit_here", lambda: "def")
    (chapter,) = reproduce([experiment], Scope(), tmp_path, workers=1)
    assert chapter.origin.commit == "abc"


def test_the_commit_is_that_of_a_checkout_that_knows_the_code(tmp_path: Path) -> None:
    assert commit_here(tmp_path) == "unknown"

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "__init__.py").write_text("", "utf-8")
    assert commit_here(tmp_path) == "unknown"  # there is a checkout, but it does not know the file
    git("add", ".")
    git("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "first")
    commit = commit_here(tmp_path)
    assert re.fullmatch("[0-9a-f]{10,}", commit)
    (tmp_path / "__init__.py").write_text("x = 1", "utf-8")
    assert commit_here(tmp_path) == f"{commit}, changed"


def test_seeds_are_printed_as_ranges() -> None:
    assert seed_text([103, 101, 102, 7, 7]) == "7, 101-103"
    assert seed_text([]) == ""


def test_forecast_uses_similar_runs_then_the_policy_then_a_guess() -> None:
    same = RunConfig(apps=10, seed=2)
    known = [Timing(RunConfig(apps=10, seed=1), 30.0, {})]
    assert forecast([same], known) == pytest.approx(30.0)
    assert forecast([RunConfig(apps=20)], known) == pytest.approx(60.0)
    assert forecast([RunConfig(apps=10, policy="fifo")], known) == pytest.approx(10 * GUESS)


def test_expected_duration_is_known_for_each_run() -> None:
    runs = [RunConfig(apps=10, seed=seed, policy=name) for seed in (2, 3) for name in ("a", "b")]
    known = [Timing(replace(runs[0], seed=1), 1.0, {}), Timing(replace(runs[1], seed=1), 99.0, {})]
    assert list(costs(runs, known).values()) == pytest.approx([1.0, 99.0, 1.0, 99.0])
    assert forecast(runs, known) == pytest.approx(200.0)


def test_an_evaluation_that_is_stopped_says_what_is_left(tmp_path: Path) -> None:
    told: list[int] = []
    experiment = Experiment("E13", "t", "p.", lambda _: Findings(()), lambda _: [SHORT])
    results = run_experiments(
        [experiment], Scope(), tmp_path, workers=1,
        stop=lambda: True, expect=lambda runs, *_: told.append(runs),
    )  # fmt: skip
    assert (missing(experiment, results), told) == (1, [1])
    results = run_experiments([experiment], Scope(), tmp_path, workers=1)
    assert missing(experiment, results) == 0
    assert results.has(SHORT)


def test_runs_go_seed_by_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def note(configs: Any, store: ResultCache, **_: Any) -> int:
        seen.extend(config.seed for config in configs)
        return 1

    monkeypatch.setattr("themis.evaluation.runner.finish_all", note)
    runs = [RunConfig(seed=seed, policy=name) for name in ("fifo", "drf") for seed in (2, 1)]
    run_experiments([Experiment("E1", "t", "p.", study, lambda _: runs)], Scope(), tmp_path)
    assert seen == [1, 1, 2, 2]


def test_both_pages_begin_with_the_share_that_the_auction_assigned(
    finished: Any, tmp_path: Path
) -> None:
    scope = Scope(quick=True, seeds=(1, 2), cluster="demo16", apps=1)
    results = finished(e15.EXPERIMENT, scope, lambda _: {"auction_share_contended": 0.37})
    bare = replace(e15.EXPERIMENT, study=lambda it: replace(e15.study(it), figures=()))
    evaluate(bare, results, tmp_path)
    report, *_ = write_report(tmp_path)
    page, *_ = write_results(tmp_path, tmp_path / "results.md")
    for path, end in ((report, "<ul>"), (page, "- [E15]")):
        before, _, _ = path.read_text("utf-8").partition(end)
        assert "that the auction assigned" in before
        assert "W1 37%, W2 37%, W1 2x 37%, W2 2x 37%; means over seeds 1-2." in before


def test_own_bars_are_counted_apart_from_the_papers(tmp_path: Path) -> None:
    def mixed(_: Results) -> Findings:
        paper = CheckedClaim("a", "c", quantity(1.5), NO_VALUE, NO_VALUE, Verdict.UNDECIDED)
        bars = [replace(paper, paper=one, verdict=verdict)
                for one, verdict in ((OWN_BAR, Verdict.HOLDS), (OWN_BAR, Verdict.FAILS),
                                     (Quantity("<= 0.5x (ours)"), Verdict.FAILS))]  # fmt: skip
        return Findings((paper, *bars))

    chapters = reproduce([Experiment("E1", "t", "p.", mixed)], Scope(), tmp_path)
    assert counted_claims(chapters) == (
        "1 claim of the paper: 1 undecided; 3 bars of our own: 1 hold, 2 do not hold"
    )
