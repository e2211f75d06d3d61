"""`themis sim run`: one object for programs, a table for people, and clear words for mistakes."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from themis.core.auction import Solution
from themis.errors import InvariantError
from themis.sim import driver

Cli = Callable[..., Any]
SHORT = ("sim", "run", "--cluster", "demo16", "--apps", "2", "--lease", "4h")
MEASURES = ("max_rho", "p95_rho", "median_rho", "share_fair")
TEXTS = ("policy", "cluster", "workload")
COUNTS = ("seed", "apps", "jobs", "rounds", "moves", "events")
NUMBERS = ("load", "gpu_hours", "mean_completion_h", "makespan_h", "cpu_s", "peak_rss_mb")


def _constant(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("policy", ["themis", "equal-share", "fifo"])
def test_json_is_one_object_with_every_promised_key(cli: Cli, policy: str) -> None:
    done = cli(*SHORT, "--policy", policy, "--json", "--quiet")
    assert done.code == 0
    assert done.err == ""
    assert done.out.count("\n") == 1
    data = json.loads(done.out, parse_constant=_constant)
    for key in TEXTS:
        assert isinstance(data[key], str), key
    for key in COUNTS:
        assert type(data[key]) is int, key
    for key in NUMBERS:
        assert isinstance(data[key], float | int), key
        assert data[key] > 0, key
    for key in (*MEASURES, *(f"{name}_ref" for name in MEASURES)):
        assert set(data[key]) == {"paper", "fair_share"}, key
        assert all(math.isfinite(value) and value >= 0 for value in data[key].values()), key
    for suffix in ("", "_ref"):
        for convention in ("paper", "fair_share"):
            worst, p95, median = (data[key + suffix][convention] for key in MEASURES[:3])
            assert median <= p95 <= worst
            assert 0.0 <= data["share_fair" + suffix][convention] <= 1.0
    assert (data["policy"], data["cluster"], data["workload"]) == (policy, "demo16", "w2")
    assert (data["seed"], data["apps"]) == (1, 2)


def test_people_get_a_table(cli: Cli) -> None:
    done = cli(*SHORT, "--no-color")
    assert done.code == 0
    assert "themis on demo16: w2, 2 apps" in done.out
    assert "rho_ref" in done.out
    assert "\x1b" not in done.out
    assert "of 2" in done.err


def test_quiet_says_nothing_but_the_result(cli: Cli, tmp_path: Path) -> None:
    done = cli(*SHORT, "--quiet", "--out", tmp_path / "run")
    assert done.code == 0
    assert done.err == ""
    assert (tmp_path / "run" / "result.json").is_file()


def test_the_folder_is_named_when_it_is_written(cli: Cli, tmp_path: Path) -> None:
    done = cli(*SHORT, "--out", tmp_path / "run", "--events", "--json")
    assert f"written to {tmp_path / 'run'}" in done.err
    assert (tmp_path / "run" / "events.jsonl").is_file()


def test_options_reach_what_they_name(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = cli(
        *SHORT, "--f", "0.5", "--load", "0.4", "--seed", "7", "--set", "payment=gpus", "--set",
        "restart_median=20s", "--out", out, "--json",
    )  # fmt: skip
    assert done.code == 0
    told = json.loads((out / "config.json").read_text("utf-8"))
    options = told["policy_options"]
    assert (options["payment"], options["f"]) == ("gpus", 0.5)
    assert options["rank"] == "best-case"  # what was left at its default is in force, too
    assert told["costs"]["restart_median"] == 20.0
    assert told["settings"]["lease"] == 14400.0
    assert (told["seed"], told["load"]) == (7, 0.4)
    assert json.loads(done.out)["load"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--policy", "themsi"), ("policy", "'themsi'", "equal-share", "did you mean 'themis'?")),
        (("--cluster", "testbed46"), ("cluster", "'testbed46'", "did you mean 'testbed64'?")),
        (("--workload", "w"), ("workload", "'w'", "w2")),
        (("--set", "leese=5m"), ("'leese'", "did you mean 'lease'?")),
        (("--set", "payment=lotery"), ("payment", "did you mean 'lottery'?")),
        (("--set", "lease"), ("--set 'lease'", "KEY=VALUE")),
        (("--set", "=5"), ("KEY=VALUE",)),
        (("--lease", "soon"), ("lease", "'soon'", "10m")),
        (("--lease", "0"), ("lease", "above 0")),
        (("--lease", "1e999h"), ("lease", "inf")),
        (("--set", "lease=" + "9" * 400), ("lease", "more than 18 digits")),
        (("--f", "nan"), ("f: got nan", "0 to 1")),
        (("--f", "-0.1"), ("f: got -0.1",)),
        (("--f", "lots"), ("error: --f: got 'lots', allowed: a number\n",)),
        (("--load", "inf"), ("load: got inf",)),
        (("--load", "0"), ("load: got 0",)),
        (("--apps", "0"), ("apps: got 0",)),
        (("--apps", "-3"), ("apps: got -3",)),
        (("--apps", "1.5"), ("error: --apps: got '1.5', allowed: a whole number\n",)),
        (("--seed", "-1"), ("seed: got -1", "0 to 10^18")),
        (("--lease", "-5m"), ("lease", "'-5m'", "positive")),
        (("--f", "0.5", "--set", "f=0.6"), ("--f and --set f", "twice")),
        (("--set", "lease=1h", "--set", "lease=2h"), ("--set lease", "twice")),
        (("--set", "lie_factor=2"), ("lie_factor: got 2, but without `liar`",)),
        (("--contention", "0"), ("contention: got 0",)),
        (("--events",), ("--events needs --out",)),
        (("--figures",), ("--figures needs --out",)),
        (("--nonsense",), ("--nonsense", "themis sim run --help")),
        (("--policy", "no.such.module:Policy"), ("importable module:Class",)),
    ],
)
def test_mistakes_end_with_code_2_and_clear_words(
    cli: Cli, args: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = cli("sim", "run", "--cluster", "demo16", *args, "--json")
    assert done.code == 2
    assert done.out == ""
    for word in words:
        assert word in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "args",
    [
        ("sim", "run", "--workload", "nosuch.jsonl"),
        ("sim", "run", "--workload", "nosuch.jsonl", "--apps", "2"),
        ("sim", "run", "--workload", "folder/nosuch"),
        ("sim", "run", "--cluster", "nosuch.yaml"),
        ("sim", "run", "--config", "nosuch.yaml"),
        ("sim", "compare", "--workload", "nosuch.jsonl"),
        ("config", "check", "nosuch.yaml"),
        ("trace", "stats", "nosuch.csv"),
    ],
)
def test_a_file_that_is_not_there_ends_with_code_3(cli: Cli, args: tuple[str, ...]) -> None:
    name = next(arg for arg in args if "nosuch" in arg)
    done = cli(*args)
    assert (done.code, done.out) == (3, "")
    assert done.err == f"error: {name}: there is no such file\n"


@pytest.mark.parametrize(
    "args", [("sim", "run", "--workload"), ("sim", "run", "--config"), ("sim", "run", "--cluster"),
             ("config", "check"), ("replay",), ("trace", "stats")]
)  # fmt: skip
def test_a_file_with_something_else_in_it_ends_with_code_2(
    cli: Cli, tmp_path: Path, args: tuple[str, ...]
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("bread, butter\n", "utf-8")
    done = cli(*args, file)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {file}")


def test_a_workload_file_has_its_own_number_of_apps(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("submit_s,duration_s,num_gpus\n0,60,1\n", "utf-8")
    file = tmp_path / "w.jsonl"
    assert cli("trace", "import", tmp_path / "t.csv", "--out", file).code == 0
    done = cli("sim", "run", "--workload", file, "--apps", "2")
    assert done.code == 2
    assert "apps: got 2, but a workload file has its own apps" in done.err


def test_single_app_is_printed_in_the_singular(cli: Cli) -> None:
    done = cli("sim", "run", "--cluster", "demo16", "--apps", "1", "--lease", "4h", "--quiet")
    assert "w2, 1 app, load" in done.out


@pytest.mark.slow
def test_figures_are_drawn_into_the_folder(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    done = cli(*SHORT, "--policy", "fifo", "--out", tmp_path / "run", "--figures", "--quiet")
    assert (done.code, done.err) == (0, "")
    kinds = ("rho", "timeline", "usage", "placement")
    assert {path.name for path in (tmp_path / "run" / "figures").iterdir()} == {
        f"{kind}.{end}" for kind in kinds for end in ("svg", "png")
    }


def test_without_matplotlib_the_run_is_kept_and_the_figures_are_not(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = cli(*SHORT, "--policy", "fifo", "--out", tmp_path / "run", "--figures")
    assert done.code == 0
    assert "figures need matplotlib" in done.err
    assert (tmp_path / "run" / "result.json").is_file()
    assert not (tmp_path / "run" / "figures").exists()


def test_without_the_library_of_its_solver_no_simulation_begins(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    monkeypatch.delitem(sys.modules, "themis.core.auction.solvers.highs", raising=False)
    done = cli(*SHORT, "--out", tmp_path / "run")
    assert (done.code, done.out) == (2, "")
    assert "solver: got 'highs', allowed: one that is installed: this needs highspy" in done.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_simulation_with_failed_rounds_ends_with_code_1(
    cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def solve(self, *_: object) -> Solution:
            raise InvariantError("the solver is broken")

    monkeypatch.setattr(driver, "solver", lambda _: Failing())
    more = (
        ("--policies", "themis", "--seeds", "1", "--workers", "1") if command == "compare" else ()
    )
    done = cli("sim", command, *SHORT[2:], "--json", "--quiet", *more)
    assert done.code == 1
    assert json.loads(done.out)
    assert "failed and only renewed leases, the first with: " in done.err
    assert "the solver is broken" in done.err


def test_the_help_of_sim_begins_with_run(cli: Cli) -> None:
    text = cli("sim", "--help").out
    assert text.index("  run ") < text.index("  compare ") < text.index("  sweep ")


def test_a_folder_with_something_in_it_is_refused_before_the_run(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("1", "utf-8")
    done = cli(*SHORT, "--out", tmp_path)
    assert done.code == 2
    assert "does not exist yet or is empty" in done.err
    assert os.listdir(tmp_path) == ["precious"]


def test_names_from_outside_cannot_steer_the_terminal(cli: Cli) -> None:
    done = cli("sim", "run", "--policy", "\x1b[2Jevil")
    assert done.code == 2
    assert "\x1b" not in done.err


@pytest.mark.parametrize(
    "args", [("--help",), ("sim", "--help"), ("sim", "run", "-h"), ("replay", "-h"), ("demo", "-h")]
)
def test_every_command_explains_itself(cli: Cli, args: tuple[str, ...]) -> None:
    done = cli(*args)
    assert done.code == 0
    assert "Usage: themis" in done.out
    assert done.err == ""


def test_the_help_of_a_run_names_every_flag(cli: Cli) -> None:
    text = cli("sim", "run", "--help").out
    for flag in ("--cluster", "--workload", "--apps", "--seed", "--policy", "--load", "--lease",
                 "--f", "--set", "--out", "--json"):  # fmt: skip
        assert flag in text


def test_version_is_printed(cli: Cli) -> None:
    done = cli("--version")
    assert done.code == 0
    assert done.out.startswith("themis ")


def test_an_unknown_command_is_a_mistake(cli: Cli) -> None:
    done = cli("simulate")
    assert done.code == 2
    assert "simulate" in done.err


@pytest.mark.slow
def test_as_a_program_it_prints_one_object_and_exit_codes_come_through() -> None:
    good = subprocess.run(
        [sys.executable, "-m", "themis", *SHORT, "--policy", "fifo", "--json", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["policy"] == "fifo"
    bad = subprocess.run(
        [sys.executable, "-m", "themis", "sim", "run", "--policy", "fifa"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "did you mean 'fifo'?" in bad.stderr


@pytest.mark.parametrize("apps", [85, 20])
def test_apps_do_not_apply_to_a_workload_file(cli: Cli, tmp_path: Path, apps: int) -> None:
    trace, file = tmp_path / "trace.csv", tmp_path / "jobs.jsonl"
    trace.write_text("submit_s,duration_s,num_gpus\n0,600,1\n60,600,2\n")
    assert cli("trace", "import", trace, "--out", file).code == 0
    run = ("-q", "sim", "run", "--cluster", "demo16", "--workload", file)
    assert cli(*run).code == 0
    refused = cli(*run, "--apps", apps)
    assert refused.code == 2
    assert f"apps: got {apps}, but a workload file has its own apps" in refused.err
    config = tmp_path / "run.yaml"
    config.write_text(f"workload: jobs.jsonl\napps: {apps}\n")
    checked = cli("config", "check", config)
    assert checked.code == 2
    assert f"run.yaml:2: apps: got {apps}, but" in checked.err
