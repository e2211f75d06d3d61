"""E10: the knob f, which trades fairness against efficiency."""

from collections.abc import Iterable

from themis.evaluation.comparisons import at_least, beside, best
from themis.evaluation.experiment import (
    FEWER_REPORT_SEEDS,
    LITERAL,
    NOTHING,
    OURS,
    Claim,
    Column,
    Experiment,
    Figure,
    Findings,
    Results,
    Told,
    Verdict,
    told,
)
from themis.evaluation.run_matrix import (
    Matrix,
    MatrixNumbers,
    gpu_over_work,
    over,
    summary,
    swept,
    unprinted,
)
from themis.evaluation.sweeps import Alike, alike, as_printed, plot_cells
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing

VALUES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
QUICK_VALUES = (0.0, 0.4, 0.8, 1.0)
LITERAL_VALUES = (0.8, 1.0)
POLICIES = (OURS, LITERAL)
CHOSEN = 0.8
NEAR = 0.1 + 1e-9
_PRINTED = (
    f"The mechanism as printed is run at {' and '.join(f'{f:g}' for f in LITERAL_VALUES)} only."
)

MEASURES = {
    "max_rho": summary("max_rho", "paper"),
    "max_rho_ref": summary("max_rho_ref", "fair_share"),
    "gpu_hours": summary("gpu_hours"),
    "over_work": gpu_over_work,
    "completion_h": summary("mean_completion_h"),
}
COLUMNS = {
    "max_rho": Column("max rho (paper)", ".2f"),
    "max_rho_ref": Column("max rho_ref", ".2f"),
    "gpu_hours": Column("GPU hours", ".0f"),
    "over_work": Column("GPU time / work", ".3f"),
    "completion_h": Column("completion h", ".1f"),
}


def matrix(results: Results) -> Matrix:
    """Cells are (f, policy)."""
    scope = results.scope
    values = QUICK_VALUES if scope.quick else VALUES
    base = scope.base("w2")
    cells = over(swept(base, "f", values), (OURS,)) | as_printed(base, "f", LITERAL_VALUES)
    return Matrix(cells, scope.seeds_of(FEWER_REPORT_SEEDS, quick=1))


def plan(results: Results) -> Iterable[RunConfig]:
    """The default policy at each f, the mechanism as printed at a few."""
    return matrix(results).configs()


def _values(measured: MatrixNumbers) -> list[float]:
    return [float(value) for value, policy in measured.by_cell if policy == OURS]


def _best(measured: MatrixNumbers) -> Claim:
    cells = [(f, OURS) for f in _values(measured)]
    lowest = None
    if all(map(measured.count, cells)):  # the lowest of what there is would say nothing
        same = measured.paired(*cells)
        lowest = best({f: same.estimate("max_rho", (f, OURS)).mean for f, _ in cells}, min)
    others = {
        f: measured.factor("max_rho", of=(f, OURS), over=(CHOSEN, OURS))
        for f in _values(measured)
        if f != CHOSEN
    }
    verdict = Verdict.OPEN
    if any(found.below for found in others.values()):
        verdict = Verdict.FAILS
    elif others and all(item.above for f, item in others.items() if abs(f - CHOSEN) > NEAR):
        verdict = Verdict.HOLDS
    next_best = best({f: found.mean for f, found in others.items()}, min)
    runner_up = "" if next_best is None else (
        f"At {next_best:g}, the best of the others, max rho is {others[next_best].told.text} "
        f"that at {CHOSEN:g}. "
    )  # fmt: skip
    return Claim(
        "The f with the lowest max rho",
        told(CHOSEN, "g"),
        NOTHING,
        NOTHING if lowest is None else told(lowest, "g"),
        verdict,
        f"{runner_up}{_PRINTED}",
    )


def _worse_at_one(measured: MatrixNumbers) -> Claim:
    ours, literal = (
        measured.factor("max_rho", of=(1.0, policy), over=(CHOSEN, policy))
        for policy in (OURS, LITERAL)
    )
    return Claim(
        "Max rho at f = 1 over that at 0.8",
        told(1.5, "g", "x"),
        beside(literal.told, literal.seeds, ours.seeds),
        ours.told,
        at_least(ours, 1.5),
        "At f = 1 a single app is invited (ours: two), and nobody bids against it.",
    )


def _efficiency(measured: MatrixNumbers) -> Claim:
    ours = measured.factor("gpu_hours", of=(1.0, OURS), over=(0.0, OURS))
    return Claim(
        "GPU time from f = 0 to f = 1",
        Told("rises"),
        NOTHING,
        ours.percent,
        at_least(ours, 1.0),
        f"With more bidders there is more choice of placements. {_PRINTED}",
    )


def _figure(same: Alike) -> Drawing:
    shown = ("max_rho", "max_rho_ref", "over_work")
    values = _values(same.measured)
    return plot_cells(same, "f", values, POLICIES, shown, COLUMNS, {"paper": CHOSEN})


def study(results: Results) -> Findings:
    """Compare values of f."""
    measured = matrix(results).measure(results, MEASURES)
    same = alike(measured, _values(measured), POLICIES)
    return Findings(
        claims=(_best(measured), _worse_at_one(measured), _efficiency(measured)),
        tables=measured.tables("f", "W2, means over seeds", ("f", "policy"), COLUMNS),
        figures=(
            Figure("f", f"W2: fairness and GPU time against f, {same.text}.",
                   lambda: _figure(same)),
        ),
        notes=unprinted(measured),
    )  # fmt: skip


EXPERIMENT = Experiment(
    "E10",
    "The fairness knob f",
    "Max rho is best near f = 0.8 and about 1.5x worse at 1; efficiency falls as f rises.",
    study,
    plan,
)
