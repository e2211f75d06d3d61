"""An allocation that packs, from one that nearly does: for auctions too large for proof.

As many rows as go are loaded at once. Apps whose row found no place take their next best one that
fits into what is left; then the bidder that lost most looks for one that loses less by making room,
and what is still free goes to whoever gains by it.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Protocol

import numpy as np

from themis.core.auction.packing.exact import by_option, needs_of
from themis.core.auction.packing.one_pass import load_most
from themis.core.auction.solution import Place
from themis.core.auction.solvers.ladder.assignment_trial import Seating
from themis.core.auction.solvers.ladder.lp_prices import Priced
from themis.core.auction.solvers.ladder.resource_table import Flags, Real, ResourceTable, Whole
from themis.core.auction.solvers.prepared import PreparedProblem

CHOICES = 4
"""Rows that one bidder may swap for, at most."""

ROUNDS = 2
"""How often every bidder is asked whether it would rather have another row."""

FILLS, TRIES = 40, 12
"""How many free places are filled at most, and how many rows are tried for each."""

WORTH_A_SWAP = 1e-4
"""Nats: a bidder that lost less asks no other to make room."""

CHAIN = 4
"""How many may have to make room for one, at most, if others than those asked first must too."""

ASKING, LOOKED_AT, ASKED = 12, 60, 6
"""How many may ask others to make room, how many of those are looked at, how many tried."""


class Deadline(Protocol):
    """What a mender asks to know when to leave it at what there is."""

    def is_late(self) -> bool:
        """Whether the answer is due."""

    def is_short(self) -> bool:
        """Whether there is time left for one loading at most."""


class Mender:
    """Repairs one allocation."""

    def __init__(
        self,
        prepared: PreparedProblem,
        table: ResourceTable,
        deadline: Deadline,
        absent: frozenset[int] = frozenset(),
    ) -> None:
        self.prepared = prepared
        self.table = table
        self.deadline = deadline
        self.seating = Seating(prepared, table)
        self.seating.absent = absent
        self.gpus = np.array([option.gpus for option in table.options], dtype=np.int64)
        self.owner = table.owner
        self.aims: frozenset[int] = frozenset()
        """The rows that the first allocation was to have, whether they fit or not."""
        self._before: dict[int, int] = {}
        self._begins = table.first[:-1][np.diff(table.first) > 0]
        self._filled = np.flatnonzero(np.diff(table.first) > 0)

    @cached_property
    def _pinned(self) -> Flags:
        """Rows that are tied to machines."""
        ties = (any(c.machine is not None for c in option.chunks) for option in self.table.options)
        return np.fromiter(ties, dtype=bool, count=len(self.table.options))

    def adopt(self, rows: Whole, places: Sequence[tuple[Place, ...]]) -> None:
        """Take over an allocation that packs."""
        self.seating.adopt_all(dict(zip(rows.tolist(), places, strict=True)))

    def places(self) -> tuple[tuple[Place, ...], ...]:
        """Where the chunks lie of the rows that are held, in their order."""
        return tuple(self.seating.places())

    def mend(self, rows: Whole, priced: Priced, *, quick: bool = False) -> Whole:
        """Rows that fit together and come close to these."""
        here = ~np.isin(self.owner[rows], list(self.seating.absent))
        wanted = self._within_caps(rows[here])
        rows = self._restricted_first(wanted)
        chosen = [self.table.options[row] for row in rows.tolist()]
        owners = [option.bidder for option in chosen for _ in option.chunks]
        needs = needs_of(self.prepared, chosen)
        losses = self._alternatives(rows, priced).tolist()
        machines = self.seating.offered()
        enough = self.deadline.is_short if not quick else lambda: True
        places, without = load_most(machines, needs, owners, losses, enough)
        found = zip(rows.tolist(), by_option(chosen, places), strict=True)
        options = self.table.options
        self.seating.adopt_all({r: mine for r, mine in found if options[r].bidder not in without})
        # Nobody whose row is among these gets another one because of its number.
        without |= {int(self.owner[r]) for r in wanted.tolist()} - set(self.seating.held)
        lost = sorted(without, key=lambda bidder: (-float(priced.none_short[bidder]), bidder))
        for bidder in lost:
            self._hold_next_best(bidder, priced)
        if not quick:
            self._insist(wanted, priced)
            self._swap(priced)
            self._fill()
        return self.seating.rows()

    def refill(self, gone: int, targets: Iterable[Whole], priced: Priced, enough: float) -> Whole:
        """The rows that others can have if one bidder leaves; afterwards everything is as before.

        Args:
            gone: Who leaves.
            targets: Rows that the new prices ask for; each is tried if the ones before do not do.
            priced: The new prices.
            enough: The gap below the bound at which to look no further.
        """
        best: Whole | None = None
        self.seating.absent = frozenset((gone,))
        for target in chain(targets, (None,)):
            self.seating.begin()
            if gone in self.seating.held:
                self.seating.drop(gone)
            if target is None:
                self._upgrade(priced)
            else:
                self._turn_to(target, priced)
            if priced.bound - self._value(self.seating.rows()) > enough:
                self._swap(priced, self.seating.touched() - {gone})
                self._fill()
            rows = self.seating.rows()
            self.seating.undo()
            if best is None or self._value(rows) > self._value(best):
                best = rows
            if priced.bound - self._value(best) <= enough:
                break
        self.seating.absent = frozenset()
        assert best is not None
        return best

    def _value(self, rows: Whole) -> float:
        return float(self.table.gain[rows].sum())

    def changed(self, target: Whole) -> list[int]:
        """The rows of a target that no bidder has and that were not aimed at before."""
        held = self.seating.held
        return [
            r for r in target.tolist() if r not in self.aims and held.get(int(self.owner[r])) != r
        ]

    def _turn_to(self, target: Whole, priced: Priced) -> None:
        """Whom the prices want to have another row than before gets it, widest chunks first."""
        changed = self.changed(target)
        for row in changed:
            if int(self.owner[row]) in self.seating.held:
                self.seating.drop(int(self.owner[row]))
        changed.sort(key=lambda row: (self.seating.hardness(row), row))
        lost = [int(self.owner[row]) for row in changed if not self.seating.hold(row)]
        for bidder in sorted(lost, key=lambda b: (-float(priced.none_short[b]), b)):
            self._hold_next_best(bidder, priced)
        self._insist(target, priced)

    def _insist(self, target: Whole, priced: Priced) -> None:
        """Give a bidder its row if others make room; the rest is lost."""
        for row in target.tolist():
            if not self.seating.free or self.deadline.is_late():
                return
            bidder = int(self.owner[row])
            before = self.seating.held.get(bidder)
            if before == row:
                continue
            had, took = (0.0, 0) if before is None else (self.table.gain[before], self.gpus[before])
            more = float(self.table.gain[row] - had)
            if more > WORTH_A_SWAP and self.gpus[row] - took <= self.seating.free:
                self._make_room(bidder, row, more, priced)

    def _upgrade(self, priced: Priced) -> None:
        """Who would rather have another row at the new prices gets it, most gain first."""
        for _ in range(ROUNDS):
            moves = self._moves(priced)
            if not [move for move in moves if self._move(*move[1:])]:
                return

    def _short(self, priced: Priced) -> Real:
        """How far each bidder is below its favourite."""
        have = priced.none_short.copy()
        rows = self.seating.rows()
        have[self.owner[rows]] = priced.short[rows]
        have[list(self.seating.absent)] = 0.0  # they ask for nothing
        return have

    def _moves(self, priced: Priced) -> list[tuple[float, int, int]]:
        """(how much better at these prices, bidder, row), best first, few for each bidder."""
        moves: list[tuple[float, int, int]] = []
        have = self._short(priced)
        for bidder in np.flatnonzero(have > 1e-7).tolist():
            moves.extend(
                (short - have[bidder], bidder, row)
                for short, row in self._better(bidder, float(have[bidder]), priced)
            )
        return sorted(moves)

    def _better(self, bidder: int, have: float, priced: Priced) -> list[tuple[float, int]]:
        """(shortfall, row) of the rows that a bidder would rather have, best first, few."""
        first = int(self.table.first[bidder])
        short = priced.short[first : int(self.table.first[bidder + 1])]
        order = np.argsort(short, kind="stable")[:CHOICES].tolist()
        return [(float(short[i]), first + i) for i in order if short[i] < have - 1e-7]

    def _move(self, bidder: int, row: int) -> bool:
        """Give a bidder a row that is worth more to it, if it fits."""
        before = self.seating.held.get(bidder)
        spare = self.seating.free + (0 if before is None else int(self.gpus[before]))
        if self.gpus[row] > spare or before == row:
            return False
        if before is None:
            return self.seating.hold(row)
        if self.table.gain[row] <= self.table.gain[before]:
            return False
        self.seating.begin()
        self.seating.drop(bidder)
        if self.seating.hold(row):
            self.seating.keep()
            return True
        self.seating.undo()
        return False

    def _within_caps(self, rows: Whole) -> Whole:
        """Without rows that break a quota."""
        kept: list[int] = []
        if not self.prepared.caps:
            return rows
        for row in rows.tolist():
            if self.prepared.within_caps(self.table.options[other] for other in (*kept, row)):
                kept.append(row)
        return np.array(kept, dtype=np.int64)

    def _restricted_first(self, rows: Whole) -> Whole:
        """Place machine-constrained bidders first; return the rest."""
        bidders = self.prepared.bidders
        mine = [r for r in rows.tolist() if bidders[int(self.owner[r])].machines is not None]
        if not mine:
            return rows
        for row in sorted(mine, key=lambda r: (self.seating.hardness(r), r)):
            self.seating.hold(row)
        return np.setdiff1d(rows, mine, assume_unique=True)

    def _hold_next_best(self, bidder: int, priced: Priced, most: float = np.inf) -> bool:
        """Whether a bidder found a row (or nothing) that is at most so far from its favourite."""
        first = int(self.table.first[bidder])
        short = priced.short[first : int(self.table.first[bidder + 1])]
        for index in np.argsort(short, kind="stable").tolist():
            if short[index] > priced.none_short[bidder] or short[index] > most:
                break
            if self.seating.hold(first + index):
                return True
        return bool(priced.none_short[bidder] <= most)

    def _swap(self, priced: Priced, among: set[int] | None = None) -> None:
        """Give the bidder that lost most its row, where one that loses less can make room."""
        have = self._short(priced)
        asking = np.argsort(-have, kind="stable").tolist()
        if among is not None:
            asking = [bidder for bidder in asking if bidder in among]
        for bidder in asking[:ASKING]:
            if have[bidder] <= WORTH_A_SWAP or self.deadline.is_late():
                return
            for short, row in self._better(bidder, float(have[bidder]), priced):
                if self._make_room(bidder, row, float(have[bidder]) - short, priced):
                    break

    def _make_room(self, bidder: int, row: int, worth: float, priced: Priced) -> bool:
        self.seating.begin()
        if bidder in self.seating.held:
            self.seating.drop(bidder)
        if self.seating.hold(row):
            if self.seating.gained() > 0.0:
                self.seating.keep()
                return True
            self.seating.undo()
            return False
        limit = worth - WORTH_A_SWAP
        self._before = dict(self.seating.held)
        for others in self._who_could(bidder, worth, priced):
            self.seating.begin()
            have = self._short(priced)
            if (
                self._hold_without(row, others, worth, priced)
                and all(
                    self._hold_next_best(other, priced, limit + float(have[other]))
                    for other in sorted(others, key=self._size)
                )
                and self.seating.gained(2) > 0.0
            ):
                self.seating.keep()
                self.seating.keep()
                return True
            self.seating.undo()
        self.seating.undo()
        return False

    def _hold_without(self, row: int, others: list[int], worth: float, priced: Priced) -> bool:
        """Seat a row in place of others; to these are added those who are in the way then."""
        for other in others:
            self.seating.drop(other)
        while not self.seating.hold(row):
            if len(others) >= CHAIN:
                return False
            more = self._who_could(int(self.owner[row]), worth, priced)
            # No bidder is in the way in a rack that has room, but not on machines one may use.
            if not more or not more[0] or len(others) + len(more[0]) > CHAIN:
                return False
            for other in more[0]:
                self.seating.drop(other)
            others.extend(more[0])
        return True

    def _size(self, bidder: int) -> tuple[int, int]:
        row = self._before.get(bidder, 0)
        return (-int(self.gpus[row]), bidder)

    def _who_could(self, bidder: int, worth: float, priced: Priced) -> list[list[int]]:
        """Sets of bidders that might make room for what just failed, those who lose least first."""
        cheapest = self._cheapest(bidder, worth, priced)
        wide = self.seating.rack_wanted()
        if wide:
            return self.seating.in_the_way(wide, set(cheapest))[:ASKED]
        failed = self.seating.shelves.failed
        # Few are on the machine of a pinned chunk; others it may need not look at.
        some = cheapest if failed is not None and failed.machine is not None else None
        helpful: list[list[int]] = []
        for other in cheapest[:LOOKED_AT] if some is None else some:
            if self.seating.would_help(other):
                helpful.append([other])
                if len(helpful) == ASKED:
                    break
        return helpful

    def _cheapest(self, asking: int, worth: float, priced: Priced) -> list[int]:
        """Who loses less than this by taking another row or another place, least first."""
        rows = self.seating.rows()
        # The same row elsewhere costs nothing, unless it is pinned to where it is.
        other = self._alternatives(rows[self._pinned[rows]], priced)
        loss = np.full(len(other), np.inf)
        held = self.owner[rows]
        loss[held] = other[held] - priced.short[rows]
        loss[asking] = np.inf
        order = np.argsort(loss, kind="stable")
        return [int(b) for b in order.tolist() if loss[b] < worth - WORTH_A_SWAP]

    def _alternatives(self, without: Whole, priced: Priced) -> Real:
        """The least shortfall of each bidder if these rows could not be had."""
        short = priced.short.copy()
        short[without] = np.inf
        other = priced.none_short.copy()
        if len(self._begins):
            least = np.minimum.reduceat(short, self._begins)
            other[self._filled] = np.minimum(other[self._filled], least)
        return other

    def _fill(self) -> None:
        """Give what is free to whoever gains most per GPU by another row."""
        hopeless = np.isin(self.owner, list(self.seating.absent))
        for _ in range(FILLS):
            have = np.zeros(len(self.prepared.bidders))
            took = np.zeros(len(self.prepared.bidders), dtype=np.int64)
            rows = self.seating.rows()
            have[self.owner[rows]] = self.table.gain[rows]
            took[self.owner[rows]] = self.gpus[rows]
            more = self.table.gain - have[self.owner]
            extra = self.gpus - took[self.owner]
            within = np.flatnonzero((more > 1e-9) & (extra <= self.seating.free) & ~hopeless)
            if not len(within) or self.deadline.is_late():
                return
            rate = more[within] / np.maximum(extra[within], 0.5)
            for row in within[np.argsort(-rate, kind="stable")[:TRIES]].tolist():
                if self._move(int(self.owner[row]), row):
                    break
                hopeless[row] = True
            else:
                return
