"""`themis auction`: real auctions kept as files, and solved again by one solver or by all."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support.random_auctions import generated_problem
from themis.core.auction import Bidder, Candidate, OfferedMachine, Problem
from themis.core.auction import solver as solver_by_name
from themis.core.auction.solvers.registry import solver_names
from themis.core.model import AppId, Chunk
from themis.errors import RefusedError
from themis.recording.auction_files import AuctionFile, auction_text
from themis.sim import RunConfig, run

Cli = Callable[..., Any]
SOLVERS = import_module(
    "themis.core.auction.solvers.registry"
)  # the package has a function of that name
RUN = ("--cluster", "demo16", "--apps", 2, "--lease", "4h", "--set", "f=0")


@pytest.fixture
def recorded(cli: Cli, recorded_log: Path, tmp_path: Path) -> Path:
    """A folder with five auctions."""
    out = tmp_path / "auctions"
    assert cli("auction", "record", "--from", recorded_log, "--most", 5, "--out", out).code == 0
    return out


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*"))


def _change(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


# Recording


def test_a_simulated_run_leaves_auctions_and_a_line_about_them(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "new" / "auctions"
    done = cli("auction", "record", *RUN, "--slowest", 3, "--out", out)
    assert done.code == 0
    assert len(_files(out)) == 3
    assert f"auctions kept in {out}" in done.out
    assert "CPU ms" in done.out


def test_kept_result_is_printed_as_json(cli: Cli, recorded_log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = cli(
        "-q", "auction", "record", "--from", recorded_log, "--every", 3, "--out", out, "--json"
    )
    told = json.loads(done.out)
    assert done.err == ""
    assert told["kept"] == len(told["files"]) == len(_files(out))
    assert told["auctions"] > told["kept"] >= 2
    assert [item["file"] for item in told["files"]] == [str(path) for path in _files(out)]
    assert all(item["cpu_ms"] is None and item["work"] >= 0 for item in told["files"])


def test_the_folder_of_a_run_stands_for_its_log(
    cli: Cli, recorded_log: Path, tmp_path: Path
) -> None:
    done = cli(
        "auction", "record", "--from", recorded_log.parent, "--most", 1, "--out", tmp_path / "o"
    )
    assert done.code == 0
    assert len(_files(tmp_path / "o")) == 1


def test_auctions_are_replaced_only_by_force_and_other_files_stay(
    cli: Cli, recorded: Path, recorded_log: Path
) -> None:
    before = {path: path.read_bytes() for path in _files(recorded)}
    again = ("auction", "record", "--from", recorded_log, "--most", 2, "--out", recorded)
    done = cli(*again)
    assert done.code == 2
    assert "--force" in done.err
    assert {path: path.read_bytes() for path in _files(recorded)} == before
    (recorded / "notes.txt").write_text("mine")
    assert cli(*again, "--force").code == 0
    assert len(_files(recorded)) == 3
    assert (recorded / "notes.txt").read_text() == "mine"


def test_a_run_that_fails_leaves_nothing_and_what_was_there(
    cli: Cli, recorded: Path, recorded_log: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.jsonl"
    lines = recorded_log.read_bytes().splitlines(keepends=True)
    bad.write_bytes(b"".join([*lines[:-2], b"no JSON\n", lines[-1]]))
    before = _files(recorded)
    for out, more in ((tmp_path / "new", ()), (recorded, ("--force",))):
        done = cli("auction", "record", "--from", bad, "--out", out, *more)
        assert done.code == 2
        assert f"bad.jsonl:{len(lines) - 1}:" in done.err
    assert not (tmp_path / "new").exists()
    assert _files(recorded) == before
    assert not list(tmp_path.glob(".*"))


def test_all_whole_lines_of_a_truncated_log_are_used(
    cli: Cli, recorded_log: Path, tmp_path: Path
) -> None:
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    lines = recorded_log.read_bytes().splitlines(keepends=True)
    whole.write_bytes(b"".join(lines[:-2]))
    cut.write_bytes(b"".join(lines[:-2]) + lines[-2][:-20])
    for log in (whole, cut):
        done = cli("-q", "auction", "record", "--from", log, "--out", tmp_path / log.stem)
        assert done.code == 0
        told = f"warning: {cut}:{len(lines) - 1}: the last line is cut off; all lines before it "
        assert done.err == (told + "are taken\n" if log is cut else "")
    kept = [[path.read_bytes() for path in _files(tmp_path / name)] for name in ("whole", "cut")]
    assert kept[0] == kept[1]
    assert kept[0]


def test_a_log_of_nothing_but_a_cut_line_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_text('{"themis_log":')
    done = cli("auction", "record", "--from", tmp_path / "cut.jsonl", "--out", tmp_path / "out")
    assert done.code == 2
    assert "cut.jsonl:1: the last line is cut off" in done.err


def test_a_policy_without_auctions_is_refused_before_anything_is_simulated(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("themis.sim.auction_recording.record_run", None)
    done = cli("auction", "record", *RUN, "--policy", "fifo", "--out", tmp_path / "out")
    assert done.code == 2
    assert "policy: got 'fifo', which holds no auctions; themis and themis-paper do" in done.err
    assert not (tmp_path / "out").exists()


def test_a_run_without_auctions_leaves_no_folder(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    run(RunConfig(cluster="demo16", apps=1, policy="fifo", options={"lease": "4h"}), log_to=log)
    done = cli("auction", "record", "--from", log, "--out", tmp_path / "out")
    assert done.code == 1
    assert f"the run of {log} held no auction: nothing written" in done.err
    assert not (tmp_path / "out").exists()


def test_unknown_bidders_are_reported(cli: Cli, recorded_log: Path, tmp_path: Path) -> None:
    done = cli(
        "auction", "record", "--from", recorded_log, "--bidders", 99, "--out", tmp_path / "o"
    )
    assert done.code == 1
    assert "99 bidders or more" in done.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--from", "x", "--apps", 85), "--from and --apps"),
        (("--from", "x", "--set", "f=0"), "--from and --set"),
        (("--slowest", 1, "--most", 1), "choose one"),
        (("--every", 0), "--every"),
        (("--policy", "themiss"), "did you mean 'themis'"),
    ],
)
def test_flags_that_make_no_sense_are_refused(
    cli: Cli, tmp_path: Path, flags: tuple[object, ...], message: str
) -> None:
    done = cli("auction", "record", "--out", tmp_path / "o", *flags)
    assert done.code == 2
    assert message in done.err
    assert not list(tmp_path.iterdir())


def test_a_log_that_is_not_there_is_not_found(cli: Cli, tmp_path: Path) -> None:
    done = cli("auction", "record", "--from", tmp_path, "--out", tmp_path / "o")
    assert done.code == 3
    assert "events.jsonl: there is no such file" in done.err


# Solving


def test_one_auction_is_shown_in_full_and_is_as_recorded(cli: Cli, recorded: Path) -> None:
    file = _files(recorded)[1]
    done = cli("-q", "auction", "solve", file)
    assert done.code == 0
    assert f"{file}: " in done.out.replace("\n", "")
    for word in ("round", "kept fraction", "machines", "exact", "CPU ms"):
        assert word in done.out
    assert "recorded answer (default): same" in done.out


def test_several_auctions_are_a_line_each(cli: Cli, recorded: Path) -> None:
    done = cli("-q", "auction", "solve", recorded, "--solver", "highs")
    assert done.code == 0
    lines = [line for line in done.out.splitlines() if "highs" in line]
    assert len(lines) == 5
    assert all("auction-0" in line and "yes" in line for line in lines)


def test_all_output_is_available_as_json(cli: Cli, recorded: Path) -> None:
    done = cli("-q", "auction", "solve", *_files(recorded), "--json")
    told = json.loads(done.out)["files"]
    assert [item["file"] for item in told] == [str(path) for path in _files(recorded)]
    for item in told:
        (answer,) = item["answers"]
        assert answer["compared"]["same"]
        assert answer["value"] == item["recorded"]["value"]
        assert answer["bound"] >= answer["value"]
        assert answer["ms"] >= 0
        for winner in answer["winners"]:
            low, high = winner["kept"]
            assert 0 <= low <= high <= 1
            placed = sum(part[2] for chunk in winner["places"] for part in chunk)
            assert placed == winner["gpus"]


def test_all_solvers_that_are_installed_are_compared(cli: Cli, recorded: Path) -> None:
    done = cli("auction", "solve", _files(recorded)[0], "--solver", "all", "--json")
    assert done.code == 0
    (item,) = json.loads(done.out)["files"]
    names = [answer["solver"] for answer in item["answers"]]
    assert names[0] == "default"
    assert {"brute-force", "greedy", "highs", "search"} <= set(names)
    assert item["contradictions"] == []
    values = [answer["value"] for answer in item["answers"] if answer.get("exact")]
    assert len(values) >= 2
    assert max(values) - min(values) < 1e-6


def test_a_solver_that_is_not_there_is_answered_with_the_list(cli: Cli, recorded: Path) -> None:
    done = cli("auction", "solve", recorded, "--solver", "hihgs")
    assert done.code == 2
    assert ", ".join(sorted(["all", *solver_names()])) in done.err
    assert "did you mean 'highs'" in done.err


def test_a_budget_given_wins_over_the_recorded_one(
    cli: Cli, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets: list[int | None] = []

    class Noting:
        name = "default"

        def solve(self, problem: Any, budget: int | None = None) -> Any:
            budgets.append(budget)
            return solver_by_name("greedy").solve(problem, budget)

    monkeypatch.setattr(SOLVERS, "solver", lambda _: Noting())
    file = _files(recorded)[0]
    cli("auction", "solve", file)
    cli("auction", "solve", file, "--budget", 7)
    _change(file, lambda data: data.pop("budget"))
    cli("auction", "solve", file)
    assert budgets[2::3] == [100_000, 7, None]  # the others warm up


@pytest.mark.parametrize("budget", [0, 10**12 + 1, 10**30])
def test_absurd_budget_is_refused(cli: Cli, recorded: Path, budget: int) -> None:
    done = cli("auction", "solve", _files(recorded)[0], "--budget", budget)
    assert done.code == 2
    assert "--budget" in done.err
    assert str(budget) in done.err


def test_unproven_answer_is_reported_as_such(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "auction.json"
    file.write_text(auction_text(AuctionFile(generated_problem(64, 10, 1))))
    words = {
        1: "not proven to be the best allocation, 10 of 10 win",
        700: "the best allocation, but its kept fractions are not proven, 10 of 10 win",
        10**6: "exact, 10 of 10 win",
    }
    for budget, said in words.items():
        done = cli("-q", "auction", "solve", file, "--budget", budget)
        assert said in done.out


def test_single_item_is_printed_in_the_singular(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "auction.json"
    bidder = Bidder(AppId("only"), 1.0, 2.0, (Candidate((Chunk(0, 1),), 1.0),))
    problem = Problem((OfferedMachine(0, 0, (1,)),), (bidder,))
    file.write_text(auction_text(AuctionFile(problem)))
    done = cli("-q", "auction", "solve", file)
    assert f"{file}: 1 bidder with 1 row for 1 GPU on 1 machine\n" in done.out


def test_solvers_are_loaded_before_their_first_auction_is_timed() -> None:
    code = (
        "import sys; from themis.core.auction import solver;"
        "from themis.cli.auction_solve import warm_up;"
        "warm_up([solver('default')]);"
        "assert {'themis.core.auction.solvers.ladder.ladder',"
        "'themis.core.auction.solvers.ladder.winner_determination',"
        "'themis.core.auction.solvers.highs',"
        "'themis.core.auction.solvers.ladder.label_dp', 'highspy'} <= sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_recorded_claim_that_cannot_be_is_a_failure(cli: Cli, recorded: Path) -> None:
    file = max(_files(recorded), key=lambda path: json.loads(path.read_text())["answer"]["value"])
    _change(file, lambda data: data["answer"].update(winners={}, kept={}, value=0.0, bound=0.0))
    done = cli("-q", "auction", "solve", file)
    assert done.code == 1
    assert "exact value 0.000000 is exceeded" in done.out
    both = cli("-q", "auction", "solve", file, "--solver", "default", "--solver", "greedy")
    assert both.code == 1
    assert "contradiction" in both.out


def test_wrong_recorded_answer_is_shown(cli: Cli, recorded: Path) -> None:
    file = _files(recorded)[2]
    _change(file, lambda data: data["answer"].update(winners={"ghost": {"row": 5, "chunks": []}}))
    done = cli("-q", "auction", "solve", file, "--json")
    assert done.code == 1
    (item,) = json.loads(done.out)["files"]
    assert item["recorded"]["winners"][0]["gpus"] is None
    assert "ghost wins without a bid" in item["answers"][0]["compared"]["contradiction"]


def test_a_bad_file_is_named_and_the_others_are_solved(cli: Cli, recorded: Path) -> None:
    first, *others = _files(recorded)
    _change(first, lambda data: data["problem"]["bidders"][0].update(weight=-1))
    done = cli("-q", "auction", "solve", recorded)
    assert done.code == 2
    assert f"{first}: problem.bidders[0].weight: got -1" in done.err
    assert all(path.stem in done.out for path in others)
    told = json.loads(cli("-q", "auction", "solve", recorded, "--json").out)["files"]
    assert "weight" in told[0]["error"]
    assert [item["error"] for item in told[1:]] == [None] * 4


def test_a_file_that_is_not_there_is_not_found(cli: Cli, tmp_path: Path) -> None:
    done = cli("auction", "solve", tmp_path / "gone.json")
    assert done.code == 3
    assert "gone.json: there is no such file" in done.err


def test_an_auction_without_a_recorded_answer_is_solved(cli: Cli, recorded: Path) -> None:
    file = _files(recorded)[0]
    _change(file, lambda data: data.update(answer=None, failure="lost", origin=None))
    done = cli("-q", "auction", "solve", file)
    assert done.code == 0
    assert "no answer was recorded: lost" in done.out
    assert "recorded answer (" not in done.out


def test_refusing_solver_fails_the_command_only_if_requested(
    cli: Cli, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small:
        name = "highs"

        def solve(self, problem: Any, budget: int | None = None) -> Any:
            raise RefusedError("highs", "too large for its licence")

    monkeypatch.setattr(
        SOLVERS,
        "solver",
        lambda name: Small() if name == "highs" else solver_by_name(name),
    )
    file = _files(recorded)[0]
    asked = cli("-q", "auction", "solve", file, "--solver", "highs")
    assert asked.code == 1
    assert "too large for its licence" in asked.out
    among_all = cli("-q", "auction", "solve", file, "--solver", "all")
    assert among_all.code == 0
    assert "too large for its licence" in among_all.out
