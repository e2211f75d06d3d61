"""What each trial may do with the seat that it has: the rules, without Ray.

A trial is PENDING, RUNNING, PAUSED, or over, as Tune says. It runs only on its own seat, because no
other Ray node has the resource that it asks for; so what is left to decide is when it leaves.

| the seat | a trial that runs there |
|---|---|
| is told to go | is paused at its next result, if that is one to save at |
| is told to go, half of the grace ago | is paused without a save: it goes on from its last one |
| is gone | the same, before Tune takes it for a failure |
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from themis.integrations.ray_tune.seat_server import LeasedSeat

PENDING, RUNNING, PAUSED = "PENDING", "RUNNING", "PAUSED"
CONTINUE, PAUSE = "CONTINUE", "PAUSE"
FORCE_AFTER = 0.5
"""The part of the grace after which a trial is not waited for any more,"""
LEAVE_AFTER = 0.8
"""and that after which a seat leaves with a trial that is just being started there."""
AWAY = 30.0
"""Seconds for which a trial asks for no GPUs after it got some that it cannot use."""


@dataclass(slots=True)
class TuneTrial:
    """One trial."""

    job: str
    seat: int | None = None
    """The key of the seat that it was seen to run on, or may be starting on."""
    by_lease: bool = False
    """Paused for want of GPUs, and not by the scheduler."""
    away_until: float = 0.0
    over: bool = False
    failures: int = 0
    """The user's `max_failures`."""
    lost: int = 0
    """Failures that Tune saw and that were ends of leases,"""
    losing: bool = False
    """and whether it may be about to see another one."""

    @property
    def allowed(self) -> int:
        """What Tune is told for `max_failures`: ends of leases do not count."""
        return self.failures if self.failures < 0 else self.failures + self.lost + self.losing


class TrialBook:
    """All trials of a script."""

    def __init__(self, jobs: Sequence[str]) -> None:
        self._free = list(reversed(jobs))
        self.jobs = frozenset(jobs)
        self.entries: dict[str, TuneTrial] = {}

    def add(self, trial: str, failures: int = 0) -> TuneTrial | None:
        """A trial that is new; None if the app has no job for it."""
        if not self._free:
            return None
        entry = self.entries[trial] = TuneTrial(self._free.pop(), failures=failures)
        return entry

    def parked(self, wanted: Iterable[str], now: float) -> frozenset[str]:
        """Jobs that want no GPUs, if these trials do."""
        entries = [self.entries[trial] for trial in wanted]
        return self.jobs - {e.job for e in entries if not e.over and e.away_until <= now}

    @property
    def unused(self) -> frozenset[str]:
        """Jobs for which there was never a trial."""
        return frozenset(self._free)


def decide(entry: TuneTrial, decided: str, seat: LeasedSeat | None, *, saves: bool) -> str:
    """What becomes of a trial that has reported.

    Args:
        entry: The trial.
        decided: What the wrapped scheduler says.
        seat: Its seat.
        saves: Whether nothing is lost if it is paused now.
    """
    if decided == CONTINUE and seat is not None and seat.leaving_since is not None and saves:
        entry.by_lease = True
        return PAUSE
    if decided == PAUSE:
        entry.by_lease = False
    return decided


def must_pause(entry: TuneTrial, seat: LeasedSeat | None, now: float) -> bool:
    """Whether a trial that runs has to be paused at once, saved or not."""
    if seat is None or seat.key != entry.seat:
        return entry.seat is not None
    since = seat.leaving_since
    return since is not None and now - since >= FORCE_AFTER * seat.grace


def may_leave(status: str, seat: LeasedSeat, now: float, *, up: bool) -> bool:
    """Whether a seat that was told to go is not needed any more.

    Args:
        status: Of its trial.
        seat: The seat.
        now: The time.
        up: Whether its Ray node is there, so that a trial may be starting on it.
    """
    if seat.leaving_since is None or status == RUNNING:
        return False
    if status == PENDING and up:
        return now - seat.leaving_since >= LEAVE_AFTER * seat.grace
    return True


def gives_back(entry: TuneTrial, seat: LeasedSeat, wide: float, now: float) -> bool:
    """Whether GPUs are of no use, because the trial needs more of them on one machine.

    Args:
        entry: The trial.
        seat: Its seat.
        wide: The GPUs that the largest of its parts needs.
        now: The time.
    """
    if seat.widest >= wide:
        return False
    entry.away_until = now + AWAY
    return True


def iteration_limit(wrapped: object, criteria: object, given: int | None) -> int:
    """The iterations that a trial has at most; 0 if nobody says.

    Args:
        wrapped: The scheduler: ASHA and HyperBand have a `max_t`.
        criteria: What `RunConfig(stop=...)` says.
        given: What the user says.
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
    """What the scheduler counts."""
    return str(getattr(wrapped, "_time_attr", None) or "training_iteration")
