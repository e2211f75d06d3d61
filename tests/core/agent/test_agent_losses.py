"""An agent that is told losses: it bids by forecast, and stops what its tuner gives up."""

import math

from themis.core.agent import Agent, commands, events
from themis.core.model import (
    AppId,
    AppSpec,
    GpuId,
    JobId,
    JobSpec,
    Lease,
    LeaseSource,
    Machine,
    Offer,
    OwnerId,
    Phase,
    Topology,
)
from themis.core.tuners import Curves, CurveShape, LossCurve, tuner_for

MOST = 100
TOPOLOGY = Topology((Machine("m0", "r0", (2, 2)),))
J0, J1 = JobId("j0"), JobId("j1")
FALLING = LossCurve(CurveShape.EXPONENTIAL, 0.1, 2.0, 0.05)


def _agent(jobs: int = 2, tuner: str = "curves", phases: tuple[Phase, ...] = ()) -> Agent:
    specs = tuple(JobSpec(JobId(f"j{i}"), 1.0, max_gpus=2) for i in range(jobs))
    spec = AppSpec(AppId("a"), OwnerId("o"), specs, phases or (Phase(jobs, MOST),))
    agent = Agent(spec, tuner_for(spec, tuner))
    leases = tuple(
        Lease(GpuId(gpu), AppId("a"), gpu + 1, 0.0, 600.0, LeaseSource.DIRECT) for gpu in range(4)
    )
    out = agent.handle(events.LeasesChanged(0.0, TOPOLOGY, granted=leases))
    assert [item.job for item in out if isinstance(item, commands.StartJob)] == [J0, J1][:jobs]
    return agent


def _report(agent: Agent, job: JobId, losses: list[float]) -> list[commands.AgentCommand]:
    """Report losses until something happens."""
    for iteration, loss in enumerate(losses, start=1):
        agent.handle(events.Progressed(1.0, ((job, float(iteration)),)))
        out = agent.handle(events.LossSeen(1.0, job, iteration, loss))
        if out:
            return out
    return []


def _seconds(agent: Agent) -> float:
    """The seconds it says it needs on one GPU."""
    offer = Offer(1, tuple(map(GpuId, range(4))), ())
    (answer,) = agent.handle(events.Asked(1.0, offer, TOPOLOGY))
    assert isinstance(answer, commands.SendBid)
    return max(row.seconds for row in answer.bid.table)


def test_failed_job_is_stopped_and_the_arbiter_informed() -> None:
    agent = _agent()
    _report(agent, J0, [FALLING.loss(n) for n in range(1, 51)])
    out = _report(agent, J1, [5.0] * 50)
    assert out[:2] == [commands.StopJob(J1), commands.ReviseTargets(((J1, 30.0),))]
    assert J1 not in agent.placement
    # The other job can use two of the four GPUs: the rest goes back.
    assert isinstance(out[2], commands.ReleaseGpus)
    assert len(out[2].gpus) == 2


def test_a_forecast_makes_the_bid_smaller_and_stops_nothing() -> None:
    agent = _agent(jobs=1)
    before = _seconds(agent)
    quick = LossCurve(CurveShape.EXPONENTIAL, 0.1, 2.0, 0.1)
    assert _report(agent, J0, [quick.loss(n) for n in range(1, 41)]) == []
    assert agent.placement[J0]
    assert agent.target(J0) == MOST
    after = _seconds(agent)
    assert 0 < after < before - 40 - 10


def test_a_job_past_its_forecast_is_not_stopped_by_that() -> None:
    agent = _agent(jobs=1)
    quick = LossCurve(CurveShape.EXPONENTIAL, 0.1, 2.0, 0.1)
    _report(agent, J0, [quick.loss(n) for n in range(1, 41)])
    agent.handle(events.Progressed(2.0, ((J0, 99.0),)))
    lease = Lease(GpuId(2), AppId("a"), 9, 0.0, 600.0, LeaseSource.DIRECT)
    out = agent.handle(events.LeasesChanged(2.0, TOPOLOGY, granted=(lease,)))
    assert not any(isinstance(item, commands.StopJob) for item in out)
    assert agent.placement[J0]
    assert _seconds(agent) > 0.0


def test_the_last_job_to_stop_ends_the_app() -> None:
    agent = _agent(jobs=1)
    out = _report(agent, J0, [0.5] * 60)
    assert out == [
        commands.StopJob(J0),
        commands.ReviseTargets(((J0, 30.0),)),
        commands.FinishApp(J0),
    ]
    assert agent.handle(events.LossSeen(3.0, J0, 61, 0.1)) == []


def test_a_stopped_job_is_not_started_again_by_late_news() -> None:
    agent = _agent()
    _report(agent, J0, [FALLING.loss(n) for n in range(1, 51)])
    _report(agent, J1, [5.0] * 50)
    late: tuple[events.AgentEvent, ...] = (
        events.JobLost(3.0, J1, 10.0),
        events.Progressed(3.0, ((J1, 12.0),)),
        events.LossSeen(3.0, J1, 31, 0.0),
        events.JobReached(3.0, J1, 0.0),
    )
    for event in late:
        out = agent.handle(event)
        assert not any(isinstance(item, commands.StartJob) for item in out)
    assert J1 not in agent.placement


def test_losses_change_nothing_for_tuners_that_wait_for_the_rung() -> None:
    agent = _agent(tuner="halving", phases=(Phase(2, MOST), Phase(1, MOST)))
    assert _report(agent, J0, [math.nan] * 50) == []
    assert _report(agent, J1, [0.5] * 50) == []


def test_agent_waits_for_a_job_at_its_target_when_another_arrives() -> None:
    agent = _agent(tuner="halving", phases=(Phase(2, MOST), Phase(1, MOST)))
    agent.handle(events.Progressed(2.0, ((J0, 100.0), (J1, 100.0))))
    out = agent.handle(events.JobReached(2.0, J0, 0.1))
    assert not any(isinstance(item, commands.StopJob) for item in out)
    out = agent.handle(events.JobReached(2.0, J1, 0.2))
    assert commands.AnnouncePhase(1, ((J0, 200.0),)) in out


def test_curves_forecast_the_app_that_the_agent_bids_for() -> None:
    specs = (JobSpec(J0, 1.0, max_gpus=2),)
    tuner = Curves.of(specs, MOST)
    agent = Agent(AppSpec(AppId("a"), OwnerId("o"), specs, tuner.phases), tuner)
    quick = LossCurve(CurveShape.EXPONENTIAL, 0.1, 2.0, 0.1)
    _report(agent, J0, [quick.loss(n) for n in range(1, 41)])
    (info,) = tuner.jobs_remaining()
    assert _seconds(agent) >= info.iterations_left
    assert info.iterations_left < 60
