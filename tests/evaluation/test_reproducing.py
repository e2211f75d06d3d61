"""The frame: runs are asked for until there are enough, none is done twice, one page tells all."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from themis.errors import ConfigError
from themis.evaluation import chosen, reproduce, run_experiments, write_report
from themis.evaluation.claims import CheckedClaim, Quantity, Verdict
from themis.evaluation.experiment import (
    Column,
    Experiment,
    Figure,
    Findings,
    NumberTable,
    Results,
    Scope,
)
from themis.evaluation.figures.charts import Panel, plot_cdfs
from themis.evaluation.registry import EXPERIMENTS
from themis.evaluation.report.html import inline_svg
from themis.sim import RunConfig
from themis.sim.runs import worker_pool as pools
from themis.sim.runs.result_cache import ResultCache

HOSTILE = "<script>alert('x')</script> & \"quoted\" `<b>` https"
SHORT = RunConfig(cluster="demo16", apps=1, policy="fifo", options={"lease": "4h"})
OUTSIDE = re.compile(r"""https?://|src=|@import|url\((?!#)|<link|<script|<iframe""")
VOID = {"meta", "br"}


def small_study(_: Results) -> Findings:
    one = Quantity("1", 1.0)
    beside = ((HOSTILE, "2"),)
    claim = CheckedClaim("a", HOSTILE, Quantity(HOSTILE), one, one, Verdict.HOLDS, beside)
    table = NumberTable("t", HOSTILE, (Column(HOSTILE), Column("n", ".1f")), ((HOSTILE, 1.25),))
    panel = Panel("Figure", "x", {"line": ([1.0, 2.0], [0.5, 1.0])}, dots=((1.0, 0.5),))
    figures = tuple(Figure(name, HOSTILE, lambda: plot_cdfs([panel])) for name in ("one", "two"))
    return Findings((claim,), (table,), figures, (HOSTILE,))


SMALL = Experiment("E12", HOSTILE, HOSTILE, small_study)


class Balanced(HTMLParser):
    """Every tag that is opened is closed again."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self._note(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _note(self, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for key, value in attrs if key == "id"]
        self.links += [value or "" for key, value in attrs if key == "href"]


def test_page_is_self_contained_and_escapes_its_input(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    reproduce([SMALL], Scope(), tmp_path)
    text = (tmp_path / "report.html").read_text("utf-8")
    assert text.count("<svg") == 2
    assert OUTSIDE.findall(text) == []
    assert "<code>&lt;b&gt;</code>" in text  # what is typed stands out, and is text
    assert "<b>" not in text
    assert "&lt;script&gt;" in text
    page = Balanced()
    page.feed(text)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert all(link[0] == "#" and link[1:] in page.ids for link in page.links)


def test_the_folder_has_data_for_programs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    (chapter,) = reproduce([SMALL], Scope(quick=True), tmp_path)
    names = {path.name for path in (tmp_path / "E12").iterdir()}
    assert names == {"t.csv", "one.svg", "one.png", "two.svg", "two.png", "findings.json"}
    assert names == set(chapter.files)
    assert (tmp_path / "E12" / "t.csv").read_text("utf-8").splitlines()[1].endswith(",1.25")
    data = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert data[0]["claims"][0]["themis"]["value"] == 1.0
    assert (tmp_path / "claims.csv").read_text("utf-8").count("holds") == 1


def test_the_same_experiment_gives_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    for name in ("a", "b"):
        reproduce([SMALL], Scope(), tmp_path / name)
    first, second = ((tmp_path / name / "report.html").read_bytes() for name in ("a", "b"))
    assert first == second


def test_the_report_tells_of_experiments_made_earlier(tmp_path: Path) -> None:
    bare = replace(SMALL, study=lambda _: Findings(small_study(_).claims))
    reproduce([bare], Scope(), tmp_path)
    reproduce([replace(bare, id="E13")], Scope(), tmp_path)
    text = (tmp_path / "report.html").read_text("utf-8")
    assert '<h2 id="E12">' in text
    assert '<h2 id="E13">' in text
    (tmp_path / "E12" / "findings.json").write_text("{}", "utf-8")
    write_report(tmp_path)
    text = (tmp_path / "report.html").read_text("utf-8")
    assert '<h2 id="E12">' not in text
    assert "E12 is damaged" in text


def test_without_matplotlib_the_page_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise ConfigError("figures", "matplotlib is missing", "pip install it")

    (chapter,) = reproduce(
        [replace(SMALL, study=lambda _: Findings((), (), (Figure("f", "Caption", missing),)))],
        Scope(),
        tmp_path,
    )
    assert [picture.drawn for picture in chapter.figures] == [False]
    assert "Not drawn" in (tmp_path / "report.html").read_text("utf-8")


def test_figures_on_one_page_do_not_share_ids() -> None:
    svg = '<?xml?><svg xmlns="x"><g id="a"/><use xlink:href="#a" clip-path="url(#a)"/></svg>'
    body = inline_svg(svg, "E1-one two", 'say "this"')
    assert body == (
        '<svg role="img" aria-label="say &quot;this&quot;"><g id="E1-one-two-a"/>'
        '<use href="#E1-one-two-a" clip-path="url(#E1-one-two-a)"/></svg>'
    )


def test_a_search_is_asked_until_it_names_nothing_new(tmp_path: Path) -> None:
    asked: list[int] = []

    def plan(results: Results) -> Iterable[RunConfig]:
        seeds = [1]
        while results.has(replace(SHORT, seed=seeds[-1])) and len(seeds) < 3:
            seeds.append(seeds[-1] + 1)
        asked.append(len(seeds))
        return [replace(SHORT, seed=seed) for seed in seeds]

    search = Experiment("E16", "search", "nothing", small_study, plan)
    results = run_experiments([search], Scope(), tmp_path, workers=1)
    assert asked == [1, 2, 3, 3]
    assert results.record(replace(SHORT, seed=3)).config.seed == 3


def test_regenerated_results_are_searched_again_without_old_memory(tmp_path: Path) -> None:
    asked: list[int] = []

    def end(results: Results, seed: int) -> float | None:
        """As plans do that look at their runs again and again."""
        config = replace(SHORT, seed=seed)
        if repr(config) not in results.memo:
            record = results.find(config)
            if record is None:
                return None
            results.memo[repr(config)] = record.apps[0].end
        return results.memo[repr(config)]

    def plan(results: Results) -> Iterable[RunConfig]:
        seeds = [1]
        while end(results, seeds[-1]) is not None and len(seeds) < 3:
            seeds.append(seeds[-1] + 1)
        asked.append(len(seeds))
        return [replace(SHORT, seed=seed) for seed in seeds]

    search = Experiment("E16", "search", "nothing", small_study, plan)
    right = run_experiments([search], Scope(), tmp_path, workers=1).memo
    for path in (tmp_path / "runs").glob("*.json"):
        path.write_text(re.sub(r'"end":[0-9.]+', '"end":7.5', path.read_text("utf-8")), "utf-8")
    old = run_experiments([search], Scope(), tmp_path, workers=1)
    assert set(old.memo.values()) == {7.5}
    asked.clear()
    results = run_experiments([search], Scope(), tmp_path, workers=1, fresh=True)
    assert asked == [1, 1, 2, 2, 3, 3, 3, 3]  # for what is asked for, and for what else is there
    assert end(results, 1) == right[repr(replace(SHORT, seed=1))]
    assert 7.5 not in results.memo.values()
    # Stopped before the first: what is there is told, old as it is.
    kept = run_experiments([search], Scope(), tmp_path, workers=1, fresh=True, stop=lambda: True)
    assert kept.has(replace(SHORT, seed=3))


def test_made_again_is_also_what_the_evaluation_does_without(tmp_path: Path) -> None:
    both = [replace(SHORT, policy="themis-paper", seed=seed) for seed in (101, 102)]
    one = Experiment("E1", "one", "nothing", small_study, lambda _: both, literal=lambda _: (101,))
    assert list(one.wanted(run_experiments([one], Scope(), tmp_path, workers=1))) == both[:1]
    run_experiments([one], Scope(), tmp_path, workers=1, policies=("themis-paper",))
    for path in (tmp_path / "runs").glob("*.json"):
        path.write_text(re.sub(r'"end":[0-9.]+', '"end":7.5', path.read_text("utf-8")), "utf-8")
    results = run_experiments([one], Scope(), tmp_path, workers=1, fresh=True)
    assert 7.5 not in {results.record(config).apps[0].end for config in both}


def test_a_second_call_runs_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Experiment("E1", "one", "nothing", small_study, lambda _: [SHORT])
    run_experiments([one], Scope(), tmp_path, workers=1)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it ran again")

    monkeypatch.setattr(pools, "run", never)
    told: list[str] = []
    run_experiments([one, one], Scope(), tmp_path, progress=lambda *news: told.append(news[2]))
    assert told[-1].startswith("1 of 1 runs")
    with pytest.raises(AssertionError, match="ran again"):
        run_experiments([one], Scope(), tmp_path, workers=1, fresh=True)


def test_seeds_and_sizes_follow_the_scope(tmp_path: Path) -> None:
    assert Scope().seeds_of(range(101, 131), quick=2) == tuple(range(101, 131))
    assert Scope(quick=True).seeds_of(range(101, 131), quick=2) == (1, 2)
    assert Scope(seeds=(7,)).seeds_of(range(101, 131), quick=2) == (7,)
    assert (Scope().base("w1").apps, Scope(quick=True).base("w1").apps) == (85, 6)
    assert Results(Scope(), ResultCache(tmp_path)).has(SHORT) is False


def test_experiments_are_found_by_name_in_any_case() -> None:
    assert [item.id for item in chosen(["e13", "E12", "e12"])] == ["E12", "E13"]
    assert [item.id for item in chosen(["all"])] == list(EXPERIMENTS)
    with pytest.raises(ConfigError, match=r"E99.*E12.*all"):
        chosen(["E99"])


def test_the_guide_knows_every_experiment() -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "reproduce.md"
    text = guide.read_text("utf-8")
    assert [name for name in EXPERIMENTS if f"| `{name}` |" not in text] == []


def test_every_experiment_says_what_the_paper_says() -> None:
    for name, item in EXPERIMENTS.items():
        assert item.id == name
        assert item.title
        assert item.paper.endswith(".")


def test_policy_selection_starts_only_its_own_runs(tmp_path: Path) -> None:
    configs = [SHORT, replace(SHORT, policy="drf")]
    both = replace(SMALL, plan=lambda _: configs)
    results = run_experiments([both], Scope(), tmp_path, workers=1, policies=("drf",))
    assert [results.has(config) for config in configs] == [False, True]
