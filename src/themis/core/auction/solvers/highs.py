"""Exact winner determination by HiGHS, for auctions too large to search.

One thread and a fixed seed, so the same problem gets the same answer.
"""

import math
from collections.abc import Sequence

import highspy
import numpy as np

from themis.core.auction.solvers.milp import MilpProgram, build
from themis.core.auction.solvers.milp_decode import MilpAnswer, decode
from themis.core.auction.solvers.prepared import PreparedProblem
from themis.core.auction.solvers.registry import Determination, Find, Left

NO_LIMIT = 2**31 - 1

OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    # With it, HiGHS 1.15 calls answers best that are not: tests/auction has one.
    "presolve": "off",
    "random_seed": 0,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 1e-10,
    # Its own are a hundred to ten thousand times wider than what this calls proven.
    "mip_feasibility_tolerance": 1e-9,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-10,
}


def start(prepared: PreparedProblem, left: Left | None = None) -> Find:
    """Begin: write the program once, then solve it with some bidders switched off."""
    return HighsFinder(prepared, left).find


class HighsFinder:
    """Winner determinations on one problem."""

    def __init__(self, prepared: PreparedProblem, left: Left | None = None) -> None:
        self.prepared = prepared
        self.left = left
        self.model = build(prepared)
        self.highs = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy leaves it bare
        for name, value in OPTIONS.items():
            self.highs.setOptionValue(name, value)
        _load(self.highs, self.model.program)

    def find(self, bidders: tuple[int, ...], budget: int | None) -> Determination:
        """Determine the winners among these bidders. Work is counted in nodes."""
        if not any(self.prepared.options[i] for i in bidders):
            return Determination((), 0.0, True, 0, tuple)
        self._invite(bidders)
        self.highs.setOptionValue("mip_max_nodes", NO_LIMIT if budget is None else budget)
        if self.left is not None:
            # HiGHS counts from its first run on.
            until = self.highs.getRunTime() + max(0.0, self.left())
            self.highs.setOptionValue("time_limit", until)
        self.highs.run()
        return decode(self.prepared, self.model, bidders, self._answer())

    def _invite(self, bidders: Sequence[int]) -> None:
        present = set(bidders)
        columns, upper = [], []
        for bidder, rows in self.model.rows.items():
            for _, column in rows:
                columns.append(column)
                upper.append(1.0 if bidder in present else 0.0)
        self.highs.clearSolver()  # nothing learned before may change this answer
        index = np.array(columns, dtype=np.int32)
        self.highs.changeColsBounds(
            len(columns), index, np.zeros(len(columns)), np.array(upper, dtype=np.float64)
        )

    def _answer(self) -> MilpAnswer:
        info = self.highs.getInfo()
        values: list[int] = []
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            values = np.rint(np.asarray(self.highs.getSolution().col_value)).astype(int).tolist()
        dual = float(info.mip_dual_bound)
        return MilpAnswer(
            values,
            exact=self.highs.getModelStatus() == highspy.HighsModelStatus.kOptimal,
            bound=dual if math.isfinite(dual) else math.inf,
            work=max(1, int(info.mip_node_count)),
        )


def _load(highs: highspy.Highs, program: MilpProgram) -> None:
    lp = highspy.HighsLp()
    lp.num_col_ = len(program.cost)
    lp.num_row_ = len(program.rows)
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = np.array(program.cost, dtype=np.float64)
    lp.col_lower_ = np.zeros(lp.num_col_)
    lp.col_upper_ = np.array(program.upper, dtype=np.float64)
    lp.row_lower_ = np.array([low for low, _, _ in program.rows], dtype=np.float64)
    lp.row_upper_ = np.array([high for _, high, _ in program.rows], dtype=np.float64)
    starts, index, value = [0], [], []
    for _, _, terms in program.rows:
        for column, coefficient in terms:
            index.append(column)
            value.append(coefficient)
        starts.append(len(index))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array(starts, dtype=np.int32)
    lp.a_matrix_.index_ = np.array(index, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(value, dtype=np.float64)
    whole, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    lp.integrality_ = [whole if integer else real for integer in program.integer]
    highs.passModel(lp)
