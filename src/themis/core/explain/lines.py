"""The three lines for each reason."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from themis.core.explain.facts import Facts
from themis.core.model.reasons import Reason

WORDS: Mapping[Reason, str] = {
    Reason.INVALID_SPEC: "the app file asks for something that cannot run",
    Reason.DEMAND_EXCEEDS_CLUSTER: "its smallest job needs more GPUs than the cluster has",
    Reason.DEMAND_EXCEEDS_QUOTA: "its smallest job needs more GPUs than its owner may use",
    Reason.NO_MATCHING_GPU: "no GPU in the cluster matches its requirements",
    Reason.PAUSED_BY_USER: "it is paused",
    Reason.HELD_BY_ADMIN: "an operator holds it",
    Reason.QUOTA_REACHED: "its owner has used up the GPU quota",
    Reason.AGENT_UNREACHABLE: "its agent does not answer",
    Reason.CRASH_LOOP: "its jobs keep failing",
    Reason.NOT_IN_AUCTION: "apps with less slack were invited to bid before it",
    Reason.OUTBID: "other apps gained more from the free GPUs",
    Reason.HIDDEN_PAYMENT: "it won GPUs and gave them up as its hidden payment",
    Reason.NO_FREE_GPUS: "every GPU that it could use is leased",
    Reason.PLACEMENT_TOO_SLOW: "the free GPUs would not have made it faster",
    Reason.IDLE_RECLAIMED: "it left its GPUs idle, and the arbiter took them back",
    Reason.NO_METRICS: "its jobs run but report no iterations",
    Reason.WAITING_PHASE: "it waits for the last jobs of this phase",
    Reason.CHECKPOINTING: "its jobs are saving checkpoints",
    Reason.STARTING: "its jobs are starting",
    Reason.ROUND_FAILED: "the last round failed, so every app kept its GPUs",
    Reason.PENDING_EVALUATION: "no round has been held since it arrived or gave GPUs back",
    Reason.SERVED: "it has all the GPUs that its jobs can use",
    Reason.PARTLY_SERVED: "it has some of the GPUs that it wants, not all",
    Reason.ENDED: "it has ended",
    Reason.FAILED: "it has failed",
}
"""What each reason means, as the end of a sentence that begins with the app."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One reason in three lines."""

    reason: Reason
    what: str
    why: str
    then: str

    @property
    def lines(self) -> tuple[str, str, str]:
        """All three, in their order."""
        return self.what, self.why, self.then


def explain(facts: Facts) -> Explanation:
    """The reason that an app has now, with numbers, and what comes next."""
    why, then = _LINES[facts.reason](facts)
    what = f"{facts.app}: {WORDS[facts.reason]}"
    return Explanation(facts.reason, what, why, then)


def length(seconds: float) -> str:
    """A span of time in words."""
    if seconds < 1.0:
        return "less than a second"
    units = ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))
    size, name = next(unit for unit in units if seconds >= unit[0])
    count = math.floor(seconds / size)
    return f"{count} {name}" + ("" if count == 1 else "s")


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _ago(facts: Facts, at: float | None) -> str:
    return "never" if at is None else f"{length(max(0.0, facts.now - at))} ago"


def _in(facts: Facts, at: float | None, what: str, otherwise: str) -> str:
    """That something happens then, or what to say if the time is unknown."""
    if at is None or not math.isfinite(at):
        return otherwise
    if at <= facts.now:
        return f"{what} is due now"
    return f"{what} in {length(at - facts.now)}"


def _round(facts: Facts) -> str:
    said = _in(facts, facts.next_round, "the next round is", "there is a round when GPUs come free")
    return said.replace("is is", "is")


def _waited(facts: Facts) -> str:
    since = facts.waiting_since
    if since is None or not math.isfinite(since):
        return ""
    return f"; it has waited for {length(max(0.0, facts.now - since))}"


def _standing(facts: Facts) -> str:
    told = facts.ranking
    if told is None:
        return f"it wants {_gpus(facts.demand)} and has {facts.held}{_waited(facts)}"
    rho = f" with rho {told.rho:.2f}" if told.rho is not None and math.isfinite(told.rho) else ""
    if told.rank is None:
        place = f"it was one of {told.apps} apps"
    else:
        place = f"it ranked {told.rank} of {told.apps}{rho}"
    return f"in round {told.round}, {_ago(facts, told.at)}, {place}"


def _invalid(facts: Facts) -> tuple[str, str]:
    return (
        facts.trouble or "its specification was refused",
        f"correct its app file, `themis cancel {facts.app}` and submit it again",
    )


def _too_large(facts: Facts) -> tuple[str, str]:
    return (
        f"a job needs at least {_gpus(facts.least)}, the cluster has {facts.cluster}",
        "lower gpus.per_job_min, or ask an operator for machines",
    )


def _above_quota(facts: Facts) -> tuple[str, str]:
    return (
        f"a job needs at least {_gpus(facts.least)}, the quota of its owner is {facts.quota or 0}",
        "lower gpus.per_job_min, or ask an operator for a larger quota (`themis quota`)",
    )


def _no_match(facts: Facts) -> tuple[str, str]:
    kind = facts.wanted or "a certain kind"
    return (
        f"it asks for {kind}; of {_gpus(facts.cluster)} {facts.usable} match",
        "change gpus.model or gpus.memory; `themis nodes` shows the GPUs of the cluster",
    )


def _paused(facts: Facts) -> tuple[str, str]:
    return (
        f"its owner paused it; it holds {_gpus(facts.held)}",
        f"`themis resume {facts.app}` resumes it",
    )


def _held(facts: Facts) -> tuple[str, str]:
    return (
        f"it holds {_gpus(facts.held)} and gets no others",
        f"ask your operator, who can release it with `themis release {facts.app}`",
    )


def _quota_reached(facts: Facts) -> tuple[str, str]:
    return (
        f"all apps of its owner hold {_gpus(facts.owner_held)} of {facts.quota or 0} allowed",
        "it continues when another app of its owner gives GPUs back, or with a larger quota",
    )


def _unreachable(facts: Facts) -> tuple[str, str]:
    return (
        f"its agent was last heard {_ago(facts, facts.agent_seen)}; only the agent places its jobs",
        "it continues when its agent is back; if you run a tuner of your own, start it again",
    )


def _crashing(facts: Facts) -> tuple[str, str]:
    then = "Themis retries them, as often as `retries` allows"
    return (
        facts.trouble or "each of its jobs has failed",
        f"{then}; `themis logs {facts.app}` shows why they fail",
    )


def _not_asked(facts: Facts) -> tuple[str, str]:
    told = facts.ranking
    verb = "was" if told is not None and told.invited == 1 else "were"
    asked = f"; {told.invited} {verb} invited to bid" if told is not None else ""
    # An app with slack may well fall in the ranking for a while.
    in_time = told is not None and told.rho is not None and told.rho <= 1.0
    comes = (
        "it has slack, and ranks first once the slack is used up"
        if in_time
        else "it rises in the ranking as it waits"
    )
    return f"{_standing(facts)}{asked}{_waited(facts)}", f"{comes}: {_round(facts)}"


def _outbid(facts: Facts) -> tuple[str, str]:
    bid = facts.bidding
    if bid is None or bid.refused:
        why = f"its bid was refused: {bid.refused}" if bid else "its bid did not arrive in time"
        lost = f"; {why}" if bid is not None or facts.ranking is not None else ""
        return f"{_standing(facts)}{lost}", f"it can bid again: {_round(facts)}"
    went = f"{_gpus(bid.taken)} went to {bid.winners} {'app' if bid.winners == 1 else 'apps'}"
    return (
        f"{_standing(facts)}; it bid for up to {_gpus(bid.gpus)}, and {went}",
        f"its bid gains weight as it waits: {_round(facts)}",
    )


def _paid(facts: Facts) -> tuple[str, str]:
    bid = facts.bidding
    told = f"it won {bid.won} and paid {bid.paid}" if bid is not None else "it paid all that it won"
    return (
        f"{told}; payments make it useless to lie in bids",
        f"the GPUs that it paid went to other apps: {_round(facts)}",
    )


def _none_free(facts: Facts) -> tuple[str, str]:
    return (
        f"it wants {_gpus(facts.demand)}; all that it could use are leased{_waited(facts)}",
        _in(facts, facts.next_expiry, "the next lease of another app ends", _round(facts)),
    )


def _too_slow(facts: Facts) -> tuple[str, str]:
    return (
        "free GPUs were too far apart for its jobs, or fewer than one of them needs",
        f"it can bid again: {_round(facts)}",
    )


def _idle(facts: Facts) -> tuple[str, str]:
    after = f" for {length(facts.idle_after)}" if facts.idle_after else ""
    return (
        f"it gave GPUs back, or ran nothing on them{after} and the arbiter took them back",
        f"`themis status {facts.app}` shows its jobs; it is offered GPUs again after a pause",
    )


def _silent(facts: Facts) -> tuple[str, str]:
    quiet = f" for {length(facts.quiet)}" if facts.quiet is not None else ""
    return (
        f"no iteration was reported{quiet}" + (f": {facts.trouble}" if facts.trouble else ""),
        "check metric.source and metric.path; without iterations its rho is a guess",
    )


def _phase(facts: Facts) -> tuple[str, str]:
    return (
        f"phase {facts.phase + 1} of {facts.phases}; {facts.running} of its jobs still run",
        "the next phase begins when they are done",
    )


def _saving(facts: Facts) -> tuple[str, str]:
    return (
        f"it loses GPUs, and its jobs were asked to save; it holds {_gpus(facts.held)}",
        _in(facts, facts.lease_ends, "they must be gone", "they leave when they have saved"),
    )


def _starting(facts: Facts) -> tuple[str, str]:
    return (
        f"it holds {_gpus(facts.held)}, and none of its processes runs yet",
        facts.trouble or "they run within seconds, once the previous jobs have left",
    )


def _failed_round(facts: Facts) -> tuple[str, str]:
    told = facts.ranking
    why = f": {told.failed}" if told is not None and told.failed else ""
    number = f"round {told.round}" if told is not None else "the last round"
    return f"{number} could not be settled{why}", f"leases were renewed: {_round(facts)}"


def _pending(facts: Facts) -> tuple[str, str]:
    return f"it wants {_gpus(facts.demand)}{_waited(facts)}", _round(facts)


def _served(facts: Facts) -> tuple[str, str]:
    return (
        f"it holds {_gpus(facts.held)} of {facts.demand} that it wants",
        _in(facts, facts.lease_ends, "its first lease ends", "nothing to do"),
    )


def _partly(facts: Facts) -> tuple[str, str]:
    has = f"it holds {_gpus(facts.held)} of {facts.demand} that it wants"
    if facts.held >= facts.demand:
        return (
            f"it holds {_gpus(facts.held)}, all that it wants now; its demand has fallen",
            "the next round will call it SERVED",
        )
    if facts.quota is not None and facts.owner_held >= facts.quota:
        return (
            f"{has}; all apps of its owner hold {facts.owner_held} of {facts.quota} allowed",
            "it gets more when another app of its owner gives GPUs back, or with a larger quota",
        )
    closed = f", {facts.closed} of them on cordoned or draining machines"
    there = f"; it may use {facts.usable} in all{closed if facts.closed else ''}"
    if facts.held >= facts.usable - facts.closed > 0:
        return f"{has}{there}", "it gets more when machines join or are uncordoned"
    return (
        f"{has}; {_standing(facts)}" + (there if facts.closed else ""),
        _in(facts, facts.next_expiry, "the next lease of another app ends", _round(facts)),
    )


def _ended(facts: Facts) -> tuple[str, str]:
    return (
        f"it ended {_ago(facts, facts.ended)}: {facts.outcome or 'finished'}",
        f"`themis results {facts.app}` shows the best trial",
    )


def _failure(facts: Facts) -> tuple[str, str]:
    return (
        f"it ended {_ago(facts, facts.ended)}: {facts.outcome or 'failed'}",
        f"`themis logs` shows what its jobs printed; `themis retry {facts.app}` submits it again",
    )


_LINES: Mapping[Reason, Callable[[Facts], tuple[str, str]]] = {
    Reason.INVALID_SPEC: _invalid,
    Reason.DEMAND_EXCEEDS_CLUSTER: _too_large,
    Reason.DEMAND_EXCEEDS_QUOTA: _above_quota,
    Reason.NO_MATCHING_GPU: _no_match,
    Reason.PAUSED_BY_USER: _paused,
    Reason.HELD_BY_ADMIN: _held,
    Reason.QUOTA_REACHED: _quota_reached,
    Reason.AGENT_UNREACHABLE: _unreachable,
    Reason.CRASH_LOOP: _crashing,
    Reason.NOT_IN_AUCTION: _not_asked,
    Reason.OUTBID: _outbid,
    Reason.HIDDEN_PAYMENT: _paid,
    Reason.NO_FREE_GPUS: _none_free,
    Reason.PLACEMENT_TOO_SLOW: _too_slow,
    Reason.IDLE_RECLAIMED: _idle,
    Reason.NO_METRICS: _silent,
    Reason.WAITING_PHASE: _phase,
    Reason.CHECKPOINTING: _saving,
    Reason.STARTING: _starting,
    Reason.ROUND_FAILED: _failed_round,
    Reason.PENDING_EVALUATION: _pending,
    Reason.SERVED: _served,
    Reason.PARTLY_SERVED: _partly,
    Reason.ENDED: _ended,
    Reason.FAILED: _failure,
}
