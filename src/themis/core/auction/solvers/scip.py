"""Winner determination by SCIP, to check the other solvers against: the same program, other code.

Needs PySCIPOpt (the `bench` extra). One thread and fixed seeds, as for HiGHS.
"""

import math
from collections.abc import Sequence
from typing import Any

from pyscipopt import Model as Scip
from pyscipopt import quicksum

from themis.core.auction.solvers.milp import MilpProgram, build
from themis.core.auction.solvers.milp_decode import MilpAnswer, decode
from themis.core.auction.solvers.prepared import PreparedProblem
from themis.core.auction.solvers.registry import Determination, Find, Left

NO_LIMIT = -1

_OPTIONS: dict[str, bool | int | float] = {
    "limits/gap": 0.0,
    "limits/absgap": 0.0,
    "lp/threads": 1,
    # Gains are counted to a millionth: a row chosen to 99.9999 % must not pass for a whole one.
    "numerics/feastol": 1e-9,
    "numerics/dualfeastol": 1e-9,
    # The interpreter's own handler ends a command; SCIP's would only end one solve.
    "misc/catchctrlc": False,
}


def start(prepared: PreparedProblem, left: Left | None = None) -> Find:
    """Begin: write the program once, then solve it with some bidders switched off."""
    return ScipFinder(prepared, left).find


class ScipFinder:
    """Winner determinations on one problem."""

    def __init__(self, prepared: PreparedProblem, left: Left | None = None) -> None:
        self.prepared = prepared
        self.left = left
        self.model = build(prepared)
        self.scip = Scip()
        self.scip.hideOutput()
        self.scip.setParams(_OPTIONS)
        self.columns = _load(self.scip, self.model.program)

    def find(self, bidders: tuple[int, ...], budget: int | None) -> Determination:
        """Determine the winners among these bidders. Work is counted in nodes."""
        if not any(self.prepared.options[i] for i in bidders):
            return Determination((), 0.0, True, 0, tuple)
        self.scip.freeTransform()  # nothing learned before may change this answer
        present = set(bidders)
        for bidder, rows in self.model.rows.items():
            for _, column in rows:
                self.scip.chgVarUb(self.columns[column], 1.0 if bidder in present else 0.0)
        self.scip.setParam("limits/nodes", NO_LIMIT if budget is None else budget)
        if self.left is not None:
            self.scip.setParam("limits/time", max(0.0, self.left()))
        self.scip.optimize()
        return decode(self.prepared, self.model, bidders, self._answer())

    def _answer(self) -> MilpAnswer:
        values: Sequence[int] = ()
        if self.scip.getNSols():
            best = self.scip.getBestSol()
            values = [round(self.scip.getSolVal(best, column)) for column in self.columns]
        bound = float(self.scip.getDualbound())
        return MilpAnswer(
            values,
            exact=self.scip.getStatus() == "optimal",
            bound=math.inf if self.scip.isInfinity(bound) else bound,
            work=max(1, int(self.scip.getNTotalNodes())),
        )


def _load(scip: Any, program: MilpProgram) -> list[Any]:
    columns = [
        scip.addVar(vtype="I" if integer else "C", lb=0.0, ub=upper, obj=cost)
        for upper, cost, integer in zip(program.upper, program.cost, program.integer, strict=True)
    ]
    scip.setMaximize()
    for low, high, terms in program.rows:
        total = quicksum(factor * columns[column] for column, factor in terms)
        if low == high:
            scip.addCons(total == low)
            continue
        if low > -math.inf:
            scip.addCons(total >= low)
        if high < math.inf:
            scip.addCons(total <= high)
    return columns
