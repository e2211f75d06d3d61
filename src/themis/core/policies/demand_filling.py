"""Filling apps one after the other, each to its demand: blind to placement, or packed.

fill_anywhere(view, order, rng)   # what the paper's baselines do
fill_packed(view, order)          # the same order as a stronger opponent
"""

import itertools
import random
from collections.abc import Iterable, Sequence

from themis.core.model import LeaseSource
from themis.core.policies.base import Allotment, AppView, Plan, View
from themis.core.policies.leftovers import Hand
from themis.core.policies.placing import Pool


def fill_anywhere(view: View, order: Sequence[AppView], rng: random.Random) -> Plan:
    """Each app its own GPUs, and beyond them others as they come: no matter where they are.

    Idle GPUs go first, then those of the last apps in the order: they lose theirs anyway,
    and no other app has to move.
    """
    pool = Pool(view.topology, view.offer)
    left = dict(view.quotas)
    allotments = []
    claimed = {gpu for app in order for gpu in app.expiring}
    unclaimed = [gpu for gpu in view.offer if gpu not in claimed]
    for app in order:
        room = min(app.room, left.get(app.owner, app.room))
        if room <= 0:
            continue
        if not len(pool):
            break
        # No use starting what cannot run: a gang is all there or not wanted.
        if len(app.kept) + min(room, pool.count(app.machines)) < app.min_gang:
            continue
        gpus = pool.take_own(room, app.expiring, app.gang)
        sources = itertools.chain((unclaimed,), (other.expiring for other in reversed(order)))
        while len(gpus) < room and len(pool) and (source := next(sources, None)) is not None:
            gpus += pool.take_from(source, room - len(gpus), rng, machines=app.machines)
        if app.owner in left:
            left[app.owner] -= len(gpus)
        if gpus:
            allotments.append(Allotment(app.app, tuple(sorted(gpus)), LeaseSource.DIRECT))
    return Plan(tuple(allotments))


def fill_packed(view: View, order: Iterable[AppView]) -> Plan:
    """Each app gang by gang, near what it has, as long as it gets faster."""
    hand = Hand(view, Pool(view.topology, view.offer))
    apps = list(order)
    hand.deal(apps)
    hand.deal_rest(apps)
    return Plan(hand.allotments(LeaseSource.DIRECT))


def reachable(view: View, app: AppView) -> int:
    """GPUs an app would have if everything offered were for it."""
    seats, allowed = view.topology.seats, app.machines
    open_to_it = (
        len(view.offer)
        if allowed is None
        else sum(seats[gpu].machine in allowed for gpu in view.offer)
    )
    return len(app.kept) + min(app.room, open_to_it)
