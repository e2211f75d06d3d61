"""static: the cluster in fixed parts, every app in one of them for life."""

import itertools
import random
from collections.abc import Sequence
from typing import ClassVar

from themis.core.model import GpuId, LeaseSource, Topology
from themis.core.model.ids import check_count
from themis.core.policies.base import AppView, DirectPolicy, Plan, View
from themis.core.policies.leftovers import Hand
from themis.core.policies.placing import Pool
from themis.core.policies.ranking import in_order

Parts = Sequence[tuple[GpuId, ...]]


class Static(DirectPolicy):
    """One fixed partition; inside a part, first come, first served.

    Policies keep no state, so an app's part follows from its name and the seed, not from how full
    the parts were when it came.
    """

    name: ClassVar[str] = "static"
    asks_tables: ClassVar[bool] = True
    asks_tables_each_phase: ClassVar[bool] = True

    def __init__(self, *, parts: int = 8) -> None:
        self.parts = check_count("parts", parts, high=100_000)

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Holders first, then each app in the order of arrival from its part alone."""
        parts = partition(view.topology, self.parts)
        pool = Pool(view.topology, view.offer)
        hand = Hand(view, pool)
        order = in_order(view, lambda app: (app.arrival,))
        hand.deal_own(order)
        for app in order:
            if hand.room(app) > 0:
                home = home_of(view, app, parts)
                if any(gpu in pool for gpu in home):
                    hand.deal([app], barred=[gpu for gpu in pool.gpus() if gpu not in home])
        return Plan(hand.allotments(LeaseSource.DIRECT))


def partition(topology: Topology, parts: int) -> Parts:
    """GPUs in parts of equal size (to within one), each as close together as ids in order are."""
    # A machine that joins late stands at the end, not beside its rack.
    gpus = [seat.gpu for seat in sorted(topology.seats)]
    count = max(1, min(parts, len(gpus)))
    bounds = [index * len(gpus) // count for index in range(count + 1)]
    return [tuple(gpus[a:b]) for a, b in itertools.pairwise(bounds)]


def home_of(view: View, app: AppView, parts: Parts) -> frozenset[GpuId]:
    """The GPUs an app may be given: its part, and following ones until its smallest gang fits."""
    first = random.Random(f"{view.seed}/part/{app.app}").randrange(len(parts))
    seats = view.topology.seats
    home: list[GpuId] = []
    for part in (*parts[first:], *parts[:first]):
        home += [g for g in part if app.machines is None or seats[g].machine in app.machines]
        if len(home) >= app.min_gang:
            break
    return frozenset(home)
