"""Ideal time: how long an app would take with its share of the cluster to itself, S = 1.

ideal_time(Convention.PAPER, phases, contention=4.0, capacity=16.0)
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

from themis.core.fairness.loads import PhaseLoad, PhaseSums, total_work
from themis.errors import InvariantError


class Convention(StrEnum):
    """What "its share to itself" means; every result names the one it used."""

    PAPER = "paper"
    """The time alone on the whole cluster, times the contention: generous to small apps."""

    FAIR_SHARE = "fair_share"
    """A private cluster of capacity / contention GPUs, taken literally."""


def ideal_time(
    convention: Convention,
    phases: Sequence[PhaseLoad],
    *,
    contention: float,
    capacity: float,
    budget: float | None = None,
) -> float:
    """T_id of an app; infinite when it has work but no usable GPU.

    Args:
        convention: What the private share is.
        phases: The app's whole work, finished phases included.
        contention: Its mean contention, itself included, so at least one.
        capacity: The mean number of GPUs it may use.
        budget: Its GPU-seconds for `paper`; the sum of the work when not given.
    """
    sums = [PhaseSums.of(phase) for phase in phases]
    return ideal_time_of_sums(
        convention,
        sums,
        total_work(phases),
        contention=contention,
        capacity=capacity,
        budget=budget,
    )


def ideal_time_of_sums(
    convention: Convention,
    phases: Sequence[PhaseSums],
    work: float,
    *,
    contention: float,
    capacity: float,
    budget: float | None = None,
) -> float:
    """The same from sums over the phases, and the work of all of them."""
    if not contention > 0.0:
        raise InvariantError(f"contention counts the app itself, got {contention}")
    if work <= 0.0:
        return 0.0
    if capacity <= 0.0:
        return math.inf
    match convention:
        case Convention.PAPER:
            needed = work if budget is None else budget
            return contention * needed / min(capacity, max(phase.demand for phase in phases))
        case Convention.FAIR_SHARE:
            return _alone_on(phases, capacity / contention)
        case _:
            assert_never(convention)


def _alone_on(phases: Sequence[PhaseSums], share: float) -> float:
    # max_j w_j / min(share, max_gpus_j) needs no look at jobs wider than the share: they take
    # w_j / share, which the whole phase's W / share covers.
    return math.fsum([max(phase.work / share, phase.longest) for phase in phases])
