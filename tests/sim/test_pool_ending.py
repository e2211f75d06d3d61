"""Ending many runs on several processes: what is finished is kept, whoever is hit by the signal."""

import multiprocessing
import os
import signal
import threading
from pathlib import Path

import pytest

from themis.sim import RunConfig
from themis.sim.runs.result_cache import ResultCache
from themis.sim.runs.worker_pool import finish_all

CONFIGS = [
    RunConfig(cluster="demo16", apps=1, policy="fifo", seed=seed, options={"lease": "4h"})
    for seed in range(1, 5)
]


def test_workers_leave_it_to_their_parent_to_end(tmp_path: Path) -> None:
    asked: set[int] = set()

    def progress(*_: object) -> None:
        for worker in multiprocessing.active_children():
            assert worker.pid is not None
            if worker.pid not in asked:
                asked.add(worker.pid)
                os.kill(worker.pid, signal.SIGTERM)
                os.kill(worker.pid, signal.SIGINT)

    store = ResultCache(tmp_path)
    assert finish_all(CONFIGS, store, workers=2, progress=progress) == 0
    assert asked
    assert all(map(store.has, CONFIGS))


def test_interrupt_hides_errors_of_earlier_workers(tmp_path: Path) -> None:
    def progress(*_: object) -> None:
        workers = multiprocessing.active_children()
        if workers:
            managers = [one for one in threading.enumerate() if "Manager" in type(one).__name__]
            assert managers
            for worker in workers:
                worker.kill()
            for manager in managers:  # it gives every run that was under way up
                manager.join(30.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finish_all(CONFIGS, ResultCache(tmp_path), workers=2, progress=progress)
    assert not multiprocessing.active_children()
