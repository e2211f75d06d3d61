"""drf: free GPUs go, task by task, to the app with the smallest share; tasks run to completion."""

import heapq
import random
from typing import ClassVar

from themis.core.model import AppId, LeaseSource
from themis.core.policies.base import AppView, DirectPolicy, Plan, View
from themis.core.policies.leftovers import Hand
from themis.core.policies.placing import Pool
from themis.core.policies.ranking import in_order


class Drf(DirectPolicy):
    """Dominant resource fairness with one resource, and nothing ever taken away."""

    name: ClassVar[str] = "drf"
    asks_tables: ClassVar[bool] = True
    asks_tables_each_phase: ClassVar[bool] = True

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Renew what runs, then give gang after gang to whoever has the least per weight."""
        hand = Hand(view, Pool(view.topology, view.offer))
        order = in_order(view, lambda app: (app.arrival,))
        hand.deal_own(order)
        heap = [(_share(app, hand), place) for place, app in enumerate(order)]
        heapq.heapify(heap)
        while heap:
            _, place = heapq.heappop(heap)
            app = order[place]
            if _start_task(app, hand):
                heapq.heappush(heap, (_share(app, hand), place))
        return Plan(hand.allotments(LeaseSource.DIRECT))


def _share(app: AppView, hand: Hand) -> float:
    """GPUs per weight; the size of the cluster is the same for all."""
    return (len(app.kept) + len(hand.given(app.app))) / app.weight


def _start_task(app: AppView, hand: Hand) -> bool:
    """Give one more gang, or part of one if no whole gang is available."""
    before = len(hand.given(app.app))
    # A broken gang is made whole first, so that jobs do not stay small for good.
    missing = -(len(app.kept) + before) % app.gang or app.gang
    limits: dict[AppId, int] = {app.app: before + missing}
    hand.deal([app], limits=limits)
    if len(hand.given(app.app)) == before:
        # What one gang cannot use may still help: a slower spread of two, for example.
        hand.deal([app])
    return len(hand.given(app.app)) > before
