"""What is asked of Themis for a script."""

import json
import os
from pathlib import Path

import pytest

from themis.apps import parse_app, plan_app
from themis.apps.app_file import Goal, TunedBy
from themis.apps.program import argv_of
from themis.core.model import AppId, OwnerId
from themis.integrations.ray_tune.script_app import (
    ScriptSettings,
    TuneTerms,
    app_keys,
    app_name,
    has_service,
    node_environment,
    plain_values,
)

TERMS = TuneTerms(
    trials=12,
    gpus=2,
    resources={"CPU": 3.0, "disk": 1.0},
    iterations=50,
    metric="accuracy",
    mode="max",
    experiment="My experiment_2026",
    config={"lr": 0.1, "net": {"depth": 3, "kind": "wide"}, "data": object(), "trial": 4},
)


def test_trials_are_jobs_with_their_gpus_and_iterations() -> None:
    written = parse_app(
        app_keys(ScriptSettings(), TERMS, "10.0.0.1:6379", "10.0.0.1:4000", "themis-ab-")
    )
    plan = plan_app(written, AppId(written.name), OwnerId("ann"), seed=1)
    assert written.name == "my-experiment-2026"
    assert written.tuner is TunedBy.OWN
    assert (written.metric.name, written.metric.goal) == ("accuracy", Goal.MAXIMIZE)
    assert len(plan.spec.jobs) == 12
    assert {(job.min_gpus, job.max_gpus) for job in plan.spec.jobs} == {(2, 2)}
    (phase,) = plan.spec.phases
    assert (phase.jobs, phase.iterations) == (12, 50)
    assert set(plan.trials[0].params or {}) == {"trial", "lr", "net.depth", "net.kind"}


def test_each_node_gets_its_owner() -> None:
    written = parse_app(
        app_keys(ScriptSettings(), TERMS, "10.0.0.1:6379", "10.0.0.1:4000", "themis-ab-")
    )
    words = argv_of(written.command, {"trial": "07"})
    assert words[words.index("--trial") + 1] == "07"
    assert words[words.index("--driver") + 1] == "10.0.0.1:4000"
    assert json.loads(words[words.index("--node") + 1]) == {"CPU": 3.0, "disk": 1.0}


def test_user_settings_take_precedence() -> None:
    wishes = ScriptSettings(
        name="mine",
        grace=10.0,
        iteration_seconds=0.5,
        app={"retries": 7, "env": {"DATA": "/data"}, "checkpoint": {"restart": 5.0}},
    )
    written = parse_app(app_keys(wishes, TERMS, "a:1", "a:2", "m-"))
    assert (written.name, written.retries, written.iteration_seconds) == ("mine", 7, 0.5)
    assert (written.checkpoint.grace, written.checkpoint.restart) == (10.0, 5.0)
    assert written.env == {"DATA": "/data"}


def test_trials_without_a_known_end_count_as_whole() -> None:
    terms = TuneTerms(3, 1, {}, 0, None, "min", "x", {})
    written = parse_app(app_keys(ScriptSettings(), terms, "a:1", "a:2", "m-"))
    assert not written.counts_iterations
    assert plan_app(written, AppId("x"), OwnerId("ann"), seed=1).spec.phases[0].jobs == 3


@pytest.mark.parametrize(
    ("text", "name"), [("Train_2026-11-17_01", "train-2026-11-17-01"), ("--", "tune")]
)
def test_names_of_experiments_become_names_of_apps(text: str, name: str) -> None:
    assert app_name(text) == name


def test_only_plain_values_are_shown() -> None:
    assert plain_values({"a": 1, "b": {"c": "x", "d": [1]}, "e": None}) == {"a": 1, "b.c": "x"}


def test_nodes_get_rays_settings_and_its_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("secret\n")
    for name in list(os.environ):
        if name.startswith("RAY_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.9:6379")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    found = node_environment()
    rays = {name: value for name, value in found.items() if name.startswith("RAY_")}
    assert rays == {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "secret"}


@pytest.mark.parametrize("mode", ["", "disabled"])
def test_unneeded_ray_token_is_not_passed_to_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("of-another-ray")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    assert "of-another-ray" not in node_environment().values()
    with monkeypatch.context() as given:
        given.setenv("RAY_AUTH_TOKEN", "of-another-ray")
        assert "of-another-ray" not in node_environment().values()
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert node_environment()["RAY_AUTH_TOKEN"] == "of-another-ray"


def test_without_a_server_or_a_token_nothing_is_configured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("THEMIS_SERVER", raising=False)
    monkeypatch.setenv("THEMIS_TOKEN_FILE", str(tmp_path / "none"))
    assert not has_service(None)
    assert has_service("http://10.0.0.1:7421")
    (tmp_path / "none").write_text("x")
    assert has_service(None)
