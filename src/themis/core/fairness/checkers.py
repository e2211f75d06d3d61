"""Is an allocation fair? Each checker returns what it found wrong, and is true when it is nothing.

verdict = is_envy_free(allocation, values)     # values(app, gpus) is a utility: higher is better
verdict or verdict.envy                        # Envy(app="a", envied="b", own=2.0, other=4.0)
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from themis.core.model import AppId, GpuId
from themis.errors import ConfigError

Allocation = Mapping[AppId, frozenset[GpuId]]
Values = Callable[[AppId, frozenset[GpuId]], float]

FAIR_RHO = 1.05
"""Up to here an app counts as fairly treated: starting costs time."""

MAX_REALLOCATIONS = 2_000_000
"""The largest (apps + 1) ** GPUs that the Pareto checker searches."""

_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class SharingIncentive:
    """Which apps would have been better off with a private share, worst first."""

    share: float
    """The part of the apps that is treated fairly; one when there are none."""
    violations: tuple[tuple[AppId, float], ...]

    def __bool__(self) -> bool:
        return not self.violations


@dataclass(frozen=True, slots=True)
class Envy:
    """`app` would rather have what `envied` has."""

    app: AppId
    envied: AppId
    own: float
    other: float


@dataclass(frozen=True, slots=True)
class EnvyFreeness:
    """The greatest envy found, relative to the app's own value, if any."""

    envy: Envy | None

    def __bool__(self) -> bool:
        return self.envy is None


@dataclass(frozen=True, slots=True)
class ParetoEfficiency:
    """An allocation that is worse for no app and better for at least one, if there is any."""

    better: Mapping[AppId, frozenset[GpuId]] | None

    def __bool__(self) -> bool:
        return self.better is None


def sharing_incentive(rhos: Mapping[AppId, float], limit: float = FAIR_RHO) -> SharingIncentive:
    """Check that sharing costs no app more than the limit; a rho that is no number is too much."""
    bad = [(app, rho) for app, rho in rhos.items() if not rho <= limit]
    bad.sort(key=lambda item: (-item[1] if item[1] == item[1] else -math.inf, item[0]))
    return SharingIncentive(1.0 - len(bad) / len(rhos) if rhos else 1.0, tuple(bad))


def is_envy_free(
    allocation: Allocation, values: Values, weights: Mapping[AppId, float] | None = None
) -> EnvyFreeness:
    """Check that no app values another's GPUs above its own.

    With weights, an app looks only at others of at most its own weight: who is entitled to more
    may have more.
    """
    found: list[Envy] = []
    for app in sorted(allocation):
        own = values(app, allocation[app])
        for envied in sorted(allocation):
            if weights is not None and weights[envied] > weights[app]:
                continue
            other = values(app, allocation[envied])
            if envied != app and other > own + _slack(own):
                found.append(Envy(app, envied, own, other))
    return EnvyFreeness(max(found, key=_strength, default=None))


def is_pareto_efficient(
    allocation: Allocation, values: Values, pool: Iterable[GpuId] = ()
) -> ParetoEfficiency:
    """Check that no other way to deal out the GPUs is better for one app and worse for none.

    Args:
        allocation: Who has what.
        values: The utility of a set of GPUs for an app.
        pool: GPUs that no app has but that could be dealt out too.

    Raises:
        ConfigError: The instance is too large to be searched through.
    """
    apps = sorted(allocation)
    gpus = sorted(set(pool).union(*allocation.values()))
    if (len(apps) + 1) ** len(gpus) > MAX_REALLOCATIONS:
        given = f"{len(apps)} apps and {len(gpus)} GPUs"
        raise ConfigError("Pareto check", given, f"(apps + 1) ** GPUs <= {MAX_REALLOCATIONS}")
    worth = [_worth(app, gpus, values) for app in apps]
    present = [values(app, allocation[app]) for app in apps]
    masks = _dominating(worth, present, (1 << len(gpus)) - 1)
    if masks is None:
        return ParetoEfficiency(None)
    return ParetoEfficiency(
        {app: _members(gpus, mask) for app, mask in zip(apps, masks, strict=True)}
    )


def jain_index(values: Iterable[float]) -> float:
    """Jain's index: 1 when all values are equal, 1/n when one has everything; 1 for none."""
    numbers = list(values)
    squares = math.fsum(number * number for number in numbers)
    if squares <= 0.0:
        return 1.0
    return math.fsum(numbers) ** 2 / (len(numbers) * squares)


def _strength(envy: Envy) -> float:
    return envy.other / envy.own if envy.own > 0.0 else math.inf


def _slack(value: float) -> float:
    return _TOLERANCE * max(1.0, abs(value))


def _worth(app: AppId, gpus: Sequence[GpuId], values: Values) -> list[float]:
    """The value of every subset of the GPUs, by bit mask."""
    return [values(app, _members(gpus, mask)) for mask in range(1 << len(gpus))]


def _members(gpus: Sequence[GpuId], mask: int) -> frozenset[GpuId]:
    return frozenset(gpu for bit, gpu in enumerate(gpus) if mask >> bit & 1)


def _dominating(
    worth: Sequence[Sequence[float]], present: Sequence[float], free: int
) -> list[int] | None:
    """Subsets, one per app, that suit every app as well as now and at least one better."""

    def deal(index: int, free: int, gained: bool) -> list[int] | None:
        if index == len(worth):
            return [] if gained else None
        now, slack = present[index], _slack(present[index])
        for mask in _submasks(free):
            value = worth[index][mask]
            if value >= now - slack:
                rest = deal(index + 1, free & ~mask, gained or value > now + slack)
                if rest is not None:
                    return [mask, *rest]
        return None

    return deal(0, free, False)


def _submasks(mask: int) -> Iterator[int]:
    """Every subset of the bits, the empty one last."""
    part = mask
    while part:
        yield part
        part = (part - 1) & mask
    yield 0
