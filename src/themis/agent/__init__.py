"""The agent of an app: bids in rounds, and places jobs on what it is given.

agent = Agent(spec, tuner_for(spec))
commands = agent.handle(Asked(at=0.0, offer=offer, topology=topology))
"""

from themis.agent import commands, events
from themis.agent.assignment import Need, assign
from themis.agent.bidder import Bidder, Standing
from themis.agent.core import Agent
from themis.agent.profiler import Profiler

__all__ = ["Agent", "Bidder", "Need", "Profiler", "Standing", "assign", "commands", "events"]
