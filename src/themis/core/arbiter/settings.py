"""The arbiter's settings, with the defaults that simulator and service share."""

from dataclasses import dataclass, fields
from enum import StrEnum

from themis.core.fairness.ideal_time import Convention
from themis.core.model.ids import check_count, check_number
from themis.errors import ConfigError


class BidderKind(StrEnum):
    """Who counts once: each app (the paper), or each owner."""

    APP = "app"
    OWNER = "owner"


class ContentionOf(StrEnum):
    """Whose contention goes into the ideal time inside the scheduler."""

    RUN = "run"
    """The run's, so far: it depends on whom the policy lets wait."""
    SHARES = "shares"
    """That of equal shares, whatever the policy does, foreseen to the app's end."""


class Inputs(StrEnum):
    """Whose elapsed and ideal time go into an app's rho."""

    COMPUTED = "computed"
    """The arbiter's."""
    CLAIMED = "claimed"
    """What the app says: for experiments on lying."""


class AddedWork(StrEnum):
    """How work counts that an app declares after its submission."""

    ARRIVES = "arrives"
    """As if it arrived then: elapsed and ideal time begin anew."""
    EXTENDS = "extends"
    """As if it had been declared from the start: who looks small at first goes first."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Times are seconds."""

    lease: float = 600.0
    """Length of a lease, and the distance of beats."""
    bid_deadline: float = 2.0
    solve_budget: float = 2.0
    solve_work: int = 100_000
    """The solver's budget in work units, for drivers where results must not depend on a clock."""
    grace: float = 30.0
    """What a job gets to write its checkpoint."""
    heartbeat: float = 2.0
    guard: float = 2.0
    """What the arbiter waits after a lease's end before it takes a silent slot as empty."""
    pooling: float = 30.0
    """GPUs that come free within this window are dealt together."""
    idle_after: float = 60.0
    """A leased GPU without a process for so long returns to the pool; 0 switches this off."""
    starvation: float = 2.0
    """Factor in rho of an app that wins nothing."""
    bidder: BidderKind = BidderKind.OWNER
    convention: Convention = Convention.FAIR_SHARE
    """Of the ideal time inside the scheduler."""
    contention_of: ContentionOf = ContentionOf.RUN
    inputs: Inputs = Inputs.COMPUTED
    added_work: AddedWork = AddedWork.ARRIVES
    audit_tolerance: float = 0.25
    """By how much measured iteration times may contradict claimed ones; 0 switches this off."""

    def __post_init__(self) -> None:
        check_number("lease", self.lease, above=True, high=30 * 86400.0)
        # Answers cannot be in at the moment the question goes out.
        check_number("bid_deadline", self.bid_deadline, above=True, high=3600.0)
        for item in ("solve_budget", "grace", "heartbeat", "guard"):
            check_number(item, getattr(self, item), high=3600.0)
        for item in ("pooling", "idle_after"):
            check_number(item, getattr(self, item), high=86400.0)
        check_count("solve_work", self.solve_work, high=10**12)
        check_number("audit_tolerance", self.audit_tolerance, high=1e3)
        check_number("starvation", self.starvation, low=1.0, above=True, high=1e6)
        if self.round_lead >= self.lease:
            raise ConfigError(
                "lease",
                self.lease,
                f"longer than the lead of a round ({self.round_lead:g} s: "
                "bid_deadline + solve_budget + grace + 2 heartbeats)",
            )

    @property
    def round_lead(self) -> float:
        """How long before its beat a round opens."""
        return self.bid_deadline + self.solve_budget + self.grace + 2 * self.heartbeat


SETTING_NAMES = tuple(field.name for field in fields(Settings))
