"""Keeping auctions of a run: which ones, where, and the same from a simulation and from its log."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from themis.core.auction import Bidder, Problem, Solution, solver
from themis.core.model import AppId
from themis.errors import RefusedError
from themis.recording.auction_files import AuctionFile, AuctionOrigin, read_auction
from themis.sim import RunConfig, prepare, run
from themis.sim.auction_recording import Kept, Recorder, record_log, record_run
from themis.sim.auction_selection import Everything, Selection, Slowest, Spread

CONFIG = RunConfig(cluster="demo16", apps=3, options={"lease": "3h", "f": 0})


class Ticking:
    """A clock that is one second later whenever somebody looks."""

    def __init__(self) -> None:
        self._now: Iterator[int] = itertools.count()

    def __call__(self) -> float:
        return float(next(self._now))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Kept, ...]]:
    """All auctions of a short run."""
    folder = tmp_path_factory.mktemp("auctions")
    return folder, record_run(prepare(CONFIG), Recorder(folder), Ticking())


def _left(selection: Selection, costs: list[float]) -> list[int]:
    left: set[int] = set()
    for number, cost in enumerate(costs):
        left.add(number)
        left -= set(selection.offer(number, cost))
    return sorted(left - set(selection.settle()))


def test_everything_is_everything() -> None:
    assert _left(Everything(), [1.0] * 5) == [0, 1, 2, 3, 4]


def test_the_slowest_stay_and_of_equals_the_earlier() -> None:
    assert _left(Slowest(3), [5.0, 1.0, 9.0, 5.0, 5.0, 7.0]) == [0, 2, 5]
    assert _left(Slowest(3), [1.0]) == [0]


@pytest.mark.parametrize("total", [0, 1, 4, 5, 9, 10, 11, 100, 1000])
def test_at_most_so_many_stay_and_they_are_spread_over_the_run(total: int) -> None:
    left = _left(Spread(5), [0.0] * total)
    assert len(left) == min(total, 5)
    if total > 10:
        assert left[0] == 0
        gaps = [later - earlier for earlier, later in itertools.pairwise([*left, total])]
        assert max(gaps) <= 0.5 * total
        assert left[-1] >= 0.75 * total


def test_a_spread_of_one_is_the_first() -> None:
    assert _left(Spread(1), [0.0] * 50) == [0]


def test_a_long_run_never_has_many_more_kept_than_asked_for() -> None:
    kept: set[int] = set()
    selection = Spread(5)
    for number in range(500):
        kept.add(number)
        kept -= set(selection.offer(number, 0.0))
        assert len(kept) <= 11


def test_a_run_leaves_its_auctions_with_question_answer_and_origin(
    recorded: tuple[Path, tuple[Kept, ...]],
) -> None:
    folder, kept = recorded
    assert len(kept) > 20
    assert sorted(path.name for path in folder.iterdir()) == sorted(item.name for item in kept)
    for item in kept:
        auction = read_auction(folder / item.name)
        origin, answer = auction.origin, auction.answer
        assert origin is not None
        assert answer is not None
        assert (origin.round, origin.at, origin.policy) == (item.round, item.at, "themis")
        assert origin.options["payment"] == "lottery"
        assert origin.options["f"] == 0
        assert origin.run["cluster"] == "demo16"
        assert auction.budget == 100_000
        assert (answer.value, answer.exact, answer.work) == (item.value, item.exact, item.work)
        assert item.seconds == 1.0  # the clock was looked at before and after
        assert item.bidders == len(auction.problem.bidders) > 0


def test_auctions_are_as_many_as_the_run_says(recorded: tuple[Path, tuple[Kept, ...]]) -> None:
    assert len(recorded[1]) == run(CONFIG).outcome.auctions


def test_a_log_gives_the_auctions_of_its_run(
    recorded: tuple[Path, tuple[Kept, ...]], tmp_path: Path
) -> None:
    folder, kept = recorded
    log, again = tmp_path / "events.jsonl", tmp_path / "again"
    again.mkdir()
    run(CONFIG, log_to=log)
    told: list[int] = []
    from_log = record_log(log, Recorder(again), told.append)
    assert from_log == tuple(replace(item, seconds=None) for item in kept)
    assert told == sorted(told)
    end = log.read_bytes().splitlines(keepends=True)[-1]  # says that the run is over
    assert told[-1] == log.stat().st_size - len(end)
    for item in kept[::7]:
        one, other = read_auction(folder / item.name), read_auction(again / item.name)
        assert (one.problem, one.answer, one.budget) == (other.problem, other.answer, other.budget)
        assert one.origin is not None
        assert other.origin is not None
        assert other.origin.settings == one.origin.settings
        assert other.origin.run == {}


def _auction(round_: int, bidders: int = 2, work: int = 1) -> AuctionFile:
    names = [AppId(f"app-{i}") for i in range(bidders)]
    problem = Problem((), tuple(Bidder(name, 1.0, 2.0, ()) for name in names))
    answer = Solution({}, 0.0, 0.0, {}, True, "none", work)
    return AuctionFile(problem, answer=answer, origin=AuctionOrigin(round_, 0.0, "themis"))


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.iterdir())


def test_one_in_so_many_of_those_with_enough_bidders_is_kept(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, every=2, min_bidders=2)
    for number in range(1, 9):
        recorder.take(_auction(number, bidders=number % 4), None)
    assert [item.round for item in recorder.finish()] == [2, 6]  # of 2, 3, 6 and 7
    assert recorder.seen == 8
    assert _names(tmp_path) == ["auction-000002", "auction-000006"]


def test_without_times_the_slowest_are_those_with_most_work(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, Slowest(2))
    for number, work in enumerate((5, 1, 9, 7, 2)):
        recorder.take(_auction(number, work=work), None)
    assert [item.work for item in recorder.finish()] == [9, 7]
    assert _names(tmp_path) == ["auction-000002", "auction-000003"]


def test_several_auctions_of_one_round_do_not_overwrite_each_other(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for work in (1, 2, 3):
        recorder.take(_auction(4, work=work), None)
    recorder.finish()
    assert _names(tmp_path) == ["auction-000004", "auction-000004-2", "auction-000004-3"]
    assert json.loads((tmp_path / "auction-000004-2.json").read_text())["answer"]["work"] == 2


def test_a_solver_that_fails_leaves_its_auction_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        name = "failing"
        calls = 0

        def solve(self, problem: Problem, budget: int | None = None) -> Solution:
            self.calls += 1
            if self.calls == 3:
                raise RefusedError("failing", "not this one")
            return solver("default").solve(problem, budget)

    monkeypatch.setattr("themis.sim.auction_recording.solver", lambda _: Failing())
    kept = record_run(prepare(CONFIG), Recorder(tmp_path), Ticking())
    assert [item.value is None for item in kept[:4]] == [False, False, True, False]
    auction = read_auction(tmp_path / kept[2].name)
    assert auction.answer is None
    assert auction.failure == "failing: not this one"


def test_a_question_that_was_never_answered_is_kept(tmp_path: Path) -> None:
    whole, cut = tmp_path / "events.jsonl", tmp_path / "cut.jsonl"
    run(CONFIG, log_to=whole)
    lines = whole.read_bytes().splitlines(keepends=True)
    answer = next(index for index, line in enumerate(lines) if b'"type":"solved"' in line)
    cut.write_bytes(b"".join(lines[:answer]))
    folder = tmp_path / "out"
    folder.mkdir()
    (kept,) = record_log(cut, Recorder(folder))
    assert read_auction(folder / kept.name).failure == "no answer in time"
