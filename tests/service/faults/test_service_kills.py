"""kill -9 of the whole service, again and again, while apps come, train and go."""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.grpc_service import until
from tests.support.requirements import CHAOS
from tests.support.scripted_world import simple_app
from tests.support.service_processes import OWNER, SHORT, Stage, open_stage
from tests.support.toy_agent import ToyAgent
from themis.core.model import AppId, AppSpec
from themis.errors import ThemisError
from themis.service.persistence.store import open_store
from themis.testing.store_model import holders_twice

KILLS = 100 if CHAOS else 10
"""In each of two scenes: 20 in all, 200 in `make chaos`."""
PATIENT = {
    **SHORT, "lease": 60.0, "grace": 2.0, "bid_deadline": 20.0, "solve_budget": 10.0,
}  # fmt: skip
"""Rounds begin 33 s before leases end: a service that is killed while it starts is in time yet."""
VISITOR = "bob"
"""Whose apps get no GPUs: nobody would use them."""
SNAPSHOTS = ("--retention-snapshot", "1s")

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


@dataclass
class Churn:
    """Apps that are submitted, train for a second and end, one after the other."""

    stage: Stage
    name: str
    accepted: dict[AppId, ToyAgent] = field(default_factory=dict)
    """Apps whose submission was acknowledged."""
    stop: bool = False

    @property
    def over(self) -> set[AppId]:
        """Apps whose end was acknowledged."""
        return {app for app, agent in self.accepted.items() if agent.over}

    @property
    def ending(self) -> set[AppId]:
        """Apps that said they were over, or were heard to be."""
        return {app for app, agent in self.accepted.items() if agent.finishing}

    async def run(self) -> None:
        number = 0
        while not self.stop:
            number += 1
            spec = simple_app(f"{self.name}-{number}", iterations=8, seconds=0.1, owner=OWNER)
            await self._submit(spec)
            agent = self.accepted[spec.id] = await self.stage.agent(spec, most=8)
            await self._over(agent)

    @staticmethod
    async def _over(agent: ToyAgent) -> None:
        await until(lambda: agent.over, 120.0)

    async def _submit(self, spec: AppSpec) -> None:
        async with asyncio.timeout(120.0):
            while True:
                with suppress(ThemisError):
                    await self.stage.submit(spec, tries=1)
                    return
                await asyncio.sleep(0.1)


@dataclass
class Visitors:
    """Apps that come and are cancelled as fast as the service takes them; a few are there."""

    stage: Stage
    accepted: dict[AppId, None] = field(default_factory=dict)
    ending: set[AppId] = field(default_factory=set)
    over: set[AppId] = field(default_factory=set)
    stop: bool = False

    async def run(self) -> None:
        number = 0
        while not self.stop:
            number += 1
            with suppress(ThemisError):
                await self._come(AppId(f"visitor-{number}"))
                waiting = [app for app in self.accepted if app not in self.ending]
                if len(waiting) > 4:
                    await self._go(waiting[0])
            await asyncio.sleep(0.02)

    async def _come(self, app: AppId) -> None:
        spec = simple_app(app, iterations=8, seconds=0.1, owner=VISITOR)
        await self.stage.submit(spec, tries=1)
        self.accepted[app] = None

    async def _go(self, app: AppId) -> None:
        self.ending.add(app)
        await asyncio.to_thread(self.stage.client(tries=1).cancel, str(app))
        self.over.add(app)


Guests = Churn | Visitors


async def check(stage: Stage, churns: list[Guests]) -> None:
    """Everything acknowledged is there, and what is over stays over."""
    accepted = {app for churn in churns for app in churn.accepted}
    over = {app for churn in churns for app in churn.over}
    there = {line["app"] for line in (await asyncio.to_thread(stage.client().apps))["apps"]}
    ending = {app for churn in churns for app in churn.ending}
    assert accepted - ending <= there, "an app was acknowledged and is lost"
    assert not over & there, "an app that was over is back"
    stage.check()


async def kill_again_and_again(stage: Stage, rng: random.Random, churns: list[Guests]) -> int:
    """Returns how many of the kills hit a service that was not ready yet."""
    early, was_early = 0, False
    for _ in range(KILLS):
        if not was_early and rng.random() < 0.25:
            was_early = True
            await asyncio.sleep(rng.uniform(0.0, 1.5))
            early += 1
        else:
            was_early = False
            await stage.up()
            await check(stage, churns)
            await asyncio.sleep(rng.uniform(0.0, 2.0))
        await stage.kill()
        await stage.start(wait=False)
    await stage.up()
    await check(stage, churns)
    return early


@pytest.mark.parametrize("patient", [True, False], ids=["leases outlast it", "leases do not"])
def test_a_service_killed_at_any_moment_loses_nothing(place: Path, patient: bool) -> None:
    async def scene() -> None:
        # With the auction GPUs move, and leases end while nobody is there to renew them.
        terms: dict[str, object] = {"settings": SHORT}
        if patient:
            # First come, first served: nobody else takes GPUs from the first app.
            terms = {"settings": PATIENT, "policy": "fifo", "node_ttl": 15.0}
        machines = {"m0": 2, "m1": 2}
        async with open_stage(place, machines, flags=SNAPSHOTS, **terms) as stage:
            spec = simple_app("keeper", iterations=10**6, seconds=1.0, owner=OWNER)
            await stage.submit(spec)
            keeper = await stage.agent(spec)
            await until(lambda: keeper.running and stage.starts())
            mine = [run for run, job in stage.starts().items() if job.startswith("keeper")]
            await asyncio.to_thread(stage.client().quota, VISITOR, 0)
            churns: list[Guests] = [Churn(stage, "left"), Churn(stage, "right"), Visitors(stage)]
            tasks = [asyncio.create_task(churn.run()) for churn in churns]
            early = await kill_again_and_again(stage, random.Random(7), churns)
            for churn in churns:
                churn.stop = True
            await asyncio.gather(*tasks)
            assert all(churn.accepted for churn in churns), "nothing ever got through"
            await until(lambda: keeper.running, 120.0)
            kept = [run for run, job in stage.starts().items() if job.startswith("keeper")]
            if patient:
                assert kept == mine, "training was started again"
            done = sum(len(churn.accepted) for churn in churns)
            told = f"{KILLS} kills, {early} of them at the start; {done} apps"
            print(f"{told}, {len(churns[0].over | churns[1].over)} trained, {len(kept)} starts")
            await stage.kill()
            stage.check()
            with open_store(f"sqlite:///{stage.state / 'themis.db'}", read_only=True) as store:
                saved = store.load()
                assert not holders_twice(saved.leases)
                assert len(store.epochs()) >= KILLS - early

    asyncio.run(asyncio.wait_for(scene(), 3000.0 if CHAOS else 600.0))
