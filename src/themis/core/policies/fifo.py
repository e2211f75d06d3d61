"""fifo: who came first is filled first, and keeps what it has until it gives it back."""

import random
from typing import ClassVar

from themis.core.model import LeaseSource
from themis.core.policies.base import DirectPolicy, Plan, View
from themis.core.policies.leftovers import Hand
from themis.core.policies.placing import Pool
from themis.core.policies.ranking import in_order


class Fifo(DirectPolicy):
    """The order of arrival decides; leases are renewed as long as they are wanted."""

    name: ClassVar[str] = "fifo"
    asks_tables: ClassVar[bool] = True
    asks_tables_each_phase: ClassVar[bool] = True

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Holders first, then the queue."""
        hand = Hand(view, Pool(view.topology, view.offer))
        order = in_order(view, lambda app: (app.arrival,))
        hand.deal_own(order)
        hand.deal(order)
        return Plan(hand.allotments(LeaseSource.DIRECT))
