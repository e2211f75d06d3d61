"""`themis demo` as people run it: to its end, and interrupted. Nothing may be left of it."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from themis.engines.supervisor.processes import all_processes

pytestmark = pytest.mark.slow

PATIENCE = 300.0
"""Seconds after which something hangs."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a space in its name, and in a place that every user can reach."""
    made = Path(tempfile.mkdtemp(prefix="themis test ", dir="/tmp"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


@dataclass(frozen=True)
class Who:
    """Somebody who can run the demo."""

    python: str
    account: dict[str, Any]


def ordinary() -> Who:
    """An ordinary user: oneself, or nobody where one is root."""
    if os.geteuid() != 0:
        return Who(sys.executable, {})
    nobody = pwd.getpwnam("nobody")
    account: dict[str, Any] = {
        "user": nobody.pw_uid,
        "group": nobody.pw_gid,
        "extra_groups": [],
    }
    same = f"python3.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(same, path="/usr/local/bin:/usr/bin")):
        if python is None:
            continue
        try:
            done = subprocess.run(
                [python, "-c", "import themis.service.process, numpy"],
                env=environment(Path("/")),
                capture_output=True,
                check=False,
                **account,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return Who(python, account)
    pytest.skip("no Python here that an ordinary user can run Themis with")


def environment(folder: Path) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("THEMIS_")}
    path = os.pathsep.join(filter(None, sys.path))
    # Settings of a service of one's own are not the demo's.
    mine = {"THEMIS_SET": "lease=5h", "THEMIS_HTTP": "127.0.0.1:1"}
    return {**env, **mine, "PYTHONPATH": path, "TMPDIR": str(folder), "HOME": str(folder)}


def start(folder: Path, who: Who, *flags: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [who.python, "-B", "-m", "themis", "demo", "--quick", *flags],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_ctrl_c,  # noqa: PLW1509 - nothing but a signal is set, and no thread runs
        **who.account,
    )


def _hear_ctrl_c() -> None:
    """Who runs tests in the background of a shell ignores it, and so would the demo."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def left(folder: Path) -> list[str]:
    """Processes that have to do with a folder."""
    found = []
    for pid in all_processes():
        try:
            about = Path(f"/proc/{pid}/cmdline").read_bytes()
            about += Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in about:
            found.append(f"{pid} {about[:200]!r}")
    return found


def until_told(process: "subprocess.Popen[str]", word: str) -> None:
    """Read what it says, until it says this."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if word in line:
            return
    pytest.fail(f"it ended before it said {word!r}: {''.join(said)}")


def test_a_demo_runs_to_its_end_and_leaves_nothing(folder: Path) -> None:
    with start(folder, Who(sys.executable, {}), "--json") as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    made = json.loads(out)
    assert [app["app"] for app in made["apps"]] == ["logistic", "ridge", "network"]
    for app in made["apps"]:
        assert app["outcome"] == "finished"
        assert app["rho"] > 0.0
        assert 0.0 <= app["winner"]["metric"] < 1.0
        assert made["gpu_seconds"][app["app"]] > 0.0
    assert len(made["gpus"]) == 16
    assert made["cpu_seconds"] > 0.0
    assert left(folder) == []
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("number", "moment", "code"),
    [
        pytest.param(signal.SIGTERM, "running", 143, id="SIGTERM while jobs run"),
        pytest.param(signal.SIGINT, "starting a service", 130, id="Ctrl-C at once"),
    ],
)
def test_interrupted_demo_of_an_ordinary_user_leaves_nothing(
    folder: Path, number: int, moment: str, code: int
) -> None:
    with start(folder, ordinary()) as process:
        until_told(process, moment)
        process.send_signal(number)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert out == ""
    assert left(folder) == []
    assert os.listdir(folder) == []


def test_killed_demo_is_cleaned_up(folder: Path) -> None:
    with start(folder, Who(sys.executable, {})) as process:
        until_told(process, "dashboard")
        process.kill()
    end = time.monotonic() + PATIENCE
    while left(folder) or os.listdir(folder):
        assert time.monotonic() < end, left(folder)
        time.sleep(0.1)


def test_ctrl_c_during_jobs_leaves_only_the_kept_files(folder: Path) -> None:
    with start(folder, ordinary(), "--keep", str(folder / "kept")) as process:
        until_told(process, "running")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert left(folder) == []
    assert os.listdir(folder) == ["kept"]
    kept = set(os.listdir(folder / "kept"))
    assert {"state", "state-nodes", "program", "service.log"} <= kept
