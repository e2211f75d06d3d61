"""optimus: the app with the least remaining time is filled to its demand, then the next."""

import random
from typing import ClassVar

from themis.core.model import SLOT
from themis.core.policies.base import AppView, DirectPolicy, Plan, View
from themis.core.policies.demand_filling import fill_anywhere, fill_packed, reachable
from themis.core.policies.ranking import in_order, lead


class Optimus(DirectPolicy):
    """Shortest remaining time with the offered GPUs. Ignores placement, as the paper's does."""

    name: ClassVar[str] = "optimus"

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Fill in rising order of weighted remaining time."""
        return fill_anywhere(view, shortest_rest(view), rng)


class OptimusPacked(DirectPolicy):
    """The same order, packed: a stronger opponent than the paper's."""

    name: ClassVar[str] = "optimus+pack"
    asks_tables: ClassVar[bool] = True
    asks_tables_each_phase: ClassVar[bool] = True

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Fill in rising order of weighted remaining time, gang by gang."""
        return fill_packed(view, shortest_rest(view))


def shortest_rest(view: View) -> list[AppView]:
    """Apps in rising order of the time the rest takes with all that is offered, per weight.

    Ties: first come, then a seeded hash.
    """

    def key(app: AppView) -> tuple[float, float]:
        # Perfect placement: where the GPUs are is what this policy does not look at.
        rest = app.seconds_at(SLOT, reachable(view, app))
        return (rest / app.weight * lead(app), app.arrival)

    return in_order(view, key)
