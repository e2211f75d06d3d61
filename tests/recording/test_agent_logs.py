"""Logs of agents, told to fresh ones."""

from dataclasses import replace

from tests.support.scripted_world import simple_app
from themis.core.agent import events as ev
from themis.core.agent.profiler import Profiler
from themis.core.model import AppId, GpuId, JobId, Lease, LeaseSource, Machine, Offer, Topology
from themis.core.tuners import tuner_for
from themis.recording.agent_log import AgentLog, replay_agents

A, J0, GPU = AppId("a"), JobId("j0"), GpuId(0)
CLUSTER = Topology((Machine("m0", "r0", (2,)),))


def test_agent_without_known_iteration_times_replays_as_such() -> None:
    spec = replace(simple_app(A, gpus=2, iterations=10**6, seconds=1e-5), estimated=True)
    book = AgentLog()
    profiler = Profiler(spec.jobs, estimated=True)
    agent = book.make_agent(spec, tuner_for(spec), profiler=profiler)
    lease = Lease(GPU, A, 1, 0.0, 600.0, LeaseSource.AUCTION)
    agent.handle(ev.LeasesChanged(0.0, CLUSTER, granted=(lease,)))
    for first in (20.0, 40.0, 60.0):  # Further from the guess than anybody who knows is believed.
        window = ev.Window(J0, (GPU,), first, 20.0, 20.0)
        agent.handle(ev.IterationsTimed(first, (window,)))
    agent.handle(ev.Asked(90.0, Offer(1, (GpuId(1),), (GPU,)), CLUSTER))
    replay = replay_agents(book.entries)
    assert replay.first_difference is None
    assert (replay.bids, replay.starts) == (1, 1)
