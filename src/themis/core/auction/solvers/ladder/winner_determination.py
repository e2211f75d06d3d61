"""One winner determination of the ladder: what it has found, what it has proven, what it cost."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from themis.core.auction.solution import Place
from themis.core.auction.solvers.ladder.cover_cuts import covers
from themis.core.auction.solvers.ladder.label_dp import Labels, search
from themis.core.auction.solvers.ladder.lp_prices import Priced
from themis.core.auction.solvers.ladder.repair import Mender
from themis.core.auction.solvers.ladder.resource_table import Flags, ResourceTable, Whole
from themis.core.auction.solvers.registry import start_of
from themis.errors import InvariantError

if TYPE_CHECKING:
    from themis.core.auction.solvers.ladder.ladder import How, Ladder

TOLERANCE = 1e-9
"""Nats: allocations better by less than this are not looked for."""

GROWTH = 1.6
"""How much wider the next window is."""

MANY_MACHINES = 256
"""With more, a few ways to load them must do."""

_QUICK = 120
"""With more bidders, re-solves of large auctions only refill what one of them leaves."""

_FEW = 60
"""With more bidders, being greedy takes longer than mending what the prices ask for."""

_NEAR, _COMPARED, _WIDENED, _WIDER = 50, 20, 2, 5.0
"""Combinations in a re-solve: labels at a time, how many are compared with what there is, in how
many windows they are looked for, and how much wider the second one is."""

_FEWER, _MORE, _AGAIN, _NARROWEST = 16.0, 24.0, 1.1, 1e-7
"""The first window: choices in it at least and at most, as the logarithm of their combinations; how
much wider than what the last answer lost; nats at least."""

_FASTER, _CHEAP = 2.0, 1_000
"""How much wider the next window is where the last one had so little to look at."""

_CROWDS, _NARROWER, _SOME = (400, 2_000), 0.25, 10
"""Windows with too many labels: how many are too many at first and then, how much narrower the next
one is at most, and how many labels are loaded."""

_FRUITLESS = 3
"""So often no limit was found: look for no more."""

_PIVOT, _LABELS, _LOAD, _CUT, _NODE, _TRY = 2, 30, 20, 1_000, 300, 4
"""Work: of a pivot, labels per unit, of a loading, of looking for a cut, of a node of HiGHS, of
trying to give a bidder a row."""


class Climb:
    """One determination: the best allocation so far, what is proven, and the work it took."""

    def __init__(self, ladder: "Ladder", bidders: tuple[int, ...], budget: float) -> None:
        self.ladder = ladder
        self.effort = ladder.effort
        self.table: ResourceTable = ladder.table
        self.bidders = bidders
        self.budget = budget
        self.present: Flags = np.zeros(len(ladder.prepared.bidders), dtype=bool)
        self.present[list(bidders)] = True
        self.work = 0.0
        self.value = -math.inf
        self.bound = math.inf
        self.rows: Whole | None = None
        self.places: tuple[tuple[Place, ...], ...] | None = None
        self.mender: Mender | None = None
        """Large auctions: what has the best allocation on its machines."""
        self.wanted: list[int] = []
        """The rows that were to be loaded when the best allocation came of it."""
        self.priced = self._price()
        if ladder.guess is not None:
            # Without one of them, the others may keep what they had.
            owners = np.array([o.bidder for o in ladder.chosen(ladder.guess)], dtype=np.int64)
            self.take(ladder.guess[self.present[owners]])

    def take(self, rows: Whole) -> None:
        """Note a feasible allocation, if it is the best so far."""
        value = math.fsum(self.table.gain[rows].tolist())
        if self.rows is None or value > self.value:
            self.rows, self.value = rows, value

    def take_anything(self) -> None:
        """A feasible allocation at once: what goes of the rows that the prices ask for."""
        if self.effort.highs and len(self.bidders) <= _FEW:
            self.take(self.ladder.greedy(self.bidders))
        else:
            self._mend(self.ladder.market.favourites(self.priced), quick=True)

    def _is_spent(self) -> bool:
        return self.work >= self.budget or self.ladder.is_late()

    @property
    def gap(self) -> float:
        """What may be missing."""
        return self.bound - self.value

    def _tighten(self) -> None:
        """Rule out some of what the program gets only by taking rows in part."""
        for _ in range(self.effort.covers if self.ladder.market.finished else 0):
            found = covers(self.table, self.ladder.market.taken(), self.priced.prices)
            if not found or self._is_spent() or self.ladder.is_short():
                return
            for limit in found:
                self.table.add(*limit)
                self.ladder.market.extend()
            self.priced = self._price()

    def _price(self) -> Priced:
        market = self.ladder.market
        market.invite(self.present)
        if not self.effort.highs and self.ladder.is_short(program=True):
            priced = market.step()
        else:
            priced = market.settle(self.ladder.left)
        self.work += 10 + _PIVOT * market.pivots
        self.bound = min(self.bound, priced.bound)
        return priced

    def run(self) -> bool:
        """Climb until there is proof, or no more to try; whether there is proof."""
        if not self.effort.highs:
            return self._run_large()
        if self._is_whole():
            return True
        self._tighten()
        window = self._first_window()
        empty = 0.0
        cuts = crowds = 0
        limits = (*_CROWDS, self.effort.labels)
        apart = False
        while self.gap > TOLERANCE:
            if self._is_spent():
                return False
            reach = self.priced.bound - self.value
            last = window >= reach - TOLERANCE
            labels = self._search(min(window, reach - TOLERANCE), limits[crowds], apart=apart)
            if not labels.complete and crowds < len(_CROWDS):
                # Too many to tell which is best; what is good among them brings the best closer.
                crowds += 1
                self._take_what_loads(labels, _SOME, "once")
                window = max(math.sqrt(empty * window), _NARROWER * window)
                continue
            if not len(labels.lost):
                if not labels.complete:
                    return self._ask_highs()
                if last:
                    break  # nothing is better than what there is
                empty = window
                window *= GROWTH if labels.work > _CHEAP else _FASTER
                continue
            if not apart:
                found = self._fit(labels.rows(0), cut=cuts < self.effort.cuts)
                if found:
                    return labels.complete or self._ask_highs()
                if found is False:
                    cuts += 1
                    continue
            fits = self._first_that_packs(labels, self.effort.tries if apart else 1)
            if fits is None or not labels.complete:
                return self._ask_highs(labels)
            if fits:
                return True
            if not apart:
                apart = True
            elif last:
                break
            else:
                window *= GROWTH
        return True

    def _run_large(self) -> bool:
        """Without packing searches: the best labels are repaired until they pack."""
        if self.ladder.is_late() or not self.ladder.market.finished:
            return False
        base = self.ladder.base
        gone = np.flatnonzero(~self.present)
        if base is not None and len(gone) == 1:
            self.work += _LOAD
            # What the first allocation lacks, this one lacks too: only the rest can be repaired
            # here.
            fair = self.effort.fair + self.ladder.lacking
            if self.gap > fair:
                self._tighten()
                before = base.seating.tried
                self.take(base.refill(int(gone[0]), self._targets(base), self.priced, fair))
                self.work += _TRY * (base.seating.tried - before)
            if self.gap <= fair or len(self.present) > _QUICK:
                return self.gap <= TOLERANCE
        if self._is_whole():
            return True
        window = max(self.effort.window, self.ladder.window)
        cuts = 0
        if self._is_spent():
            return False
        self._tighten()
        self._mend(self.ladder.market.most_of_rows())
        while self.gap > TOLERANCE:
            if self._is_spent():
                return False
            reach = self.priced.bound - self.value
            last = window >= reach - TOLERANCE
            room = min(window, reach - TOLERANCE)
            labels = self._search(room, self.effort.labels, apart=False)
            if not len(labels.lost):
                if last:
                    return labels.complete
                window *= GROWTH
                continue
            rows = labels.rows(0)
            self._mend(rows)
            if self.priced.bound - float(labels.lost[0]) - self.value <= TOLERANCE:
                return labels.complete
            if self.gap <= self.effort.enough or cuts >= self.effort.cuts or not self._cut(rows):
                return False
            cuts += 1
        return True

    def _targets(self, base: Mender) -> Iterator[Whole]:
        """What the program took; of the best few combinations, that with the fewest changes."""
        yield self.ladder.market.most_of_rows()
        window = self.effort.window
        for _ in range(_WIDENED):
            labels = search(self.table, self.priced, self.present, window, _NEAR)
            self.work += labels.work / _LABELS
            if len(labels.lost):
                some = [labels.rows(index) for index in range(min(len(labels.lost), _COMPARED))]
                yield min(some, key=lambda rows: len(base.changed(rows)))
                return
            window *= _WIDER

    def _mend(self, rows: Whole, *, quick: bool = False) -> None:
        self.work += _LOAD * len(rows) / 10
        few = not quick and len(self.ladder.prepared.machines) <= MANY_MACHINES
        if few and self.ladder.loads(rows):
            self._settle_on(rows)
            if self.rows is rows:
                self.places = self.mender = None
            return
        absent = frozenset(np.flatnonzero(~self.present).tolist())
        mender = Mender(self.ladder.prepared, self.table, self.ladder, absent)
        mended = mender.mend(rows, self.priced, quick=quick)
        self.work += _TRY * mender.seating.tried
        self.take(mended)
        lost = self.priced.bound - self.value
        self.ladder.window = max(self.effort.window, 0.5 * lost)
        if self.rows is mended:
            self.mender = mender
            self.wanted = rows.tolist()
            self.places = mender.places()

    def _is_whole(self) -> bool:
        """Whether the linear program found the best allocation by itself."""
        rows = self.ladder.market.whole_rows()
        if rows is None or self.bound - self.table.gain[rows].sum() > TOLERANCE:
            return False
        self.work += _LOAD
        if not self.ladder.loads(rows):
            return False
        self.take(rows)
        return True

    def _search(self, window: float, limit: int, *, apart: bool) -> Labels:
        labels = search(self.table, self.priced, self.present, window, limit, apart=apart)
        self.work += labels.work / _LABELS
        if labels.complete:
            below = float(labels.lost[0]) if len(labels.lost) else window
            self.bound = min(self.bound, max(self.value, self.priced.bound - below))
        return labels

    def _settle_on(self, rows: Whole) -> None:
        self.work += _LOAD
        self.take(rows)
        lost = self.priced.bound - self.value
        self.ladder.window = _AGAIN * lost

    def _fit(self, rows: Whole, *, cut: bool) -> bool | None:
        """Settle on rows that fit, or (if so asked) find a limit that they break; None if neither.

        What takes longest comes last: room by machines is quicker to judge than by racks.
        """
        ladder = self.ladder
        cut = cut and ladder.fruitless <= _FRUITLESS
        limit = None
        fits = ladder.loads(rows)
        if not fits and cut:
            self.work += _CUT
            limit = ladder.limit(rows, racks=False)
        if not fits and limit is None:
            fits = ladder.loads(rows, "racks")
        if not fits and limit is None and cut:
            limit = ladder.limit(rows, racks=True)
        if fits:
            self._settle_on(rows)
        elif limit is not None:
            self._add(limit)
        return True if fits else None if limit is None else False

    def _cut(self, rows: Whole) -> bool:
        """Large auctions: find a limit that these rows break."""
        if self.ladder.fruitless > _FRUITLESS:
            return False
        self.work += _CUT
        limit = self.ladder.limit(rows, racks=False)
        if limit is not None:
            self._add(limit)
        return limit is not None

    def _add(self, limit: tuple[Whole, int]) -> None:
        self.table.add(*limit)
        self.ladder.market.extend()
        self.priced = self._price()

    def _first_that_packs(self, labels: Labels, tries: int) -> bool | None:
        """Settle on the best combination that packs; None when that remains open."""
        for index in range(len(labels.lost)):
            if index >= tries or self._is_spent():
                # Told apart only by what is scarce, one that fails speaks for none behind it.
                return None if tries > 1 else False
            rows = labels.rows(index)
            self.work += _LOAD
            fits = self.ladder.loads(rows) or self.ladder.loads(rows, "racks")
            if not fits:
                nodes = self._nodes()
                known = self.ladder.packs(rows, nodes)
                self.work += _LOAD if known is not None else _NODE
                if known is None:
                    return None
                fits = known
            if fits:
                self._settle_on(rows)
                return True
        return False

    def _nodes(self) -> int:
        return 200 if self.budget == math.inf else max(1, int((self.budget - self.work) // _NODE))

    def _first_window(self) -> float:
        """Where to look first: where there are some combinations, but not too many of them.

        How close they are differs: by hundredths of a nat where rows are valued to the end, by
        millionths where they are valued for one lease.
        """
        owner, present = self.table.owner, np.flatnonzero(self.present)
        rows = np.flatnonzero(self.present[owner])
        short = np.concatenate((self.priced.short[rows], self.priced.none_short[present]))
        bidder = np.concatenate((owner[rows], present))
        order = np.lexsort((short, bidder))
        first = np.searchsorted(bidder[order], present)
        # The second choice of a bidder doubles the combinations, the third makes half as many more.
        rank = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
        bits = np.log2((rank + 1) / np.maximum(rank, 1))
        by_short = np.argsort(short[order], kind="stable")
        ordered = short[order[by_short]]
        ends = np.searchsorted(np.cumsum(bits[by_short]), (_FEWER, _MORE))
        low, high = (float(ordered[min(end, len(ordered) - 1)]) for end in ends.tolist())
        return max(_NARROWEST, low, min(high, self.ladder.window))

    def _take_what_loads(self, labels: Labels, tries: int, how: "How" = "several") -> None:
        for index in range(min(len(labels.lost), tries)):
            self.work += _LOAD
            if self.ladder.loads(labels.rows(index), how):
                self.take(labels.rows(index))
                return

    def _ask_highs(self, labels: Labels | None = None) -> bool:
        """The last rung: the class program over the rows that can still be in the best answer.

        Where that is too much, what packs of the labels must do.
        """
        if labels is not None:
            self._take_what_loads(labels, self.effort.tries)
        if self.gap <= TOLERANCE:
            return True
        if not self.effort.highs or self._is_spent():
            return False
        if self.rows is None:
            self.take(self.ladder.greedy(self.bidders))
        near = self.priced.short <= self.priced.bound - self.value + TOLERANCE
        first = self.table.first.tolist()
        options = tuple(
            tuple(self.table.options[r] for r in range(first[i], first[i + 1]) if near[r] and here)
            for i, here in enumerate(self.present.tolist())
        )
        core = replace(self.ladder.prepared, options=options)
        found = start_of("highs")(core, self.ladder.left)(
            self.bidders, None if self.budget == math.inf else self._nodes()
        )
        self.work += _NODE * found.work
        try:
            places = found.place()
        except InvariantError:
            # Its tolerances let a little too much through: what it says proves nothing.
            return False
        rows = self.ladder.rows_of(found.chosen)
        self.take(rows)
        if self.rows is rows:
            self.places = places
        self.bound = min(self.bound, max(found.bound, self.value))
        return found.exact
