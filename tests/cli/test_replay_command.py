"""`themis replay`: a log that is as it was, one that was altered, and one that is damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture
def log(recorded_log: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    copy = tmp_path / "events.jsonl"
    copy.write_bytes(recorded_log.read_bytes())
    return copy


def _lines(log: Path) -> list[bytes]:
    return log.read_bytes().splitlines(keepends=True)


def test_a_log_replays_as_it_was(cli: Cli, log: Path) -> None:
    done = cli("replay", log)
    assert done.code == 0
    assert "every command as in the log" in done.out
    assert done.err == ""


def test_auctions_may_be_solved_again(cli: Cli, log: Path) -> None:
    done = cli("replay", log, "--resolve", "--json")
    assert done.code == 0
    data = json.loads(done.out)
    assert data["same"]
    assert data["finished"]
    assert data["resolved"] > 0
    assert data["events"] == len(_lines(log)) - 2
    assert data["difference"] is None


def test_the_first_difference_is_named_by_file_and_line(cli: Cli, log: Path) -> None:
    lines = _lines(log)
    number = next(i for i, line in enumerate(lines) if b'"assign"' in line)
    entry = json.loads(lines[number])
    entry["commands"] = [c for c in entry["commands"] if "assign" not in json.dumps(c)]
    lines[number] = json.dumps(entry).encode() + b"\n"
    log.write_bytes(b"".join(lines))
    done = cli("replay", log)
    assert done.code == 1
    assert f"{log}:{number + 1}: first difference" in done.out
    told = json.loads(cli("replay", log, "--json").out)
    assert not told["same"]
    assert told["line"] == number + 1
    assert told["difference"]


def test_log_cut_between_lines_replays_and_is_reported_as_incomplete(cli: Cli, log: Path) -> None:
    log.write_bytes(b"".join(_lines(log)[:20]))
    done = cli("replay", log)
    assert done.code == 0
    assert "stops before the end" in done.out


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "binary"])
def test_a_damaged_log_is_named_with_file_line_and_reason(cli: Cli, log: Path, damage: str) -> None:
    lines = _lines(log)
    line = 11
    if damage == "cut":
        log.write_bytes(b"".join(lines[:10]) + lines[10][:-20])
    elif damage == "garbage":
        log.write_bytes(b"".join((*lines[:10], b"{not json}\n", *lines[11:])))
    elif damage == "binary":
        log.write_bytes(b"".join((*lines[:10], b"\xff\xfe\x00\n", *lines[11:])))
    else:
        log.write_bytes(b"")
        line = 1
    before = log.read_bytes()
    for extra in ((), ("--json",)):
        done = cli("replay", log, *extra)
        assert done.code == 2
        assert done.out == ""
        assert f"{log}:{line}: " in done.err
        assert "Traceback" not in done.err
    assert log.read_bytes() == before


def test_a_log_that_is_not_there_ends_with_code_3(cli: Cli, tmp_path: Path) -> None:
    for path, meant in (
        (tmp_path / "missing.jsonl", tmp_path / "missing.jsonl"),
        (tmp_path, tmp_path / "events.jsonl"),
    ):
        done = cli("replay", path)
        assert done.code == 3
        assert f"{meant}: there is no such file" in done.err


def test_custom_policy_is_replayed_when_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from themis.core.policies.fifo import Fifo\n\n\nclass Mine(Fifo):\n    name = 'mine'\n"
    (tmp_path / "my_own_rule.py").write_text(code, "utf-8")
    monkeypatch.chdir(tmp_path)
    name = "my_own_rule:Mine"
    made = cli(
        "sim", "run", "--cluster", "demo16", "--apps", "1", "--policy", name, "--out", "run",
        "--events", "--quiet",
    )  # fmt: skip
    assert made.code == 0, made.err
    assert cli("replay", "run").code == 2
    assert cli("replay", "run", "--policy", name).code == 0


def test_other_file_is_refused_as_a_log(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "apps.json"
    file.write_text('{"a": 1}\n', "utf-8")
    done = cli("replay", file)
    assert done.code == 2
    assert f"{file}:1: " in done.err


def test_without_a_log_it_is_a_mistake(cli: Cli) -> None:
    assert cli("replay").code == 2
