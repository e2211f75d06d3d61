"""What is kept of every round and of every app that ended."""

from collections.abc import Mapping
from dataclasses import dataclass

from themis.core.fairness.loads import PhaseLoad
from themis.core.model import AppId, GpuId, LeaseSource, OwnerId
from themis.core.model.reasons import Reason
from themis.core.model.values import value
from themis.core.policies.base import Allotment, Notes


@value
class AppInRound:
    """One app in a round's record: active when the round opened, or suspended."""

    app: AppId
    held: int
    demand: int
    granted: int
    reason: Reason
    rho: float | None = None
    """What the policy ranked it by, else its rho now; None where no progress was measured."""
    rank: int | None = None
    """Its place by rho, the worst off first."""
    invited: bool = False
    contradicted: bool = False
    """Whether measurements contradicted what it said of its iteration times."""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round: the apps, the invited, the winners, and the reasons of the others."""

    round: int
    opened: float
    settled: float
    trigger: str
    offered: int
    allotments: tuple[Allotment, ...]
    followups: tuple[Allotment, ...]
    dropped: tuple[Allotment, ...]
    """Parts of the plan that named something gone by the time it was committed."""
    apps: tuple[AppInRound, ...]
    notes: Notes
    refused: Mapping[AppId, str]
    """Bids that could not be taken, with the reason."""
    failed: str = ""
    """Why the round failed; its holders were renewed."""
    idle: tuple[GpuId, ...] = ()
    """Offered GPUs that the plan leaves idle: with the allotments they make up the offer."""


@dataclass(frozen=True, slots=True)
class AppRecord:
    """One ended app, with everything that its final rho is computed from."""

    app: AppId
    owner: OwnerId
    weight: float
    arrival: float
    end: float
    elapsed: float
    """Active seconds."""
    mean_contention: float
    mean_capacity: float
    budget: float
    phases: tuple[PhaseLoad, ...]
    """The work of the jobs that really ran in each phase."""
    attained: Mapping[LeaseSource, float]
    """GPU-seconds held, by what gave them."""
    outcome: str
    contradicted: bool = False
    """Whether measurements contradicted what it said of its iteration times."""
