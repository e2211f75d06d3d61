"""A sweep whose GPUs change again and again, and all of whose processes are killed, for real.

Its jobs write down every iteration themselves, so that neither service, agent nor node has a say in
what was trained, and in what order.
"""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.grpc_service import until
from tests.support.requirements import CHAOS
from tests.support.service_processes import SHORT, Stage, open_stage
from themis.errors import ThemisError

CHANGES = 200 if CHAOS else 20
LONG = 3600.0 if CHAOS else 240.0
"""So that nothing hangs."""
QUICK = {**SHORT, "pooling": 0.2}
"""What comes free is given on soon, so that much happens in little time."""
MOST = 200
"""Iterations of the winner, which does not do the last one before all is calm."""
SEED = 11
EVERY = 4
"""Iterations between checkpoints."""

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

TRAIN = f"""
umask 0; cd "$THEMIS_CHECKPOINT_DIR"; going=
say() {{ echo "$1 $THEMIS_RUN.$$ $n $THEMIS_MAX_ITERATIONS" >> "$AUDIT/${{THEMIS_JOB_ID##*/}}"; }}
save() {{ say saving; echo "$n" > .n && mv .n n && say saved; }}
n=$(cat n 2>/dev/null || echo 0)
trap 'going=1' TERM
say start
while [ "$n" -lt "$THEMIS_MAX_ITERATIONS" ]; do
    [ -e "$AUDIT/calm" ] || {{ sleep 0.1 & wait $!; }}
    [ -z "$going" ] || {{ save; exit 75; }}
    [ -e "$AUDIT/calm" ] || [ $((n + 1)) -lt {MOST} ] || continue
    n=$((n + 1)); say it
    [ $((n % {EVERY})) -ne 0 ] || save
    echo "{{\\"it\\": $n, \\"loss\\": $(($1 * 1000 / n))}}" >> "$THEMIS_METRICS"
done
save; say done
"""
"""Trains slowly until it is calm: so it lasts for as long as it is to be disturbed."""


def sweep(name: str, audit: Path) -> dict[str, Any]:
    return {
        "name": name,
        "command": ["/bin/sh", "-c", TRAIN, "train", "{q}"],
        "env": {"AUDIT": str(audit)},
        "search": {"method": "random", "n": 4, "params": {"q": {"int": [10, 99]}}},
        "stop": {"method": "halving", "max_iterations": MOST},
        "iteration_seconds": 0.1,
        "checkpoint": {"grace": "1s"},
        "retries": 1000,
        "workdir": "/",
    }


def audit_folder(stage: Stage, name: str) -> Path:
    folder = stage.audit / name
    folder.mkdir()
    folder.chmod(0o777)
    return folder


# Whoever waits for a service that is being killed asks again.


async def ask(call: Callable[[], Any]) -> Any:
    async with asyncio.timeout(120.0):
        while True:
            try:
                return await asyncio.to_thread(call)
            except ThemisError:
                await asyncio.sleep(0.1)


async def over(stage: Stage, app: str) -> dict[str, Any]:
    while True:
        found = await ask(lambda: stage.client().results(app))
        if found["outcome"]:
            return dict(found)
        await asyncio.sleep(0.2)


async def undisturbed(stage: Stage) -> dict[str, Any]:
    audit = audit_folder(stage, "calm")
    (audit / "calm").touch()
    app = sweep("calm", audit)
    await asyncio.to_thread(lambda: stage.client().submit(app, seed=SEED))
    return await over(stage, "calm")


@dataclass
class Disturbance:
    """What is done to an app, one thing after the other."""

    stage: Stage
    app: str
    audit: Path
    rng: random.Random
    rounds: int = 0
    changes: int = 0
    """How often its GPUs were seen to be others than before."""
    _gpus: frozenset[tuple[int, int]] = frozenset()
    _rivals: int = 0

    async def go_on(self, times: int) -> None:
        moves: list[Callable[[], Awaitable[None]]]
        moves = [self.hold, self.drain, self.compete, self.limit]
        kills: list[Callable[[], Awaitable[None]]]
        kills = [self.kill_job, self.kill_host, self.kill_node, self.kill_service]
        left: list[Callable[[], Awaitable[None]]] = []
        await self.look(1.0)
        while self.changes < times or self.rounds < 2:
            if not left:
                # All of them at first, then one of the kills.
                self.rounds += 1
                some = kills if self.rounds == 1 else self.rng.sample(kills, 1)
                left = [*moves, *some]
                self.rng.shuffle(left)
            await left.pop()()
            await self.look(self.rng.uniform(0.0, 0.8))

    async def look(self, seconds: float) -> None:
        """See for a while which GPUs the app has."""
        end = asyncio.get_running_loop().time() + seconds
        while True:
            status = await ask(lambda: self.stage.client().status(self.app))
            assert "leases" in status, f"it is over: {status}"
            gpus = frozenset((lease["gpu"], lease["token"]) for lease in status["leases"])
            self.changes += gpus != self._gpus
            self._gpus = gpus
            if asyncio.get_running_loop().time() >= end:
                return
            await asyncio.sleep(0.1)

    async def hold(self) -> None:
        await ask(lambda: self.stage.client().hold(self.app))
        await self.look(self.rng.uniform(0.0, 1.5))
        await ask(lambda: self.stage.client().release(self.app))

    async def drain(self) -> None:
        node = self.rng.choice(self.stage.nodes)
        take = self.rng.choice([self.stage.client().drain, self.stage.client().cordon])
        await ask(lambda: take(node))
        await self.look(self.rng.uniform(0.0, 1.5))
        await ask(lambda: self.stage.client().uncordon(node))

    async def compete(self) -> None:
        self._rivals += 1
        name = f"rival-{self._rivals}"
        rival = {
            "name": name,
            "command": ["/bin/sh", "-c", "exec sleep 60"],
            "duration": "1m",
            "retries": 0,
            "workdir": "/",
        }
        await ask(lambda: self.stage.client().submit(rival, name))
        await self.look(self.rng.uniform(0.5, 2.0))
        await ask(lambda: self.stage.client().cancel(name))

    async def limit(self) -> None:
        owner = (await ask(lambda: self.stage.client().status(self.app)))["owner"]
        await ask(lambda: self.stage.client().quota(owner, self.rng.randint(1, 3)))
        await self.look(self.rng.uniform(0.0, 2.0))
        await ask(lambda: self.stage.client().quota(owner, None))

    async def kill_job(self) -> None:
        for pid in self.stage.jobs_alive(self.audit)[:2]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def kill_host(self) -> None:
        for pid in self.stage.hosts():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def kill_node(self) -> None:
        name = self.rng.choice(self.stage.nodes)
        await self.stage.restart_node(name, after=self.rng.uniform(0.0, 1.0))

    async def kill_service(self) -> None:
        await self.stage.kill()
        await asyncio.sleep(self.rng.uniform(0.0, 1.0))
        await self.stage.start()


def check_training(file: Path, iterations: float) -> None:
    """See in what a job wrote that nothing was lost, done twice, or done by two at a time."""
    saved = last = 0
    process = ""
    gone = set()
    for line in file.read_text(encoding="ascii").splitlines():
        what, who, number, most = line.split()
        n = int(number)
        assert n <= int(most), f"{file.name}: it went beyond what it was told to: {line}"
        if what == "start":
            gone.add(process)
            process = who
            assert saved <= n <= last, f"{file.name} began at {n}, and had saved {saved}: {line}"
            last = n
        assert who == process, f"{file.name}: two processes at a time: {line}"
        assert who not in gone, f"{file.name}: a process is back: {line}"
        if what == "it":
            assert n == last + 1, f"{file.name}: from {last} to {n}"
            last = n
        if what == "saved":
            assert n == last
            saved = n
    assert saved == last == iterations, f"{file.name}: {iterations} wanted, {last} done"


def outcome(found: dict[str, Any]) -> Any:
    jobs = [(job["params"], job["iterations"], job["metric"]) for job in found["jobs"]]
    return found["outcome"], found["best"], jobs


def test_disturbed_sweep_trains_the_same_as_an_undisturbed_one(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 2, "m1": 2}, settings=QUICK) as stage:
            expected = await undisturbed(stage)
            assert expected["outcome"] == "finished"
            audit = audit_folder(stage, "sweep")
            app = sweep("sweep", audit)
            await asyncio.to_thread(lambda: stage.client().submit(app, seed=SEED))
            await until(lambda: any(audit.iterdir()))
            disturbance = Disturbance(stage, "sweep", audit, random.Random(SEED))
            await disturbance.go_on(CHANGES)
            (audit / "calm").touch()
            found = await over(stage, "sweep")
            assert outcome(found) == outcome(expected)
            for job in found["jobs"]:
                check_training(audit / job["job"], job["iterations"])
                check_training(stage.audit / "calm" / job["job"], job["iterations"])
            assert disturbance.changes >= CHANGES

    asyncio.run(asyncio.wait_for(scene(), LONG))
