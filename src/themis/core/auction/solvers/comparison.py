"""Two answers to one auction: whether they agree, and whether they can both be right.

found = compare(problem, recorded, again)
found.text              # "same", or what differs
found.contradiction     # both cannot be right
"""

from dataclasses import dataclass

from themis.core.auction.problem import Problem
from themis.core.auction.solution import TOLERANCE, Solution, check_solution
from themis.core.model import AppId
from themis.errors import InvariantError

MAX_NAMED = 3
"""Apps named in a sentence; of the others it says how many there are."""


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """How an answer differs from an earlier one."""

    value: float
    """What the new one is worth more; below 0: less."""
    winners: tuple[AppId, ...]
    """Apps that win another row, or something instead of nothing, or nothing any more."""
    kept: tuple[AppId, ...]
    """Apps whose kept fraction differs, though all apps win the same rows."""
    contradiction: str = ""
    """Why one of the two must be wrong; not said when they may both be right."""

    @property
    def same(self) -> bool:
        """Same value, same rows, same kept fractions; places may differ."""
        return not (self.contradiction or self.value or self.winners or self.kept)

    @property
    def verdict(self) -> str:
        """In a word or two: what weighs most."""
        if self.contradiction:
            return "contradiction"
        if self.value:
            return f"{'better' if self.value > 0 else 'worse'} by {abs(self.value):.2g}"
        return "other rows" if self.winners else "other kept" if self.kept else "same"

    @property
    def text(self) -> str:
        """In a sentence."""
        parts = [self.contradiction] if self.contradiction else []
        if self.value:
            parts.append(f"{'better' if self.value > 0 else 'worse'} by {abs(self.value):.3g}")
        else:
            parts.append("same value" if self.winners or self.kept or parts else "same")
        if self.winners:
            parts.append(f"other rows for {_named(self.winners)}")
        if self.kept:
            parts.append(f"other kept fractions for {_named(self.kept)}")
        return ", ".join(parts)


def compare(problem: Problem, old: Solution, new: Solution) -> AnswerComparison:
    """Compare two answers to the same problem."""
    value = new.value - old.value
    if abs(value) <= _tolerance(old, new):
        value = 0.0
    winners = tuple(app for app in _apps(old, new) if _row(old, app) != _row(new, app))
    broken = _broken(problem, old, new)
    if broken:
        return AnswerComparison(value, winners, (), broken)
    kept = () if winners else tuple(app for app in _apps(old, new) if _moved(old, new, app))
    return AnswerComparison(value, winners, kept, _excluded(old, new) or _overlap(old, new, kept))


def _broken(problem: Problem, old: Solution, new: Solution) -> str:
    for name, solution in (("the earlier answer", old), ("this answer", new)):
        try:
            check_solution(problem, solution)
        except InvariantError as error:
            return f"{name} cannot be: {error.what}"
    return ""


def _excluded(old: Solution, new: Solution) -> str:
    for name, one, other in (("the earlier", old, new), ("this", new, old)):
        # A bound holds for every allocation, so for the other answer's too.
        if other.value > one.bound + _tolerance(old, new):
            claim = "exact value" if one.exact else "bound"
            return f"{name} {claim} {one.bound:.6f} is exceeded by {other.value:.6f}"
    return ""


def _overlap(old: Solution, new: Solution, differing: tuple[AppId, ...]) -> str:
    """Of the same rows each app owes one fraction, which lies in both intervals."""
    for app in differing:
        one, two = old.kept[app], new.kept[app]
        if max(one.low, two.low) > min(one.high, two.high) + TOLERANCE:
            return f"kept fractions of {app} exclude each other"
    return ""


def _apps(old: Solution, new: Solution) -> list[AppId]:
    return sorted({*old.winners, *new.winners})


def _row(solution: Solution, app: AppId) -> int | None:
    win = solution.winners.get(app)
    return None if win is None else win.row


def _moved(old: Solution, new: Solution, app: AppId) -> bool:
    one, two = old.kept[app], new.kept[app]
    return max(abs(one.low - two.low), abs(one.high - two.high)) > TOLERANCE


def _tolerance(old: Solution, new: Solution) -> float:
    return max(TOLERANCE, 1e-9 * max(abs(old.value), abs(new.value)))


def _named(apps: tuple[AppId, ...]) -> str:
    names = ", ".join(apps[:MAX_NAMED])
    more = len(apps) - MAX_NAMED
    return f"{names} and {more} more" if more > 0 else names
