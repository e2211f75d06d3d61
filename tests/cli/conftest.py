"""The command line in this process: quick, and with everything that it printed."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from themis.cli import main
from themis.sim import RunConfig, run


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Call `themis` with some arguments."""

    def call(*args: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["themis", *map(str, args)])
        code = main()
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return call


@pytest.fixture(scope="session")
def recorded_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The event log of a short run; tests that damage it copy it first."""
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    config = RunConfig(cluster="demo16", apps=2, policy="themis", options={"lease": "4h"})
    run(config, log_to=path)
    return path
