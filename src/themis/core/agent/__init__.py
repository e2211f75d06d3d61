"""The agent of an app: bids in rounds, and places jobs on what it is given.

agent = Agent(spec, tuner_for(spec))
commands = agent.handle(Asked(at=0.0, offer=offer, topology=topology))
"""

from themis.core.agent import commands, events
from themis.core.agent.agent import Agent, MakeAgent
from themis.core.agent.bidder import AppBidder, BidContext
from themis.core.agent.job_assignment import JobNeed, Placement, assign
from themis.core.agent.profiler import Profiler

__all__ = [
    "Agent",
    "AppBidder",
    "BidContext",
    "JobNeed",
    "MakeAgent",
    "Placement",
    "Profiler",
    "assign",
    "commands",
    "events",
]
