"""fifo: who came first is filled first, and keeps what it has until it gives it back."""

import random
from typing import ClassVar

from themis.model import Source
from themis.policies.base import AppView, DirectPolicy, Plan, View
from themis.policies.leftovers import Hand
from themis.policies.placing import Pool


class Fifo(DirectPolicy):
    """The order of arrival decides; leases are renewed as long as they are wanted."""

    name: ClassVar[str] = "fifo"

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Holders first, then the queue."""
        hand = Hand(view, Pool(view.topology, view.offer))
        order = sorted(view.apps, key=lambda app: (app.arrival, _tie(view, app)))
        hand.deal_own(order)
        hand.deal(order)
        return Plan(hand.allotments(Source.DIRECT))


def _tie(view: View, app: AppView) -> float:
    return view.rng(f"tie/{app.app}").random()
