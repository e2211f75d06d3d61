"""What moves cost, as measured: three times before it is believed, and noise changes nothing."""

import math

from tests.support.scripted_world import simple_app
from themis.core.agent import events as ev
from themis.core.agent.agent import Agent
from themis.core.agent.move_costs import MoveCosts
from themis.core.model import Offer
from themis.core.model.presets import preset
from themis.core.tuners import tuner_for

TOPOLOGY = preset("demo16")


def test_declared_cost_holds_until_three_measurements() -> None:
    costs = MoveCosts(checkpoint=8.0, restart=35.0)
    assert [costs.saw_restart(seconds) for seconds in (2.0, 90.0, 4.0)] == [False, False, True]
    assert (costs.checkpoint, costs.restart) == (8.0, 4.0)
    assert [costs.saw_checkpoint(0.0) for _ in range(3)] == [False, False, True]
    assert (costs.checkpoint, costs.restart) == (0.0, 4.0)


def test_noise_and_invalid_times_change_nothing() -> None:
    costs = MoveCosts(checkpoint=10.0, restart=35.0)
    assert not any(costs.saw_checkpoint(seconds) for seconds in (10.5, 9.5, 10.9, 10.9))
    assert not any(costs.saw_restart(wrong) for wrong in (math.nan, math.inf, -1.0) * 3)
    assert (costs.checkpoint, costs.restart) == (10.0, 35.0)


def _needed(agent: Agent) -> float:
    """What the agent says it needs with one GPU that it does not have yet."""
    offer = Offer(1, tuple(range(4)), ())  # type: ignore[arg-type] # small ids
    (answer,) = agent.handle(ev.Asked(0.0, offer, TOPOLOGY))
    return min(row.seconds for row in answer.bid.rows if row.gpus == 1)  # type: ignore[union-attr]


def test_an_agent_bids_with_what_its_jobs_were_measured_to_need() -> None:
    spec = simple_app("a", gpus=1, iterations=100, seconds=1.0)
    agent = Agent(spec, tuner_for(spec))
    before = _needed(agent)
    for _ in range(3):
        assert agent.handle(ev.MoveTimed(0.0, restart=5.0)) == []
    assert before - _needed(agent) == spec.restart_seconds - 5.0
