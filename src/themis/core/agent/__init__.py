"""The agent of an app: bids in rounds, and places jobs on what it is given.

agent = Agent(spec, tuner_for(spec))
commands = agent.handle(Asked(at=0.0, offer=offer, topology=topology))
"""

from themis.core.agent import commands, events
from themis.core.agent.agent import Agent
from themis.core.agent.bidder import Bidder, Standing
from themis.core.agent.job_assignment import Need, assign
from themis.core.agent.profiler import Profiler

__all__ = ["Agent", "Bidder", "Need", "Profiler", "Standing", "assign", "commands", "events"]
