"""Prices on scarce resources from a linear program, and the bound that they prove.

The program is solved warm: bidders leave and return, resources are added. Its answer is trusted for
nothing but the prices. Whatever they are, what is left of every bidder's best row after paying for
it, plus the worth of all there is, is a bound; it is summed up anew from the rows.
"""

import math
from dataclasses import dataclass

import highspy
import numpy as np
import numpy.typing as npt

from themis.core.auction.solvers.ladder.resource_table import Real, ResourceTable, Whole
from themis.core.auction.solvers.registry import Left

_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "random_seed": 0,
    # Solved warm nearly always, where presolving would only cost.
    "presolve": "off",
}


_DUAL, _PRIMAL = 1, 4
"""Which simplex: with no answer yet, or with other gains, the primal one is several times quicker;
where bidders come and go or a limit is new, the dual one starts from where it was."""

_LEAST_SECONDS = 0.02
"""For a program when time is up: without prices the answer would be worth little."""

_HALVINGS = 14
"""Of the most that all resources could be worth, to guess what they are worth."""

_STEPS, _PACE, _SLOWER = 24, 0.5, 0.8
"""How often prices follow demand where there is no time for a program, how fast, and how much
slower after a step that proved nothing."""


@dataclass(frozen=True, slots=True)
class Priced:
    """Prices, the bound they prove for the bidders present, and what rows fall short of it.

    The value of an allocation is the bound less the shortfalls of its rows less the worth of what
    it leaves over, exactly.
    """

    prices: Real
    bound: float
    short: Real
    """Per row: how far it is below its bidder's best choice."""
    none_short: Real
    """Per bidder: how far winning nothing is below its best choice."""

    def without(self, bidder: int) -> float:
        """A bound if this bidder stays away: at the same prices only its own choice is gone."""
        return self.bound - float(self.none_short[bidder])


class Market:
    """The linear program of one auction."""

    def __init__(self, table: ResourceTable) -> None:
        self.table = table
        self.bidders = len(table.first) - 1
        self.pivots = 0
        self._present = np.ones(self.bidders, dtype=bool)
        self._warm = False
        self._filled = np.flatnonzero(np.diff(table.first) > 0)
        self._owner = np.repeat(np.arange(self.bidders), np.diff(table.first))
        self.finished = False
        """Whether the last prices are those of a program that was solved to its end."""
        self._program: highspy.Highs | None = None

    @property
    def _highs(self) -> highspy.Highs:
        """The program, built when it is first asked for: some auctions have no time for it."""
        if self._program is None:
            self._program = highspy.Highs()  # type: ignore[no-untyped-call]  # it leaves it bare
            for name, value in _OPTIONS.items():
                self._program.setOptionValue(name, value)
            self._load(self._program)
        return self._program

    def _load(self, program: highspy.Highs) -> None:
        table = self.table
        rows, resources = table.usage.shape
        lp = highspy.HighsLp()
        lp.num_col_ = rows
        lp.num_row_ = self.bidders + resources
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.col_cost_ = table.gain
        lp.col_lower_ = np.zeros(rows)
        lp.col_upper_ = np.full(rows, math.inf)
        lp.row_lower_ = np.full(lp.num_row_, -math.inf)
        lp.row_upper_ = np.concatenate((self._present, table.capacity)).astype(np.float64)
        used = table.usage != 0
        counts = 1 + used.sum(axis=1)
        starts = np.concatenate(([0], np.cumsum(counts)))
        index = np.empty(starts[-1], dtype=np.int32)
        value = np.empty(starts[-1], dtype=np.float64)
        own = starts[:-1]
        index[own] = self._owner
        value[own] = 1.0
        rest = np.ones(starts[-1], dtype=bool)
        rest[own] = False
        where = np.nonzero(used)
        index[rest] = self.bidders + where[1]
        value[rest] = table.usage[where]
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = starts.astype(np.int32)
        lp.a_matrix_.index_ = index
        lp.a_matrix_.value_ = value
        program.passModel(lp)

    def extend(self) -> None:
        """Take up the last resource of the table."""
        if self._program is None:
            return
        used = np.flatnonzero(self.table.usage[:, -1])
        self._highs.addRow(
            -math.inf,
            float(self.table.capacity[-1]),
            len(used),
            used.astype(np.int32),
            self.table.usage[used, -1].astype(np.float64),
        )

    def invite(self, present: npt.NDArray[np.bool_]) -> None:
        """Who takes part from now on."""
        if self._program is not None:
            for bidder in np.flatnonzero(present != self._present).tolist():
                self._program.changeRowBounds(bidder, -math.inf, float(present[bidder]))
        self._present = present

    def revalue(self) -> None:
        """Take up new gains of the table."""
        count = len(self.table.gain)
        self._warm = False
        if self._program is not None:
            self._program.changeColsCost(count, np.arange(count, dtype=np.int32), self.table.gain)

    def settle(self, left: Left | None = None) -> Priced:
        """Solve, and price by the answer; what prices there are when time is up prove a bound."""
        if left is not None:
            # HiGHS counts from its first run on.
            until = self._highs.getRunTime() + max(_LEAST_SECONDS, left())
            self._highs.setOptionValue("time_limit", until)
        self._highs.setOptionValue("simplex_strategy", _DUAL if self._warm else _PRIMAL)
        self._highs.run()
        self._warm = True
        self.pivots = max(1, int(self._highs.getInfo().simplex_iteration_count))
        solution = self._highs.getSolution()
        dual = np.asarray(solution.row_dual, dtype=np.float64)[self.bidders :]
        priced = self.priced(np.where(np.isfinite(dual), np.maximum(dual, 0.0), 0.0))
        self.finished = self._highs.getModelStatus() != highspy.HighsModelStatus.kTimeLimit
        return priced if self.finished else min(priced, self.step(), key=lambda one: one.bound)

    def step(self) -> Priced:
        """Prices without a program: what too much is asked of gets dearer, step by step.

        At first all that there is of each resource is worth the same.
        """
        self.finished = False
        capacity = np.maximum(self.table.capacity, 1)
        worth = float(self.table.gain.max(initial=0.0)) * self.bidders
        guesses = (self.priced(worth * 2.0**-halvings / capacity) for halvings in range(_HALVINGS))
        best = last = min(guesses, key=lambda one: one.bound)
        pace = _PACE
        for _ in range(_STEPS):
            asked = self.table.usage[self.favourites(last)].sum(axis=0) / capacity
            last = self.priced(last.prices * np.exp(pace * np.minimum(asked - 1.0, 1.0)))
            if last.bound < best.bound:
                best = last
            else:
                pace *= _SLOWER
        return best

    def favourites(self, priced: Priced) -> Whole:
        """The best row of every bidder present who would rather have it than nothing."""
        best = (priced.short <= 0.0) & (self._present & (priced.none_short > 0.0))[self._owner]
        rows = np.flatnonzero(best)
        fresh = np.diff(self._owner[rows], prepend=-1) > 0
        return rows[fresh]

    def taken(self) -> Real:
        """How much of each row the program took."""
        return np.asarray(self._highs.getSolution().col_value, dtype=np.float64)

    def whole_rows(self) -> Whole | None:
        """The rows that the program took, if it took none in part."""
        if not self.finished:
            return None  # what it had when time was up need not keep to anything
        taken = self.taken()
        rows = np.flatnonzero(taken > 1e-7)
        return rows if (taken[rows] > 1.0 - 1e-7).all() else None

    def most_of_rows(self) -> Whole:
        """The rows that the program took by more than half: at most one for each bidder."""
        rows = np.flatnonzero(self.taken() > 0.5 + 1e-7)
        # When time was up before the program was solved, there may be several.
        once: Whole = rows[np.unique(self._owner[rows], return_index=True)[1]]
        return once

    def priced(self, prices: Real) -> Priced:
        """What these prices prove for those present."""
        table = self.table
        left = table.gain - table.usage @ prices
        best = np.zeros(self.bidders)
        if len(self._filled):
            most = np.maximum.reduceat(left, table.first[self._filled])
            best[self._filled] = np.maximum(most, 0.0)
        worth = math.fsum((prices * table.capacity).tolist())
        bound = worth + math.fsum(best[self._present].tolist())
        return Priced(prices, bound, best[self._owner] - left, best)
