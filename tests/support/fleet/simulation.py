"""A whole cluster in virtual time: nodes, service, agents and a network, from one seed.

    result = FleetSim(seed=1).run()
    result.events, result.starts

All events are on one heap. For a while faults happen; then they stop, and every app that wants GPUs
must be served again within a bounded time.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from tests.support.fleet.agents import Agents
from tests.support.fleet.fault_rates import Weather, weather_of
from tests.support.fleet.invariants import Checker
from tests.support.fleet.machines import KILL_PATIENCE, SimNode
from tests.support.fleet.mailboxes import Mailboxes
from tests.support.fleet.mutants import Broken
from tests.support.fleet.network import Network
from tests.support.fleet.service import Saved, SimService, Zombie
from themis.core.arbiter import Settings
from themis.core.model import AppId, Machine
from themis.core.policies import policy
from themis.node.core import events as ev
from themis.node.core.commands import NodeMemory
from themis.node.core.node_core import NodeCore

SETTINGS = Settings(
    lease=20.0,
    bid_deadline=0.5,
    solve_budget=0.5,
    grace=2.0,
    heartbeat=1.0,
    guard=1.0,
    pooling=0.5,
    idle_after=4.0,
)
NODE_TTL = 5.0
RULES = ("equal-share",) * 6 + ("fifo",) * 2 + ("themis", "themis/time")
PATIENCE = 400.0
"""Seconds after the last fault within which every app must be served."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a simulation went through."""

    seed: int
    events: int
    starts: int
    handovers: int
    epochs: int
    rounds: int
    served_after: float
    """Seconds from the last fault until all lasting apps ran at once."""


class FleetSim:
    """One seed's cluster."""

    def __init__(
        self,
        seed: int,
        *,
        weather: Weather | None = None,
        rule: str = "",
        storm: float = 45.0,
        broken: Broken | None = None,
    ) -> None:
        self.seed = seed
        self.now = 0.0
        self.broken = broken or Broken()
        self.wild = True
        """Whether agents do things that they need not do."""
        self._agenda: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self._storm = storm
        rng = self._rng = random.Random(f"fleet/{seed}")
        weather = weather or self.broken.weather
        self.weather = weather if weather is not None else weather_of(rng)
        self.only_service = self.weather.links_hold
        self.checker = Checker(self)
        self.network = Network(self, self.stream("network"))
        self.agents = Agents(self, self.stream("agents"))
        self.mailboxes = Mailboxes(self, self.stream("mailboxes"))
        self.nodes = {node.name: node for node in self._machines(rng)}
        rule = rule or rng.choice(RULES)
        name, _, payment = rule.partition("/")
        chosen = policy(name, payment=payment) if payment else policy(name)
        settings = SETTINGS if self.broken.guard else replace(SETTINGS, guard=0.0)
        self.zombie: Zombie | None = None
        saved = Saved(chosen, settings, seed)
        self.service = SimService(
            self, saved, self.stream("service"), self.broken.make_steward, NODE_TTL
        )

    def stream(self, name: str) -> random.Random:
        """A random stream of its own for one part of the cluster."""
        return random.Random(f"fleet/{self.seed}/{name}")

    def _machines(self, rng: random.Random) -> Iterable[SimNode]:
        for index in range(rng.randint(2, 4)):
            machine = Machine(f"m{index}", f"r{index % 2}", (rng.randint(1, 4),))
            drift = self.weather.drift
            yield SimNode(
                self,
                machine,
                self.stream(machine.name),
                1.0 + rng.choice((-drift, -drift, 0.0, drift)),
                self._core,
                offset=rng.uniform(0.0, 1000.0),
            )

    def _core(self, machine: Machine, memory: NodeMemory) -> NodeCore:
        # With storage that all of them see: jobs move here as they like.
        shared = "/shared"
        return self.broken.node(
            machine,
            memory,
            kill_patience=KILL_PATIENCE,
            shared_dir=shared,
            schedule=self.broken.schedule(),
        )

    # Time

    def at(self, when: float, act: Callable[..., Any], *args: Any) -> None:
        """Schedule a call at a time."""
        heapq.heappush(self._agenda, (max(when, self.now), next(self._numbers), act, args))

    def later(self, delay: float, act: Callable[..., Any], *args: Any) -> None:
        """Schedule a call after a delay."""
        heapq.heappush(self._agenda, (self.now + delay, next(self._numbers), act, args))

    def run(self) -> Result:
        """Run to the end.

        Raises:
            InvariantError: An invariant is violated.
        """
        self._begin()
        agenda, events = self._agenda, 0
        while self.now < self._storm:
            self.now, _, act, args = heapq.heappop(agenda)
            act(*args)
            events += 1
        self._clear()
        cleared, lasting = self.now, set(self.agents.lasting)
        waiting = set(lasting)
        while waiting:
            self.now, _, act, args = heapq.heappop(agenda)
            act(*args)
            events += 1
            waiting = lasting - {process.order.app for process in self.checker.live}
            if waiting and self.now > cleared + PATIENCE:
                self.checker.fail(f"not served: {', '.join(sorted(waiting))}")
        return Result(
            self.seed,
            events,
            self.checker.starts,
            self.checker.handovers,
            self.service.epoch,
            self.service.durable.rounds,
            self.now - cleared,
        )

    def _begin(self) -> None:
        rng = self._rng
        self.later(rng.uniform(0.0, 1.0), self.service.start)
        for node in self.nodes.values():
            self.later(rng.uniform(0.0, 2.0), node.boot)
        gpus = sum(node.machine.gpus for node in self.nodes.values())
        apps = rng.randint(1, min(3, gpus))
        for _ in range(apps):
            self.later(rng.uniform(0.5, 4.0), self._submit_lasting, max(1, gpus // apps))
        for _ in range(rng.randint(1, 5)):
            self.later(rng.uniform(2.0, 0.8 * self._storm), self._visit, rng.randint(1, gpus))
        self._plan_faults()

    def _submit_lasting(self, gpus: int) -> None:
        self.agents.submit(gpus, lasting=True)

    def _visit(self, gpus: int) -> None:
        """An app that comes and goes."""
        self.agents.submit(gpus)
        name = list(self.agents.apps)[-1]
        self.later(self._rng.uniform(5.0, 30.0), self.agents.end, name)

    # Faults

    def _plan_faults(self) -> None:
        weather = self.weather
        for node in self.nodes.values():
            self._plan(weather.partitions, self.cut, node)
            self._plan(weather.pauses, self._pause, node)
            self._plan(weather.node_crashes, self._crash_node, node)
            self._plan(weather.reboots, self._reboot, node)
            self._plan(weather.gpu_failures, self._fail_gpu, node)
        self._plan(weather.service_crashes, self._crash_service)
        self._plan(weather.service_stalls, self._stall_service)

    def _plan(self, rate: float, act: Callable[..., None], *args: Any) -> None:
        when = 3.0
        while rate > 0.0:
            when += self._rng.expovariate(rate)
            if when >= self._storm:
                return
            self.at(when, act, *args)

    def cut(self, node: SimNode, shortest: float = 0.0) -> None:
        """Drop all messages to a node, from it, or both, for a while."""
        if self.now >= self._storm:
            return
        which = self._rng.choice(("both", "both", "in", "out"))
        node.cut_in, node.cut_out = which != "out", which != "in"
        length = shortest + self._rng.choice((2.0, 6.0, 25.0)) * self._rng.random()
        self.later(length, self._mend, node)

    def _mend(self, node: SimNode) -> None:
        node.cut_in = node.cut_out = False

    def _pause(self, node: SimNode) -> None:
        node.pause()
        self.later(self._rng.choice((1.0, 8.0, 30.0)) * self._rng.random(), node.resume)

    def _crash_node(self, node: SimNode) -> None:
        node.crash()
        self.later(self._rng.choice((1.0, 4.0, 12.0)) * self._rng.random(), node.boot)

    def _reboot(self, node: SimNode) -> None:
        wiped = self._rng.random() < self.weather.wiped_disks
        node.reboot(wiped=wiped)
        if wiped:
            self.checker.wiped(node)
        self.later(self._rng.uniform(0.5, 15.0), node.boot)

    def _fail_gpu(self, node: SimNode) -> None:
        gpu = self._rng.randrange(node.machine.gpus)
        node.failed.add(gpu)
        node.take(ev.GpuFailed, gpu, "it fell off the bus")
        self.later(self._rng.uniform(1.0, 15.0), self._repair_gpu, node, gpu)

    def _repair_gpu(self, node: SimNode, gpu: int) -> None:
        node.failed.discard(gpu)
        node.take(ev.GpuWell, gpu)

    def _crash_service(self) -> None:
        if not self.service.up:
            return
        lives_on = self._rng.random() < self.weather.zombies
        old = self.service.crash(torn=lives_on)
        down = self._rng.choice((0.05, 0.3, 1.0)) * self._rng.random() * self.weather.outage
        if lives_on and old is not None:
            down = min(down, 0.5)
            self.zombie = Zombie(self, old)
            self.later(down + 1.0, self._lay_to_rest, self.zombie)
        self.later(down, self.service.start)

    def _lay_to_rest(self, zombie: Zombie) -> None:
        if self.zombie is zombie:
            self.zombie = None

    def _stall_service(self) -> None:
        self.service.stall()
        self.later(self._rng.choice((2.0, 20.0)) * self._rng.random(), self.service.resume)

    def _clear(self) -> None:
        """Stop all faults."""
        self.weather = self.weather.cleared()
        self.wild = False
        self.zombie = None
        if self.service.stalled:
            self.service.resume()
        self.service.start()
        for node in self.nodes.values():
            self._mend(node)
            node.resume()
            node.boot()
            for gpu in sorted(node.failed):
                self._repair_gpu(node, gpu)
        lasting = set(self.agents.lasting)
        for name in list(self.agents.apps):
            if name not in lasting:
                self.agents.end(AppId(name))


def run_seeds(seeds: Iterable[int], **how: Any) -> list[Result]:
    """Run many seeds; the first violation raises."""
    return [FleetSim(seed, **how).run() for seed in seeds]
