"""Exit codes: the same for every command, whatever went wrong."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from themis.cli import app as commands
from themis.errors import (
    ConfigError,
    DeniedError,
    InvariantError,
    LimitError,
    MissingFileError,
    UnavailableError,
    UnknownAppError,
    UnknownCallerError,
)

Cli = Callable[..., Any]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("http", 1, "something"), 2),
        (LimitError("vision", "too many"), 1),
        (MissingFileError("file", "x"), 3),
        (UnavailableError("nobody answers"), 4),
        (DeniedError("tenant vision", "may not"), 5),
        (UnknownCallerError("caller", "no valid token"), 5),
        (UnknownAppError("sweep", "there is no such app"), 3),
        (InvariantError("our bug"), 1),
    ],
    ids=lambda item: type(item).__name__,
)
def test_each_kind_of_trouble_has_its_code(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(commands, "tree", lambda _: fail)
    done = cli("anything")
    assert (done.code, done.out) == (code, "")
    # Of a token that is missing or not valid one is also told where to get one.
    assert done.err.startswith(f"error: {error}")
    assert done.err.count("\n") == 1


def test_a_folder_that_is_gone_is_no_reason_to_fail(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = (
        f"import os, sys; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); "
        "sys.argv = ['themis', '--version']; from themis.cli import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_second_ctrl_c_at_exit_keeps_the_exit_code() -> None:
    script = """
import atexit, os, signal, sys
# Called last of all, when the command has done its own.
atexit.register(os.kill, os.getpid(), signal.SIGINT)
from themis.cli import main
from themis.cli.common import fast_path

def interrupt(args):
    raise KeyboardInterrupt

fast_path.quick_call = interrupt
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"error: interrupted\n")
