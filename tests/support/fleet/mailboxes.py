"""News of runs for agents: points and ends, in order, as long as neither side restarts."""

import random
from typing import TYPE_CHECKING

from themis.core.steward.commands import TellPoints, TellRun
from themis.core.steward.events import PointsAcknowledged

if TYPE_CHECKING:
    from tests.support.fleet.simulation import FleetSim

DELAY = 0.3


class Mailboxes:
    """Carries news from the service to its agents; those under way are lost if either restarts."""

    def __init__(self, sim: "FleetSim", rng: random.Random) -> None:
        self._sim = sim
        self._rng = rng

    def put(self, command: TellPoints | TellRun) -> None:
        """The service sends news to an agent."""
        service = self._sim.service
        fence = service.steward.fence_of(command.app)
        self._sim.later(DELAY, self._hear, command, fence, service.epoch)

    def _hear(self, command: TellPoints | TellRun, fence: int, epoch: int) -> None:
        sim, app = self._sim, command.app
        if fence != sim.agents.apps[app].fence or epoch != sim.service.epoch:
            return
        if sim.wild and self._rng.random() < 0.1:
            sim.agents.begin(app)
            return
        sim.checker.agent_heard(command)
        if isinstance(command, TellPoints):
            run, last = command.run, command.first + len(command.points) - 1
            sim.service.take(lambda at: PointsAcknowledged(at, app, fence, ((run, last),)))
