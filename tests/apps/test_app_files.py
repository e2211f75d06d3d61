import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.apps import AppFile, Choice, Goal, Range, parse_app, plain_app, read_app
from themis.apps.app_file import SearchMethod, StopRule
from themis.errors import ConfigError

WHOLE = """
name: resnet-lr
command: [python, train.py, --lr, "{lr}", --batch, "{batch}", --seed, 010]
workdir: .
env: {DATA: /data/imagenet, WORKERS: 4}
search: {method: random, n: 16, params: {lr: {log: [1e-5, 1e-1]}, batch: [32, 64]}}
stop: {method: halving, eta: 2, max_iterations: 200}
metric: {name: loss, goal: minimize, source: jsonl}
gpus: {per_job_max: 4, per_job_min: 1, model: any, memory: 16G}
iteration_seconds: 0.8
checkpoint: {every: 5m, grace: 60s}
retries: 3
max_runtime: 2d
weight: 1.0
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "app.yaml"
    path.write_text(text)
    return path


def test_the_file_of_the_guide_is_read_whole(tmp_path: Path) -> None:
    app = read_app(written(tmp_path, WHOLE))
    assert app.search is not None
    assert app.search.method is SearchMethod.RANDOM
    assert app.search.params == {"lr": Range("log", 1e-5, 1e-1), "batch": Choice((32, 64))}
    assert app.stop.method is StopRule.HALVING
    assert app.metric.goal is Goal.MINIMIZE
    assert (app.gpus.per_job_max, app.gpus.memory) == (4, 16.0)
    assert (app.checkpoint.every, app.checkpoint.grace) == (300.0, 60.0)
    assert app.max_runtime == 2 * 86400.0
    assert app.env == {"DATA": "/data/imagenet", "WORKERS": "4"}


def test_argument_keeps_its_text_from_the_file_despite_yaml(tmp_path: Path) -> None:
    assert read_app(written(tmp_path, WHOLE)).command[-1] == "010"


def test_plain_data_is_read_again_as_the_same_app(tmp_path: Path) -> None:
    app = read_app(written(tmp_path, WHOLE))
    again = parse_app(json.loads(json.dumps(plain_app(app))))
    assert again == app


def test_secrets_in_the_environment_are_in_no_message_and_no_representation() -> None:
    app = parse_app({"name": "a", "command": ["x"], "env": {"KEY": "hunter2"}})
    assert "hunter2" not in repr(app)
    with pytest.raises(ConfigError) as caught:
        parse_app({"name": "a", "command": ["x"], "env": {"KEY": ["hunter2"]}})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "key", "hint"),
    [
        ({"name": "Bad Name"}, "name", "a-z"),
        ({"command": "python train.py"}, "command", "no shell"),
        ({"command": []}, "command", "at least one"),
        ({"command": [""]}, "command[0]", "a program"),
        ({"env": {"THEMIS_JOB_ID": "x"}}, "env", "set by Themis"),
        ({"env": {"A=B": "x"}}, "env", "letters"),
        ({"stop": {"method": "halving", "max_iterations": 8}}, "search", "only one"),
        ({"stop": {"method": "halvin"}}, "stop.method", "halving"),
        ({"stop": {"max_iterations": True}}, "stop.max_iterations", "whole number"),
        ({"stop": {"max_iterations": 10**400}}, "stop.max_iterations", "whole number"),
        ({"search": {"n": 3, "params": {}}}, "search.params", "at least one"),
        ({"search": {"n": 3, "params": {"a": {"log": [0, 1]}}}}, "search.params.a", "above 0"),
        ({"search": {"n": 3, "params": {"a": {"uniform": [2, 1]}}}}, "search.params.a", "below"),
        ({"search": {"n": 3, "params": {"a": {"int": [0.5, 2]}}}}, "search.params.a", "whole"),
        ({"search": {"n": 3, "params": {"a": {"uniform": ["nan", 2]}}}}, "params.a", "finite"),
        ({"search": {"n": 3, "params": {"a": []}}}, "search.params.a", "between 1"),
        ({"search": {"params": {"a": [1]}}}, "search.n", "how many"),
        ({"search": {"method": "grid", "n": 3, "params": {"a": [1]}}}, "search.n", "nothing"),
        ({"iteration_seconds": float("nan")}, "iteration_seconds", "finite"),
        ({"iteration_seconds": 0.5}, "iteration_seconds", "max_iterations"),
        ({"duration": "1h", "stop": {"max_iterations": 5}}, "duration", "nothing"),
        ({"weight": 0}, "weight", "from 1e-06 to 1e+06"),
        ({"retries": -1}, "retries", "whole number"),
        ({"gpus": {"memory": "lots"}}, "gpus.memory", "gigabytes"),
        ({"model": "vgg17"}, "model", ""),
        ({"metric": {"path": "../../etc"}}, "metric.path", "below"),
        ({"checkpoint": {"grace": "-5s"}}, "checkpoint.grace", "positive"),
        ({"colour": "red"}, "", "did you mean"),
    ],
)
def test_invalid_value_is_refused_with_its_key_and_the_allowed_ones(
    change: dict[str, Any], key: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_app({"name": "a", "command": ["x"]} | change)
    assert key in str(caught.value)
    if hint != "did you mean":
        assert hint in str(caught.value)


def test_an_error_names_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path, "name: a\ncommand: [x]\nstop:\n  method: none\n  eta: 1\n")
    with pytest.raises(ConfigError) as caught:
        read_app(path)
    assert str(caught.value).startswith(f"{path}:5: stop.eta: got 1")


def test_an_app_of_two_lines_is_one_job_that_counts_no_iterations() -> None:
    app = parse_app({"name": "a", "command": ["x"]})
    assert app == AppFile("a", ("x",))
    assert not app.counts_iterations


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["name", "command", "env", "search", "params", "stop", "n", "log"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_data_whatever_makes_it_fail_in_another_way(data: Any) -> None:
    for whole in (
        data,
        {"name": "a", "command": ["x"], "search": data},
        {"name": "a", "env": data},
    ):
        with suppress(ConfigError):
            assert parse_app(whole).command
