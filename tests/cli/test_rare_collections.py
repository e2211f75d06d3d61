"""Commands that simulate look for dead objects more rarely, in their own process and in others."""

import gc
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from themis.sim.runs.worker_pool import _start_worker

Cli = Callable[..., Any]
RARELY = (50_000, 20, 100)
TINY = ("--cluster", "demo16", "--apps", "1", "--lease", "4h", "--seeds", "1", "--policies", "fifo")


def test_a_run_collects_rarely(cli: Cli, tmp_path: Path) -> None:
    assert gc.get_threshold() != RARELY
    args = ("--cluster", "demo16", "--apps", "1", "--lease", "4h", "--policy", "fifo", "--quiet")
    assert cli("sim", "run", *args, "--out", tmp_path / "run").code == 0
    assert gc.get_threshold() == RARELY


@pytest.mark.parametrize("verb", [["compare"], ["sweep", "--key", "load", "--values", "1"]])
def test_comparing_in_one_process_collects_rarely(cli: Cli, verb: list[str]) -> None:
    assert gc.get_threshold() != RARELY
    assert cli("sim", *verb, *TINY, "--workers", "1", "--quiet").code == 0
    assert gc.get_threshold() == RARELY


def test_reproducing_collects_rarely(cli: Cli, tmp_path: Path) -> None:
    assert gc.get_threshold() != RARELY
    assert cli("reproduce", "E13", "--quick", "--out", tmp_path).code == 0
    assert gc.get_threshold() == RARELY


def test_workers_collect_rarely() -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, _start_worker, (context.SimpleQueue(),)) as pool:
        assert pool.submit(gc.get_threshold).result(timeout=60) == RARELY
