"""The class program by Gurobi, to check and measure other solvers against.

The licence that comes with the package is limited in size and not for production.
"""

import gurobipy
import numpy as np

from themis.auction.decoding import placing
from themis.auction.greedy import serve
from themis.auction.milp import build
from themis.auction.prepared import Prepared
from themis.auction.solver import Find, Found
from themis.errors import ConfigError

_OPTIONS = {"OutputFlag": 0, "Threads": 1, "Seed": 0, "MIPGap": 0.0, "MIPGapAbs": 1e-9}
_TOO_LARGE = 10010


def start(prepared: Prepared) -> Find:
    """Begin: write the program once, then solve it with some bidders switched off."""
    return Finder(prepared).find


class Finder:
    """Winner determinations on one problem."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.model = build(prepared)
        program = self.model.program
        environment = gurobipy.Env(params=_OPTIONS)
        self.gurobi = gurobipy.Model(env=environment)
        self.columns = [
            self.gurobi.addVar(ub=upper, obj=-cost, vtype="I" if integer else "C")
            for upper, cost, integer in zip(
                program.upper, program.cost, program.integer, strict=True
            )
        ]
        for low, high, terms in program.rows:
            total = gurobipy.LinExpr([c for _, c in terms], [self.columns[i] for i, _ in terms])
            if low == high:
                self.gurobi.addLConstr(total, "=", high)
            else:
                if np.isfinite(high):
                    self.gurobi.addLConstr(total, "<", high)
                if np.isfinite(low):
                    self.gurobi.addLConstr(total, ">", low)

    def find(self, bidders: tuple[int, ...], budget: int | None) -> Found:
        """Determine the winners among these bidders. Work is counted in nodes."""
        if not any(self.prepared.options[i] for i in bidders):
            return Found((), 0.0, True, 0, tuple)
        present = set(bidders)
        for bidder, rows in self.model.rows.items():
            for _, column in rows:
                self.columns[column].UB = 1.0 if bidder in present else 0.0
        self.gurobi.reset()  # nothing learned before may change this answer
        self.gurobi.Params.NodeLimit = np.inf if budget is None else budget
        try:
            self.gurobi.optimize()
        except gurobipy.GurobiError as error:
            if error.errno == _TOO_LARGE:
                allowed = "a program that its licence allows: this one is too large"
                raise ConfigError("solver", "gurobi", allowed) from error
            raise
        return self._answer(bidders)

    def _answer(self, bidders: tuple[int, ...]) -> Found:
        exact = self.gurobi.Status == gurobipy.GRB.OPTIMAL
        work = max(1, int(self.gurobi.NodeCount))
        bound = -float(self.gurobi.ObjBound)
        if not self.gurobi.SolCount:
            seed = serve(self.prepared, bidders)
            return Found(seed.chosen, max(bound, seed.value), False, work, seed.place)
        values: list[int] = np.rint(self.gurobi.getAttr("X", self.columns)).astype(int).tolist()
        chosen = tuple(
            option
            for bidder in bidders
            for option, column in self.model.rows[bidder]
            if values[column]
        )
        value = sum(option.gain for option in chosen)
        place = placing(self.prepared, self.model, chosen, values)
        return Found(chosen, value if exact else max(bound, value), exact, work, place)
