"""min-max-rho: whole GPUs so that the largest rho is as small as can be, then the next largest."""

import heapq
import random
from collections.abc import Sequence
from typing import ClassVar

from themis.core.model import SLOT, AppId, LeaseSource
from themis.core.policies.base import AppView, DirectPolicy, Plan, View
from themis.core.policies.demand_filling import reachable
from themis.core.policies.leftovers import Hand
from themis.core.policies.newcomer_preemption import Caller
from themis.core.policies.placing import Pool
from themis.core.policies.ranking import worst_off

_LOWER = 1e-9


class MinMaxRho(Caller, DirectPolicy):
    """Finish-time fairness as a program over allocations, without bids and payments (Gavel's)."""

    name: ClassVar[str] = "min-max-rho"
    asks_tables: ClassVar[bool] = True
    asks_tables_each_phase: ClassVar[bool] = True

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Find how many GPUs each app should have, then place them; running jobs stay."""
        order = worst_off(view, view.apps, lambda app: app.rho_nothing)
        limits = level_rho(view, order)
        hand = Hand(view, Pool(view.topology, view.offer))
        hand.deal_own(order, limits)
        hand.deal(sorted(order, key=lambda app: (-app.gang, -limits[app.app])), limits=limits)
        # What gangs and constraints left goes to whoever can use it, the worst off first.
        hand.deal(order)
        hand.deal_rest(order)
        return Plan(hand.allotments(LeaseSource.DIRECT))


def level_rho(view: View, order: Sequence[AppView]) -> dict[AppId, int]:
    """How many of the offered GPUs each app gets in the lexicographic optimum.

    Rho falls with every GPU, so the worst off must be raised before any other app, and greedy is
    exact as long as apps grow by single GPUs; steps of whole gangs can leave a gap at the end.
    Counts assume gangs close together: where the GPUs are is decided afterwards.
    """
    left, quotas = len(view.offer), dict(view.quotas)
    given = {app.app: 0 for app in order}
    most = {app.app: reachable(view, app) for app in order}
    heap = [(-app.rho_nothing, place) for place, app in enumerate(order)]
    heapq.heapify(heap)
    while heap and left > 0:
        worst, place = heapq.heappop(heap)
        app = order[place]
        have = len(app.kept) + given[app.app]
        count, rho = _step(app, have, most[app.app], -worst)
        more = count - have
        # Nothing that is left helps it: its rho stands, and the next app is raised.
        if more == 0 or more > min(left, quotas.get(app.owner, left)):
            continue
        given[app.app] += more
        left -= more
        if app.owner in quotas:
            quotas[app.owner] -= more
        heapq.heappush(heap, (-rho, place))
    return given


def _step(app: AppView, have: int, most: int, rho: float) -> tuple[int, float]:
    """The fewest GPUs with a better rho than now, and that rho; what it has if there are none."""
    for count in range(have + 1, most + 1):
        # An app that never gave a table is valued by its declared work, which knows no gangs.
        if count < app.min_gang:
            continue
        better = app.rho_after(app.seconds_at(SLOT, count))
        if better < rho * (1.0 - _LOWER):
            return count, better
    return have, rho
