"""equal-share: every active app gets its weighted max-min share at every beat, packed, sticky."""

import math
import random
from collections.abc import Sequence
from typing import ClassVar

from themis.core.model import AppId, LeaseSource
from themis.core.policies.base import AppView, DirectPolicy, Plan, View
from themis.core.policies.leftovers import Hand
from themis.core.policies.newcomer_preemption import Caller
from themis.core.policies.placing import Pool
from themis.core.policies.ranking import in_order


class EqualShare(Caller, DirectPolicy):
    """The natural opponent: no app is ever far from its share."""

    name: ClassVar[str] = "equal-share"
    asks_tables: ClassVar[bool] = True
    asks_tables_each_phase: ClassVar[bool] = True

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Round the fluid shares to whole GPUs, those owed the most first, and pack them."""
        order = in_order(view, lambda app: (_served(app), app.arrival))
        total = len(view.offer) + sum(len(app.kept) for app in order)
        shares = whole_shares(order, total)
        limits = {app.app: max(0, shares[app.app] - len(app.kept)) for app in order}
        hand = Hand(view, Pool(view.topology, view.offer))
        if self.calls_in and not view.at_beat:
            # It was called in for them: all of it from few, who would be owed it at once.
            hand.deal([app for app in order if app.newcomer], limits=limits)
        hand.deal_own(order, limits)
        hand.deal(sorted(order, key=lambda app: (-app.gang, -limits[app.app])), limits=limits)
        # What gangs and constraints left goes to whoever can use it, the least served first.
        hand.deal(order)
        hand.deal_rest(order)
        return Plan(hand.allotments(LeaseSource.DIRECT))


def _served(app: AppView) -> float:
    """The mean share that an app has had per weight: an app that had less is owed more."""
    return app.attained / (app.weight * app.elapsed) if app.elapsed > 0 else 0.0


def whole_shares(order: Sequence[AppView], total: int) -> dict[AppId, int]:
    """Weighted max-min shares of `total` GPUs in whole numbers; early in `order` rounds up."""
    fluid = max_min([app.weight for app in order], [_most(app) for app in order], total)
    shares = {app.app: math.floor(share + 1e-9) for app, share in zip(order, fluid, strict=True)}
    spare = total - sum(shares.values())
    for app, share in zip(order, fluid, strict=True):
        if spare > 0 and share - shares[app.app] > 1e-9 and shares[app.app] < _most(app):
            shares[app.app] += 1
            spare -= 1
    return shares


def _most(app: AppView) -> int:
    return len(app.kept) + app.room


def max_min(weights: Sequence[float], demands: Sequence[int], total: float) -> list[float]:
    """Shares that grow together in proportion to weight until demand or the total stops them."""
    shares = [0.0] * len(weights)
    order = sorted(range(len(weights)), key=lambda i: (demands[i] / weights[i], i))
    left, weight = float(total), math.fsum(weights)
    for i in order:
        shares[i] = min(float(demands[i]), left * weights[i] / weight) if weight > 0 else 0.0
        left -= shares[i]
        weight -= weights[i]
    return shares
