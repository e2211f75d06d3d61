"""`themis reproduce`: a table for people, one object for programs, errors that help."""

import json
import lzma
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from themis.cli.common import progress

Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THEMIS_DATA", raising=False)


def test_without_names_it_lists_the_experiments(cli: Cli) -> None:
    done = cli("reproduce")
    assert done.code == 0
    for word in ("E12", "E13", "What apps look like"):
        assert word in done.out
    data = json.loads(cli("reproduce", "--json").out)
    assert set(data) >= {"E1", "E12", "E13"}
    assert (data["E11"]["runs"], data["E12"]["runs"]) == (4 * 10 + 3 * 6, 0)
    assert re.search(r"E16 .* 260 +about 20,000 in all", done.out)
    few = cli("reproduce", "--quick")
    assert re.search(r"E11 .* 7 *$", few.out, re.MULTILINE)
    assert "in all" not in few.out


def test_people_get_the_claims_and_the_files(cli: Cli, tmp_path: Path) -> None:
    done = cli("reproduce", "E13", "--out", tmp_path / "out", "--no-color")
    assert done.code == 0
    for word in ("VGG16 wants one machine", "by construction", "partly", "themis-paper"):
        assert word in done.out
    assert "report.html" in done.err
    assert (tmp_path / "out" / "report.html").is_file()


def test_slow_step_is_announced_when_it_starts(cli: Cli, tmp_path: Path) -> None:
    done = cli("reproduce", "E12", "E13", "--out", tmp_path / "out")
    lines = done.err.splitlines()
    assert lines[0] == f"reproducing E12 E13, in {tmp_path / 'out'}"
    told = [line.split(": ")[:2] for line in lines if line.startswith(("E12", "E13", "writing"))]
    # Seconds are told of what takes some, and what began is said again.
    begun = list(dict.fromkeys(re.sub(r" \(\d+ s\)", "", " ".join(words)) for words in told))
    assert [text for text in begun if "drawing" not in text] == [
        "E12 evaluating", "E13 evaluating", "writing the report 2 of 2",
    ], done.err  # fmt: skip
    assert any(text.startswith("E12 drawing") for text in begun)


def test_measured_data_adds_runs(
    cli: Cli, themis_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = json.loads(cli("reproduce", "--json").out)["E15"]["runs"]
    monkeypatch.setenv("THEMIS_DATA", str(themis_data))
    assert json.loads(cli("reproduce", "--json").out)["E15"]["runs"] > without > 0


def test_programs_get_one_object(cli: Cli, tmp_path: Path) -> None:
    args = ("reproduce", "e13", "--out", tmp_path / "out", "--json", "--quiet")
    done = cli(*args)
    assert (done.code, done.err) == (0, "")
    data = json.loads(done.out)
    assert [item["id"] for item in data["experiments"]] == ["E13"]
    assert data["experiments"][0]["claims"][0]["verdict"] == "by construction"
    assert all(Path(path).is_file() for path in data["files"])
    assert cli(*args).out == done.out


@pytest.mark.slow
def test_runs_are_finished_once(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from themis.evaluation import experiment  # noqa: PLC0415 - only this test makes it small

    monkeypatch.setattr(experiment, "QUICK_APPS", 1)
    lengths = ("4h", "8h")
    for name, value in (("VALUES", lengths), ("LITERAL_VALUES", lengths)):
        monkeypatch.setattr(f"themis.evaluation.experiments.e11_lease_time.{name}", value)
    args = ("reproduce", "E11", "--quick", "--seeds", "1", "--out", tmp_path, "--workers", "1")
    first = cli(*args, "--no-color")
    assert first.code == 0
    assert "undecided" in first.out
    again = cli(*args, "--no-color")
    assert "4 of 4 runs" in again.err
    assert "0 of 4 runs" not in again.err
    assert again.out == first.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_tells_how_to_go_on(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr("themis.evaluation.runner.finish_all", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    done = cli("reproduce", "E11", "--quick", "--out", tmp_path / "out")
    assert done.code == 130
    assert "no run was finished; the same command begins anew" in done.err
    (tmp_path / "out" / "runs" / "0a.json").write_text("{}\n", "utf-8")
    done = cli("reproduce", "E11", "--quick", "--out", tmp_path / "out")
    assert f"finished runs are in {tmp_path / 'out'}; the same command resumes" in done.err
    assert signal.getsignal(signal.SIGTERM) == before


def test_partial_reproduction_lists_the_rest_and_fails_until_complete(
    cli: Cli, tmp_path: Path
) -> None:
    args = ("reproduce", "E13", "E11", "--quick", "--minutes", "0", "--out", tmp_path / "out")
    done = cli(*args)
    assert done.code == 1
    assert "7 runs missing, roughly " in done.err
    assert "none is begun (--minutes 0)" in done.err
    assert "to do" not in done.err
    assert "E11: 7 runs left" in done.err
    assert "the same command without --minutes 0 resumes" in done.err
    assert "VGG16" in done.out  # what can be told is told
    assert (tmp_path / "out" / "report.html").is_file()
    data = json.loads(cli(*args, "--json", "--quiet").out)
    assert data["unfinished"] == {"E11": 7}


def test_a_long_evaluation_says_when_it_begins_no_more_runs(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("themis.evaluation.runner.finish_all", lambda *_, **__: 1)
    done = cli("reproduce", "E11", "--minutes", "50", "--out", tmp_path / "out")
    assert "58 runs to do, roughly " in done.err
    assert "; finished runs are kept; none is begun after 50 min" in done.err


def test_a_finished_folder_becomes_a_page(cli: Cli, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "results.md"
    assert cli("reproduce", "E13", "--out", out, "--docs", page).code == 0
    first = page.read_text("utf-8")
    assert "VGG16 wants one machine" in first
    page.unlink()
    done = cli("reproduce", "--out", out, "--docs", page, "--json")
    assert json.loads(done.out)["files"][0] == str(page)
    assert page.read_text("utf-8") == first
    empty = cli("reproduce", "--out", tmp_path / "empty", "--docs", page)
    assert empty.code == 2
    assert "has finished" in empty.err


def test_runs_that_were_made_in_parts_become_a_page_that_says_so(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from themis.evaluation import experiment  # noqa: PLC0415 - only this test makes it small

    monkeypatch.setattr(experiment, "QUICK_APPS", 1)
    lengths = ("4h", "8h")
    for name, value in (("VALUES", lengths), ("LITERAL_VALUES", lengths)):
        monkeypatch.setattr(f"themis.evaluation.experiments.e11_lease_time.{name}", value)
    out, page = tmp_path / "out", tmp_path / "results.md"
    some = ("reproduce", "E11", "--quick", "--out", out, "--workers", "1")
    assert cli(*some, "--seeds", "1-2").code == 0
    # The folder holds more than is asked for now.
    assert cli(*some, "--seeds", "2", "--docs", page).code == 0
    assert "means over seeds 2**" in page.read_text("utf-8")
    # And less: nothing is run for the page, which exists all the same.
    done = cli("reproduce", "--quick", "--seeds", "1-4", "--out", out, "--docs", page)
    assert done.code == 0
    text = page.read_text("utf-8")
    assert "8 of 16 runs, on seeds 1-2 of 1-4" in text
    assert "means over seeds 1-2 of 1-4**" in text
    assert "E7: Network-intensive apps (not run)" in text
    assert len((tmp_path / "results" / "runs.csv").read_text("utf-8").splitlines()) == 1 + 8
    part = cli(*some, "--seeds", "1-4", "--minutes", "0", "--docs", page)
    assert part.code == 1
    assert "E11: 8 runs left" in part.err
    assert page.read_text("utf-8").count("8 of 16 runs") >= 2


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("E99",), ("E99", "E1, E2, E3, E4")),
        (("E12", "E1O"), ("E1O", "did you mean")),
        (("E13", "--seeds", "5-1"), ("range upwards",)),
        (("E13", "--seeds", ","), ("at least one seed",)),
        (("E13", "--policies", ""), ("policies", "at least one policy")),
        (("E13", "--workers", "0"), ("--workers",)),
    ],
)
def test_mistakes_are_reported_before_anything_runs(
    cli: Cli, tmp_path: Path, args: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = cli("reproduce", *args, "--out", tmp_path / "out")
    assert (done.code, done.out) == (2, "")
    assert not (tmp_path / "out").exists()
    for word in words:
        assert word in done.err


@pytest.mark.parametrize(
    ("flag", "name", "words"),
    [
        ("--pack", "missing/runs.xz", "missing is not"),
        ("--pack", "folder", "a file, not a folder"),
        ("--docs", "folder", "a file, not a folder"),
        ("--docs", "file/page.md", "file is not a folder"),
        ("--docs", "file.md", "file is not a folder"),
        ("--docs", "page", "a file with an ending"),
    ],
)
def test_where_nothing_can_be_written_is_found_before_anything_runs(
    cli: Cli, tmp_path: Path, flag: str, name: str, words: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x", "utf-8")
    done = cli("reproduce", "E13", "--out", tmp_path / "out", flag, tmp_path / name)
    assert (done.code, done.out) == (2, "")
    assert f"{flag.removeprefix('--')}: got" in done.err
    assert name in done.err
    assert words in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flag", "name", "words"),
    [
        ("--docs", "notes.md", "a new file, or a page that this command made"),
        ("--pack", "notes.md", "a new file, or an archive of runs to replace"),
    ],
)
def test_foreign_file_is_not_replaced(
    cli: Cli, tmp_path: Path, flag: str, name: str, words: str
) -> None:
    mine = tmp_path / name
    mine.write_text("# Results\n\nof my own.\n", "utf-8")
    done = cli("reproduce", "E13", "--out", tmp_path / "out", flag, mine)
    assert done.code == 2
    assert words in done.err
    assert mine.read_text("utf-8") == "# Results\n\nof my own.\n"
    assert not (tmp_path / "out").exists()


def test_an_archive_of_something_else_is_not_replaced(cli: Cli, tmp_path: Path) -> None:
    backup = tmp_path / "backup.xz"
    backup.write_bytes(lzma.compress(b"all my photographs"))
    done = cli("reproduce", "E13", "--out", tmp_path / "out", "--pack", backup)
    assert done.code == 2
    assert "an archive of runs to replace" in done.err
    assert lzma.decompress(backup.read_bytes()) == b"all my photographs"


def test_full_regeneration_cannot_be_done_in_parts(cli: Cli, tmp_path: Path) -> None:
    done = cli("reproduce", "E2", "--out", tmp_path, "--fresh", "--minutes", "5")
    assert (done.code, done.out) == (2, "")
    assert "got '5 with --fresh', allowed: one of them" in done.err


def test_a_policy_that_no_experiment_has_is_refused(cli: Cli, tmp_path: Path) -> None:
    done = cli("reproduce", "E10", "--quick", "--out", tmp_path, "--policies", "themis,gandiva")
    assert (done.code, done.out) == (2, "")
    assert "policies: got 'gandiva', allowed: some of themis, themis-paper" in done.err


def test_a_page_and_an_archive_that_this_command_made_are_replaced(
    cli: Cli, tmp_path: Path
) -> None:
    out, page, packed = tmp_path / "out", tmp_path / "results.md", tmp_path / "runs.xz"
    page.write_text("", "utf-8")  # with nothing in it there is nothing to lose
    (out / "runs").mkdir(parents=True)
    (out / "runs" / "0a.json").write_text("{}\n", "utf-8")
    for _ in range(2):
        assert cli("reproduce", "E13", "--out", out, "--docs", page, "--pack", packed).code == 0
    assert "VGG16" in page.read_text("utf-8")


def test_page_and_archive_may_go_into_new_folders(cli: Cli, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "new" / "docs" / "results.md"
    done = cli("reproduce", "E13", "--out", out, "--docs", page, "--pack", out / "runs.xz")
    assert page.is_file()
    assert "with finished runs" in done.err  # E13 has none


def test_names_are_looked_at_before_runs_are_taken(cli: Cli, tmp_path: Path) -> None:
    done = cli("reproduce", "E99", "--out", tmp_path / "out", "--unpack", tmp_path / "none.xz")
    assert done.code == 2
    assert "E99" in done.err


def test_missing_data_is_reported(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEMIS_DATA", str(tmp_path / "nowhere"))
    done = cli("reproduce", "E13", "--out", tmp_path / "out")
    assert done.code == 2
    assert "THEMIS_DATA" in done.err
    (tmp_path / "nowhere").mkdir()
    done = cli("reproduce", "E13", "--out", tmp_path / "out")
    assert done.code == 0
    assert f"THEMIS_DATA: {tmp_path / 'nowhere'} has no CSV file" in done.err


def test_unwritable_folder_is_reported(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", "utf-8")
    (tmp_path / "runs.xz").write_bytes(b"")
    for words in (("E13",), ("--unpack", tmp_path / "runs.xz")):
        for name in ("file", "file/below"):
            done = cli("reproduce", *words, "--out", tmp_path / name)
            assert done.code == 2
            assert "can be written" in done.err
            # What was typed, and not what we would have made in it.
            assert f"out: got {tmp_path / name}, " in done.err.replace("'", "")


def test_runs_are_packed_and_unpacked_without_running_anything(cli: Cli, tmp_path: Path) -> None:
    runs = tmp_path / "one" / "runs"
    runs.mkdir(parents=True)
    (runs / "0a.json").write_text("{}\n")
    packed = cli("reproduce", "--out", tmp_path / "one", "--pack", tmp_path / "runs.xz")
    assert (packed.code, packed.out) == (0, "")
    assert "with 1 file of runs" in packed.err
    there = cli("reproduce", "--out", tmp_path / "two", "--unpack", tmp_path / "runs.xz")
    assert there.code == 0
    assert (tmp_path / "two" / "runs" / "0a.json").read_text() == "{}\n"
    assert f"to {tmp_path / 'two' / 'runs'}: 1 run (1 file)" in there.err
    assert f"themis reproduce all --out {tmp_path / 'two'} --minutes 0" in there.err
    again = cli("reproduce", "--out", tmp_path / "two", "--unpack", tmp_path / "runs.xz")
    assert "0 runs (0 files, 1 existed)" in again.err


def test_runs_of_chosen_policies_come_to_an_end(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from themis.evaluation import experiment  # noqa: PLC0415 - only this test makes it small

    monkeypatch.setattr(experiment, "QUICK_APPS", 1)
    few = ("reproduce", "E1", "--quick", "--seeds", "1", "--out", tmp_path, "--workers", "1")
    args = (*few, "--policies", "equal-share,gandiva", "--no-color")
    begun = cli(*args, "--minutes", "0")
    assert begun.code == 1
    assert "E1: 4 runs left" in begun.err
    assert "E1: 10 runs of other policies left" in begun.err
    done = cli(*args)
    assert done.code == 0
    assert "all runs of equal-share, gandiva that are named so far are finished" in done.err
    assert "the same command without --policies makes the others" in done.err
    assert "not finished" not in done.err
    assert "4 of 14 runs" in " ".join(done.out.split())
    data = json.loads(cli(*args, "--json").out)
    assert (data["unfinished"], data["left_of_other_policies"]) == ({}, {"E1": 10})


def test_regenerated_runs_are_reported_by_all_experiments_sharing_them(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from themis.evaluation import experiment  # noqa: PLC0415 - only this test makes it small

    monkeypatch.setattr(experiment, "QUICK_APPS", 1)
    few = ("--quick", "--seeds", "1", "--out", tmp_path, "--workers", "1")
    chosen = (*few, "--policies", "equal-share,gandiva,optimus,slaq")
    cli("reproduce", "E2", "E4", *chosen)
    before = (tmp_path / "E2" / "gpu_time.csv").read_text("utf-8")
    for path in (tmp_path / "runs").glob("*.json"):
        text = re.sub(r'"gpu_hours":[0-9.]+', '"gpu_hours":123456.0', path.read_text("utf-8"))
        path.write_text(text, "utf-8")
    cli("reproduce", "E2", *few, "--minutes", "0")
    assert "123456" in (tmp_path / "E2" / "runs.csv").read_text("utf-8")
    cli("reproduce", "E4", *chosen, "--fresh")
    assert "123456" not in (tmp_path / "E2" / "runs.csv").read_text("utf-8")
    assert (tmp_path / "E2" / "gpu_time.csv").read_text("utf-8") == before


def test_before_a_search_and_a_live_run_nothing_is_promised(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("themis.evaluation.runner.finish_all", lambda *_, **__: 1)
    done = cli("reproduce", "E16", "E17", "--out", tmp_path / "out", "--minutes", "1")
    (told,) = (line for line in done.err.splitlines() if "261 runs to do" in line)
    assert "E16 may name more runs after these, about 20,000 in all" in told
    assert "E17 continues with processes that change hands and the live system" in told


def test_it_is_never_silent_for_long(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("themis.cli.common.output.SILENCE", 0.0)
    beaten = threading.Event()
    beat = progress._Talking.beat

    def noted(talking: progress._Talking) -> None:
        beat(talking)
        beaten.set()

    def patient(*_: object) -> list[Path]:
        beaten.clear()
        assert beaten.wait(60.0)
        return []

    monkeypatch.setattr(progress._Talking, "beat", noted)
    monkeypatch.setattr("themis.evaluation.reporting.write_report", patient)
    done = cli("reproduce", "E13", "--out", tmp_path / "out", "--json")
    assert re.search(r"writing the report \(\d+ s\): 1 of 1", done.err)
    assert json.loads(done.out)["files"] == []
    assert progress.NAME not in {thread.name for thread in threading.enumerate()}


def test_policies_are_of_experiments(cli: Cli, tmp_path: Path) -> None:
    for more in ((), ("--docs", tmp_path / "page.md"), ("--unpack", tmp_path / "runs.xz")):
        done = cli("reproduce", "--policies", "themis", "--out", tmp_path, *more)
        assert done.code == 2
        assert "names of experiments" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_policy_that_is_not_there_is_named(cli: Cli, tmp_path: Path) -> None:
    done = cli("reproduce", "E1", "--policies", "themi", "--out", tmp_path)
    assert done.code == 2
    assert "themi" in done.err
    assert "themis" in done.err


def test_finished_runs_can_be_made_again(cli: Cli, tmp_path: Path) -> None:
    few = ("reproduce", "E1", "--quick", "--seeds", "1", "--policies", "equal-share")
    args = (*few, "--out", tmp_path, "--workers", "1")
    nothing = cli(*args, "--verify", "2")
    assert nothing.code == 1
    assert "no finished run" in nothing.err
    assert "--quick" not in nothing.err
    cli(*args)
    slow = cli("reproduce", "E1", "--seeds", "1", "--out", tmp_path, "--verify", "2")
    assert "has no finished run of these, but some of --quick: add it" in slow.err
    same = cli(*args, "--verify", "1", "--no-color")
    assert (same.code, same.out.count("the same")) == (0, 1)
    for path in (tmp_path / "runs").glob("*.json"):
        text = path.read_text("utf-8")
        path.write_text(text.replace('"rounds":', '"rounds":9'), "utf-8")
    changed = cli(*args, "--verify", "2", "--json")
    assert changed.code == 1
    assert "2 of 2 runs differ" in changed.err
    assert all("rounds: 9" in one["differences"][0] for one in json.loads(changed.out))
    assert cli("reproduce", "--verify", "2", "--out", tmp_path).code == 2
    packed = cli(*args, "--verify", "2", "--pack", tmp_path / "runs.xz")
    assert packed.code == 2
    assert "not beside --pack" in packed.err
