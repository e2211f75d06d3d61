"""How hyper-parameter searches shrink: successive halving and Hyperband, in whole iterations.

halving_counts(4)                                        # (4, 2, 1)
halving_from_budget((80, 100, 100, 120), budget=10_000)  # 8, 16 and 36 more iterations
hyperband(81)[0].phases                                  # 81 jobs x 1, 27 x 2, 9 x 6, ...
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from themis.core.model import Phase
from themis.core.model.ids import check_count, check_number
from themis.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Bracket:
    """One bracket of Hyperband: `jobs` fresh jobs, thinned out `s` times."""

    s: int
    jobs: int
    phases: tuple[Phase, ...]


def upper_median(values: Sequence[float]) -> float:
    """The middle value, the larger of the two middle ones when their number is even.

    Raises:
        ConfigError: There are no values.
    """
    if not values:
        raise ConfigError("values of a median", 0, "at least one")
    return sorted(values)[len(values) // 2]


def halving_counts(jobs: int, eta: int = 2) -> tuple[int, ...]:
    """The jobs in each phase: each keeps one in `eta`, rounded down, until one is left."""
    check_count("jobs", jobs, high=100_000)
    check_count("eta", eta, low=2, high=1000)
    counts = [jobs]
    while counts[-1] > 1:
        counts.append(max(1, counts[-1] // eta))
    return tuple(counts)


def halving_from_budget(
    serial_times: Sequence[float], budget: float, eta: int = 2
) -> tuple[Phase, ...]:
    """Split a budget of GPU-seconds evenly over the phases; the last one gets what rounding left.

    Every phase trains at least one iteration, so a budget too small for that is exceeded.
    """
    check_number("budget", budget, above=True)
    for time in serial_times:
        check_number("serial_iteration_time", time, above=True)
    counts = halving_counts(len(serial_times), eta)
    median = upper_median(serial_times)
    # Survivors are not known yet: after the first phase every job counts as the median one.
    costs = [math.fsum(serial_times), *(count * median for count in counts[1:])]
    steps = [max(1, _whole(budget / (len(costs) * cost))) for cost in costs[:-1]]
    spent = math.fsum(step * cost for step, cost in zip(steps, costs, strict=False))
    steps.append(max(1, _whole((budget - spent) / costs[-1])))
    return _phases(counts, steps)


def halving_from_max(jobs: int, max_iterations: int, eta: int = 2) -> tuple[Phase, ...]:
    """Let the last survivor reach `max_iterations`, with about the same work in every phase.

    Raises:
        ConfigError: There is not one iteration for every phase.
    """
    counts = halving_counts(jobs, eta)
    check_count("max_iterations", max_iterations, low=len(counts), high=10**15)
    return _phases(counts, _apportion(max_iterations, [Fraction(1, count) for count in counts]))


def hyperband(max_iterations: int, eta: int = 3) -> tuple[Bracket, ...]:
    """The brackets in the order they run, from many short jobs to few long ones."""
    check_count("max_iterations", max_iterations, high=10**12)
    check_count("eta", eta, low=2, high=1000)
    s_max = 0
    # Not math.log: log(243, 3) comes out just below 5.
    while eta ** (s_max + 1) <= max_iterations:
        s_max += 1
    return tuple(_bracket(max_iterations, eta, s, s_max) for s in range(s_max, -1, -1))


def _bracket(most: int, eta: int, s: int, s_max: int) -> Bracket:
    jobs = -(-(s_max + 1) * eta**s // (s + 1))
    counts = [jobs // eta**rung for rung in range(s + 1)]
    # most * eta^(rung - s), halves up: consecutive rungs then always differ by at least one.
    ends = [(2 * most * eta**rung + eta**s) // (2 * eta**s) for rung in range(s + 1)]
    steps = [end - before for before, end in zip([0, *ends], ends, strict=False)]
    return Bracket(s, jobs, _phases(counts, steps))


def _apportion(total: int, shares: Sequence[Fraction]) -> list[int]:
    """Whole numbers summing to `total`, at least one each, as close to the shares as can be."""
    least: set[int] = set()
    while True:
        spare = total - len(least)
        whole = sum(share for index, share in enumerate(shares) if index not in least)
        quotas = [
            Fraction(1) if index in least else spare * share / whole
            for index, share in enumerate(shares)
        ]
        small = {index for index, quota in enumerate(quotas) if quota < 1}
        if not small:
            return _largest_remainders(total, quotas)
        least |= small


def _largest_remainders(total: int, quotas: Sequence[Fraction]) -> list[int]:
    parts = [math.floor(quota) for quota in quotas]
    order = sorted(range(len(quotas)), key=lambda i: (parts[i] - quotas[i], -i))
    for index in order[: total - sum(parts)]:
        parts[index] += 1
    return parts


def _phases(counts: Sequence[int], steps: Sequence[int]) -> tuple[Phase, ...]:
    return tuple(Phase(count, step) for count, step in zip(counts, steps, strict=True))


def _whole(value: float) -> int:
    # A quotient meant to be whole may come out a hair below.
    nearest = round(value)
    return nearest if math.isclose(value, nearest, rel_tol=1e-12) else math.floor(value)
