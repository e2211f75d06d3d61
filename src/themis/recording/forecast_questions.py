"""Questions to a forecast: an app that is not submitted yet, in one or several cases.

    Question((Case("as written", spec, "halving"), Case("tonight", spec, "halving", delay=28800.0)))

Plain data, sent to the forecast worker. The commands that the app would run are no part of it.
"""

from dataclasses import dataclass

from themis.core.model import AppSpec, Machine
from themis.core.model.ids import check_count, check_number

MOST_CASES = 8
SEEDS = 8
"""The default number of samples of all that is not known."""
MOST_SEEDS = 32
LONGEST = 60.0
"""The most seconds that an answer may take."""
LONGEST_DELAY = 30 * 86400.0
NOTICED = 60.0
"""An app is affected if it finishes earlier or later by at least so many seconds."""


@dataclass(frozen=True, slots=True)
class ForecastCase:
    """One way to submit the app."""

    label: str
    spec: AppSpec
    tuner: str = ""
    """A name of `themis.core.tuners.TUNERS`; empty for the tuner that its phases imply."""
    delay: float = 0.0
    """Seconds from now to its submission."""
    policy: str = ""
    """Replaces the policy of the cluster."""
    machines: tuple[Machine, ...] = ()
    """Machines that join at once."""

    def __post_init__(self) -> None:
        check_number("delay", self.delay, high=LONGEST_DELAY)


@dataclass(frozen=True, slots=True)
class ForecastQuestion:
    """All cases, and limits on the work for an answer."""

    cases: tuple[ForecastCase, ...]
    seeds: int = SEEDS
    """The number of samples."""
    seconds: float = LONGEST
    """The answer then has the samples that are done."""

    def __post_init__(self) -> None:
        check_count("cases", len(self.cases), high=MOST_CASES)
        check_count("seeds", self.seeds, high=MOST_SEEDS)
        check_number("seconds", self.seconds, above=True, high=LONGEST)
