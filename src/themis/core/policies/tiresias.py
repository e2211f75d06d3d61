"""tiresias: the app with the least GPU-time so far is filled to its demand, then the next."""

import random
from typing import ClassVar

from themis.core.policies.base import AppView, DirectPolicy, Plan, View
from themis.core.policies.demand_filling import fill_anywhere, fill_packed
from themis.core.policies.ranking import in_order, lead


class Tiresias(DirectPolicy):
    """Least attained service. Ignores placement: beyond what an app has, GPUs come as they come."""

    name: ClassVar[str] = "tiresias"
    looks_at_progress: ClassVar[bool] = False

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Fill in rising order of weighted attained GPU-time."""
        return fill_anywhere(view, least_attained(view), rng)


class TiresiasPacked(DirectPolicy):
    """The same order, packed: a stronger opponent than the paper's."""

    name: ClassVar[str] = "tiresias+pack"
    asks_tables: ClassVar[bool] = True
    asks_tables_each_phase: ClassVar[bool] = True

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Fill in rising order of weighted attained GPU-time, gang by gang."""
        return fill_packed(view, least_attained(view))


def least_attained(view: View) -> list[AppView]:
    """Apps in rising order of GPU-time per weight; ties: first come, then a seeded hash.

    A running app counts as having had a little less: else neighbours would swap at every beat.
    """
    return in_order(view, lambda app: (app.attained / app.weight * lead(app), app.arrival))
