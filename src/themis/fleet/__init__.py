"""Leases over a network: what nodes and the service say to each other, and both sides of it.

node = NodeCore(machine, Memory())
for command in node.handle(Adopted(at=0.0)):
    ...  # Send(report): its answer comes back as OrdersCame
steward = Steward(arbiter, epoch=1, at=0.0)
outcome = steward.handle(ReportCame(0.1, report))
...  # store outcome.changes, then let out outcome.commands and outcome.answers
"""

from themis.fleet import commands, events, kept, messages
from themis.fleet.commands import Memory, Outcome
from themis.fleet.node import NodeCore
from themis.fleet.steward import Steward

__all__ = [
    "Memory",
    "NodeCore",
    "Outcome",
    "Steward",
    "commands",
    "events",
    "kept",
    "messages",
]
