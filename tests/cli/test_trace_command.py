"""`themis trace` from the command line: exit codes, what is printed, what is written."""

import json
import sys
from pathlib import Path

import pytest

from themis.cli import main
from themis.sim.traces import read_workload

GOOD = "submit_s,duration_s,num_gpus,owner\n0,3600,2,ann\n30,3600,2,ann\n900,60,1,bob\n"
BAD = GOOD + "901,x,1,bob\n902,0,1,bob\n903,5,1\n"


@pytest.fixture
def themis(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> "Themis":
    monkeypatch.chdir(tmp_path)
    return Themis(monkeypatch, capsys)


class Themis:
    """Runs the command in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["themis", "trace", *words])
        code = main()
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err


def saved(text: str, name: str = "jobs.csv") -> str:
    Path(name).write_text(text)
    return name


def test_a_clean_trace_is_valid(themis: Themis) -> None:
    code, out, _ = themis("validate", saved(GOOD))
    assert code == 0
    assert "csv: 3 rows, 3 jobs, every row is understood" in out


def test_bad_rows_are_named_by_line_and_fail_validation(themis: Themis) -> None:
    code, out, _ = themis("validate", saved(BAD))
    assert code == 1
    assert "jobs.csv:5: duration_s is not a number: 'x'" in out
    assert "jobs.csv:7: too few fields" in out
    assert "bad rows: 2" in out
    assert "left out: 1 (zero duration 1)" in out


def test_validation_as_json_is_one_object(themis: Themis) -> None:
    code, out, _ = themis("validate", "--json", saved(BAD))
    report = json.loads(out)
    assert code == 1
    assert (report["clean"], report["rows"], report["jobs"]) == (False, 6, 3)
    assert [problem["line"] for problem in report["first_problems"]] == [5, 7]


def test_a_trace_without_jobs_fails_validation(themis: Themis) -> None:
    header = "submit_s,duration_s,num_gpus\n"
    for text, rows in ((header, "0 rows"), (header + "1,0,1\n", "1 row,")):
        code, out, _ = themis("validate", saved(text))
        assert code == 1
        assert rows in out
        assert "there is no job in it" in out
        assert "understood" not in out
        code, out, _ = themis("validate", saved(text), "--json")
        report = json.loads(out)
        assert (code, report["clean"], report["verdict"]) == (1, False, "there is no job in it")


def test_a_missing_column_is_named(themis: Themis) -> None:
    code, _, err = themis("validate", saved("submit_s,num_gpus,owner\n1,1,ann\n"))
    assert code == 2
    assert "jobs.csv:1: " in err
    assert "duration_s is missing" in err


def test_small_and_large_numbers_are_printed_readably(themis: Themis) -> None:
    _, out, _ = themis("stats", saved("submit_s,duration_s,num_gpus\n0,504,1\n"))
    assert "1 owner, 0.14 GPU-hours; no bursts" in out
    assert "jobs: 1 app, 1 job, load 0.00 on 64 GPUs over 1 hour" in out
    rows = "submit_s,duration_s,num_gpus\n0,2641570,1\n86400,100,1\n"
    _, out, _ = themis("stats", saved(rows))
    assert "2641570" in out
    assert "1320835" in out  # the median of two is the middle between them
    assert "over 1 day\n" in out
    assert "e+" not in out


def test_import_writes_a_workload_and_prints_its_load(themis: Themis) -> None:
    code, out, _ = themis("import", saved(GOOD), "--out", "w.jsonl", "--gpus", "4")
    assert code == 0
    assert "jobs: 2 apps, 3 jobs, load 1.00 on 4 GPUs" in out
    workload = read_workload(Path("w.jsonl"))
    assert [app.spec.owner for app in workload.apps] == ["ann", "bob"]
    assert workload.generator == "trace:csv"


def test_import_skips_bad_rows_and_says_so(themis: Themis) -> None:
    code, out, _ = themis("import", saved(BAD), "--out", "w.jsonl")
    assert code == 0
    assert "bad rows: 2 (duration_s is not a number 1, too few fields 1)" in out
    assert len(read_workload(Path("w.jsonl")).apps) == 2


def test_a_strict_import_writes_nothing_if_any_row_is_bad(themis: Themis) -> None:
    code, out, err = themis("import", saved(BAD), "--out", "w.jsonl", "--strict")
    assert (code, out) == (1, "")
    assert "jobs.csv:5: duration_s is not a number" in err
    assert not Path("w.jsonl").exists()
    assert themis("import", saved(GOOD), "--out", "w.jsonl", "--strict")[0] == 0


def test_dropped_owners_are_counted_and_unknown_ones_noted(themis: Themis) -> None:
    flags = ("--drop-owner", "ann", "--drop-owner", "eve")
    code, out, err = themis("import", saved(GOOD), "--out", "w.jsonl", *flags)
    assert code == 0
    assert "left out: 2 (owner dropped 2)" in out
    assert "--drop-owner eve: no job has this owner" in err


def test_an_import_that_leaves_no_job_fails(themis: Themis) -> None:
    code, _, err = themis("import", saved(GOOD), "--out", "w.jsonl", "--from", "1d")
    assert code == 1
    assert "outside the window 3" in err
    assert "no job is left" in err
    assert not Path("w.jsonl").exists()


def test_import_as_json_has_the_statistics_and_the_problems(themis: Themis) -> None:
    _, out, _ = themis("import", saved(BAD), "--out", "w.jsonl", "--json", "--limit-apps", "1")
    report = json.loads(out)
    assert (report["apps"], report["jobs"], report["out"]) == (1, 2, "w.jsonl")
    assert report["dropped"] == {"beyond the limit of apps": 1, "zero duration": 1}
    assert [problem["line"] for problem in report["first_problems"]] == [5, 7]


def test_the_trace_itself_is_never_overwritten(themis: Themis) -> None:
    code, _, err = themis("import", saved(GOOD), "--out", "./jobs.csv")
    assert code == 2
    assert "that is the trace itself" in err
    assert Path("jobs.csv").read_text() == GOOD


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        pytest.param(("validate", "gone.csv"), 3, "no such file", id="no file"),
        pytest.param(("validate", "."), 2, "a readable file", id="a folder"),
        pytest.param(("validate", "jobs.csv", "--format", "cvs"), 2, "did you mean", id="format"),
        pytest.param(("stats", "jobs.csv", "--burst-gap", "x"), 2, "burst_gap", id="a bad time"),
        pytest.param(("stats", "jobs.csv", "--gpus", "0"), 2, "gpus", id="no cluster"),
        pytest.param(
            ("import", "jobs.csv", "--out", "no/w.jsonl"), 2, "a file to write", id="no folder"
        ),
    ],
)
def test_wrong_usage_ends_with_one_clear_line(
    themis: Themis, words: tuple[str, ...], code: int, message: str
) -> None:
    saved(GOOD)
    result, _, err = themis(*words)
    assert result == code
    assert message in err
    assert "Traceback" not in err


def test_statistics_are_a_table_or_one_object(themis: Themis) -> None:
    code, out, _ = themis("stats", saved(GOOD), "--gpus", "4")
    assert code == 0
    assert "jobs per app" in out
    assert "1 burst with 2 jobs, the largest 2" in out
    _, out, _ = themis("stats", saved(GOOD), "--gpus", "4", "--json")
    report = json.loads(out)
    assert (report["bursts"], report["owners"], report["horizon_s"]) == (1, 2, 3600.0)
    assert report["load"] == pytest.approx(14460 / (4 * 3600))


def test_nothing_in_a_trace_can_steer_the_terminal(themis: Themis) -> None:
    text = GOOD + '904,5,1,"\x1b[31mred"\n905,\x1b[31m,1,x\n'
    _, out, _ = themis("stats", saved(text))
    assert "red" in out
    assert "\x1b" not in out
