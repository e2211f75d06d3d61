"""The network between simulated nodes and the service: late, lossy, repeating itself, cut."""

import random
from collections import deque
from typing import TYPE_CHECKING

from tests.support.fleet.machines import SimNode
from themis.core.steward.commands import AnswerReport
from themis.node.core import events as ev
from themis.protocol.node_messages import NodeReport

if TYPE_CHECKING:
    from tests.support.fleet.simulation import FleetSim


class Network:
    """Carries reports and orders."""

    def __init__(self, sim: "FleetSim", rng: random.Random) -> None:
        self._sim = sim
        self._rng = rng
        self._recent: dict[str, deque[tuple[int, float, NodeReport]]] = {}

    def _delays(self) -> list[float]:
        """When the copies of a message arrive."""
        weather, rng = self._sim.weather, self._rng
        draw = rng.random()
        if draw >= weather.loss + weather.slow + weather.very_late + weather.doubled:
            return [rng.uniform(0.001, 0.02)]
        if draw < weather.loss:
            return []
        if draw < weather.loss + weather.slow:
            return [rng.uniform(0.02, 5.0)]
        if draw < weather.loss + weather.slow + weather.very_late:
            return [rng.uniform(5.0, 40.0)]
        return [rng.uniform(0.001, 0.02), rng.choice((0.03, 2.0, 12.0)) * rng.random()]

    def report(self, node: SimNode, report: NodeReport) -> None:
        """A node sends a report."""
        if node.cut_out:
            return
        self._recent.setdefault(node.name, deque(maxlen=3)).append((node.life, node.clock, report))
        for delay in self._delays():
            self._sim.later(delay, self._deliver, node, node.life, node.clock, report)

    def welcome(self) -> None:
        """Send a new service reports that were meant for the last one, or none."""
        malice = self._sim.weather.malice
        for name, recent in self._recent.items():
            if self._rng.random() < malice / 2.0:
                self._sim.cut(self._sim.nodes[name], shortest=5.0)
            elif self._rng.random() < malice:
                again = self._rng.choice(recent)
                delay = self._rng.uniform(0.0, 0.05)
                self._sim.later(delay, self._deliver, self._sim.nodes[name], *again)

    def _deliver(self, node: SimNode, life: int, sent: float, report: NodeReport) -> None:
        sim = self._sim
        if node.cut_out:
            return
        zombie = sim.zombie
        if zombie is not None and self._rng.random() < 0.7:
            zombie.receive(node.name, life, report)
            if self._rng.random() < 0.7:
                return  # Only the old service received it.
        if sim.service.up:
            sim.service.receive(node.name, life, report)
        elif zombie is None and not node.cut_in:
            sim.later(0.001, node.take_of_life, life, ev.ServiceAbsent, sent)

    def answer(self, node: SimNode, life: int, answer: AnswerReport) -> None:
        """The service answers."""
        if node.cut_in:
            return
        for delay in self._delays():
            self._sim.later(delay, node.receive, life, answer.orders)
            if delay > 0.5 and self._rng.random() < self._sim.weather.malice:
                self._sim.later(delay, self._sim.cut, node, 5.0)
