"""How an app's bids differ from the truth about it.

    Distortion(work=1.2).of(standing)                   # overstates the iterations left by a fifth
    Distortion(spread_slowdown=1.5).of(standing)        # hates to be spread, or says so

Only bids go through it: how the app hands its GPUs to its jobs stays as it is.
"""

from dataclasses import dataclass, replace

from themis.core.agent.bidder import BidContext
from themis.core.agent.job_assignment import JobNeed
from themis.core.model import LEVELS, MACHINE, JobSpec, MeasuredSlowdown, Slowdown
from themis.core.model.ids import check_number


@dataclass(frozen=True, slots=True)
class Distortion:
    """Factors on what an app knows, in its bids alone; 1 is the truth."""

    work: float = 1.0
    """On the iterations left, in this phase and those to come."""
    slowdown: float = 1.0
    """On S at every level. An estimate: it never promises a speed-up."""
    spread_slowdown: float = 1.0
    """On S of gangs that do not fit into one machine."""
    dense_slowdown: float = 1.0
    """On S of gangs within one machine. A lie, so it may well promise a speed-up."""
    levels: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    """On S at each level, on top of that. A lie, too."""
    demand: float = 1.0
    """On the most GPUs that a job can use."""

    def __post_init__(self) -> None:
        for name in ("work", "slowdown", "spread_slowdown", "dense_slowdown", "demand"):
            check_number(f"{name} factor", getattr(self, name), above=True, high=1e6)
        for level, factor in zip(LEVELS, self.levels, strict=True):
            check_number(f"factor at level {level}", factor, above=True, high=1e6)

    @property
    def none(self) -> bool:
        """Whether bids tell the truth."""
        return self == HONEST

    def of(self, standing: BidContext) -> BidContext:
        """Where the app stands, as its bids have it."""
        needs = tuple(map(self._need, standing.needs))
        later = tuple(tuple(map(self._need, phase)) for phase in standing.later)
        return BidContext(needs, later, standing.running)

    def _need(self, need: JobNeed) -> JobNeed:
        return JobNeed(self._job(need.spec), need.work * self.work)

    def _job(self, spec: JobSpec) -> JobSpec:
        most = self._gpus(spec.max_gpus, spec.min_gpus)
        return replace(spec, max_gpus=most, slowdown=self._profile(spec.slowdown, most))

    def _gpus(self, most: int, least: int) -> int:
        return max(least, round(most * self.demand))

    def _profile(self, truth: Slowdown, most: int) -> Slowdown:
        one, machine, rack, cluster = (
            max(1.0, truth.levels[level] * self._factor(level)) for level in LEVELS
        )
        measured = {
            (item.level, item.count): item.value * self._factor(item.level)
            for item in truth.measured
        }
        for level in LEVELS:
            if self._lie(level) < 1.0:
                # A level's prior cannot be below one, what was measured can.
                for count in range(2, most + 1):
                    measured[level, count] = truth.at(level, count) * self._factor(level)
        items = tuple(MeasuredSlowdown(*where, value) for where, value in sorted(measured.items()))
        return Slowdown((one, machine, rack, cluster), items)

    def _factor(self, level: int) -> float:
        return self.slowdown * self._lie(level)

    def _lie(self, level: int) -> float:
        where = self.dense_slowdown if level <= MACHINE else self.spread_slowdown
        return where * self.levels[level]


HONEST = Distortion()
