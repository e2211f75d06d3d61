"""Verbs that do without typer: the same words mean the same, and all others are left to it."""

import os
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from themis.cli import apps
from themis.cli.app import tree
from themis.cli.common import fast_path
from themis.cli.common.fast_path import QUICK, quick_call
from themis.cli.common.output import STYLE

Cli = Callable[..., Any]

PLAIN = [
    ("ls",),
    ("ls", "--json"),
    ("--quiet", "ls", "--server", "http://127.0.0.1:1"),
    ("ls", "--server=http://127.0.0.1:1", "--no-color"),
    ("status", "resnet", "--ca", "ca.pem"),
    ("status", "--json", "resnet", "-q"),
    *((verb, "resnet") for verb, names in QUICK.items() if names),
]
OTHERS = [
    (),
    ("ls", "--help"),
    ("ls", "--all"),
    ("ls", "-a"),
    ("ls", "more"),
    ("ls", "--server"),
    ("ls", "--server="),
    ("ls", "--ca="),
    ("ls", "--js"),
    ("status",),
    ("status", "a", "b"),
    ("status", "a", "--watch"),
    ("status", "--", "a"),
    ("--json", "ls"),
    ("--server", "http://127.0.0.1:1", "ls"),
    ("serve",),
    ("--version",),
    ("nodes", "ls"),
]


def called(monkeypatch: pytest.MonkeyPatch, verb: str, run: Callable[[], Any]) -> dict[str, Any]:
    """What a verb is called with, and in which style; without what it has anyway."""
    seen: dict[str, Any] = {}
    real = getattr(apps, verb)
    usual = {name: value.default for name, value in signature(real).parameters.items()}

    def note(**given: Any) -> None:
        seen.update({key: value for key, value in given.items() if value != usual[key]})

    note.__signature__ = signature(real, eval_str=True)  # type: ignore[attr-defined]
    note.__doc__ = real.__doc__
    with monkeypatch.context() as patch:
        patch.setattr(apps, verb, note)
        STYLE.quiet, STYLE.color = False, True
        run()
    return {**seen, "quiet": STYLE.quiet, "color": STYLE.color}


@pytest.mark.parametrize("variables", [{}, {"THEMIS_SERVER": "http://h:2", "THEMIS_CA": "/c"}])
@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_words_mean_what_they_mean_to_typer(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], variables: dict[str, str]
) -> None:
    for name in ("THEMIS_SERVER", "THEMIS_CA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    verb = next(word for word in words if word in QUICK)
    call = quick_call(words)
    assert call is not None
    everywhere = [word for word in words if word in {"--quiet", "-q", "--no-color"}]
    others = [word for word in words if word not in everywhere]
    slow = called(
        monkeypatch,
        verb,
        lambda: tree(verb)(args=[*everywhere, *others], standalone_mode=False),
    )
    assert called(monkeypatch, verb, call) == slow


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_everything_else_is_left_to_typer(words: tuple[str, ...]) -> None:
    assert quick_call(words) is None


def test_a_shell_that_completes_is_left_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fast_path._COMPLETING, "complete_bash")
    assert quick_call(["ls"]) is None


def test_they_have_no_other_flags_than_those_that_are_known() -> None:
    known = {"server", "ca", "json"}
    for verb, names in QUICK.items():
        parameters = set(signature(getattr(apps, verb)).parameters)
        assert parameters - {"watch", "ended"} == {*known, *names}


def test_a_quick_verb_reads_neither_pydantic_nor_rich(tmp_path: Path) -> None:
    program = (
        "import sys; sys.argv = ['themis', 'ls', '--server', 'http://127.0.0.1:1']\n"
        "from themis import client; client.Client.apps = lambda self: "
        "{'apps': [{'app': 'a', 'owner': 'o'}], 'gpus': {'free': 1}}\n"
        "from themis.cli import main; code = main()\n"
        "print(sorted({'pydantic', 'rich', 'grpc', 'numpy'} & set(sys.modules)), code)"
    )
    token = tmp_path / "token"
    token.write_text("themis_0123456789ab_" + "s" * 43)
    token.chmod(0o600)
    environment = {**os.environ, "THEMIS_TOKEN_FILE": str(token)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[] 0"


def test_closed_pipe_gives_no_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(**_: Any) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(apps, "ls", full)
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        call = quick_call(["ls"])
        assert call is not None
        assert call() == 1
