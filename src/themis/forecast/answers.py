"""Answers: intervals over what several seeds came to, and what becomes of others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from themis.core.model import AppId, OwnerId


@dataclass(frozen=True, slots=True)
class ForecastRange:
    """The least, the median and the most of what was seen."""

    low: float
    mid: float
    high: float

    @staticmethod
    def of(values: Iterable[float]) -> "ForecastRange | None":
        """Of these values; None if there are none."""
        seen = sorted(values)
        return ForecastRange(seen[0], median(seen), seen[-1]) if seen else None


@dataclass(frozen=True, slots=True)
class OtherApp:
    """What becomes of an app that is there already."""

    app: AppId
    owner: OwnerId
    later: ForecastRange
    """Seconds by which it finishes later than if nothing were submitted or changed."""


@dataclass(frozen=True, slots=True)
class CaseAnswer:
    """What is known about one case so far. Times are seconds from now."""

    label: str
    delay: float
    seeds: int
    """How many runs have come to its end."""
    start: ForecastRange | None
    """When its first process begins; None if none has in any run."""
    finish: ForecastRange | None
    rho: ForecastRange | None
    rough: bool = False
    """Whether no run has come to its end yet: then `finish` and `rho` are estimates."""
    outlined: bool = False
    """Whether the estimates are of a run with longer leases; without it they are equal shares."""
    unfinished: int = 0
    """Runs in which it had not finished when they were given up."""
    simulated: float = 0.0
    """How far ahead the longest run has looked."""
    others: tuple[OtherApp, ...] = ()
    """Those that were compared, the most delayed first."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is known so far."""

    cases: tuple[CaseAnswer, ...]
    done: int
    total: int
    """Runs, those without the app included."""
    final: bool = False
    seconds: float = 0.0
    """That it took."""


def delays(
    seen: Sequence[dict[AppId, float]], owners: dict[AppId, OwnerId]
) -> tuple[OtherApp, ...]:
    """Delays of apps over several runs, the most delayed first."""
    found = []
    for app in sorted({app for run in seen for app in run}):
        later = ForecastRange.of(run[app] for run in seen if app in run)
        if later is not None and app in owners:
            found.append(OtherApp(app, owners[app], later))
    return tuple(sorted(found, key=lambda other: (-other.later.mid, other.app)))
