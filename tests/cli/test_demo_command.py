"""`themis demo`: what it says at its end, what it shows meanwhile, and what it refuses."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from themis.cli import demo as command
from themis.cli.common.output import STYLE
from themis.cli.demo_screen import marks_of, open_screen, picture
from themis.cli.demo_summary import timeline_lines, waiting_lines
from themis.demo.observer import DemoObserver, Observation, ObservedGpu
from themis.demo.tenants import Tenant

Cli = Callable[..., Any]

MADE: dict[str, Any] = {
    "quick": True,
    "seconds": 20.0,
    "wall_seconds": 25.0,
    "cpu_seconds": 5.0,
    "used": 0.75,
    "gpu_seconds": {"ridge": 30.0},
    "apps": [
        {
            "app": "ridge", "owner": "ann", "about": "a sweep", "submitted": 0.0,
            "outcome": "finished", "rho": 0.98, "elapsed": 20.0, "ideal_seconds": 20.4,
            "winner": {"job": "3", "params": {"lr": 0.1}, "metric": 0.0086, "iterations": 40},
            "waited": [
                {"reason": "OUTBID", "seconds": 6.0}, {"reason": "STARTING", "seconds": 0.5},
            ],
            "short": [{"reason": "PARTLY_SERVED", "seconds": 4.0}],
        }
    ],
    "gpus": [
        {
            "rack": "r0", "node": "m0", "index": 0,
            "spans": [
                {"app": None, "from": 0.0, "until": 5.0},
                {"app": "ridge", "from": 5.0, "until": 20.0},
            ],
        },
        {"rack": "r0", "node": "m0", "index": 1, "spans": [
            {"app": "ridge", "from": 0.0, "until": 20.0}]},
    ],
}  # fmt: skip


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A demo that is over at once."""
    made = {**MADE, "apps": [dict(MADE["apps"][0])]}
    monkeypatch.setattr(command, "_play", lambda keep, quick: made)
    return made


def test_the_end_tells_of_fairness_winners_gpus_and_waiting(
    cli: Cli, played: dict[str, Any]
) -> None:
    done = cli("demo")
    assert done.code == 0
    for wanted in (
        "finished",
        "0.98",
        "lr=0.1",
        "0.0086",
        "ridge: 6 s without any GPU: other apps gained more",
        "0.20 of a core",
    ):
        assert wanted in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_an_app_that_did_not_finish_is_a_failure(cli: Cli, played: dict[str, Any]) -> None:
    played["apps"][0] |= {"outcome": "failed: it exited with 1", "rho": None, "winner": None}
    assert cli("demo").code == 1
    assert cli("demo", "--json").code == 1


def test_kept_demo_folder_has_the_summary(cli: Cli, played: dict[str, Any], tmp_path: Path) -> None:
    assert cli("demo", "--keep", tmp_path).code == 0
    assert '"rho": 0.98' in (tmp_path / "summary.json").read_text()


def test_a_folder_with_something_in_it_is_not_taken(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1", "utf-8")
    done = cli("demo", "--keep", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "a new or empty folder" in done.err
    again = cli("demo", "--keep", tmp_path / "file" / "below")
    assert again.code == 2
    assert "a folder that can be written" in again.err


def test_timeline_line_shows_the_holders_of_a_gpu() -> None:
    lines = [line.plain for line in timeline_lines(MADE, 20)]
    assert lines[0] == "Who held which GPU?  R ridge  · nobody"
    assert lines[2] == "m0     0  " + "·" * 5 + "R" * 15
    assert lines[3] == "       1  " + "R" * 20
    assert lines[4].endswith("20 s")


def test_small_waits_are_not_worth_a_line() -> None:
    lines = waiting_lines(MADE)
    assert len(lines) == 4
    assert not any("starting" in line for line in lines)
    calm = {**MADE, "apps": [{**MADE["apps"][0], "waited": [], "short": []}]}
    assert waiting_lines(calm)[-1] == "nobody"


def test_apps_with_the_same_first_letter_have_different_marks() -> None:
    letters = [letter for letter, _ in marks_of(["ridge", "ridge-2", "r"]).values()]
    assert len(set(letters)) == 3


def watch_of(*names: str) -> DemoObserver:
    cast = [Tenant("ann", "a sweep", 3.0 * i, {"name": name}) for i, name in enumerate(names)]
    return DemoObserver(stage=None, cast=cast, apps={names[0]: cast[0]})  # type: ignore[arg-type] # unused


LOOK = Observation(
    4.0,
    {
        ObservedGpu("r0", "m0", 0): "ridge",
        ObservedGpu("r0", "m0", 1): "",
        ObservedGpu("r1", "m1", 0): "ridge",
    },
    {
        "ridge": {
            "held": 2, "demand": 6, "reason": "OUTBID", "phase": 1, "phases": 3, "rho": 1.234,
            "jobs": [{"state": "running", "metric": 0.5}, {"state": "stopped", "metric": 0.25}],
        }
    },
)  # fmt: skip


def test_table_shows_current_and_coming_apps_and_their_gpus() -> None:
    out = Console(file=io.StringIO(), width=80)
    out.print(picture(LOOK, watch_of("ridge", "network")))
    text = out.file.getvalue()  # type: ignore[attr-defined] # a StringIO
    for wanted in ("OUTBID", "2/6", "2/3", "0.25", "1.23", "comes at 3 s", "m0 R·  m1 R"):
        assert wanted in text


def test_without_a_terminal_a_line_tells_of_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    with open_screen(watch_of("ridge")) as show:
        show(LOOK)
        show(LOOK)
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 2
    assert "ann submits a sweep" in err
    assert "OUTBID, 2 of 6 GPUs, phase 2 of 3, 1 running, 1 stopped" in err


def test_quiet_demo_prints_nothing_meanwhile(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(STYLE, "quiet", True)
    with open_screen(watch_of("ridge")) as show:
        show(LOOK)
    assert capsys.readouterr() == ("", "")
