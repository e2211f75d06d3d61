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
    assert done.code == 2
    assert [item["ok"] for item in json.loads(done.out)["files"]] == [False, True]


def test_a_mistake_in_a_named_cluster_has_the_line_there(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("racks:\n  - machins: []\n", "utf-8")
    (tmp_path / "run.yaml").write_text("apps: 2\ncluster: lab.yaml\n", "utf-8")
    done = cli("config", "check", tmp_path / "run.yaml")
    assert f"{tmp_path / 'lab.yaml'}:2: " in done.err
