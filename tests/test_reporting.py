"""What training programs call: little, cheap, and harmless outside Themis."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import themis
from themis import reporting
from themis.agent_host import own_tuner

VARIABLES = (
    "THEMIS_JOB_ID",
    "THEMIS_METRICS",
    "THEMIS_CHECKPOINT_DIR",
    "THEMIS_CHECKPOINT_EVERY",
    "THEMIS_MAX_ITERATIONS",
    "THEMIS_PARAMS",
)


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def run(program: str, **env: str) -> subprocess.CompletedProcess[str]:
    packages = str(Path(themis.__file__).parents[1])
    command = [sys.executable, "-c", textwrap.dedent(program)]
    env = {**os.environ, "PYTHONPATH": packages, **env}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_reported_values_keep_their_names_and_non_finite_values(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("THEMIS_METRICS", str(file))
    themis.report(3, 0.5, accuracy=0.75, other=float("inf"), none=None)
    told = json.loads(file.read_text())
    assert told.pop("t") > 0
    assert told == {"it": 3, "loss": 0.5, "accuracy": 0.75, "other": math.inf, "none": None}


def test_outside_themis_there_are_only_defaults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    assert themis.should_stop() is False
    assert signal.getsignal(signal.SIGTERM) is before
    assert themis.max_iterations() is None
    assert themis.max_iterations(7) == 7
    assert themis.params() == {}
    assert themis.checkpoint_due() is False
    assert themis.checkpoint_dir("saved").is_dir()
    assert themis.GRACEFUL_EXIT == 75


def test_environment_settings_are_used_inside_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("THEMIS_MAX_ITERATIONS", "500")
    monkeypatch.setenv("THEMIS_CHECKPOINT_DIR", str(tmp_path / "here"))
    monkeypatch.setenv("THEMIS_PARAMS", '{"lr": 0.1, "batch": 64}')
    assert themis.max_iterations(7) == 500
    assert themis.checkpoint_dir() == tmp_path / "here"
    assert themis.params() == {"lr": 0.1, "batch": 64}


@pytest.mark.parametrize("text", ["", "[1]", "{", "nan"])
def test_invalid_environment_values_are_ignored(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    for variable in ("THEMIS_PARAMS", "THEMIS_MAX_ITERATIONS", "THEMIS_CHECKPOINT_EVERY"):
        monkeypatch.setenv(variable, text)
    assert themis.params() == {}
    assert themis.max_iterations(7) == 7
    assert themis.checkpoint_due() is False


def test_a_checkpoint_is_due_once_in_each_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEMIS_CHECKPOINT_EVERY", "300")
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(reporting._pace, "last", 1000.0)
    due = []
    for now[0] in (1000.0, 1299.0, 1300.0, 1301.0, 1900.0, 1901.0):
        due.append(themis.checkpoint_due())
    assert due == [False, False, True, False, True, False]


def test_a_program_notes_sigterm_and_goes_on_until_it_has_saved() -> None:
    done = run(
        """
        import os, signal, sys, themis
        signal.signal(signal.SIGTERM, lambda *_: print("before"))
        assert not themis.should_stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert themis.should_stop() and themis.should_stop()
        sys.exit(themis.GRACEFUL_EXIT)
        """,
        THEMIS_JOB_ID="j",
    )
    assert (done.returncode, done.stdout) == (75, "before\n"), done.stderr


def test_forked_children_still_die_of_sigterm_beside_other_threads() -> None:
    done = run(
        """
        import os, signal, threading, themis
        threads = [threading.Thread(target=themis.should_stop)]
        threads[0].start(), threads[0].join()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert not themis.should_stop()
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            signal.pause()
            os._exit(3)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not themis.should_stop()
        """,
        THEMIS_JOB_ID="j",
    )
    assert done.returncode == 0, done.stderr


def test_program_api_needs_only_the_standard_library() -> None:
    done = run(
        """
        import sys
        bare = set(sys.modules)
        import themis
        themis.report(1), themis.should_stop(), themis.params(), themis.max_iterations()
        added = {name.split(".")[0] for name in set(sys.modules) - bare}
        print(*sorted(added - set(sys.stdlib_module_names)))
        print(*sorted(name for name in sys.modules if name.startswith("themis")))
        """
    )
    assert done.stdout.split() == ["themis", "themis", "themis.reporting"], done.stderr
    assert set(themis.__all__) <= {*dir(reporting), *own_tuner.__all__, "__version__"}
