"""What is asked of a forecast: an app that nobody has submitted yet, in one or several cases.

    Question((Case("as written", spec, "halving"), Case("tonight", spec, "halving", delay=28800.0)))

Plain data, so that it can go to the process that answers. What would be run is no part of it.
"""

from dataclasses import dataclass

from themis.core.model import AppSpec, Machine
from themis.core.model.ids import check_count, check_number

MOST_CASES = 8
SEEDS = 8
"""How often what is not known is drawn, unless it is said."""
MOST_SEEDS = 32
LONGEST = 60.0
"""Seconds that an answer may take."""
LONGEST_DELAY = 30 * 86400.0
NOTICED = 60.0
"""Seconds by which an app must finish earlier or later to count as affected."""


@dataclass(frozen=True, slots=True)
class ForecastCase:
    """One way in which it might be submitted."""

    label: str
    spec: AppSpec
    tuner: str = ""
    """A name of `themis.core.tuners.TUNERS`; without one its phases tell."""
    delay: float = 0.0
    """Seconds from now to its submission."""
    policy: str = ""
    """Another one than the cluster has."""
    machines: tuple[Machine, ...] = ()
    """That join at once."""

    def __post_init__(self) -> None:
        check_number("delay", self.delay, high=LONGEST_DELAY)


@dataclass(frozen=True, slots=True)
class ForecastQuestion:
    """All cases, and how much work the answer is worth."""

    cases: tuple[ForecastCase, ...]
    seeds: int = SEEDS
    """What is not known is drawn so often."""
    seconds: float = LONGEST
    """After so long the answer is what there is."""

    def __post_init__(self) -> None:
        check_count("cases", len(self.cases), high=MOST_CASES)
        check_count("seeds", self.seeds, high=MOST_SEEDS)
        check_number("seconds", self.seconds, above=True, high=LONGEST)
