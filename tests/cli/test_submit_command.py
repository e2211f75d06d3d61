"""`themis submit`: what is checked here, what is sent, and what people are told."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from themis.errors import RefusedError

Cli = Callable[..., Any]
Service = Any

APP = """\
name: resnet-lr
command: [python, train.py, --lr, "{lr}", --seed, 010]
search: {method: random, n: 16, params: {lr: {log: [1e-5, 1e-1]}}}
stop: {method: halving, eta: 2, max_iterations: 200}
env: {SECRET: hunter2}
"""
PLAN = {
    "phases": [{"jobs": 16, "iterations": 25}, {"jobs": 8, "iterations": 50}],
    "jobs": 16, "gpu_seconds": 7200.0, "estimated": True, "ideal_seconds": 1980.0,
    "cluster_gpus": 16, "share_gpus": 4.0, "tuner": "halving",
}  # fmt: skip
DONE = {"app": "resnet-lr-2", "owner": "vision", "outcome": "finished", "submitted": 0.0,
        "ended": 60.0, "now": 90.0}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sweeps" / "app.yaml"
    path.parent.mkdir()
    path.write_text(APP)
    return path


@pytest.fixture(autouse=True)
def service(canned: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Service:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    canned.answers["POST /v1/apps"] = {"app": "resnet-lr-2", "plan": PLAN}
    return canned


def test_app_is_sent_as_written_with_its_folder(
    cli: Cli, service: Service, file: Path, tmp_path: Path
) -> None:
    done = cli("submit", file, "--seed", "7")
    assert done.code == 0, done.err
    assert done.out == "resnet-lr-2 is submitted: 16 jobs, ideally done in 33 min\n"
    (body,) = service.bodies("POST /v1/apps")
    assert (body["seed"], body["dry_run"], len(body["key"]) > 20) == (7, False, True)
    app = body["app"]
    assert app["workdir"] == str(tmp_path)
    assert app["command"][-1] == "010"
    assert app["search"]["params"] == {"lr": {"log": [1e-5, 1e-1]}}
    assert "hunter2" not in done.out + done.err


def test_a_relative_workdir_is_in_the_folder_of_the_file(
    cli: Cli, service: Service, file: Path
) -> None:
    file.write_text(APP + "workdir: code\n")
    done = cli("submit", os.path.relpath(file), "--json")
    assert json.loads(done.out)["app"] == "resnet-lr-2"
    assert service.bodies("POST /v1/apps")[0]["app"]["workdir"] == str(file.parent / "code")
    assert "not a folder on this machine" in done.err
    file.write_text(APP + "workdir: /data\n")
    cli("submit", file)
    assert service.bodies("POST /v1/apps")[1]["app"]["workdir"] == "/data"


def test_flags_change_keys_of_the_file(cli: Cli, service: Service, file: Path) -> None:
    done = cli(
        "submit", file, "--name", "quick", "--set", "search.n=4", "--set", "env.TOKEN=a=b",
        "--set", "search.params.lr=[1e-3]", "--set", "command=[python, x.py, 007]",
        "--set", "gpus.memory=16G",
    )  # fmt: skip
    assert done.code == 0, done.err
    app = service.bodies("POST /v1/apps")[0]["app"]
    assert (app["name"], app["search"]["n"], app["gpus"]) == ("quick", 4, {"memory": 16.0})
    assert app["search"]["params"] == {"lr": [1e-3]}
    assert app["env"] == {"SECRET": "hunter2", "TOKEN": "a=b"}
    assert app["command"] == ["python", "x.py", "007"]
    assert app["stop"]["max_iterations"] == 200


@pytest.mark.parametrize(
    ("text", "flags", "told"),
    [
        (APP.replace("eta: 2", "eta: 1"), (), "app.yaml:4: stop.eta: got 1"),
        (APP.replace("eta", "etta"), (), "(did you mean 'eta'?)"),
        (APP.replace('"{lr}"', '"{rl}"'), (), "app.yaml:2: command: got '{rl}'"),
        (APP.replace("n: 16", "n: 5000"), (), "app.yaml:3: trials: got 5000"),
        (APP, ("--set", "stop.eta=1"), "--set: stop.eta: got 1"),
        (APP, ("--set", "stop.etta=3"), "--set: key in stop: got 'etta'"),
        (APP, ("--set", "nme=3"), "--set: key in document: got 'nme'"),
        (APP, ("--set", "name.x=3"), "--set: name.x"),
        (APP, ("--set", "stop.eta={"), "--set: stop.eta"),
        (APP, ("--set", "stop"), "KEY=VALUE"),
        (APP, ("--set", "search.method=grid"), "--set: "),
        (APP, ("--set", "gpus.per_job_min=9", "--set", "gpus.per_job_max=2"), "--set: "),
        (APP, ("--set", "stop..eta=2"), "a key of the app file"),
        (APP, ("--set", "stop.max_iterations=5", "--set", "command=[p, '{x}']"), "{x}"),
        (APP, ("--name", "No Name"), "--name: name: got 'No Name'"),
        ("", (), "an empty file"),
    ],
)
def test_mistakes_are_found_before_anything_is_sent(
    cli: Cli, service: Service, file: Path, text: str, flags: tuple[str, ...], told: str
) -> None:
    file.write_text(text)
    done = cli("submit", file, *flags)
    assert (done.code, service.asked) == (2, [])
    assert told in done.err
    assert done.err.count("\n") == 1


def test_a_secret_in_a_flag_is_not_repeated(cli: Cli, file: Path) -> None:
    done = cli("submit", file, "--set", "env.BAD-NAME=hunter3")
    assert (done.code, "hunter3" in done.err, "BAD-NAME" in done.err) == (2, False, True)


def test_a_file_that_is_not_there_is_not_found(cli: Cli, service: Service) -> None:
    assert (cli("submit", "nowhere.yaml").code, service.asked) == (3, [])


def test_an_app_comes_from_standard_input_too(
    cli: Cli, service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "piped"
    source.write_text(APP)
    with source.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert cli("submit", "-").code == 0
    assert service.bodies("POST /v1/apps")[0]["app"]["name"] == "resnet-lr"


def test_a_dry_run_shows_phases_budget_and_ideal_time(
    cli: Cli, service: Service, file: Path
) -> None:
    service.answers["POST /v1/apps"] = {"app": None, "plan": PLAN}
    done = cli("submit", file, "--dry-run")
    assert done.code == 0, done.err
    assert service.bodies("POST /v1/apps")[0]["dry_run"] is True
    assert "resnet-lr: 16 jobs in 2 phases, tuner halving" in done.out
    assert "budget: 2.0 h of GPU time (a guess" in done.out
    assert "ideally done in 33 min, on a share of 4 of 16 GPUs" in done.out
    assert "nothing was submitted" in done.err
    assert json.loads(cli("submit", file, "--dry-run", "--json").out)["plan"] == PLAN
    assert cli("submit", file, "--dry-run", "--watch").code == 2


NEVER = {"reason": "DEMAND_EXCEEDS_QUOTA", "what": "x: too large", "why": "4 and 2", "then": "ask"}


def test_dry_run_of_an_impossible_app_explains_and_fails(
    cli: Cli, service: Service, file: Path
) -> None:
    service.answers["POST /v1/apps"] = {"app": None, "plan": PLAN, "warnings": [NEVER]}
    done = cli("submit", file, "--dry-run")
    assert done.code == 1
    told = "as it is it never runs: DEMAND_EXCEEDS_QUOTA: x: too large; 4 and 2; ask"
    assert f"warning: {told}" in done.err
    assert cli("submit", file, "--dry-run", "--json").code == 1


def test_app_that_could_never_run_is_submitted_with_a_warning(
    cli: Cli, service: Service, file: Path
) -> None:
    service.answers["POST /v1/apps"] = {"app": "resnet-lr", "plan": PLAN, "warnings": [NEVER]}
    done = cli("submit", file, "--quiet")
    assert (done.code, done.out) == (0, "resnet-lr\n")
    assert "it never runs: DEMAND_EXCEEDS_QUOTA" in done.err
    spread = {"reason": None, "what": "several machines", "why": "", "then": ""}
    service.answers["POST /v1/apps"] = {"app": "resnet-lr", "plan": PLAN, "warnings": [spread]}
    assert "several machines\n" in cli("submit", file).err


def test_quiet_prints_the_name_alone(cli: Cli, file: Path) -> None:
    done = cli("submit", file, "--quiet")
    assert (done.out, done.err) == ("resnet-lr-2\n", "")


def test_refusal_of_the_service_is_printed_verbatim(cli: Cli, service: Service, file: Path) -> None:
    service.answers["POST /v1/apps"] = RefusedError("resnet-lr", "too \x1b[2Jmany apps")
    done = cli("submit", file)
    assert (done.code, "\x1b" in done.err, "many apps" in done.err) == (2, False, True)


@pytest.mark.parametrize(("outcome", "code"), [("finished", 0), ("failed", 1), ("cancelled", 1)])
def test_a_watched_submission_exits_as_its_app_ended(
    cli: Cli, service: Service, file: Path, outcome: str, code: int
) -> None:
    service.answers["GET /v1/apps/resnet-lr-2"] = {**DONE, "outcome": outcome}
    done = cli("submit", file, "--watch")
    assert (done.code, f"over: {outcome}" in done.out) == (code, True), done.err
