"""worst-first: all that is available to the app with the worst rho, packed, then to the next."""

import random
from typing import ClassVar

from themis.core.model import LeaseSource
from themis.core.policies.base import DirectPolicy, Plan, View
from themis.core.policies.leftovers import Hand
from themis.core.policies.newcomer_preemption import Caller
from themis.core.policies.placing import Pool
from themis.core.policies.ranking import worst_off


class WorstFirst(Caller, DirectPolicy):
    """What remains of Themis without bids and payments."""

    name: ClassVar[str] = "worst-first"
    asks_tables: ClassVar[bool] = True
    asks_tables_each_phase: ClassVar[bool] = True

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Fill apps in falling order of their present rho."""
        hand = Hand(view, Pool(view.topology, view.offer))
        order = worst_off(view, view.apps, lambda app: app.rho_now)
        hand.deal(order)
        hand.deal_rest(order)
        return Plan(hand.allotments(LeaseSource.DIRECT))
