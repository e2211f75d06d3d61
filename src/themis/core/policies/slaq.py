"""slaq: the app whose loss falls most over the lease is filled to its demand, then the next."""

import random
from typing import ClassVar

from themis.core.model import SLOT
from themis.core.model.ids import check_number
from themis.core.policies.base import AppView, DirectPolicy, Plan, View
from themis.core.policies.demand_filling import fill_anywhere, fill_packed, reachable
from themis.core.policies.ranking import in_order, lead


class Slaq(DirectPolicy):
    """Largest loss decrease with the offered GPUs. Ignores placement, as the paper's does.

    `steepness` is the k of the loss model 1 / (1 + k * progress), see decisions/0024.
    """

    name: ClassVar[str] = "slaq"

    def __init__(self, *, steepness: float = 9.0) -> None:
        self.steepness = check_number("steepness", steepness, above=True, high=1e6)

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Fill in falling order of weighted loss decrease."""
        return fill_anywhere(view, steepest(view, self.steepness), rng)


class SlaqPacked(DirectPolicy):
    """The same order, packed: a stronger opponent than the paper's."""

    name: ClassVar[str] = "slaq+pack"
    asks_tables: ClassVar[bool] = True
    asks_tables_each_phase: ClassVar[bool] = True

    def __init__(self, *, steepness: float = 9.0) -> None:
        self.steepness = check_number("steepness", steepness, above=True, high=1e6)

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Fill in falling order of weighted loss decrease, gang by gang."""
        return fill_packed(view, steepest(view, self.steepness))


def steepest(view: View, steepness: float) -> list[AppView]:
    """Apps in falling order of what a lease with all that is offered takes off their loss.

    Ties: first come, then a seeded hash.
    """

    def key(app: AppView) -> tuple[float, float]:
        rest = app.seconds_at(SLOT, reachable(view, app))
        drop = loss_drop(app.progress, rest, view.lease, steepness)
        return (-drop * app.weight / lead(app), app.arrival)

    return in_order(view, key)


def loss_drop(progress: float, rest: float, lease: float, steepness: float) -> float:
    """By how much the loss falls in a lease, if the remaining work takes `rest` seconds."""
    share = min(1.0, lease / rest) if rest > 0.0 else 1.0
    return _loss(progress, steepness) - _loss(progress + (1.0 - progress) * share, steepness)


def _loss(progress: float, steepness: float) -> float:
    """The remaining part of the first loss, which falls like one over iterations."""
    return 1.0 / (1.0 + steepness * progress)
