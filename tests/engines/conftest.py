"""A place for an engine's state that jobs of other users can pass through, and that ends empty."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.requirements import CHAOS, ENGINES_VARIABLE
from themis.engines.attempt.record_file import read_page
from themis.engines.host.accounts import Owners
from themis.engines.supervisor import processes
from themis.engines.supervisor.process_control import RUN_VARIABLE, kill_leftovers

OTHERS = ("slurm", "ray")
"""Marks of tests on engines that take minutes."""
QUICK = (
    "test_a_job_that_forks_twice_and_ignores_sigterm_is_gone",
    "test_expired_lease_kills_without_an_order",
    "test_jobs_run_on_unobserved_and_are_found_again",
    "test_jobs_start_are_revoked_and_go_on_elsewhere_when_their_machine_dies",
)
"""Those of the contracts that are done for each of these engines in an ordinary run,"""
TOO_SLOW = {"ray": (*QUICK[:2], *QUICK[3:])}
"""but for these: several workers would start a cluster each, which is half a minute of CPU."""


@pytest.hookimpl(tryfirst=True)  # before `-m` is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    everything = CHAOS or os.environ.get(ENGINES_VARIABLE)
    skip = pytest.mark.skip(reason="run by `make test-engines`")
    for item in items:
        if not any(map(item.get_closest_marker, OTHERS)):
            continue
        slow = [
            name for mark in TOO_SLOW if item.get_closest_marker(mark) for name in TOO_SLOW[mark]
        ]
        if item.name in QUICK and item.name not in slow:
            item.add_marker("engines_quick")
        if not everything and not item.get_closest_marker("engines_quick"):
            item.add_marker(skip)


@pytest.fixture
def state() -> Iterator[Path]:
    """A fresh folder; fails the test if a supervisor outlives it."""
    # Not tmp_path, whose parents only root may enter.
    place = Path(tempfile.mkdtemp(prefix="themis-engine-"))
    place.chmod(0o755)
    folder = place / "state"
    try:
        yield folder
        assert left_running(folder) == []
    finally:
        end_all(folder)
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def owners() -> Owners:
    """Everybody the same, unprivileged user."""
    return Owners.trusting("nobody")


def left_running(folder: Path) -> list[str]:
    left = []
    for file in folder.glob("tasks/*/task.json"):
        page = read_page(str(file.parent / "status")) or {}
        run = json.loads(file.read_text())["run"]
        waits = page.get("state") != "exited"
        supervisor = processes.identity(page.get("supervisor"))
        if (waits and processes.is_alive(*supervisor)) or processes.marked(f"{RUN_VARIABLE}={run}"):
            left.append(f"{file.parent.name}: {page.get('state')}")
    return left


def end_all(folder: Path) -> None:
    """A failed test must not leave anything behind either."""
    for file in folder.glob("tasks/*/task.json"):
        body = json.loads(file.read_text())
        page = read_page(str(file.parent / "status")) or {}
        if page.get("state") != "exited":
            processes.send(*processes.identity(page.get("supervisor")), signal.SIGKILL)
            first = processes.identity(page.get("first"))
            for _ in range(1000):
                if kill_leftovers(body["group"], first, body["run"]):
                    break
