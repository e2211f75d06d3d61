"""Winner determination by Gurobi, to check and measure the other solvers against.

Needs gurobipy (the `bench` extra). The licence in that package takes small programs only and is not
for production; a larger auction is refused in words. One thread and a fixed seed, as for HiGHS.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import gurobipy

from themis.core.auction.solvers.milp import MilpProgram, build
from themis.core.auction.solvers.milp_decode import MilpAnswer, decode
from themis.core.auction.solvers.prepared import PreparedProblem
from themis.core.auction.solvers.registry import Determination, Find, Left
from themis.errors import ConfigError, UnavailableError

_OPTIONS: dict[str, int | float] = {
    "Threads": 1,
    "Seed": 0,
    "MIPGap": 0.0,
    "MIPGapAbs": 1e-9,
    # Gains are counted to a millionth: a row chosen to 99.999 % must not pass for a whole one.
    "IntFeasTol": 1e-9,
    "FeasibilityTol": 1e-9,
    "OptimalityTol": 1e-9,
}


def start(prepared: PreparedProblem, left: Left | None = None) -> Find:
    """Begin: write the program once, then solve it with some bidders switched off.

    Raises:
        UnavailableError: There is no licence that can be used now.
        ConfigError: The licence does not take a program of this size; raised when it is solved.
    """
    return GurobiFinder(prepared, left).find


class GurobiFinder:
    """Winner determinations on one problem."""

    def __init__(self, prepared: PreparedProblem, left: Left | None = None) -> None:
        self.prepared = prepared
        self.left = left
        self.model = build(prepared)
        with _told(self.model.program):
            environment = gurobipy.Env(empty=True)
            environment.setParam("OutputFlag", 0)  # first, or the licence is printed
            environment.start()
            self.gurobi = gurobipy.Model(env=environment)
            for name, value in _OPTIONS.items():
                self.gurobi.setParam(name, value)
            self.columns = _load(self.gurobi, self.model.program)

    def find(self, bidders: tuple[int, ...], budget: int | None) -> Determination:
        """Determine the winners among these bidders. Work is counted in nodes."""
        if not any(self.prepared.options[i] for i in bidders):
            return Determination((), 0.0, True, 0, tuple)
        with _told(self.model.program):
            self.gurobi.reset()  # nothing learned before may change this answer
            present = set(bidders)
            for bidder, rows in self.model.rows.items():
                for _, column in rows:
                    self.columns[column].UB = 1.0 if bidder in present else 0.0
            self.gurobi.setParam("NodeLimit", math.inf if budget is None else float(budget))
            if self.left is not None:
                self.gurobi.setParam("TimeLimit", max(0.0, self.left()))
            self.gurobi.optimize()
            answer = self._answer()
        return decode(self.prepared, self.model, bidders, answer)

    def _answer(self) -> MilpAnswer:
        values: Sequence[int] = ()
        if self.gurobi.SolCount:
            values = [round(value) for value in self.gurobi.getAttr("X", self.columns)]
        bound = float(self.gurobi.ObjBound)
        return MilpAnswer(
            values,
            exact=self.gurobi.Status == gurobipy.GRB.OPTIMAL,
            bound=bound if abs(bound) < gurobipy.GRB.INFINITY else math.inf,
            work=max(1, int(self.gurobi.NodeCount)),
        )


def _load(gurobi: gurobipy.Model, program: MilpProgram) -> list[gurobipy.Var]:
    gurobi.ModelSense = gurobipy.GRB.MAXIMIZE
    columns = [
        gurobi.addVar(ub=upper, obj=cost, vtype="I" if integer else "C")
        for upper, cost, integer in zip(program.upper, program.cost, program.integer, strict=True)
    ]
    for low, high, terms in program.rows:
        total = gurobipy.LinExpr([factor for _, factor in terms], [columns[c] for c, _ in terms])
        if low == high:
            gurobi.addConstr(total == low)
            continue
        if low > -math.inf:
            gurobi.addConstr(total >= low)
        if high < math.inf:
            gurobi.addConstr(total <= high)
    gurobi.update()
    return columns


@contextmanager
def _told(program: MilpProgram) -> Iterator[None]:
    """Say in our words what Gurobi's licence has against a program."""
    try:
        yield
    except gurobipy.GurobiError as error:
        if error.errno == gurobipy.GRB.Error.SIZE_LIMIT_EXCEEDED:
            size = f"{len(program.cost)} columns and {len(program.rows)} rows"
            raise ConfigError(
                "solver",
                "gurobi",
                f"an auction within its licence, which is limited in size (this one has {size}); "
                "use another solver, or a licence without limit",
            ) from None
        raise UnavailableError(f"gurobi: {error}") from None
