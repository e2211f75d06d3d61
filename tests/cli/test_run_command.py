"""`themis run`: one job from the command line, followed until it is over."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from themis import client as client_module

Cli = Callable[..., Any]
Service = Any

SHEET = {"app": "train-3", "owner": "v", "reason": "NO_FREE_GPUS", "submitted": 0.0, "now": 1.0,
         "jobs": [{"job": "0", "state": "waiting"}]}  # fmt: skip


def over(outcome: str, message: str = "") -> dict[str, Any]:
    return {"app": "train-3", "owner": "v", "outcome": outcome, "submitted": 0.0, "ended": 5.0,
            "message": message}  # fmt: skip


def piece(text: str = "", offset: int = 0, *, run: int | None = 1, last: bool = False) -> Any:
    return {"job": "0", "run": run, "offset": offset, "next": offset + len(text), "text": text,
            "over": last}  # fmt: skip


@pytest.fixture(autouse=True)
def service(canned: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Service:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    canned.answers |= {
        "POST /v1/apps": {"app": "train-3", "plan": {"jobs": 1, "ideal_seconds": 60.0}},
        "GET /v1/apps/train-3": [SHEET, SHEET, SHEET, over("finished")],
        "GET /v1/apps/train-3/jobs/0/log": [
            piece(run=None), piece(run=None), piece("hi\x1b[2J\n"), piece("", 7, last=True),
        ],
    }  # fmt: skip
    return canned


def sent(service: Service) -> dict[str, Any]:
    return dict(service.bodies("POST /v1/apps")[-1]["app"])


def test_the_log_is_followed_and_the_exit_code_is_the_apps(cli: Cli, service: Service) -> None:
    done = cli("run", "--gpus", "2", "--", "python", "train.py", "--lr", "{x}", "-q")
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "train-3 is submitted: 1 job, ideally done in 60 s", "hi", "train-3: finished"
    ]  # fmt: skip
    assert done.err.count("waiting: NO_FREE_GPUS") == 1
    assert sent(service) == {
        "name": "train", "command": ["python", "train.py", "--lr", "{{x}}", "-q"],
        "gpus": {"per_job_max": 2, "per_job_min": 2}, "workdir": str(Path.cwd()),
    }  # fmt: skip


def test_waiting_user_sees_the_reason_and_a_remedy(cli: Cli, service: Service) -> None:
    service.answers["GET /v1/apps/train-3/explain"] = {
        "app": "train-3", "reason": "DEMAND_EXCEEDS_QUOTA", "what": "w", "why": "2 of 1 GPUs",
        "then": "ask for a larger quota",
    }  # fmt: skip
    waiting = SHEET | {"reason": "DEMAND_EXCEEDS_QUOTA"}
    service.answers["GET /v1/apps/train-3"] = [waiting, waiting, waiting, over("finished")]
    done = cli("run", "--gpus", "2", "--", "python", "train.py")
    told = "waiting: DEMAND_EXCEEDS_QUOTA; 2 of 1 GPUs; ask for a larger quota"
    assert done.err.count(told) == 1


def test_waiting_user_sees_an_error_once(cli: Cli, service: Service) -> None:
    wrong = {"job": "0", "state": "waiting", "failures": 1, "message": "no such program: trian\x1b"}
    failing = SHEET | {"reason": "CRASH_LOOP", "jobs": [wrong]}
    again = failing | {"jobs": [wrong | {"failures": 2}]}
    service.answers["GET /v1/apps/train-3"] = [SHEET, failing, again, over("failed", "m")]
    service.answers["GET /v1/apps/train-3/jobs/0/log"] = [piece(), piece(), piece(), piece()]
    done = cli("run", "trian")
    assert done.err.count("job 0 failed: no such program: trian\ufffd\n") == 1
    assert done.out.endswith("train-3: failed: m\n")


@pytest.mark.parametrize("outcome", ["failed", "cancelled"])
def test_a_job_that_does_not_finish_exits_with_one_and_says_why(
    cli: Cli, service: Service, outcome: str
) -> None:
    service.answers["GET /v1/apps/train-3"] = [SHEET, over(outcome, "exit code 3")]
    service.answers["GET /v1/apps/train-3/jobs/0/log"] = piece(run=None)
    done = cli("run", "python", "train.py")
    assert done.code == 1
    assert done.out.endswith(f"train-3: {outcome}: exit code 3\n")


def test_last_output_of_a_job_is_shown(cli: Cli, service: Service) -> None:
    service.answers["GET /v1/apps/train-3"] = [SHEET, over("finished")]
    service.answers["GET /v1/apps/train-3/jobs/0/log"] = [
        piece(run=None), piece("trained\n"), piece("", 8, last=True)
    ]  # fmt: skip
    done = cli("run", "python", "train.py")
    assert done.out.splitlines()[1:] == ["trained", "train-3: finished"]


def test_run_command_accepts_every_app_setting(
    cli: Cli, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_HERE", "hunter2")
    done = cli(
        "run", "--detach", "--gpus", "4", "--min-gpus", "2", "--name", "mine", "--duration", "1h",
        "--env", "A=b=c", "-e", "FROM_HERE", "--set", "retries=0", "--workdir", "/data", "--quiet",
        "--", "x",
    )  # fmt: skip
    assert (done.code, done.out) == (0, "train-3\n"), done.err
    assert "hunter2" not in done.out + done.err
    assert sent(service) == {
        "name": "mine", "command": ["x"], "gpus": {"per_job_max": 4, "per_job_min": 2},
        "duration": 3600.0, "env": {"A": "b=c", "FROM_HERE": "hunter2"}, "retries": 0,
        "workdir": "/data",
    }  # fmt: skip
    assert [route for route, _, _ in service.asked] == ["POST /v1/apps"]


def test_flags_behind_the_program_are_its_own(cli: Cli, service: Service) -> None:
    cli("run", "--detach", "python", "train.py", "--gpus", "9", "--quiet", "--no-color")
    assert sent(service)["command"][2:] == ["--gpus", "9", "--quiet", "--no-color"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), "COMMAND"),
        (("--env", "NOT_HERE_AT_ALL", "--", "x"), "it is not in this environment"),
        (("--env", "THEMIS_X=1", "--", "x"), "set by Themis"),
        (("--duration", "long", "--", "x"), "duration: got 'long'"),
        (("--min-gpus", "3", "--gpus", "2", "--", "x"), "gpus.per_job_min: got 3"),
        (("--name", "A", "--", "x"), "name: got 'A'"),
    ],
)
def test_mistakes_are_found_before_anything_is_sent(
    cli: Cli, service: Service, flags: tuple[str, ...], told: str
) -> None:
    done = cli("run", *flags)
    assert (done.code, service.asked) == (2, []), done.out
    assert told in done.err


def test_ctrl_c_leaves_the_job_alone_and_says_how_to_come_back(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client_module.Client, "follow", interrupted)
    done = cli("run", "--", "python", "train.py")
    assert done.code == 130
    assert "`themis logs train-3 -f` comes back to it, `themis cancel train-3` ends it" in done.err


def test_programs_get_one_object_a_line(cli: Cli) -> None:
    told = [json.loads(line) for line in cli("run", "--json", "--", "x").out.splitlines()]
    assert [next(iter(item)) for item in told] == ["app", "job", "app"]
    assert told[-1]["outcome"] == "finished"
