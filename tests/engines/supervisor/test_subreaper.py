"""The process between a scheduler's own one and a supervisor."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from themis.engines.attempt.attempt import Attempt
from themis.engines.attempt.layout import EngineLimits, StateFolder
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.supervisor import processes
from themis.engines.supervisor.spawn import command
from themis.engines.task import Task
from themis.testing.engines import ESCAPED, LONG, STUBBORN

HANGS_AFTER = 60
HOLDER = """
import os, subprocess, sys
told = {"THEMIS_HOLDER": str(os.getpid()), "CUDA_VISIBLE_DEVICES": "0"}
subprocess.Popen(sys.argv[1:], env=os.environ | told, start_new_session=True).wait()
"""


@pytest.fixture
def made(state: Path, owners: Owners) -> Attempt:
    folder = StateFolder(state, EngineLimits())
    folder.prepare()
    script = STUBBORN + ESCAPED + "while :; do sleep 0.05; done"
    task = Task(
        "job-1",
        "ann",
        7,
        (0,),
        ("/bin/sh", "-c", script),
        end=boottime.now() + LONG,
        grace=5.0,
        control="tree",
    )
    return folder.create(task, owners.account("ann"))


def held(made: Attempt) -> "tuple[subprocess.Popen[bytes], int, int]":
    """A holder with a job below it; its subreaper, and its supervisor."""
    argv = command("themis.engines.supervisor.subreaper", str(made.folder / "task.json"))
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, *argv])
    while (made.status or {}).get("state") != "running" or len(of_job(made)) < 3:
        assert holder.poll() is None
    subreaper, supervisor, *_ = processes.descendants(holder.pid)
    assert processes.identity((made.status or {}).get("supervisor"))[0] == supervisor
    return holder, subreaper, supervisor


def of_job(made: Attempt) -> list[int]:
    return processes.marked(f"THEMIS_RUN={made.task.run}")


def until_over(made: Attempt) -> dict[str, object]:
    until = boottime.now() + HANGS_AFTER
    while (page := made.status or {}).get("state") != "exited":
        assert boottime.now() < until
    return page


def test_without_its_subreaper_a_supervisor_ends_all_of_its_job(made: Attempt) -> None:
    """Ray kills the children of a process of its own that ends in order."""
    holder, subreaper, _ = held(made)
    os.kill(subreaper, signal.SIGKILL)
    page = until_over(made)
    assert page["outcome"] == "resumable"
    assert "held its GPUs" in str(page["reason"])
    assert of_job(made) == []
    holder.wait(HANGS_AFTER)


def test_a_subreaper_dies_with_its_holder_however_that_dies(made: Attempt) -> None:
    holder, subreaper, _ = held(made)
    holder.kill()
    holder.wait(HANGS_AFTER)
    page = until_over(made)
    assert "held its GPUs" in str(page["reason"])
    assert of_job(made) == []
    assert processes.start_time(subreaper) is None


def test_leftovers_of_a_supervisor_are_killed_and_its_end_is_recorded(made: Attempt) -> None:
    holder, _, supervisor = held(made)
    os.kill(supervisor, signal.SIGKILL)
    page = until_over(made)
    assert (page["outcome"], page["reason"]) == ("lost", "its supervisor was gone")
    assert of_job(made) == []
    holder.wait(HANGS_AFTER)


def test_a_subreaper_without_its_holder_starts_nothing(made: Attempt) -> None:
    argv = command("themis.engines.supervisor.subreaper", str(made.folder / "task.json"))
    env = os.environ | {"THEMIS_HOLDER": "1"}
    assert subprocess.run(argv, env=env, check=False, timeout=HANGS_AFTER).returncode
    assert not (made.status or {}).get("supervisor")
