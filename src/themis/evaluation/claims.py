"""A claim as data: what the paper says, and how finished runs answer it.

    Claim("f-1", "Max rho at f = 1 over that at 0.8", quantity(1.5, "g", "x"),
          ratio("max_rho", of=(1.0, EITHER), over=(0.8, EITHER), judge=at_least(1.5)))
    check(CLAIMS, measured)        # each claim with our numbers and a verdict

Why a number is what it is stands in Markdown beside the experiment (`explanations`), under the
heading that the claim names.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

MOST_DIGITS = 4
OWN_SUFFIX = "(ours)"

Data = TypeVar("Data")


class Verdict(StrEnum):
    """The result of checking a claim, judged by the column `themis`."""

    HOLDS = "holds"
    PARTLY = "partly"
    FAILS = "does not hold"
    UNDECIDED = "undecided"
    """The interval is too wide to tell."""
    BY_CONSTRUCTION = "by construction"
    """We put it in: finding it again checks us, not the paper."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """An entry of a claim: its text and, for a number, the value with its interval."""

    text: str
    value: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        # JSON has no NaN; the text already says that the run lacks the number.
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            if number is not None and not math.isfinite(number):
                object.__setattr__(self, name, None)


NO_VALUE = Quantity("-")
OWN_BAR = Quantity(f"- {OWN_SUFFIX}")
"""The paper's column of a bar that we set ourselves."""


def quantity(
    value: float,
    form: str = ".2f",
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    limit: float | None = None,
) -> Quantity:
    """A number with its unit and 95 % interval; `form` is a format such as .2f.

    An end that is close to `limit` gets enough digits to show on which side of it it lies.
    """
    if not math.isfinite(value):
        return NO_VALUE
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return Quantity(f"{value:{form}}{unit}", value)
    if limit is not None:
        sign, digits = form[:-2], int(form[-2])
        while digits < MOST_DIGITS and any(
            end != limit and round(end, digits) == limit for end in (low, high)
        ):
            digits += 1
        form = f"{sign}{digits}f"
    text = f"{value:{form}}{unit}"
    return Quantity(f"{text} ({low:{form}} to {high:{form}})", value, low, high)


Detail = tuple[str, str]
"""A supporting number: its label and its text."""


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """What finished runs say about a claim."""

    ours: Quantity
    verdict: Verdict
    printed: Quantity | None = NO_VALUE
    """The number under the mechanism as printed; None if the claim does not depend on a policy."""
    details: tuple[Detail, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim(Generic[Data]):
    """A statement of the paper, or a bar of our own, and the function that checks it."""

    id: str
    statement: str
    paper: Quantity
    answer: Callable[[Data], ClaimAnswer]
    why: str = ""
    """The heading of its explanation, if it has one."""


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """A claim with our numbers beside the paper's."""

    id: str
    statement: str
    paper: Quantity
    themis_paper: Quantity
    themis: Quantity
    verdict: Verdict
    details: tuple[Detail, ...] = ()
    why: str = ""
    by_policy: bool = True
    """Whether `themis_paper` and `themis` can differ."""

    @property
    def own_bar(self) -> bool:
        """Whether the paper says nothing about it."""
        return self.paper.text.endswith(OWN_SUFFIX)

    @property
    def details_text(self) -> str:
        """The supporting numbers in one line."""
        return "; ".join(f"{label}: {text}" for label, text in self.details)


def check(claims: Iterable[Claim[Data]], data: Data) -> tuple[CheckedClaim, ...]:
    """Every claim, checked against the data of an experiment."""
    return tuple(_checked(claim, claim.answer(data)) for claim in claims)


def _checked(claim: Claim[Data], answer: ClaimAnswer) -> CheckedClaim:
    by_policy = answer.printed is not None
    return CheckedClaim(
        claim.id,
        claim.statement,
        claim.paper,
        answer.printed or answer.ours,
        answer.ours,
        answer.verdict,
        answer.details,
        claim.why,
        by_policy,
    )


def details(*pairs: tuple[str, str | Quantity | None]) -> tuple[Detail, ...]:
    """Supporting numbers without those that are missing."""
    texts = (
        (label, one.text if isinstance(one, Quantity) else one)
        for label, one in pairs
        if one is not None and one != NO_VALUE
    )
    return tuple((label, text) for label, text in texts if text)


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a claim with several parts: that of the weakest part."""
    seen = set(verdicts)
    for verdict in (Verdict.FAILS, Verdict.UNDECIDED, Verdict.PARTLY):
        if verdict in seen:
            return verdict
    return Verdict.HOLDS


def by_construction(is_so: bool) -> Verdict:
    """The verdict on something that we put into the model ourselves."""
    return Verdict.BY_CONSTRUCTION if is_so else Verdict.FAILS
