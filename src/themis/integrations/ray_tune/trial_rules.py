"""When trials pause and their nodes leave: the rules, without Ray.

In Tune a trial is PENDING, RUNNING, PAUSED or over. It runs only on its own node, because no other
Ray node has the resource that it asks for.

| its node | a running trial |
|---|---|
| was told to leave | is paused at its next result with a checkpoint |
| was told to leave half of the grace ago | is paused now, and goes on from its last checkpoint |
| is gone | the same, before Tune takes it for a failure |
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from themis.integrations.ray_tune.trial_node_server import TrialNode

PENDING, RUNNING, PAUSED = "PENDING", "RUNNING", "PAUSED"
CONTINUE, PAUSE = "CONTINUE", "PAUSE"
FORCE_AFTER = 0.5
"""The part of the grace after which a trial is paused without a checkpoint."""
LEAVE_AFTER = 0.8
"""The part of the grace after which a node leaves although a trial may be starting on it."""
AWAY = 30.0
"""Seconds for which a trial asks for no GPUs after it got GPUs that it cannot use."""


@dataclass(slots=True)
class TuneTrial:
    """One trial."""

    job: str
    node: int | None = None
    """The key of the node that it runs on, or may be starting on."""
    by_lease: bool = False
    """Whether it was paused because of its lease, and not by the scheduler."""
    away_until: float = 0.0
    over: bool = False
    failures: int = 0
    """The user's `max_failures`."""
    lost: int = 0
    """Ends of leases that Tune took for failures."""
    losing: bool = False
    """Whether Tune may be about to see another one."""

    @property
    def allowed(self) -> int:
        """The `max_failures` for Tune, so that ends of leases do not count."""
        return self.failures if self.failures < 0 else self.failures + self.lost + self.losing


class TrialBook:
    """The trials of a script and their jobs."""

    def __init__(self, jobs: Sequence[str]) -> None:
        self._free = list(reversed(jobs))
        self.jobs = frozenset(jobs)
        self.entries: dict[str, TuneTrial] = {}

    def add(self, trial: str, failures: int = 0) -> TuneTrial | None:
        """Give a new trial its job; None if the app has no more."""
        if not self._free:
            return None
        entry = self.entries[trial] = TuneTrial(self._free.pop(), failures=failures)
        return entry

    def parked(self, wanted: Iterable[str], now: float) -> frozenset[str]:
        """Jobs that want no GPUs if these trials, and no others, want some."""
        entries = [self.entries[trial] for trial in wanted]
        return self.jobs - {e.job for e in entries if not e.over and e.away_until <= now}

    @property
    def unused(self) -> frozenset[str]:
        """Jobs that never had a trial."""
        return frozenset(self._free)


def decide(entry: TuneTrial, decided: str, node: TrialNode | None, *, saves: bool) -> str:
    """Decide about a trial that has reported.

    Args:
        entry: The trial.
        decided: The decision of the scheduler inside.
        node: Its node.
        saves: Whether the result comes with a checkpoint.
    """
    if decided == CONTINUE and node is not None and node.leaving_since is not None and saves:
        entry.by_lease = True
        return PAUSE
    if decided == PAUSE:
        entry.by_lease = False
    return decided


def must_pause(entry: TuneTrial, node: TrialNode | None, now: float) -> bool:
    """Whether a running trial has to be paused at once, saved or not."""
    if node is None or node.key != entry.node:
        return entry.node is not None
    since = node.leaving_since
    return since is not None and now - since >= FORCE_AFTER * node.grace


def may_leave(status: str, node: TrialNode, now: float, *, up: bool) -> bool:
    """Whether a node that was told to leave may do so.

    Args:
        status: The status of its trial.
        node: The node.
        now: The time.
        up: Whether Ray lists the node, so that the trial may be starting on it.
    """
    if node.leaving_since is None or status == RUNNING:
        return False
    if status == PENDING and up:
        return now - node.leaving_since >= LEAVE_AFTER * node.grace
    return True


def gives_back(entry: TuneTrial, node: TrialNode, wide: float, now: float) -> bool:
    """Whether a trial cannot use its GPUs, because it needs more of them on one machine.

    Args:
        entry: The trial.
        node: Its node.
        wide: The GPUs of its largest bundle.
        now: The time.
    """
    if node.widest >= wide:
        return False
    entry.away_until = now + AWAY
    return True


def iteration_limit(wrapped: object, criteria: object, given: int | None) -> int:
    """The most iterations of a trial; 0 if unknown.

    Args:
        wrapped: The scheduler inside: ASHA and HyperBand have a `max_t`.
        criteria: The value of `RunConfig(stop=...)`.
        given: What the user declared.
    """
    found: list[float] = []
    for name in ("_max_t", "_max_t_attr"):
        value = getattr(wrapped, name, None)
        if isinstance(value, int | float) and math.isfinite(value):
            found.append(value)
    if isinstance(criteria, dict):
        value = criteria.get(time_attribute(wrapped))
        if isinstance(value, int | float):
            found.append(value)
    if given is not None:
        found.append(given)
    return max(1, math.ceil(min(found))) if found else 0


def time_attribute(wrapped: object) -> str:
    """The attribute of results by which the scheduler counts."""
    return str(getattr(wrapped, "_time_attr", None) or "training_iteration")
