"""Why an app does not run, or runs with less than it wants: one closed list, in precedence."""

from enum import StrEnum


class Reason(StrEnum):
    """The order of definition is the order of precedence."""

    INVALID_SPEC = "INVALID_SPEC"
    DEMAND_EXCEEDS_CLUSTER = "DEMAND_EXCEEDS_CLUSTER"
    DEMAND_EXCEEDS_QUOTA = "DEMAND_EXCEEDS_QUOTA"
    NO_MATCHING_GPU = "NO_MATCHING_GPU"

    PAUSED_BY_USER = "PAUSED_BY_USER"
    HELD_BY_ADMIN = "HELD_BY_ADMIN"
    QUOTA_REACHED = "QUOTA_REACHED"
    AGENT_UNREACHABLE = "AGENT_UNREACHABLE"
    CRASH_LOOP = "CRASH_LOOP"

    NOT_IN_AUCTION = "NOT_IN_AUCTION"
    OUTBID = "OUTBID"
    HIDDEN_PAYMENT = "HIDDEN_PAYMENT"
    NO_FREE_GPUS = "NO_FREE_GPUS"
    PLACEMENT_TOO_SLOW = "PLACEMENT_TOO_SLOW"
    IDLE_RECLAIMED = "IDLE_RECLAIMED"
    NO_METRICS = "NO_METRICS"
    WAITING_PHASE = "WAITING_PHASE"
    CHECKPOINTING = "CHECKPOINTING"
    STARTING = "STARTING"
    ROUND_FAILED = "ROUND_FAILED"
    PENDING_EVALUATION = "PENDING_EVALUATION"

    SERVED = "SERVED"
    PARTLY_SERVED = "PARTLY_SERVED"
    ENDED = "ENDED"
    FAILED = "FAILED"


SUSPENSIONS = frozenset(
    {
        Reason.PAUSED_BY_USER,
        Reason.HELD_BY_ADMIN,
        Reason.AGENT_UNREACHABLE,
        Reason.CRASH_LOOP,
    }
)
"""Reasons an app can be suspended for; while any lasts it is not active."""
