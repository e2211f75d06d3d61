"""One reason for every app, also for those that can never run as things are."""

from collections.abc import Callable

import pytest

from tests.support.scripted_world import ScriptedWorld, simple_app
from themis.core.arbiter import events
from themis.core.model import Constraint, Machine, OwnerId
from themis.core.model.reasons import Reason

MakeWorld = Callable[..., ScriptedWorld]
MACHINES = (Machine("m0", "r0", (4,)), Machine("m1", "r0", (2,), gpu_model="v100"))


def _last(world: ScriptedWorld) -> dict[str, Reason]:
    return {line.app: line.reason for line in world.records[-1].apps}


@pytest.mark.parametrize("rule", ["fifo", "themis"])
def test_absent_gpu_model_is_not_reported_as_busy(make_world: MakeWorld, rule: str) -> None:
    world = make_world(rule, machines=MACHINES)
    world.submit(simple_app("a", constraint=Constraint("v100")))
    world.submit(simple_app("b", gpus=4))
    world.send(events.MachineLeft(50.0, "m1"))
    world.advance(700.0)
    assert _last(world)["a"] is Reason.NO_MATCHING_GPU


def test_gang_that_no_longer_fits_is_reported(make_world: MakeWorld) -> None:
    world = make_world("fifo", machines=MACHINES)
    world.submit(simple_app("a", gpus=6, min_gpus=5))
    world.submit(simple_app("b", gpus=1))
    world.send(events.MachineLeft(50.0, "m1"))
    world.advance(700.0)
    assert _last(world)["a"] is Reason.DEMAND_EXCEEDS_CLUSTER


def test_quota_below_the_gang_and_used_up_quota_are_distinguished(make_world: MakeWorld) -> None:
    world = make_world("fifo", machines=MACHINES)
    app = simple_app("a", gpus=2, min_gpus=2)
    world.send(events.QuotaChanged(0.0, OwnerId(app.owner), 1))
    world.submit(app)
    world.submit(simple_app("b", gpus=1))
    world.advance(700.0)
    assert _last(world)["a"] is Reason.DEMAND_EXCEEDS_QUOTA


def test_a_paused_app_is_in_the_record_with_its_reason(make_world: MakeWorld) -> None:
    world = make_world("fifo", machines=MACHINES)
    world.submit(simple_app("a", gpus=1))
    world.submit(simple_app("b", gpus=1))
    world.suspend("a", Reason.PAUSED_BY_USER)
    world.advance(700.0)
    assert _last(world)["a"] is Reason.PAUSED_BY_USER


def test_gpus_that_are_free_go_to_an_app_whose_machine_is_lost(make_world: MakeWorld) -> None:
    world = make_world("fifo", machines=(Machine("m0", "r0", (4,)), Machine("m1", "r0", (4,))))
    world.submit(simple_app("a", gpus=4))
    lost = "m0" if min(world.held("a")) < 4 else "m1"
    world.send(events.MachineLeft(50.0, lost))
    assert not world.held("a")
    world.advance(50.0 + world.arbiter.settings.pooling + 1.0)
    assert len(world.held("a")) == 4


def test_policies_without_an_auction_leave_rho_and_rank_too(make_world: MakeWorld) -> None:
    world = make_world("fifo", machines=MACHINES)
    world.submit(simple_app("a", gpus=4, iterations=1000))
    world.submit(simple_app("b", gpus=4, iterations=10))
    world.advance(700.0)
    lines = world.records[-1].apps
    assert sorted(line.rank or 0 for line in lines) == list(range(1, len(lines) + 1))
    ranked = sorted(lines, key=lambda line: line.rank or 0)
    rhos = [line.rho or 0.0 for line in ranked]
    assert rhos == sorted(rhos, reverse=True)
    assert min(rhos) > 0.0
