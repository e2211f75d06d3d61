"""What agents hear of their runs: points and ends, in order, as long as neither side restarts."""

import random
from typing import TYPE_CHECKING

from themis.fleet.commands import TellPoints, TellRun
from themis.fleet.events import PointsHeard, TalkBegan
from themis.model import AppId

if TYPE_CHECKING:
    from themis.testing.fleet.simulation import FleetSim

DELAY = 0.3


class Mailboxes:
    """The way from the service to its agents. What is under way is lost when either begins anew."""

    def __init__(self, sim: "FleetSim", rng: random.Random) -> None:
        self._sim = sim
        self._rng = rng
        self._sessions: dict[AppId, int] = {}

    def put(self, command: TellPoints | TellRun) -> None:
        """The service tells an agent something."""
        session = self._sessions.get(command.app, 0)
        self._sim.later(DELAY, self._hear, command, session, self._sim.service.epoch)

    def _hear(self, command: TellPoints | TellRun, session: int, epoch: int) -> None:
        sim, app = self._sim, command.app
        if session != self._sessions.get(app, 0) or epoch != sim.service.epoch:
            return
        if sim.wild and self._rng.random() < 0.1:
            self._sessions[app] = session + 1
            sim.service.take(lambda at: TalkBegan(at, app))
            return
        sim.checker.agent_heard(command)
        if isinstance(command, TellPoints):
            run, last = command.run, command.first + len(command.points) - 1
            sim.service.take(lambda at: PointsHeard(at, app, run, last))
