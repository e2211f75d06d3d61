"""Dealing out what the auction left: no GPU idles that somebody could use, no payment returns.

hand = Hand(view, pool)
hand.deal(apps)                  # in this order, as much as makes each faster
hand.allotments(Source.LEFTOVER)
"""

import math
from collections.abc import Collection, Iterable, Mapping

from themis.model import AppId, GpuId, OwnerId, Source
from themis.policies.base import Allotment, AppView, View
from themis.policies.placing import Pool

_FASTER = 1e-9

Limits = Mapping[AppId, int] | None
"""The most GPUs that apps may be given in this round; None for all they can use."""


class Hand:
    """GPUs given to apps so far in a round, within their room and their owners' quotas."""

    def __init__(self, view: View, pool: Pool) -> None:
        self._pool = pool
        self._given: dict[AppId, list[GpuId]] = {}
        self._left: dict[OwnerId, int] = dict(view.quotas)
        self.declined: set[AppId] = set()
        """Could have had some, would not have run faster."""

    def note(self, app: AppView, gpus: Iterable[GpuId]) -> None:
        """Count GPUs that an app has got by other means."""
        mine = self._given.setdefault(app.app, [])
        before = len(mine)
        mine.extend(gpus)
        if app.owner in self._left:
            self._left[app.owner] -= len(mine) - before

    def given(self, app: AppId) -> tuple[GpuId, ...]:
        """What an app has got so far, sorted."""
        return tuple(sorted(self._given.get(app, ())))

    def room(self, app: AppView, limits: Limits = None) -> int:
        """What an app may still be given, of at most so much in this round."""
        most = app.room if limits is None else min(app.room, limits[app.app])
        room = most - len(self._given.get(app.app, ()))
        return max(0, min(room, self._left.get(app.owner, room)))

    def deal_own(self, apps: Iterable[AppView], limits: Limits = None) -> None:
        """Let apps go on where they run now."""
        for app in apps:
            own = [gpu for gpu in app.expiring if gpu in self._pool]
            room = self.room(app, limits)
            if not own or room <= 0:
                continue
            taken = self._pool.take_own(room, own, app.gang)
            self._keep_useful(app, [taken])

    def deal(
        self, apps: Iterable[AppView], barred: Collection[GpuId] = (), limits: Limits = None
    ) -> None:
        """Fill apps in this order, gang by gang, each as long as it gets faster."""
        for app in apps:
            room = self.room(app, limits)
            if room <= 0 or not len(self._pool):
                continue
            out = [gpu for gpu in barred if gpu in self._pool]
            self._pool.remove(out)
            gangs = self._take_gangs(app, room)
            for gpu in out:
                self._pool.put_back(gpu)
            self._keep_useful(app, gangs)

    def _take_gangs(self, app: AppView, room: int) -> list[list[GpuId]]:
        near = (*app.kept, *self._given.get(app.app, ()))
        gangs: list[list[GpuId]] = []
        taken = 0
        while taken < room:
            size = min(app.gang, room - taken)
            part = self._pool.take(
                size, gang=app.gang, own=app.expiring, near=near, machines=app.machines
            )
            if not part:
                break
            gangs.append(list(part))
            taken += len(part)
        return gangs

    def _keep_useful(self, app: AppView, gangs: list[list[GpuId]]) -> None:
        """Keep what makes the app faster; the rest goes back to the pool."""
        if not gangs:
            return
        have = [*app.kept, *self._given.get(app.app, ())]
        base = app.seconds_with(have)
        full = app.seconds_with([*have, *(gpu for gang in gangs for gpu in gang)])
        # Gangs come best placed first, so what does not help is at the end.
        while gangs and not _faster(full, base):
            self._return(gangs.pop())
            full = app.seconds_with([*have, *(gpu for gang in gangs for gpu in gang)])
        while len(gangs) > 1:
            less = app.seconds_with([*have, *(gpu for gang in gangs[:-1] for gpu in gang)])
            if _faster(full, less):
                break
            self._return(gangs.pop())
            full = less
        if gangs:
            self.note(app, (gpu for gang in gangs for gpu in gang))
        elif not have:
            self.declined.add(app.app)

    def _return(self, gpus: Iterable[GpuId]) -> None:
        for gpu in gpus:
            self._pool.put_back(gpu)

    def allotments(self, source: Source, skip: Collection[GpuId] = ()) -> tuple[Allotment, ...]:
        """What was given, as part of a plan."""
        result = []
        for app in sorted(self._given):
            gpus = tuple(gpu for gpu in self.given(app) if gpu not in skip)
            if gpus:
                result.append(Allotment(app, gpus, source))
        return tuple(result)


def _faster(seconds: float, before: float) -> bool:
    if math.isinf(seconds):
        return False
    return seconds < before * (1.0 - _FASTER)
