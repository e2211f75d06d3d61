"""Exact search for the usual auction: a handful of apps.

Prices prove a bound; a combination of rows can beat the best one found only if what its rows fall
short of each app's favourite, at those prices, sums up to less than the gap. So the search walks
combinations in order of shortfall and packs only those that could win.
"""

from dataclasses import dataclass, field

from themis.core.auction.packing.exact import PackingLimitError, by_option, needs_of, pack
from themis.core.auction.solution import Place
from themis.core.auction.solvers.bounds import Counts, Prices, count_scarce, price
from themis.core.auction.solvers.greedy import serve
from themis.core.auction.solvers.prepared import Option, PreparedProblem
from themis.core.auction.solvers.registry import Determination, Find, Left, is_late
from themis.errors import InvariantError

TOLERANCE = 1e-9
"""Nats: combinations better by less than this are not looked for."""

PACKING_LIMIT = 300
"""Steps for one packing when there is a budget; where it does not do, a MILP is the better tool."""

FIRST_STEPS = 60
NEXT_STEPS = 15
"""Price steps from scratch, and from the prices of the whole auction."""


def start(prepared: PreparedProblem, left: Left | None = None) -> Find:
    """Begin; without a budget it runs until it has proof."""
    return SearchFinder(prepared, count_scarce(prepared), left).find


@dataclass(slots=True)
class SearchFinder:
    """Winner determinations on one problem; they share prices, packings and a first guess."""

    prepared: PreparedProblem
    counts: Counts
    left: Left | None = None
    packed: dict[tuple[tuple[int, int], ...], bool] = field(default_factory=dict)
    prices: Prices | None = None
    guess: tuple[Option, ...] = ()

    def find(self, bidders: tuple[int, ...], budget: int | None) -> Determination:
        """Determine the winners among these bidders."""
        present = set(bidders)
        first = serve(self.prepared, bidders, [o for o in self.guess if o.bidder in present])
        steps = NEXT_STEPS if self.prices else FIRST_STEPS
        floor = first.value
        prices = price(self.prepared, self.counts, bidders, floor, self.prices, steps)
        if prices.bound - floor <= TOLERANCE:
            best = Determination(first.chosen, floor, True, 1, first.place)
        else:
            best = _Walk(self, bidders, prices, first).run(budget)
        if len(bidders) == len(self.prepared.bidders):
            self.prices = prices
            self.guess = best.chosen
        return best

    def fits(self, chosen: tuple[Option, ...], limit: int | None) -> bool:
        """Whether rows fit together.

        Raises:
            PackingLimitError: That took more than `limit` steps.
        """
        name = tuple(sorted((option.bidder, option.row) for option in chosen))
        known = self.packed.get(name)
        if known is None:
            # A chunk that may lie anywhere fits once the rest does: GPUs were counted before.
            needs = [need for need in needs_of(self.prepared, chosen) if not need.anywhere]
            known = self.packed[name] = pack(self.prepared.machines, needs, limit) is not None
        return known


class _OutOfBudgetError(Exception):
    """The walk was cut off."""


_Entry = tuple[float, Option | None, tuple[int, ...]]
"""A choice of one bidder: its shortfall, the row (None: nothing), what that takes of each count."""


class _Walk:
    """One depth-first walk over combinations whose shortfall stays below the gap."""

    def __init__(
        self, finder: SearchFinder, bidders: tuple[int, ...], prices: Prices, first: Determination
    ) -> None:
        self.finder = finder
        self.first = first
        self.bound = prices.bound
        self.best: tuple[Option, ...] = first.chosen
        self.gap = prices.bound - first.value
        self.nodes = 0
        self.columns = [self._column(bidder, prices) for bidder in bidders]
        # Apps with few choices left come first: mistakes show early.
        self.columns.sort(key=len)

    def run(self, budget: int | None) -> Determination:
        """Walk, within a number of nodes."""
        try:
            self._descend(0, 0.0, (), self.finder.counts.capacity, budget)
            proven = True
        except (_OutOfBudgetError, PackingLimitError):
            proven = False
        chosen = tuple(sorted(self.best, key=lambda option: option.bidder))
        bound = sum(option.gain for option in chosen) if proven else self.bound
        return Determination(chosen, bound, proven, self.nodes, lambda: self._place(chosen))

    def _column(self, bidder: int, prices: Prices) -> list[_Entry]:
        entries: list[tuple[float, Option | None, tuple[int, ...]]] = [(0.0, None, ())]
        rows = zip(
            self.finder.prepared.options[bidder], self.finder.counts.usage[bidder], strict=True
        )
        for option, usage in rows:
            cost = sum(p * used for p, used in zip(prices.prices, usage, strict=True))
            entries.append((option.gain - cost, option, usage))
        most = max(left for left, _, _ in entries)
        short = [(most - left, option, usage) for left, option, usage in entries]
        close = [entry for entry in short if entry[0] < self.gap]
        close.sort(key=lambda entry: (entry[0], -1 if entry[1] is None else entry[1].row))
        return close

    def _descend(
        self,
        depth: int,
        shortfall: float,
        chosen: tuple[Option, ...],
        spare: tuple[int, ...],
        budget: int | None,
    ) -> None:
        self.nodes += 1
        if (budget is not None and self.nodes > budget) or is_late(self.finder.left):
            raise _OutOfBudgetError
        if depth == len(self.columns):
            value = sum(option.gain for option in chosen)
            if self.bound - value < self.gap:
                self.gap = self.bound - value
                self.best = chosen
            return
        for short, option, usage in self.columns[depth]:
            if shortfall + short >= self.gap - TOLERANCE:
                break
            if option is None:
                self._descend(depth + 1, shortfall + short, chosen, spare, budget)
                continue
            left = tuple(map(int.__sub__, spare, usage))
            if min(left) < 0:
                continue
            more = (*chosen, option)
            hurried = budget is not None or self.finder.left is not None
            if self.finder.fits(more, PACKING_LIMIT if hurried else None):
                self._descend(depth + 1, shortfall + short, more, left, budget)

    def _place(self, chosen: tuple[Option, ...]) -> tuple[tuple[Place, ...], ...]:
        if self.best is self.first.chosen:
            return self.first.place()
        places = pack(self.finder.prepared.machines, needs_of(self.finder.prepared, chosen))
        if places is None:
            raise InvariantError("rows that fit one by one do not fit together", chosen)
        return by_option(chosen, places)
