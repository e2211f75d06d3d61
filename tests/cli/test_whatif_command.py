"""`themis whatif` and `themis snapshot`: what is asked, what is shown, and how it ends."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.small_sims import sim_app, workload_of
from themis.cli.whatif import _delay
from themis.core.arbiter import Settings
from themis.core.model import Machine, Topology
from themis.core.policies import policy
from themis.errors import DeniedError, LimitError, RefusedError, UnavailableError
from themis.recording.cluster_snapshots import (
    Snapshot,
    dumps_snapshot,
    read_snapshot,
    write_snapshot,
)
from themis.sim.modelled_jobs import NO_COSTS
from themis.sim.snapshot_sim import Fork

Cli = Callable[..., Any]
Service = Any
EVIL = "\x1b[2J[red]n\u202eame[/red]"

APP = """\
name: resnet-lr
command: [python, train.py, --lr, "{lr}"]
search: {n: 4, params: {lr: [0.1, 0.2]}}
stop: {method: halving, max_iterations: 200}
iteration_seconds: 1
env: {SECRET: hunter2}
"""


def span(low: float, mid: float, high: float) -> dict[str, float]:
    return {"low": low, "mid": mid, "high": high}


ROUGH = {
    "label": "as written", "delay": 0.0, "seeds": 0, "rough": True, "start": None,
    "finish": span(3600.0, 3600.0, 3600.0), "rho": span(1.0, 1.0, 1.0), "others": None,
    "named": [], "unfinished": 0, "simulated": 0.0,
}  # fmt: skip
CASE = {
    **ROUGH, "seeds": 8, "rough": False, "start": span(60.0, 70.0, 80.0),
    "finish": span(6000.0, 7200.0, 9000.0), "rho": span(0.8, 0.9, 1.1), "simulated": 9000.0,
    "others": {"later": 3, "sooner": 1, "same": 44},
    "named": [{"app": EVIL, "owner": "bob", "later": span(500.0, 600.0, 700.0)}],
}  # fmt: skip
TONIGHT = {**CASE, "label": "at +28800s", "others": {"later": 0, "sooner": 0, "same": 48}}
FIRST = {"cases": [ROUGH, ROUGH], "done": 0, "total": 24, "final": False}
FINAL = {"cases": [CASE, TONIGHT], "done": 24, "total": 24, "final": True, "seconds": 40.0}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.yaml"
    path.write_text(APP)
    return path


@pytest.fixture(autouse=True)
def service(canned: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Service:
    monkeypatch.chdir(tmp_path)
    canned.answers["POST /v1/whatif"] = {"question": "q1", "app": "resnet-lr"}
    canned.answers["GET /v1/whatif/q1"] = [
        {"seen": 1, "answer": FIRST},
        {"seen": 2, "answer": FINAL},
    ]
    canned.answers["DELETE /v1/whatif/q1"] = {"done": True}
    return canned


def test_cases_stand_side_by_side_with_intervals(cli: Cli, file: Path) -> None:
    done = cli("whatif", file, "--at", "+8h")
    assert done.code == 0, done.err
    assert "as written" in done.out
    assert "at +8h" in done.out
    line = next(line for line in done.out.splitlines() if line.startswith("as written"))
    assert " ".join(line.split()) == (
        "as written 70 s (60-80) 2.0 h (1.7-2.5) 0.90 (0.80-1.10) 3 1"
    )
    assert max(map(len, done.out.splitlines())) <= 80
    assert "10 min later" in done.out
    assert "was not submitted" in done.err
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out


def test_the_answer_narrows_on_the_way(cli: Cli, file: Path) -> None:
    done = cli("whatif", file)
    first, second = (line for line in done.err.splitlines() if "finishes in" in line)
    assert first == "0 of 24 runs: starts in -, finishes in ~60 min"
    assert "24 of 24 runs, looked 2.5 h ahead: starts in 70 s" in second
    assert "finishes in" not in cli("--quiet", "whatif", file).err


def test_everything_is_asked_in_the_same_words(cli: Cli, service: Service, file: Path) -> None:
    lab = file.parent / "lab.yaml"
    lab.write_text("racks: [{machines: [{name: extra, slots: [4]}]}]\n")
    done = cli(
        "whatif", file, "--gpus", 4, "--gpus", 8, "--stop", "none", "--at", "+8h",
        "--policy", "fifo", "--add-machines", 2, "--add-machines", lab,
        "--seeds", 3, "--seconds", 20, "--seed", 5, "--owner", "bob", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    (body,) = service.bodies("POST /v1/whatif")
    app = body.pop("app")
    machine = {"name": "extra", "rack": "r0", "slots": [4], "gpu_model": "p100", "gpu_memory": 16.0}
    assert body == {
        "gpus": [4, 8], "stop": ["none"], "at": ["+8h"], "policy": ["fifo"],
        "add_machines": [2, [machine]], "seeds": 3, "seconds": 20.0, "seed": 5, "owner": "bob",
    }  # fmt: skip
    assert "hunter2" not in json.dumps(app)
    assert json.loads(done.out)["cases"][0]["rho"] == CASE["rho"]


def test_a_time_of_day_is_the_next_one() -> None:
    now = datetime(2026, 11, 16, 21, 30, tzinfo=UTC)
    assert _delay("22:00", now) == 1800.0
    assert _delay("21:30", now) == 86400.0
    assert _delay("7:15", now) == 9.75 * 3600
    assert _delay("+8h", now) == "+8h"
    assert _delay("24:00", now) == "24:00"  # The service says what is allowed.


def test_whatif_stops_waiting_after_an_error(cli: Cli, service: Service, file: Path) -> None:
    service.answers["GET /v1/whatif/q1"] = RefusedError("resnet-lr", "it needs 64 GPUs")
    done = cli("whatif", file)
    assert done.code == 2
    assert "it needs 64 GPUs" in done.err
    assert service.bodies("DELETE /v1/whatif/q1")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DeniedError("tenant ann", "`policy` is for admins"), 5),
        (UnavailableError("the service is stopping"), 4),
        (LimitError("whatif", "2 forecasts are under way", 600.0), 1),
    ],
    ids=["denied", "away", "busy"],
)
def test_errors_end_with_their_code(
    cli: Cli, service: Service, file: Path, error: Exception, code: int
) -> None:
    service.answers["POST /v1/whatif"] = error
    done = cli("whatif", file)
    assert (done.code, done.out) == (code, "")
    assert done.err.count("error:") == 1


def test_without_any_run_that_ended_it_exits_with_1(cli: Cli, service: Service, file: Path) -> None:
    rough = {**FIRST, "final": True}
    service.answers["GET /v1/whatif/q1"] = {"seen": 1, "answer": rough}
    done = cli("whatif", file)
    assert done.code == 1
    assert "no run ended in time" in done.out


# Offline


def saved(path: Path, name: str = "equal-share") -> Snapshot:
    topology = Topology((Machine("m0", "r0", (4,)),))
    workload = workload_of(sim_app("other", work=20000.0, max_gpus=4))
    fork = Fork(topology, workload, policy("equal-share"), Settings(), seed=1, costs=NO_COSTS)
    fork.advance(1000.0)
    taken = fork.snapshot(name)
    write_snapshot(taken, path)
    return taken


def test_a_snapshot_answers_the_same_questions_offline(
    cli: Cli, service: Service, file: Path
) -> None:
    path = file.parent / "state.json"
    saved(path)
    done = cli("whatif", file, "--snapshot", path, "--seeds", 2, "--gpus", 2, "--policy", "fifo",
               "--add-machines", 1, "--json")  # fmt: skip
    assert done.code == 0, done.err
    written, wider, fifo, more = json.loads(done.out)["cases"]
    assert written["seeds"] == 2
    assert wider["label"] == "gpus 2"
    assert fifo["start"]["mid"] > written["start"]["mid"]
    assert more["finish"]["mid"] <= written["finish"]["mid"]
    assert [each["app"] for each in written["named"]] == ["other"]
    assert service.asked == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{}", "`themis snapshot` makes one"), ("no json", "JSON")],
    ids=["something else", "nonsense"],
)
def test_non_snapshot_file_is_reported(cli: Cli, file: Path, text: str, reason: str) -> None:
    path = file.parent / "state.json"
    path.write_text(text)
    done = cli("whatif", file, "--snapshot", path)
    assert done.code == 2
    assert "state.json" in done.err
    assert reason in done.err
    assert cli("whatif", file, "--snapshot", "nowhere.json").code == 3


def test_contradictory_state_is_reported(cli: Cli, file: Path) -> None:
    path = file.parent / "state.json"
    data = json.loads(dumps_snapshot(saved(path)))
    data["state"]["standing/other"]["weight"] = 0.0
    path.write_text(json.dumps(data))
    done = cli("whatif", file, "--snapshot", path)
    assert done.code == 2
    assert "contradicts itself" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("user", ["Joe_Doe", "", "ann"])
def test_any_user_may_ask_a_file(
    cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    monkeypatch.setenv("USER", user)
    path = file.parent / "state.json"
    saved(path)
    done = cli("whatif", file, "--snapshot", path, "--seeds", 1)
    assert done.code == 0, done.err


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "0"])
def test_invalid_time_is_refused(cli: Cli, file: Path, seconds: str) -> None:
    path = file.parent / "state.json"
    saved(path)
    assert cli("whatif", file, "--snapshot", path, "--seconds", seconds).code == 2


def test_a_snapshot_imports_no_code(cli: Cli, file: Path) -> None:
    path = file.parent / "state.json"
    saved(path, "os.path:join")
    done = cli("whatif", file, "--snapshot", path)
    assert done.code == 2
    assert "imports no other code" in done.err


def test_the_state_is_saved_for_operators(cli: Cli, service: Service, tmp_path: Path) -> None:
    taken = saved(tmp_path / "there.json")
    service.answers["GET /v1/snapshot"] = json.loads(dumps_snapshot(taken))
    path = tmp_path / "state.json"
    done = cli("snapshot", "--out", path)
    assert (done.code, done.out) == (0, f"{path}: 1 app, policy equal-share\n")
    assert read_snapshot(path) == taken
    assert path.stat().st_mode & 0o077 == 0
    assert json.loads(cli("snapshot", "--json").out)["apps"] == 1
    assert cli("snapshot", "--out", tmp_path / "no" / "folder.json").code == 2
    assert cli("snapshot", "--out", ".").code == 2
    service.answers["GET /v1/snapshot"] = DeniedError("tenant ann", "`snapshot` is for admin")
    assert cli("snapshot").code == 5
