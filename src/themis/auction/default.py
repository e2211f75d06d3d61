"""Search, and HiGHS where the search does not finish quickly."""

from themis.auction.bounds import count_scarce
from themis.auction.prepared import Prepared
from themis.auction.search import Finder
from themis.auction.solver import Find, Found, start_of

SEARCH_NODES = 600
"""Nodes after which HiGHS is asked: about the time HiGHS takes for a small auction."""

LATER_NODES = 60
"""The same once HiGHS was needed: the re-solves of a hard auction are hard too."""


def start(prepared: Prepared) -> Find:
    """Begin; HiGHS is loaded only when it is needed."""
    search = Finder(prepared, count_scarce(prepared)).find
    milp: list[Find] = []

    def find(bidders: tuple[int, ...], budget: int | None) -> Found:
        patience = LATER_NODES if milp else SEARCH_NODES
        nodes = patience if budget is None else min(patience, budget)
        quick = search(bidders, nodes)
        if quick.exact or budget == nodes:
            return quick
        if not milp:
            milp.append(start_of("highs")(prepared))
        slow = milp[0](bidders, None if budget is None else budget - nodes)
        better = quick if quick.value > slow.value else slow
        work = quick.work + slow.work
        return Found(better.chosen, min(quick.bound, slow.bound), slow.exact, work, better.place)

    return find
