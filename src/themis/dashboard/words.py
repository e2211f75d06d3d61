"""Reasons in words, for pages: what one means, and what to do or when it changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from themis.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class ReasonWords:
    """One reason as people read it."""

    label: str
    what: str
    then: str
    """What to do, or when it changes."""
    tone: str
    """`good`, `wait`, `held` or `bad`."""


_N = "nothing to do"
_ROUND = "the next round decides anew"
_R = Reason
_ROWS: dict[Reason, tuple[str, str, str, str]] = {
    _R.INVALID_SPEC: (
        "bad app file", "what was submitted cannot be run",
        "mend the file and submit it again", "bad"),
    _R.DEMAND_EXCEEDS_CLUSTER: (
        "larger than the cluster", "its smallest job needs more GPUs than there are",
        "lower gpus.per_job_min, or add machines", "bad"),
    _R.DEMAND_EXCEEDS_QUOTA: (
        "larger than its quota", "its smallest job needs more GPUs than its owner may hold",
        "lower gpus.per_job_min, or ask for a larger quota", "bad"),
    _R.NO_MATCHING_GPU: (
        "no such GPU", "no machine has the GPU model or memory it asks for",
        "relax gpus.model or gpus.memory, or add such a machine", "bad"),
    _R.PAUSED_BY_USER: (
        "paused", "its owner paused it", "let it go on with themis resume", "held"),
    _R.HELD_BY_ADMIN: (
        "held", "an operator holds it back", "an operator lets it go on with themis release",
        "held"),
    _R.QUOTA_REACHED: (
        "quota used up", "its owner holds as many GPUs as allowed",
        "it goes on when another app of this owner lets go", "held"),
    _R.AGENT_UNREACHABLE: (
        "agent silent", "nobody bids for it: its agent is not heard",
        "look after its agent; it comes back by itself", "held"),
    _R.CRASH_LOOP: (
        "crashes again and again", "its jobs die soon after each start",
        "read themis logs, mend it, then themis retry", "bad"),
    _R.NOT_IN_AUCTION: (
        "not invited", "others were further behind their fair share, and were asked first", _ROUND,
        "wait"),
    _R.OUTBID: (
        "outbid", "it was asked, and others gain more from the GPUs", _ROUND, "wait"),
    _R.HIDDEN_PAYMENT: (
        "paid all it won", "what it won went into the hidden payment that keeps bids honest",
        _ROUND, "wait"),
    _R.NO_FREE_GPUS: (
        "no GPU is free", "all GPUs it could use are leased", "when the next leases end", "wait"),
    _R.PLACEMENT_TOO_SLOW: (
        "too scattered", "the GPUs that were left are so far apart that it would be no faster",
        _ROUND, "wait"),
    _R.IDLE_RECLAIMED: (
        "left GPUs idle", "it held GPUs and ran nothing on them, so they were taken back",
        "look whether its jobs start", "bad"),
    _R.NO_METRICS: (
        "no metrics", "its jobs run and report nothing that can be measured",
        "look at metric.source in its file, and at themis logs", "bad"),
    _R.WAITING_PHASE: (
        "between phases", "all jobs of this phase are done", "its tuner chooses who trains on",
        "wait"),
    _R.CHECKPOINTING: (
        "saving", "its jobs save and make room", "in seconds", "wait"),
    _R.STARTING: ("starting", "its jobs start on GPUs it was given", "in seconds", "good"),
    _R.ROUND_FAILED: (
        "round failed", "the last round failed, and everybody kept what they had", _ROUND, "wait"),
    _R.PENDING_EVALUATION: (
        "new", "it has arrived, and no round was held since", "the next round looks at it", "wait"),
    _R.SERVED: ("served", "it has all the GPUs it can use", _N, "good"),
    _R.PARTLY_SERVED: (
        "partly served", "it runs, and could use more GPUs", _ROUND, "good"),
    _R.ENDED: ("ended", "it is over", "what came of it: themis results", "good"),
    _R.FAILED: ("failed", "it was given up", "read themis logs, mend it, then themis retry", "bad"),
}  # fmt: skip

REASONS: Mapping[str, ReasonWords] = MappingProxyType(
    {str(reason): ReasonWords(*_ROWS[reason]) for reason in Reason}
)
"""Every reason of the closed list, in its order; one without words does not import."""
