"""Auctions of rounds: solved beside the loop, by a deadline that agents were told.

    auctions = Auctions(loop, solver)
    auctions.take(event, outcome)       # `Solve` begins; `Solved` or `SolveFailed` comes back

The time that was lost since bids were due, in a crowd or on the way to the disk, is taken from the
solver: a round ends when its agents were told that it would. Only if there is not even a first
answer by then, the round waits for it until the arbiter gives the round up.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from themis.core.arbiter import Settings
from themis.core.arbiter import events as ev
from themis.core.arbiter.commands import Ask, Solve
from themis.core.auction import Problem, Solution
from themis.core.steward.commands import Outcome
from themis.core.steward.events import StewardEvent
from themis.errors import ThemisError
from themis.ops.log_format import marked
from themis.service.steward_loop import StewardLoop

_EARLY = 0.2
"""Seconds that an answer needs to get here, on a machine that has other things to do: a crowd of
thousands of agents makes the loop a tenth late, and sometimes more."""


class RoundSolver(Protocol):
    """Solves auctions beside the loop, as `SolverClient` does."""

    async def start(self) -> None:
        """Get ready."""

    async def solve(self, problem: Problem, seconds: float, slack: float = 0.0) -> Solution:
        """The best answer after so many seconds; the first one, if it takes `slack` longer."""

    async def close(self) -> None:
        """Release everything."""


@dataclass(frozen=True, slots=True)
class SolveDeadline:
    """Both by the cluster's time."""

    ready: float
    """When the solver must have its best answer."""
    last: float
    """When its first one must be here, or the round fails."""


class BidDeadlines:
    """Remembers until when agents may bid."""

    def __init__(self) -> None:
        self._round = 0
        self._closed = math.inf

    def note(self, ask: Ask) -> None:
        """Note until when agents may bid."""
        self._round, self._closed = ask.offer.round, ask.deadline

    def of(self, solve: Solve, settings: Settings) -> SolveDeadline:
        """The deadlines of an auction."""
        budget = settings.solve_budget
        last = solve.deadline - _EARLY
        begins = solve.deadline - settings.heartbeat - budget
        if solve.round == self._round:  # Some policies ask nobody before an auction.
            begins = min(begins, self._closed)
        return SolveDeadline(min(last, begins + budget - min(_EARLY, budget / 4)), last)


class Auctions:
    """Has auctions solved as soon as they are decided.

    No one is told anything by `Solve`, and its answer is stored behind what it answers: it need not
    wait for a disk that a crowd's bids keep busy.
    """

    def __init__(self, loop: StewardLoop, solver: RoundSolver) -> None:
        self._loop = loop
        self._solver = solver
        self._deadlines = BidDeadlines()

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Begin with the auctions of an outcome."""
        for command in outcome.commands:
            if isinstance(command, Ask):
                self._deadlines.note(command)
            elif isinstance(command, Solve):
                self._loop.spawn(self._solve(command))

    async def _solve(self, command: Solve) -> None:
        loop = self._loop
        due = self._deadlines.of(command, loop.steward.arbiter.settings)
        last = loop.until(due.last)
        seconds = min(last, loop.until(due.ready))
        with marked(round=command.round):
            try:
                solution = await self._solver.solve(command.problem, seconds, last - seconds)
            except ThemisError as error:
                loop.apply(ev.SolveFailed(loop.now(), command.round, str(error)))
            else:
                loop.apply(ev.Solved(loop.now(), command.round, solution))
