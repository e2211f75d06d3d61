"""Calling in: GPUs of apps with slack for a newcomer that cannot wait for the beat.

called = call_in(view, lent, least_gain=0.05)   # to be offered beside what is free
class Mine(Caller, DirectPolicy): ...               # a policy that does so, if asked to

Leases end together at a beat. An app that needs no more than a lease would take several times as
long as with a share of its own if it waited for one. Then leases of those who lose least by it end
early, as many as the newcomer needs to be in time, and a round deals with them.
"""

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from themis.core.model import SLOT, AppId, GpuId
from themis.core.model.ids import check_number
from themis.core.policies.base import AppView, Policy, View
from themis.core.policies.placing import Pool
from themis.core.policies.ranking import LATE

GOAL = 0.95
"""Rho that a newcomer is called GPUs for, so that it is in time if something goes wrong."""

PATIENCE = 0.1
"""Who loses at most so much of what the newcomer gains can wait."""

HARDLY = 1.05
"""More GPUs that make a newcomer faster by less than this factor are not called in."""


class Caller(Policy):
    """A policy that can call GPUs in; with a gain of 0 it never does."""

    def __init__(self, *, call_in_gain: float = 0.0) -> None:
        self.call_in_gain = check_number("call_in_gain", call_in_gain, high=100.0)
        self.calls_in = self.call_in_gain > 0.0

    def call_in(self, view: View, lent: Mapping[GpuId, AppId]) -> list[GpuId]:
        """Takes GPUs from apps with slack for newcomers without."""
        return call_in(view, lent, least_gain=self.call_in_gain)


@dataclass(frozen=True, slots=True)
class _Call:
    """What a newcomer lacks."""

    app: AppView
    have: tuple[GpuId, ...]
    """What it holds, and what it could take of what is free."""
    more: int
    """GPUs that it needs beside those to be in time."""
    waiting: float
    """Its rho without them."""
    gain: float


def call_in(view: View, lent: Mapping[GpuId, AppId], *, least_gain: float) -> list[GpuId]:
    """GPUs to offer beside those that are free, so that newcomers need not wait; sorted.

    Args:
        view: A round between beats, of the GPUs that are free.
        lent: Who holds each GPU that could be called in.
        least_gain: The least fall in log rho, above rho 1, that is worth the trouble.
    """
    free = Pool(view.topology, view.offer)
    calls = [_call(app, view, free) for app in view.apps if app.newcomer and app.room >= 1]
    left = dict(lent)
    called: list[GpuId] = []
    for call in sorted(calls, key=lambda call: (-call.gain, call.app.app)):
        if call.gain >= least_gain and call.more > 0:
            chosen = _choose(view, call, _patient(view, call, left))
            if len(call.have) + len(chosen) >= call.app.min_gang:
                called += chosen
                for gpu in chosen:
                    del left[gpu]
    return sorted(called)


def rho_until_beat(app: AppView, view: View, gpus: Sequence[GpuId]) -> float:
    """Rho if an app has these GPUs until leases end, and then all that it can use."""
    wait, starting = view.end - view.now, app.starting_seconds
    seconds = app.seconds_with(gpus) if gpus else math.inf
    if gpus and not app.held:
        seconds += starting
    if seconds <= wait:
        return app.rho_after(seconds)
    left = 1.0 - wait / seconds
    return app.rho_after(wait + left * min(app.best_case_seconds + starting, seconds))


def _loss(before: float, after: float) -> float:
    """What a higher rho costs, as auctions count it; nothing as long as the app is in time."""
    if math.isinf(before):
        return 0.0  # Who cannot run either way loses nothing.
    return math.log(max(after, LATE) / max(before, LATE))


def _call(app: AppView, view: View, free: Pool) -> _Call:
    """What a newcomer lacks if it could take of what is free."""
    got = free.take(app.room, gang=app.gang, near=app.kept, machines=app.machines)
    for gpu in got:
        free.put_back(gpu)
    have = (*app.kept, *got)
    waiting = rho_until_beat(app, view, have)
    if waiting <= LATE:
        return _Call(app, have, 0, waiting, 0.0)
    needed = _needed(app, len(have), app.room - len(got))
    served = app.rho_after(_seconds(app, needed))
    return _Call(app, have, needed - len(have), waiting, _loss(served, waiting))


def _seconds(app: AppView, count: int) -> float:
    """Seconds still needed with this many GPUs, starts included."""
    return app.seconds_at(SLOT, count) + app.starting_seconds


def _needed(app: AppView, have: int, room: int) -> int:
    """The fewest GPUs with which an app would be in time, or hardly slower than with all."""
    counts = range(have, have + room + 1)
    hardly_slower = _seconds(app, have + room) * HARDLY

    def enough(count: int) -> bool:
        seconds = _seconds(app, count)
        return seconds <= hardly_slower or app.rho_after(seconds) <= GOAL

    return counts[min(bisect.bisect_left(counts, True, key=enough), room)]


def _patient(view: View, call: _Call, lent: Mapping[GpuId, AppId]) -> list[list[GpuId]]:
    """The GPUs that can be called in from each app with slack, the most slack first."""
    seats, allowed = view.topology.seats, call.app.machines
    gpus: dict[AppId, list[GpuId]] = {}
    for gpu, holder in sorted(lent.items()):
        if allowed is None or seats[gpu].machine in allowed:
            gpus.setdefault(holder, []).append(gpu)
    patient = []
    for app in view.apps:
        if app.app not in gpus or app.owner == call.app.owner:
            continue
        without = rho_until_beat(app, view, ())
        loss = _loss(rho_until_beat(app, view, app.held), without)
        if loss <= PATIENCE * call.gain and without < call.waiting:
            patient.append((loss, without, app.app))
    return [gpus[app] for _, _, app in sorted(patient)]


def _choose(view: View, call: _Call, patient: Iterable[list[GpuId]]) -> tuple[GpuId, ...]:
    """As many GPUs as a newcomer needs, close together, of as few holders as that takes."""
    pool = Pool(view.topology, ())
    for gpus in patient:
        for gpu in gpus:
            pool.put_back(gpu)
        if len(pool) >= call.more:
            break
    return pool.take(call.more, gang=call.app.gang, near=call.have)
