"""A plain search for the small auctions, the ladder for all others."""

from themis.core.auction.solvers.bounds import count_scarce
from themis.core.auction.solvers.prepared import PreparedProblem
from themis.core.auction.solvers.registry import Determination, Find, Left, is_late, start_of
from themis.core.auction.solvers.search import SearchFinder

SMALL = 80
"""Rows in all up to which searching is quicker than setting up tables and prices."""

SEARCH_NODES = 100
"""Nodes after which the ladder takes over: about the time that it needs for a small auction."""


def start(prepared: PreparedProblem, left: Left | None = None) -> Find:
    """Begin; the libraries of the ladder are loaded only when it is needed."""
    if sum(map(len, prepared.options)) > SMALL:
        return start_of("ladder")(prepared, left)
    search = SearchFinder(prepared, count_scarce(prepared), left).find
    ladder: list[Find] = []

    def find(bidders: tuple[int, ...], budget: int | None) -> Determination:
        if ladder:  # the re-solves of a hard auction are hard too
            return ladder[0](bidders, budget)
        nodes = SEARCH_NODES if budget is None else min(SEARCH_NODES, budget)
        quick = search(bidders, nodes)
        if quick.exact or budget == nodes or is_late(left):
            return quick
        ladder.append(start_of("ladder")(prepared, left))
        slow = ladder[0](bidders, None if budget is None else budget - nodes)
        better = quick if quick.value > slow.value else slow
        work = quick.work + slow.work
        return Determination(
            better.chosen, min(quick.bound, slow.bound), slow.exact, work, better.place
        )

    return find
