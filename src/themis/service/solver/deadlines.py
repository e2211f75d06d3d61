"""When the solver's answer to a round must be ready.

    deadlines.note(ask)
    deadlines.of(solve, settings).ready

What was lost since bids were due, in a crowd or on the way to the disk, is the solver's loss: a
round ends when its agents were told that it would. Only where there is not even a first answer by
then, it is waited for until the arbiter gives the round up.
"""

import math
from dataclasses import dataclass

from themis.core.arbiter import Settings
from themis.core.arbiter.commands import Ask, Solve

_EARLY = 0.2
"""Seconds that an answer needs to get here, on a machine that has other things to do: a crowd of
thousands of agents makes the loop a tenth late, and sometimes more."""


@dataclass(frozen=True, slots=True)
class SolveDeadline:
    """Both by the cluster's time."""

    ready: float
    """When the solver must have its best answer."""
    last: float
    """When its first one must be here, or the round fails."""


class Deadlines:
    """Remembers until when agents may bid."""

    def __init__(self) -> None:
        self._round = 0
        self._closed = math.inf

    def note(self, ask: Ask) -> None:
        """Agents are asked."""
        self._round, self._closed = ask.offer.round, ask.deadline

    def of(self, solve: Solve, settings: Settings) -> SolveDeadline:
        """The deadlines of an auction."""
        budget = settings.solve_budget
        last = solve.deadline - _EARLY
        begins = solve.deadline - settings.heartbeat - budget
        if solve.round == self._round:  # Some policies ask nobody before an auction.
            begins = min(begins, self._closed)
        return SolveDeadline(min(last, begins + budget - min(_EARLY, budget / 4)), last)
