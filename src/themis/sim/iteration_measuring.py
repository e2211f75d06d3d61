"""What processes measure of their own iterations, for agents that learn from it.

    meter = Meter(noise=0.05, seed=1)
    meter.windows(nodes.running[app], now)      # (Window(j00, ...), ...)

A process counts its iterations by the minute. Its agent hears of whole minutes when nodes report.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from themis.core.agent.events import Window
from themis.core.model import JobId
from themis.core.model.ids import check_number
from themis.errors import ConfigError
from themis.sim.modelled_jobs import ModelledProcess

WINDOW = 60.0
MOST_WINDOWS = 4
"""Of one process in one report. The rest is forgotten: agents need some, not all."""


@dataclass(frozen=True, slots=True)
class Learning:
    """Whether agents learn slowdowns from what is measured, and how well they can."""

    learn: bool = False
    iteration_noise: float = 0.0
    """Sigma of the lognormal factor on the seconds of each window, as measured; the jobs
    themselves train on evenly."""

    def __post_init__(self) -> None:
        if not isinstance(self.learn, bool):
            raise ConfigError("learn", self.learn, "true or false")
        check_number("iteration_noise", self.iteration_noise, high=2.0)


NO_LEARNING = Learning()


@dataclass(frozen=True, slots=True)
class Meter:
    """Cuts what processes do into windows, with measurement noise."""

    noise: float
    seed: int

    def windows(self, runs: Mapping[JobId, ModelledProcess], now: float) -> tuple[Window, ...]:
        """What these processes have measured since they were last asked."""
        found: list[Window] = []
        for _, run in sorted(runs.items()):
            complete = int((now - run.since) / WINDOW)
            fresh = range(max(run.timed, complete - MOST_WINDOWS), complete)
            found.extend(self._window(run, number) for number in fresh)
            run.timed = max(run.timed, complete)
        return tuple(found)

    def _window(self, run: ModelledProcess, number: int) -> Window:
        iterations = WINDOW * run.rate
        return Window(
            run.training.spec.id,
            run.gpus,
            first=number * iterations,
            iterations=iterations,
            seconds=WINDOW * self._factor(run, number),
        )

    def _factor(self, run: ModelledProcess, number: int) -> float:
        if self.noise == 0.0:
            return 1.0
        training = run.training
        # The n-th window of the n-th process of a job errs alike under every policy.
        key = f"{self.seed}/noise/{training.app}/{training.spec.id}/{training.starts}/{number}"
        return math.exp(self.noise * random.Random(key).gauss(0.0, 1.0))
