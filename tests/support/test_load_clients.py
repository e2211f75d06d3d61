"""The crowd of made-up agents and nodes, against a real service on loopback."""

import asyncio
from pathlib import Path

from tests.support.grpc_service import open_world, until
from tests.support.load_clients import KINDS, AgentPlan, NodePlan, Plan, crowd, plan_from
from tests.support.scripted_world import simple_app
from themis.core.arbiter import Settings
from themis.protocol.node_messages import RunState
from themis.security.tokens import Role

SHORT = Settings(
    lease=3.0, grace=0.1, heartbeat=0.2, bid_deadline=0.5, solve_budget=0.5, guard=0.2, pooling=0.0
)


def test_a_plan_reads_as_it_was_written() -> None:
    agents = (AgentPlan("a", "t", "slow", 3, 10.0, runs=True), AgentPlan("b", "u"))
    plan = Plan("127.0.0.1", 7, agents, (NodePlan("m0", "v", (2, 2), "r1"),))
    assert plan_from(plan.text()) == plan


def test_agents_of_every_kind_are_asked_and_a_round_is_held(tmp_path: Path) -> None:
    async def work() -> None:
        over = asyncio.Event()
        async with (
            asyncio.timeout(60),
            open_world(tmp_path, rule="themis", settings=SHORT) as world,
        ):
            tenant = str(world.token_file(Role.TENANT, "ann"))
            plan = Plan(
                world.address.host,
                world.address.port,
                tuple(AgentPlan(kind, tenant, kind, 4, runs=True) for kind in KINDS),
                (NodePlan("m0", str(world.token_file(Role.NODE, "m0")), (4,)),),
            )
            running = asyncio.create_task(crowd(plan, over))
            await until(lambda: world.service.steward.arbiter.world.topology.machines)
            for kind in KINDS:
                await world.service.submissions.submit(simple_app(kind, owner="ann", jobs=4), kind)
            book = world.service.rounds
            # Somebody was asked and won, and the others hurt nobody.
            await until(lambda: any(book.round(number)[0].notes.won for number in book.numbers()))
            runs = world.service.steward.runs
            await until(lambda: any(run.state is RunState.RUNNING for run in runs.values()))
            over.set()
            sights = await running
            assert sights.offered
            assert sights.counts["starts"], "whoever won heard of it"
            assert not [name for name in sights.counts if name.startswith("failed")]

    asyncio.run(work())
