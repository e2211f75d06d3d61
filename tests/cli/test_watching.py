"""Watching an app: redrawn on a terminal, lines of what changed elsewhere; and what is shown."""

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from themis import client as client_module
from themis.cli.common import app_watch
from themis.cli.common.app_view import troubles

Cli = Callable[..., Any]
Service = Any

EVIL = "\x1b[2J\x1b]0;owned\x07[red]n\u202eame[/red]\r\nx"
STATES = ["finished", "running", "waiting", "stopped", "failed"]


def jobs(number: int) -> list[dict[str, Any]]:
    return [
        {"job": f"{at:03d}", "state": STATES[at % 5], "gpus": at % 3, "iterations": 12.5 * at,
         "target": 50.0, "metric": 0.1 * at, "params": {"lr": 1e-5 * at, EVIL: EVIL},
         "failures": int(at % 5 == 4), "message": EVIL if at % 5 == 4 else ""}
        for at in range(number)
    ]  # fmt: skip


def sheet(**more: Any) -> dict[str, Any]:
    return {
        "app": "sweep", "owner": "v", "state": "running", "reason": "SERVED", "submitted": 0.0,
        "now": 65.0, "demand": 4, "held": 2, "weight": 1.0, "phase": 1, "phases": 4, "rho": 1.034,
        "ideal_seconds": 600.0, "work_left_seconds": 7200.0, "suspended": [], "jobs": jobs(10),
        "leases": [{"gpu": 1, "machine": EVIL, "token": 2**52, "end": 700.0}], "runs": [], **more,
    }  # fmt: skip


OVER = {"app": "sweep", "owner": "v", "outcome": "finished", "submitted": 0.0, "ended": 70.0,
        "now": 80.0}  # fmt: skip


@pytest.fixture(autouse=True)
def service(canned: Service) -> Service:
    canned.answers["GET /v1/apps/sweep"] = [
        sheet(), sheet(now=70.0), sheet(now=75.0, held=4), OVER,
    ]  # fmt: skip
    canned.answers["GET /v1/apps/sweep/results"] = {
        "app": "sweep", "best": "003", "metric": {"name": "loss"}, "outcome": "finished",
        "jobs": [{"job": "003", "metric": 0.25, "params": {"lr": 0.1}}],
    }  # fmt: skip
    return canned


def sound(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


def test_status_shows_jobs_with_parameters_metric_and_phase(cli: Cli) -> None:
    done = cli("status", "sweep")
    assert done.code == 0, done.err
    assert sound(done.out)
    lines = done.out.splitlines()
    assert lines[:4] == [
        "sweep of v: running, SERVED",
        "submitted 65 s ago, weight 1, 2 GPUs of 4 wanted",
        "phase 2 of 4, 6 of 10 jobs done, work left 2.0 h on one GPU",
        "rho 1.03 (ideally done in 10 min)",
    ]
    assert max(len(line) for line in lines if "failed 1 time" not in line) <= 80
    assert "12.5/50" in done.out
    assert "lr=1e-05" in done.out
    assert json.loads(cli("status", "sweep", "--json").out)["jobs"][1]["job"] == "001"


def test_without_a_terminal_there_is_a_line_for_every_change(cli: Cli) -> None:
    done = cli("status", "sweep", "--watch")
    assert done.code == 0, done.err
    rest = "phase 2 of 4, 2 failed, 2 finished, 2 running, 2 stopped, 2 waiting"
    lines = done.out.splitlines()
    assert sum("job 004 failed: " in line for line in lines) == 1
    assert [line for line in lines if "failed: " not in line] == [
        f"   70 s  SERVED, 2 of 4 GPUs, {rest}",
        f"   75 s  SERVED, 4 of 4 GPUs, {rest}",
        "   80 s  over: finished",
        "best: job 003, loss 0.25 with lr=0.1",
    ]


def test_error_is_printed_once_and_not_per_job(cli: Cli, service: Service) -> None:
    def failing(*messages: str) -> dict[str, Any]:
        jobs = [{"job": str(at), "failures": 1, "message": m} for at, m in enumerate(messages)]
        return sheet(jobs=jobs)

    service.answers["GET /v1/apps/sweep"] = [
        failing("no such file"), failing("no such file", "no such file"),
        failing(*map(str, range(9))), failing(*map(str, range(20))), OVER,
    ]  # fmt: skip
    out = cli("status", "sweep", "--watch").out
    assert out.count("job 0 failed: no such file") == 1
    assert out.count(" failed: ") == 5
    assert out.count("jobs failed for other reasons, too: `themis status sweep`") == 1


def test_programs_that_watch_get_an_object_for_every_change(cli: Cli) -> None:
    done = cli("status", "sweep", "--watch", "--json")
    assert [json.loads(line).get("outcome") for line in done.out.splitlines()] == [
        None, None, "finished"
    ]  # fmt: skip


def test_on_a_terminal_a_table_is_redrawn_that_fits(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, service: Service
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, height=24, highlight=False)
    monkeypatch.setattr(app_watch, "wide_console", lambda: console)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    service.answers["GET /v1/apps/sweep"] = [sheet(jobs=jobs(500)), sheet(jobs=jobs(500)), OVER]
    done = cli("status", "sweep", "--watch")
    assert done.code == 0, done.err
    drawn = screen.getvalue()
    assert "jobs (12 of 500)" in drawn
    assert "\x1b]0;owned" not in drawn
    assert "over (finished)" in drawn


def test_a_picture_shows_those_that_run_first() -> None:
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(app_watch.picture(sheet(jobs=jobs(50)), 10))
    text = console.export_text()
    shown = [line.split()[0] for line in text.splitlines() if line[:1].isdigit()]
    assert shown == [f"{at:03d}" for at in range(50) if STATES[at % 5] == "running"]
    assert max(map(len, text.splitlines())) <= 80


def test_long_error_is_shortened() -> None:
    told = troubles(sheet(jobs=jobs(50)))
    assert len(told) == 6
    assert told[-1] == "and 5 more; --json has all"


def test_ctrl_c_leaves_the_app_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client_module.Client, "wait", interrupted)
    done = cli("status", "sweep", "--watch")
    assert (done.code, "`themis status sweep --watch` comes back" in done.err) == (130, True)


def test_the_list_has_rho(cli: Cli, service: Service) -> None:
    lines = [{"app": EVIL, "owner": "x" * 63, "held": 2, "demand": 40, "rho": 1.237,
              "submitted": 1.0, "reason": "DEMAND_EXCEEDS_CLUSTER"},
             {"app": "(another owner's)", "owner": "(another owner's)", "held": 0,
              "demand": 1}]  # fmt: skip
    service.answers["GET /v1/apps"] = {"apps": lines, "gpus": {"free": 3}, "now": 100.0}
    done = cli("ls")
    assert sound(done.out)
    assert max(map(len, done.out.splitlines())) <= 80
    assert "1.24" in done.out
    assert "2/40" in done.out
