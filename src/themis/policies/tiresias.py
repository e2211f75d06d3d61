"""tiresias: the app with the least GPU-time so far is filled to its demand, then the next."""

import random
from typing import ClassVar

from themis.model import Source
from themis.policies.base import Allotment, AppView, DirectPolicy, Plan, View
from themis.policies.leftovers import Hand
from themis.policies.placing import Pool
from themis.policies.ranking import tie


class Tiresias(DirectPolicy):
    """Least attained service. Ignores placement: beyond what an app has, GPUs come as they come."""

    name: ClassVar[str] = "tiresias"
    looks_at_progress: ClassVar[bool] = False

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Fill in rising order of weighted attained GPU-time."""
        pool = Pool(view.topology, view.offer)
        left = dict(view.quotas)
        allotments = []
        for app in least_attained(view):
            room = min(app.room, left.get(app.owner, app.room))
            # No use starting what cannot run: a gang is all there or not wanted.
            if len(app.kept) + min(room, pool.count(app.machines)) < app.min_gang:
                continue
            own = pool.take_own(room, app.expiring, app.gang)
            gpus = (*own, *pool.take_anywhere(room - len(own), rng, machines=app.machines))
            if app.owner in left:
                left[app.owner] -= len(gpus)
            if gpus:
                allotments.append(Allotment(app.app, tuple(sorted(gpus)), Source.DIRECT))
        return Plan(tuple(allotments))


class TiresiasPacked(DirectPolicy):
    """The same order, packed: a stronger opponent than the paper's."""

    name: ClassVar[str] = "tiresias+pack"
    asks_tables: ClassVar[bool] = True
    asks_tables_each_phase: ClassVar[bool] = True

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Fill in rising order of weighted attained GPU-time, gang by gang."""
        hand = Hand(view, Pool(view.topology, view.offer))
        hand.deal(least_attained(view))
        return Plan(hand.allotments(Source.DIRECT))


def least_attained(view: View) -> list[AppView]:
    """Apps in rising order of GPU-time per weight; ties: first come, then a seeded hash."""
    return sorted(
        view.apps,
        key=lambda app: (
            app.attained / app.weight,
            app.arrival,
            tie(view, app),
        ),
    )
