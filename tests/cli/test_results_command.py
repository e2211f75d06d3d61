"""`themis results`, `wait`, `retry` and `fair`: what came of apps, and how fair it was."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from themis.errors import DeniedError, UnavailableError, UnknownAppError

Cli = Callable[..., Any]
Service = Any

EVIL = "\x1b[2J\x1b]0;owned\x07[red]n\u202eame[/red]\r\nx"
LONG = "x" * 63
RESULTS: dict[str, Any] = {
    "app": "sweep", "outcome": "finished", "best": "2",
    "metric": {"name": "loss", "goal": "minimize"},
    "jobs": [
        {"job": "0", "params": {"lr": 0.1, "act": EVIL}, "iterations": 25, "metric": 0.9,
         "state": "stopped", "failed": "", "checkpoint": None},
        {"job": "1", "params": {"lr": 0.01, "act": "=1+1"}, "iterations": 3, "metric": None,
         "state": "failed", "failed": EVIL, "checkpoint": None},
        {"job": "2", "params": {"lr": 0.00123456, "act": "tanh"}, "iterations": 200,
         "metric": 0.31, "state": "finished", "failed": "", "checkpoint": "/ckpt/sweep/2"},
        {"job": "3", "params": None, "iterations": 0, "metric": 0.5, "state": "waiting",
         "failed": "", "checkpoint": None},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def service(canned: Service) -> Service:
    canned.answers |= {
        "GET /v1/apps": {"apps": [], "gpus": {}},
        "GET /v1/apps/sweep/results": RESULTS,
        "POST /v1/apps/sweep/retry": {"app": "sweep-2"},
    }
    return canned


def sound(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


def test_results_are_ranked_with_the_winner_and_its_checkpoint(cli: Cli) -> None:
    done = cli("results", "sweep")
    assert done.code == 0, done.err
    assert sound(done.out)
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 80 or "failed:" in max(lines, key=len)
    order = [line.split()[0] for line in lines if line[:1].isdigit()]
    assert order == ["2", "3", "0", "1"]
    assert "best: job 2, loss 0.31 with lr=0.001235 act=tanh" in lines
    assert "checkpoint: /ckpt/sweep/2" in lines


def test_a_metric_that_is_maximised_ranks_the_other_way(cli: Cli, service: Service) -> None:
    told = {**RESULTS, "metric": {"name": "acc", "goal": "maximize"}, "best": None}
    service.answers["GET /v1/apps/sweep/results"] = told
    lines = cli("results", "sweep").out.splitlines()
    assert [line.split()[0] for line in lines if line[:1].isdigit()] == ["0", "3", "2", "1"]


def test_the_best_alone(cli: Cli, service: Service) -> None:
    done = cli("results", "sweep", "--best")
    assert done.out.splitlines() == [
        "best: job 2, loss 0.31 with lr=0.001235 act=tanh",
        "after 200 iterations",
        "checkpoint: /ckpt/sweep/2",
    ]
    (job,) = json.loads(cli("results", "sweep", "--best", "--json").out)["jobs"]
    assert job == RESULTS["jobs"][2]
    service.answers["GET /v1/apps/sweep/results"] = {**RESULTS, "best": None}
    done = cli("results", "sweep", "--best")
    assert (done.code, done.out) == (1, "")


def test_results_for_other_programs(cli: Cli) -> None:
    assert json.loads(cli("results", "sweep", "--json").out) == RESULTS
    done = cli("results", "sweep", "--csv")
    assert sound(done.out)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [row["job"] for row in rows] == ["2", "3", "0", "1"]
    assert (rows[0]["lr"], rows[0]["loss"], rows[0]["checkpoint"]) == (
        "0.00123456", "0.31", "/ckpt/sweep/2"
    )  # fmt: skip
    assert rows[3]["act"] == "'=1+1"  # no formula for who opens it as a sheet
    assert cli("results", "sweep", "--csv", "--json").code == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownAppError("sweep", "there is no such app"), 3),
        (DeniedError("tenant v", "not yours"), 5),
        (UnavailableError("stopping"), 4),
    ],
    ids=lambda item: type(item).__name__ if isinstance(item, Exception) else "",
)
def test_trouble_has_its_exit_code(cli: Cli, service: Service, error: Exception, code: int) -> None:
    for route in ("GET /v1/apps/sweep/results", "GET /v1/apps/sweep", "GET /v1/apps"):
        service.answers[route] = error
    for words in (("results", "sweep"), ("wait", "sweep"), ("logs", "sweep"), ("status", "sweep")):
        done = cli(*words)
        assert (done.code, done.out) == (code, ""), words


RUNNING = {"app": "sweep", "owner": "v", "reason": "SERVED", "held": 1, "demand": 2, "phase": 0,
           "phases": 2, "submitted": 0.0, "now": 9.0}  # fmt: skip


@pytest.mark.parametrize(("outcome", "code"), [("finished", 0), ("failed", 1), ("cancelled", 1)])
def test_waiting_ends_with_the_app(cli: Cli, service: Service, outcome: str, code: int) -> None:
    over = {"app": "sweep", "owner": "v", "outcome": outcome, "submitted": 0.0, "ended": 60.0}
    service.answers["GET /v1/apps/sweep"] = [RUNNING, RUNNING, over]
    done = cli("wait", "sweep")
    assert (done.code, done.out) == (code, f"sweep: {outcome}\n")
    assert json.loads(cli("wait", "sweep", "--json").out)["outcome"] == outcome


def test_waiting_no_longer_than_asked(cli: Cli, service: Service) -> None:
    service.answers["GET /v1/apps/sweep"] = RUNNING
    done = cli("wait", "sweep", "--timeout", "0")
    assert (done.code, "not over after 0 s: SERVED" in done.err) == (1, True), done.err
    assert cli("wait", "sweep", "--timeout", "soon").code == 2


def test_an_app_is_tried_again_under_another_name(cli: Cli) -> None:
    assert cli("retry", "sweep").out == "sweep is tried again as sweep-2\n"
    assert json.loads(cli("retry", "sweep", "--json").out) == {"app": "sweep-2"}


def test_fairness_is_shown_worst_first(cli: Cli, service: Service) -> None:
    assert cli("fair").out == "no app has a rho yet\n"
    lines = [
        {"app": "good", "owner": "v", "rho": 0.9, "held": 4, "demand": 4, "elapsed": 60.0,
         "ideal_seconds": 600.0, "reason": "SERVED"},
        {"app": EVIL, "owner": LONG, "rho": 2.345, "held": 0, "demand": 4, "elapsed": 7200.0,
         "ideal_seconds": None, "reason": "DEMAND_EXCEEDS_CLUSTER"},
        {"app": "(another owner's)", "owner": "(another owner's)", "held": 1, "demand": 1},
    ]  # fmt: skip
    service.answers["GET /v1/apps"] = {"apps": lines, "gpus": {}}
    done = cli("fair")
    assert done.code == 0, done.err
    assert sound(done.out)
    assert max(map(len, done.out.splitlines())) <= 80
    assert done.out.index("2.35") < done.out.index("0.90")
    assert "rho at most 2.35, median 1.62; 1 of 2 fair (at most 1.05)" in done.out
    assert [app["rho"] for app in json.loads(cli("fair", "--json").out)["apps"]] == [2.345, 0.9]


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (
            {"machine": "m0", "checkpoint_root": "/shared/"},
            "checkpoint: /shared/v/sweep/1f/2 (on m0, and on the machines that share /shared/)",
        ),
        (
            {"machine": "m0", "checkpoint_root": None},
            "checkpoint: v/sweep/1f/2, below checkpoints/ in the state folder of node m0",
        ),
        ({"machine": None, "checkpoint_root": None}, "checkpoint: v/sweep/1f/2"),
    ],
)
def test_checkpoint_path_is_printed_with_its_machine(
    cli: Cli, canned: Any, known: dict[str, Any], told: str
) -> None:
    job = {"job": "2", "params": None, "iterations": 8.0, "metric": 0.31, "state": "finished",
           "failed": "", "checkpoint": "v/sweep/1f/2", **known}  # fmt: skip
    answer = {"app": "sweep", "outcome": "finished", "best": "2", "jobs": [job],
              "metric": {"name": "loss", "goal": "minimize"}}  # fmt: skip
    canned.answers["GET /v1/apps/sweep/results"] = answer
    assert told in cli("results", "sweep", "--best").out.splitlines()
    assert told in cli("results", "sweep").out.splitlines()
