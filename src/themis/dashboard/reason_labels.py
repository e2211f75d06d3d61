"""Reasons in a word or two, for lists."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from themis.core.explain import WORDS
from themis.core.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class ReasonLabel:
    """A reason as lists show it."""

    label: str
    tone: str
    """`good`, `wait`, `held` or `bad`."""
    what: str
    """The sentence that explains it everywhere."""


_ROWS: dict[Reason, tuple[str, str]] = {
    Reason.INVALID_SPEC: ("bad app file", "bad"),
    Reason.DEMAND_EXCEEDS_CLUSTER: ("larger than the cluster", "bad"),
    Reason.DEMAND_EXCEEDS_QUOTA: ("larger than its quota", "bad"),
    Reason.NO_MATCHING_GPU: ("no such GPU", "bad"),
    Reason.PAUSED_BY_USER: ("paused", "held"),
    Reason.HELD_BY_ADMIN: ("held", "held"),
    Reason.QUOTA_REACHED: ("quota used up", "held"),
    Reason.AGENT_UNREACHABLE: ("agent silent", "held"),
    Reason.CRASH_LOOP: ("crashes again and again", "bad"),
    Reason.NOT_IN_AUCTION: ("not asked", "wait"),
    Reason.OUTBID: ("outbid", "wait"),
    Reason.HIDDEN_PAYMENT: ("paid all it won", "wait"),
    Reason.NO_FREE_GPUS: ("no GPU is free", "wait"),
    Reason.PLACEMENT_TOO_SLOW: ("too scattered", "wait"),
    Reason.IDLE_RECLAIMED: ("left GPUs idle", "bad"),
    Reason.NO_METRICS: ("no metrics", "bad"),
    Reason.WAITING_PHASE: ("between phases", "wait"),
    Reason.CHECKPOINTING: ("saving", "wait"),
    Reason.STARTING: ("starting", "good"),
    Reason.ROUND_FAILED: ("round failed", "wait"),
    Reason.PENDING_EVALUATION: ("new", "wait"),
    Reason.SERVED: ("served", "good"),
    Reason.PARTLY_SERVED: ("partly served", "good"),
    Reason.ENDED: ("ended", "good"),
    Reason.FAILED: ("failed", "bad"),
}

REASONS: Mapping[str, ReasonLabel] = MappingProxyType(
    {str(reason): ReasonLabel(*_ROWS[reason], WORDS[reason]) for reason in Reason}
)
"""Every reason, in order; a reason without a label fails the import."""
