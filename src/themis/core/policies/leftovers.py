"""Dealing out leftovers: no GPU idles that an app could use, and no payment returns.

hand = Hand(view, pool)
hand.deal(apps)                  # in this order, as much as makes each faster
hand.allotments(Source.LEFTOVER)
"""

import bisect
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from themis.core.model import SLOT, AppId, GpuId, LeaseSource, OwnerId
from themis.core.policies.base import Allotment, AppView, View
from themis.core.policies.placing import Pool

_FASTER = 1e-9

Limits = Mapping[AppId, int] | None
"""The most GPUs that apps may be given in this round; None for all they can use."""

Barred = Mapping[AppId, Sequence[GpuId]]
"""GPUs that an app may not be given, by app."""

UNBARRED: Barred = {}


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
        if len(mine) > before:
            self.declined.discard(app.app)
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

    def give(self, app: AppView, gpus: Iterable[GpuId]) -> bool:
        """Give GPUs of the pool, as far as they make the app faster; whether any did."""
        part = list(gpus)
        before = len(self._given.get(app.app, ()))
        self._pool.remove(part)
        self._keep_useful(app, [part])
        return len(self._given.get(app.app, ())) > before

    def take_back(self, app: AppView, gpus: Collection[GpuId]) -> None:
        """Return GPUs that an app was given in this round to the pool."""
        mine = self._given[app.app]
        for gpu in gpus:
            mine.remove(gpu)
        if app.owner in self._left:
            self._left[app.owner] += len(gpus)
        self._return(gpus)

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
            if not len(self._pool):
                return
            while self._deal_once(app, barred, limits):
                pass

    def deal_rest(self, apps: Iterable[AppView], barred: Barred = UNBARRED) -> None:
        """Deal GPUs that no table sees a use for, since tables have rows for whole gangs only.

        Three GPUs beyond four gangs of four are worth nothing by such a table. An app may train on
        them anyway, in narrower gangs: one that runs on them goes on, for it would have to
        cut the others anew; then come those with more jobs than GPUs.
        """
        if not len(self._pool):
            return
        order = list(apps)
        for app in order:
            if len(app.kept) + len(self._given.get(app.app, ())):
                self._top_up(app, self.room(app), barred.get(app.app, ()), own=True)
        for app in order:
            have = len(app.kept) + len(self._given.get(app.app, ()))
            spare = app.runnable_jobs * app.min_gang - have
            if have and spare > 0:
                most = min(self.room(app), spare) // app.min_gang * app.min_gang
                self._top_up(app, most, barred.get(app.app, ()))

    def _top_up(
        self, app: AppView, most: int, barred: Collection[GpuId], *, own: bool = False
    ) -> None:
        if most <= 0 or not len(self._pool):
            return
        if own:
            mine = [gpu for gpu in app.expiring if gpu in self._pool and gpu not in barred]
            self.note(app, self._pool.take_own(most, mine, app.gang))
            return
        out = [gpu for gpu in barred if gpu in self._pool]
        self._pool.remove(out)
        near = (*app.kept, *self._given.get(app.app, ()))
        gpus = self._pool.take(most, gang=app.gang, near=near, machines=app.machines)
        over = len(gpus) % app.min_gang
        self._return([*out, *gpus[len(gpus) - over :]])
        self.note(app, gpus[: len(gpus) - over])

    def _deal_once(self, app: AppView, barred: Collection[GpuId], limits: Limits) -> bool:
        room = self.room(app, limits)
        if room <= 0 or not len(self._pool) or not self._could_help(app, room):
            return False
        before = len(self._given.get(app.app, ()))
        out = [gpu for gpu in barred if gpu in self._pool]
        self._pool.remove(out)
        near = (*app.kept, *self._given.get(app.app, ()))
        parts = self._pool.take_parts(
            room, gang=app.gang, own=app.expiring, near=near, machines=app.machines
        )
        if parts:
            self._keep_useful(app, parts)
        # Single GPUs are the same everywhere: what packing finds is all there is.
        if len(self._given.get(app.app, ())) == before and app.gang > 1:
            self._take_any_help(app, room)
        self._return(out)
        return len(self._given.get(app.app, ())) > before

    def _could_help(self, app: AppView, room: int) -> bool:
        """Whether this many GPUs, ideally placed, would make the app faster."""
        have = [*app.kept, *self._given.get(app.app, ())]
        most = min(room, len(self._pool))
        return _faster(app.seconds_at(SLOT, len(have) + most), _seconds(app, have))

    def _take_any_help(self, app: AppView, room: int) -> None:
        """Packing found nothing useful: look for one slot or machine that still helps."""
        have = [*app.kept, *self._given.get(app.app, ())]
        best, chosen = _seconds(app, have), []
        if not _faster(_seconds(app, [*have, *self._pool.gpus()]), best):
            return
        for group in self._pool.holes(app.machines):
            seconds = _seconds(app, [*have, *group[:room]])
            if _faster(seconds, best):
                best, chosen = seconds, group[:room]
        self._pool.remove(chosen)
        self.note(app, chosen)

    def _keep_useful(self, app: AppView, parts: list[list[GpuId]]) -> None:
        """Keep what makes the app faster; the rest goes back to the pool."""
        have = [*app.kept, *self._given.get(app.app, ())]
        after = _seconds(app, [*have, *_flat(parts)])
        if _faster(after, _seconds(app, have)):
            trim = self._trimmed_singles if app.gang == 1 else self._trimmed
            self.note(app, trim(app, have, parts, after))
            return
        self._return(_flat(parts))
        if not have and sum(map(len, parts)) >= app.min_gang:
            # Too few for any gang would be a lack of GPUs, not a matter of where they are.
            self.declined.add(app.app)

    def _trimmed_singles(
        self, app: AppView, have: list[GpuId], parts: list[list[GpuId]], seconds: float
    ) -> list[GpuId]:
        """Without what adds nothing, where only their number matters: the last ones go."""
        gpus = _flat(parts)
        fewest = bisect.bisect_left(
            range(1, len(gpus)),
            True,
            key=lambda count: not _faster(seconds, _seconds(app, [*have, *gpus[:count]])),
        )
        self._return(gpus[fewest + 1 :])
        return gpus[: fewest + 1]

    def _trimmed(
        self, app: AppView, have: list[GpuId], parts: list[list[GpuId]], seconds: float
    ) -> list[GpuId]:
        """Without what adds nothing: a gang spread too far uses its best part only.

        Own GPUs and full gangs come first in `parts`, so they are the last to go. Of a machine that
        stays, GPUs beyond whole gangs go if they add nothing: another app may lack just them.
        """
        pieces = [piece for part in parts for piece in self._pool.by_machine(part)]
        for piece in reversed(pieces):
            rest = [other for other in pieces if other is not piece]
            if not _faster(seconds, _seconds(app, [*have, *_flat(rest)])):
                self._return(piece)
                pieces = rest
        gang = app.gang
        for index, piece in reversed(list(enumerate(pieces))):
            over = len(piece) % gang
            if not over:
                continue
            shorter = [*pieces[:index], piece[: len(piece) - over], *pieces[index + 1 :]]
            if not _faster(seconds, _seconds(app, [*have, *_flat(shorter)])):
                self._return(piece[len(piece) - over :])
                pieces = shorter
        return _flat(pieces)

    def _return(self, gpus: Iterable[GpuId]) -> None:
        for gpu in gpus:
            self._pool.put_back(gpu)

    def allotments(
        self, source: LeaseSource, skip: Collection[GpuId] = ()
    ) -> tuple[Allotment, ...]:
        """What was given, as part of a plan."""
        result = []
        for app in sorted(self._given):
            gpus = tuple(gpu for gpu in self.given(app) if gpu not in skip)
            if gpus:
                result.append(Allotment(app, gpus, source))
        return tuple(result)


def _flat(parts: Iterable[Iterable[GpuId]]) -> list[GpuId]:
    return [gpu for part in parts for gpu in part]


def _seconds(app: AppView, gpus: list[GpuId]) -> float:
    # An app that never gave a table is valued by its declared work, which knows no gangs.
    return app.seconds_with(gpus) if len(gpus) >= max(1, app.min_gang) else math.inf


def _faster(seconds: float, before: float) -> bool:
    if math.isinf(seconds):
        return False
    return seconds < before * (1.0 - _FASTER)
