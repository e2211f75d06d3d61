"""The kinds of checks that several experiments share: functions from measured runs to an answer.

    ratio("max_rho", of=("w1", "gandiva"), over=("w1", EITHER), judge=above(2.2))

EITHER stands for the policy that is judged: once the default policy, once the mechanism as printed.
"""

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter

from themis.evaluation.claims import ClaimAnswer, Detail, Quantity, Verdict, all_of, quantity
from themis.evaluation.comparisons import Factor, at_least, at_most, least, with_seeds
from themis.evaluation.metrics import LITERAL, OURS
from themis.evaluation.run_matrix import Cell, MatrixNumbers
from themis.sim.compare import Estimate

EITHER = "either"

Judge = Callable[[Factor], Verdict]
Check = Callable[[MatrixNumbers], ClaimAnswer]
Details = Callable[[MatrixNumbers], tuple[Detail, ...]]


def above(wanted: float) -> Judge:
    """A factor must be at least this."""
    return partial(at_least, wanted=wanted)


def below(wanted: float) -> Judge:
    """A factor must be at most this."""
    return partial(at_most, wanted=wanted)


def cell_of(cell: Cell, policy: str) -> Cell:
    """A cell with a policy in the place of EITHER."""
    return tuple(policy if part == EITHER else part for part in cell)


def no_details(_: MatrixNumbers) -> tuple[Detail, ...]:
    """A check without supporting numbers."""
    return ()


def ratio(
    measure: str, *, of: Cell, over: Cell, judge: Judge, percent: bool = False,
    details: Details = no_details,
) -> Check:  # fmt: skip
    """How many times larger a number is in one cell than in another, paired by seed."""

    def answer(measured: MatrixNumbers) -> ClaimAnswer:
        ours, literal = (
            measured.factor(measure, of=cell_of(of, policy), over=cell_of(over, policy))
            for policy in (OURS, LITERAL)
        )
        return compared(ours, literal, judge(ours), percent=percent, details=details(measured))

    return answer


def compared(
    ours: Factor, literal: Factor, verdict: Verdict, *, percent: bool = False,
    details: tuple[Detail, ...] = (),
) -> ClaimAnswer:  # fmt: skip
    """An answer from a factor of ours and one of the mechanism as printed."""
    show: Callable[[Factor], Quantity] = attrgetter("percent" if percent else "shown")
    printed = with_seeds(show(literal), literal.seeds, ours.seeds)
    return ClaimAnswer(show(ours), verdict, printed, details)


def worst_ratio(
    measure: str, first: str, others: Iterable[str], details: Details = no_details
) -> Check:
    """The smallest factor of several policies over the judged one; each must be above one."""
    names = tuple(others)

    def answer(measured: MatrixNumbers) -> ClaimAnswer:
        found = {
            policy: factors_over(measured, measure, first, policy, names)
            for policy in (OURS, LITERAL)
        }
        ours, literal = (least(found[policy]) for policy in (OURS, LITERAL))
        return ClaimAnswer(
            with_seeds(ours.shown_as_least, ours.seeds, len(measured.seeds)),
            all_of(at_least(each, 1.0) for each in found[OURS].values()),
            with_seeds(literal.shown_as_least, literal.seeds, ours.seeds),
            details(measured),
        )

    return answer


def factors_over(
    measured: MatrixNumbers, measure: str, first: str, policy: str, names: Iterable[str]
) -> dict[str, Factor]:
    """A number under each of these policies over that under one of them."""
    return {
        name: measured.factor(measure, of=(first, name), over=(first, policy))
        for name in names
        if name != policy
    }


def estimates(measured: MatrixNumbers, measure: str, first: str | float) -> tuple[Estimate, ...]:
    """A mean under the default policy and under the mechanism as printed."""
    return tuple(measured.estimate(measure, (first, policy)) for policy in (OURS, LITERAL))


def mean_text(measured: MatrixNumbers, measure: str, cell: Cell, form: str = ".2f") -> str:
    """The mean of a number as text."""
    return quantity(measured.estimate(measure, cell).mean, form).text
