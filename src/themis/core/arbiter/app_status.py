"""How an app stands, whatever it trains: weight, suspensions, appetite, hunger, and its end."""

import math
from dataclasses import dataclass, field

from themis.core.arbiter.state_parts import StandingPart
from themis.core.model import AppId
from themis.core.model.reasons import Reason

FINISHED = "finished"
"""The outcome of an app that did all it had to do."""

MOST_BEATS_BARRED = 8
"""The most beats for which an app that keeps refusing GPUs is offered none."""


@dataclass(frozen=True, slots=True)
class AppMarks:
    """Apps of which a part may have changed since it was last written down."""

    declared: set[AppId] = field(default_factory=set)
    work: set[AppId] = field(default_factory=set)
    claims: set[AppId] = field(default_factory=set)
    audit: set[AppId] = field(default_factory=set)
    standing: set[AppId] = field(default_factory=set)

    def all(self, app: AppId) -> None:
        """Mark every part of an app."""
        for kind in (self.declared, self.work, self.claims, self.audit, self.standing):
            kind.add(app)


class AppStatus:
    """The state of an app besides its work. Changes only through its methods."""

    demand: int
    """GPUs its runnable jobs could use."""

    def __init__(self, app: AppId, weight: float, at: float, marks: AppMarks) -> None:
        self.id = app
        self._marks = marks
        self.weight = weight
        self.suspended: set[Reason] = set()
        self.waiting_since = at
        self.hungry_rounds = 0
        self.enough: int | None = None
        """How many GPUs it had when it gave others back: of more it would do the same for now."""
        self._refusals = 0
        self._idled = 0
        self._barred = 0
        self.reason = Reason.PENDING_EVALUATION
        self.outcome = ""
        self.ended_at = math.inf

    # Appetite

    def give_back(self, held: int) -> None:
        """It gave GPUs back and now holds this many.

        Who gives back what its jobs could use did not like where it was. It is asked again at the
        next beat; then, each time it refuses anew, after twice as many.
        """
        self._marks.standing.add(self.id)
        if self.enough is None:
            self._barred = 1
            if 0 < held < self.demand:
                self._barred = min(2**self._refusals, MOST_BEATS_BARRED)
                self._refusals += 1
        self.enough = held

    def leave_empty(self) -> None:
        """It ran nothing on GPUs that it had: it is offered none for a beat, then two, four, ..."""
        self._marks.standing.add(self.id)
        self._barred = min(2**self._idled, MOST_BEATS_BARRED)
        self._idled += 1
        self.enough = 0

    @property
    def unready(self) -> bool:
        """Whether it is offered none because it left GPUs empty, and has run nothing since."""
        return self._idled > 0 and self.enough is not None

    def use(self) -> None:
        """It runs something."""
        if self._idled:
            self._marks.standing.add(self.id)
            self._idled = 0

    def pass_beat(self) -> None:
        """A beat has come."""
        if self.enough is not None or self._refusals:
            self._marks.standing.add(self.id)
        if self.enough is None:
            self._refusals = 0
            return
        self._barred -= 1
        if self._barred <= 0:
            self.enough = None

    def forget_refusals(self) -> None:
        """What it gave back before says nothing of what it wants now."""
        self._marks.standing.add(self.id)
        self.enough = None
        self._refusals = 0

    # Right and place

    def weigh(self, weight: float) -> None:
        """It counts for more or less from now on."""
        self._marks.standing.add(self.id)
        self.weight = weight

    def suspend(self, reason: Reason) -> None:
        """It must not run; reasons add up."""
        self._marks.standing.add(self.id)
        self.suspended.add(reason)

    def resume(self, reason: Reason) -> None:
        """One reason for suspension is gone."""
        self._marks.standing.add(self.id)
        self.suspended.discard(reason)

    def explain(self, reason: Reason) -> None:
        """Why it stands where it stands."""
        if reason is not self.reason:
            self._marks.standing.add(self.id)
            self.reason = reason

    def wait_since(self, at: float) -> None:
        """Since when it has had nothing; infinite while it has something."""
        if at != self.waiting_since:
            self._marks.standing.add(self.id)
            self.waiting_since = at

    def count_hunger(self, *, fed: bool) -> None:
        """A round has ended for it."""
        if self.hungry_rounds or not fed:
            self._marks.standing.add(self.id)
            self.hungry_rounds = 0 if fed else self.hungry_rounds + 1

    def end(self, outcome: str, at: float) -> None:
        """It has ended."""
        self._marks.standing.add(self.id)
        self.outcome = outcome
        self.ended_at = at

    @property
    def suspension(self) -> Reason | None:
        """The first in precedence of the reasons it is suspended for."""
        if not self.suspended:
            return None
        return min(self.suspended, key=list(Reason).index)

    # Writing down

    def standing_part(self) -> StandingPart:
        """How it stands."""
        return StandingPart(
            self.weight,
            frozenset(self.suspended),
            None if self.waiting_since == math.inf else self.waiting_since,
            self.hungry_rounds,
            self.enough,
            self._refusals,
            self._idled,
            self._barred,
            self.reason,
            self.outcome,
            None if self.ended_at == math.inf else self.ended_at,
        )

    def take_back_standing(self, part: StandingPart) -> None:
        """Become what was written down."""
        self.weight, self.suspended = part.weight, set(part.suspended)
        self.waiting_since = math.inf if part.waiting_since is None else part.waiting_since
        self.hungry_rounds, self.enough = part.hungry_rounds, part.enough
        self._refusals, self._idled, self._barred = part.refusals, part.idled, part.barred
        self.reason, self.outcome = part.reason, part.outcome
        self.ended_at = math.inf if part.ended_at is None else part.ended_at
