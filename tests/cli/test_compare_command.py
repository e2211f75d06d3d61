"""`themis sim compare`, `themis sim sweep`: tables for people, objects and rows for programs."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
BASE = ("--cluster", "demo16", "--apps", "1", "--lease", "4h", "--workers", "1")
SHORT = ("sim", "compare", "--policies", "fifo,equal-share", "--seeds", "1-2", *BASE)
SWEEP = ("sim", "sweep", "--policies", "fifo", "--seeds", "1", *BASE)


def test_people_get_a_row_per_policy_with_intervals(cli: Cli) -> None:
    done = cli(*SHORT, "--wide", "--no-color")
    assert done.code == 0
    assert "w2, demo16, 1 app, 2 seeds" in done.out
    for word in ("fifo", "equal-share", "max rho_ref", "share fair", "GPU hours", "moves", " ± "):
        assert word in done.out
    assert "the paper's convention" in done.out
    assert "4 of 4 runs, 100 % of the work" in done.err


def test_programs_get_one_object_and_a_row_per_run(cli: Cli, tmp_path: Path) -> None:
    rows = tmp_path / "runs.csv"
    done = cli(*SHORT, "--json", "--quiet", "--csv", rows)
    assert (done.code, done.err) == (0, "")
    data = json.loads(done.out)
    assert [group["policy"] for group in data["groups"]] == ["fifo", "equal-share"]
    assert data["groups"][0]["seeds"] == [1, 2]
    assert data["groups"][0]["metrics"]["max_rho_ref"]["runs"] == 2
    with rows.open(encoding="utf-8", newline="") as file:
        told = list(csv.DictReader(file))
    assert [(row["policy"], row["seed"]) for row in told] == [
        ("fifo", "1"), ("fifo", "2"), ("equal-share", "1"), ("equal-share", "2"),
    ]  # fmt: skip
    assert float(told[0]["max_rho_ref_fair_share"]) > 0


@pytest.mark.slow
def test_a_folder_keeps_everything_and_a_second_call_finds_it(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    first = cli(*SHORT, "--out", tmp_path / "out", "--json", "--quiet")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    figures = {f"{kind}.{end}" for kind in ("rho", "usage", "placement", "timeline")
               for end in ("svg", "png")}  # fmt: skip
    assert names == {"runs", "comparison.json", "runs.csv", "apps.csv", *figures}
    before = (tmp_path / "out" / "comparison.json").read_bytes()
    again = cli(*SHORT, "--out", tmp_path / "out", "--json")
    assert "4 of 4 runs" in again.err
    assert "0 of 4 runs" not in again.err
    assert again.out == first.out
    assert (tmp_path / "out" / "comparison.json").read_bytes() == before


def test_an_interrupt_tells_how_to_go_on(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("themis.sim.runs.worker_pool.run", interrupted)
    done = cli(*SHORT, "--out", tmp_path / "out")
    assert done.code == 130
    assert "the same command goes on from there" in done.err


def test_a_sweep_has_a_row_per_value(cli: Cli) -> None:
    done = cli(*SWEEP, "--key", "load", "--values", "0.5,1", "--json", "--quiet")
    assert done.code == 0
    data = json.loads(done.out)
    assert (data["swept"], [group["load"] for group in data["groups"]]) == ("load", [0.5, 1])
    table = cli(*SWEEP, "--key", "restart_median", "--values", "10s,20s", "--no-color", "--quiet")
    assert "restart_median, policy" in table.out
    assert "10s, fifo" in table.out


def test_flags_win_over_the_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("cluster: demo16\napps: 1\nseed: 7\npolicy: fifo\nlease: 4h\n", "utf-8")
    told = json.loads(cli("sim", "run", "--config", file, "--json", "--quiet").out)
    assert (told["policy"], told["seed"], told["cluster"]) == ("fifo", 7, "demo16")
    other = cli("sim", "run", "--config", file, "--seed", "1", "--json", "--quiet")
    assert json.loads(other.out)["seed"] == 1  # a flag that says what is the default anyway


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--seeds", "5-1"), ("5-1", "range upwards")),
        (("--seeds", "one"), ("1-5 or 1,2,7",)),
        (("--seeds", "1-99999999"), ("at most 10000",)),
        (("--seeds", ","), ("at least one seed",)),
        (("--seeds", "1,1"), ("none twice",)),
        (("--policies", "fifa"), ("did you mean 'fifo'?",)),
        (("--policies", ","), ("at least one policy",)),
        (("--set", "leese=1h"), ("did you mean 'lease'?",)),
        (("--workers", "0"), ("--workers",)),
        (("--csv", "no-such-folder/runs.csv"), ("csv: got", "folder that is there")),
        (("--csv", "."), ("csv: got", "not a folder")),
        (("--apps", "0"), ("apps: got 0",)),
    ],
)
def test_mistakes_are_reported_before_anything_runs(
    cli: Cli, args: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = cli("sim", "compare", "--cluster", "demo16", *args, "--json")
    assert (done.code, done.out) == (2, "")
    for word in words:
        assert word in done.err


def test_a_key_that_does_not_exist_cannot_be_swept(cli: Cli) -> None:
    done = cli(*SWEEP, "--key", "leasse", "--values", "1h,2h")
    assert done.code == 2
    assert "did you mean 'lease'?" in done.err
