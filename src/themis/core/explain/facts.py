"""The numbers that explanations are made of."""

from dataclasses import dataclass

from themis.core.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Ranking:
    """How an app stood in the last round that it was in."""

    round: int
    at: float
    """When it was settled."""
    apps: int
    invited: int
    """How many apps bid."""
    offered: int
    """GPUs that were to be had."""
    rank: int | None = None
    rho: float | None = None
    failed: str = ""
    """Why the round failed, if it did."""


@dataclass(frozen=True, slots=True)
class Bidding:
    """What came of its bid."""

    gpus: int = 0
    """The most that it bid for."""
    won: int = 0
    paid: int = 0
    """GPUs of those that it won and did not keep."""
    taken: int = 0
    """GPUs that went to others in this round."""
    winners: int = 0
    refused: str = ""
    """Why its bid was not taken."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one app now. Times are the cluster's; None is not known."""

    app: str
    reason: Reason
    now: float
    held: int = 0
    demand: int = 0
    least: int = 1
    """GPUs that its smallest job needs."""
    waiting_since: float | None = None
    cluster: int = 0
    """GPUs that there are."""
    usable: int = 0
    """Those of them that its constraints allow."""
    closed: int = 0
    """Those of these on machines that an operator has cordoned or drains."""
    wanted: str = ""
    """What kind of GPU it asks for, in words; empty if any will do."""
    quota: int | None = None
    owner_held: int = 0
    """GPUs that all apps of its owner hold."""
    ranking: Ranking | None = None
    bidding: Bidding | None = None
    next_round: float | None = None
    next_expiry: float | None = None
    lease_ends: float | None = None
    """When the first of its own leases ends."""
    agent_seen: float | None = None
    quiet: float | None = None
    """Seconds since a job of it reported an iteration."""
    idle_after: float | None = None
    """Seconds after which GPUs that it does not use are taken back."""
    phase: int = 0
    phases: int = 1
    running: int = 0
    """Jobs that run now."""
    outcome: str = ""
    ended: float | None = None
    trouble: str = ""
    """What it says itself of why something does not work."""
