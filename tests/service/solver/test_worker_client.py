"""Auctions in a worker process: answered, cut off, replaced; nothing outlives the service."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.random_auctions import generated_problem
from themis.core.auction import Problem, solver
from themis.errors import UnavailableError
from themis.service.solver.worker_client import SolverClient

LONG = 60.0
"""Seconds: a guard against hanging, never a measure."""


def make_problem(seed: int) -> Problem:
    return generated_problem(16, 5, seed)


def during(work: Callable[[SolverClient], Awaitable[None]], *command: str) -> None:
    async def run() -> None:
        solving = SolverClient("default", command)
        try:
            async with asyncio.timeout(LONG):
                await work(solving)
        finally:
            await solving.close()

    asyncio.run(run())


def test_the_worker_gives_the_solver_s_own_answer() -> None:
    async def work(solving: SolverClient) -> None:
        for seed in range(5):
            problem = make_problem(seed)
            found = await solving.solve(problem, LONG)
            assert found == solver("default").solve(problem)

    during(work)


SLOW = """
import json, sys, time
print(json.dumps({"ready": True}), flush=True)
from themis.core.auction import solver
from themis.service.solver.worker import questions
from themis.recording.codec import dumps
from themis.recording.packed_auctions import unpack
for question in questions(sys.stdin.buffer):
    if %s:
        best = solver("default").solve(unpack(question.packed))
        print(dumps({"id": question.number, "final": False, "solution": best}), flush=True)
    time.sleep(3600)
"""


def test_a_worker_that_hangs_is_killed_and_its_first_answer_counts() -> None:
    async def work(solving: SolverClient) -> None:
        await solving.start()
        first = solving.process_id
        problem = make_problem(3)
        assert await solving.solve(problem, 3.0) == solver("default").solve(problem)
        assert solving.process_id is None
        assert first is not None
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)

    during(work, sys.executable, "-c", SLOW % "True")


def test_a_worker_that_is_late_is_not_waited_for_and_lives_on() -> None:
    async def work(solving: SolverClient) -> None:
        await solving.start()
        worker = solving.process_id
        problem = make_problem(3)
        # It sleeps for an hour after its first answer: whoever waits for it meets the guard.
        assert await solving.solve(problem, 3.0, 2 * LONG) == solver("default").solve(problem)
        assert solving.process_id == worker

    during(work, sys.executable, "-c", SLOW % "True")


def test_worker_far_past_its_deadline_is_killed_in_the_background() -> None:
    async def work(solving: SolverClient) -> None:
        await solving.start()
        worker = solving.process_id
        problem = make_problem(3)
        await solving.solve(problem, 3.0, 0.3)
        while solving.process_id in (worker, None):
            await asyncio.sleep(0.01)
        assert await solving.solve(problem, 3.0) == solver("default").solve(problem)

    during(work, sys.executable, "-c", SLOW % "True")


FAILING = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
from themis.core.auction import solver
from themis.service.solver.worker import questions
from themis.recording.codec import dumps
from themis.recording.packed_auctions import unpack
for question in questions(sys.stdin.buffer):
    if %s:
        best = solver("default").solve(unpack(question.packed))
        print(dumps({"id": question.number, "final": False, "solution": best}), flush=True)
    print(json.dumps({"id": question.number, "final": True, "failed": "no memory"}), flush=True)
"""


def test_the_first_answer_counts_when_the_search_for_a_better_one_fails() -> None:
    async def work(solving: SolverClient) -> None:
        problem = make_problem(3)
        assert await solving.solve(problem, LONG) == solver("default").solve(problem)

    during(work, sys.executable, "-c", FAILING % "True")


def test_a_solver_that_fails_at_once_says_why() -> None:
    async def work(solving: SolverClient) -> None:
        with pytest.raises(UnavailableError, match="no memory"):
            await solving.solve(make_problem(3), LONG)

    during(work, sys.executable, "-c", FAILING % "False")


def test_without_a_first_answer_the_round_has_to_do_without() -> None:
    async def work(solving: SolverClient) -> None:
        await solving.start()
        with pytest.raises(UnavailableError, match="no answer"):
            await solving.solve(make_problem(3), 0.2)

    during(work, sys.executable, "-c", SLOW % "False")


def test_the_first_answer_is_the_last_when_time_is_up() -> None:
    async def work(solving: SolverClient) -> None:
        await solving.start()
        worker = solving.process_id
        problem = make_problem(3)
        found = await solving.solve(problem, -1.0, LONG)
        assert found == solver("default", lambda: 0.0).solve(problem)
        assert solving.process_id == worker, "nobody waited for another one"

    during(work)


def test_a_worker_that_was_killed_is_replaced() -> None:
    async def work(solving: SolverClient) -> None:
        await solving.start()
        first = solving.process_id
        assert first is not None
        os.kill(first, 9)
        problem = make_problem(4)
        try:
            found = await solving.solve(problem, LONG)
        except UnavailableError:  # it noticed only while asking
            found = await solving.solve(problem, LONG)
        assert found == solver("default").solve(problem)
        assert solving.process_id != first

    during(work)


def test_failed_solver_start_is_reported_plainly() -> None:
    async def work(solving: SolverClient) -> None:
        with pytest.raises(UnavailableError, match="does not start"):
            await solving.start()

    during(work, sys.executable, "-c", "raise SystemExit(1)")


SERVICE = """
import asyncio, os
from themis.service.solver.worker_client import SolverClient
async def run():
    solving = SolverClient()
    await solving.start()
    print(solving.process_id, flush=True)
    os._exit(0)
asyncio.run(run())
"""


def test_the_worker_ends_with_the_service() -> None:
    # Nobody closes it: the service is gone at once, as after kill -9.
    service = subprocess.run(
        [sys.executable, "-c", SERVICE], capture_output=True, text=True, timeout=LONG, check=True
    )
    worker = Path(f"/proc/{int(service.stdout)}/stat")
    for _ in range(6000):
        try:
            state = worker.read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":  # dead; whoever adopted it has not noticed yet
            return
        time.sleep(0.01)
    pytest.fail("the worker is still there")
