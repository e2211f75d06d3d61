"""`themis config check`: every mistake with its file, its line and what is allowed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
LAB = "name: lab\nracks:\n  - machines:\n      - {count: 4, prefix: m-, slots: 2x2}\n"


def test_a_run_and_the_cluster_beside_it_are_fine(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(LAB, "utf-8")
    (tmp_path / "run.yaml").write_text(
        "cluster: lab.yaml\napps: 2\nset: {payment: gpus}\n", "utf-8"
    )
    done = cli("config", "check", tmp_path / "run.yaml", tmp_path / "lab.yaml")
    assert (done.code, done.err) == (0, "")
    assert f"{tmp_path / 'run.yaml'}: ok (themis on " in done.out
    assert "ok (cluster lab, 4 machines, 16 GPUs)" in done.out


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("apps: 3\npolicy: themsi\n", 2, ("policy", "did you mean 'themis'?")),
        ("apps: 3\npolcy: fifo\n", 2, ("'polcy'", "did you mean 'policy'?")),
        ("set:\n  payment: gpus\n  leese: 5m\n", 3, ("'leese'", "did you mean 'lease'?")),
        ("set:\n  payment: lotery\n", 2, ("payment", "did you mean 'lottery'?")),
        ("seed: 1\napps: -1\n", 2, ("apps: got -1",)),
        ("f: .nan\n", 1, ("f: got nan",)),
        ("load: high\n", 1, ("load: got 'high'",)),
        ("lease: soon\n", 1, ("lease", "10m")),
        ("set: {f: 0.1}\nf: 0.2\n", 1, ("set.f", "every key once")),
        ("cluster: 7\n", 1, ("cluster", "a name")),
        ("set: 7\n", 1, ("set", "a mapping")),
        ("set:\n  lease: [1]\n", 2, ("set.lease",)),
        ("racks:\n  - machines:\n    - {name: a, slts: 2}\n", 3, ("did you mean 'slots'?",)),
        ("apps: 1\napps: 2\n", 2, ("a second time",)),
        ("apps: *a\n", 1, ("alias",)),
        ("racks:\n  - machines:\n    - {name: a, slots: 0x4}\n", 3, ("slots: got '0x4'",)),
        ("racks:\n  - machines:\n    - {name: a, slots: 2x0}\n", 3, ("slots: got '2x0'",)),
        ("apps: 0x0\n", 1, ("apps: got '0x0'",)),
    ],
)
def test_a_mistake_comes_with_its_line(
    cli: Cli, tmp_path: Path, text: str, line: int, words: tuple[str, ...]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text, "utf-8")
    done = cli("config", "check", file)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {file}:{line}: ")
    for word in words:
        assert word in done.err


def test_every_file_is_looked_at(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("apps: 2\n", "utf-8")
    done = cli("config", "check", tmp_path / "none.yaml", tmp_path / "good.yaml", "--json")
    assert done.code == 3
    assert [item["ok"] for item in json.loads(done.out)["files"]] == [False, True]
    (tmp_path / "bad.yaml").write_text("apps: 0\n", "utf-8")
    assert cli("config", "check", tmp_path / "none.yaml", tmp_path / "bad.yaml").code == 2


def test_an_empty_file_is_no_configuration(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("# nothing yet\n", "utf-8")
    done = cli("config", "check", file)
    assert (done.code, done.out) == (2, "")
    assert "an empty file" in done.err


def test_run_file_mistakes_are_listed_in_line_order(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("apps: -1\nlease: soon\npolcy: fifo\nset: {payment: x, leese: 1}\n", "utf-8")
    done = cli("config", "check", file)
    lines = [line.split(":")[2] for line in done.err.splitlines()]
    assert (done.code, lines) == (2, ["1", "2", "3", "4", "4"])
    told = json.loads(cli("config", "check", file, "--json").out)["files"][0]
    assert (told["ok"], len(told["mistakes"])) == (False, 5)


def test_options_of_an_unknown_policy_are_not_judged(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("policy: gandva\nset: {margin: 0.1}\napps: 0\n", "utf-8")
    done = cli("config", "check", file)
    assert len(done.err.splitlines()) == 2
    assert "margin" not in done.err


def test_all_mistakes_of_a_cluster_are_reported(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(
        "name: LAB\nracks:\n  - machines:\n    - {name: a, slots: 2x}\n"
        "    - {name: b, slots: 2x2}\n"
        "    - {name: b, slots: 2x2}\n  - {name: r1}\n",
        "utf-8",
    )
    done = cli("config", "check", file)
    assert [line.split(":")[2] for line in done.err.splitlines()] == ["1", "4", "6", "7"]


def test_a_mistake_in_a_named_cluster_has_the_line_there(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("racks:\n  - machins: []\n", "utf-8")
    (tmp_path / "run.yaml").write_text("apps: 2\ncluster: lab.yaml\n", "utf-8")
    done = cli("config", "check", tmp_path / "run.yaml")
    assert f"{tmp_path / 'run.yaml'}:2: cluster: {tmp_path / 'lab.yaml'}:2: " in done.err


def test_a_mistake_in_a_named_workload_has_both_lines(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "w.jsonl").write_text("hello\n", "utf-8")
    (tmp_path / "run.yaml").write_text("seed: 2\nworkload: w.jsonl\n", "utf-8")
    done = cli("config", "check", tmp_path / "run.yaml")
    assert done.code == 2
    assert f"{tmp_path / 'run.yaml'}:2: workload: {tmp_path / 'w.jsonl'}:1: " in done.err


def test_missing_referenced_file_is_reported_at_the_line_naming_it(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "run.yaml").write_text("seed: 2\ncluster: gone.yaml\n", "utf-8")
    done = cli("config", "check", tmp_path / "run.yaml")
    assert done.code == 3
    assert done.err == f"error: {tmp_path / 'run.yaml'}:2: gone.yaml: there is no such file\n"


def test_the_schema_of_app_files_is_printed_too(cli: Cli) -> None:
    done = cli("config", "schema", "--app")
    assert (done.code, json.loads(done.out)["title"]) == (0, "Themis app")
    assert json.loads(cli("config", "schema").out)["title"] != "Themis app"
