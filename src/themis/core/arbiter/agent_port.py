"""The port between an arbiter and the agents of its apps.

    port.send(Ask(app, offer, deadline))      # the reply comes back as BidReceived

It has two implementations: `sim.direct_agents` calls the agents, and `service.agent_sessions` puts
messages into outboxes that agents empty over a network. A reply comes back as an event of the
arbiter, through the driver that the port was made by. The same test drives both.
"""

from typing import Protocol

from themis.core.arbiter.commands import Ask, Assign


class AgentPort(Protocol):
    """Carries the arbiter's commands to agents."""

    def send(self, command: Ask | Assign) -> None:
        """Show an agent an offer, or tell it which leases it gains, keeps and loses."""
