"""`themis demo`: policies compared, figures drawn."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.mark.slow
def test_the_demo_compares_policies_and_draws_figures(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    done = cli("demo", "--apps", "1", "--out", tmp_path / "demo", "--json", "--quiet")
    assert done.code == 0
    assert done.err == ""
    data = json.loads(done.out)
    assert {"themis", "equal-share", "fifo"} <= set(data["runs"])
    for name, summary in data["runs"].items():
        assert summary["policy"] == name
        assert summary["apps"] == 1
    for path in map(Path, data["figures"]):
        assert path.stat().st_size > 1000


def test_a_file_in_the_way_of_the_figures_is_a_mistake(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    (tmp_path / "file").write_text("1", "utf-8")
    done = cli("demo", "--apps", "1", "--out", tmp_path / "file" / "demo")
    assert done.code == 2
    assert "a folder that can be written" in done.err
