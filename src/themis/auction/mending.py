"""An allocation that packs, from one that nearly does: for auctions too large for proof.

As many rows as go are loaded at once. Apps whose row found no place take their next best one that
fits into what is left, and what is then still free goes to whoever gains by it.
"""

from collections.abc import Sequence

import numpy as np

from themis.auction.loading import load_most
from themis.auction.packing import needs_of
from themis.auction.prepared import Option, Prepared
from themis.auction.prices import Priced
from themis.auction.resources import Table, Whole
from themis.auction.shelves import Shelves
from themis.auction.solution import Place

CHOICES = 4
"""Rows that one bidder may swap for, at most."""

ROUNDS = 2
"""How often everybody is asked whether it would rather have another row."""

FILLS, TRIES = 40, 12
"""How many free places are filled at most, and how many rows are tried for each."""


class Mender:
    """Mends one allocation."""

    def __init__(self, prepared: Prepared, table: Table) -> None:
        self.prepared = prepared
        self.table = table
        self.shelves = Shelves(prepared.machines)
        self.gpus = np.array([option.gpus for option in table.options], dtype=np.int64)
        self.owner = np.repeat(np.arange(len(table.first) - 1), np.diff(table.first))
        self.held: dict[int, int] = {}
        """The table row of each bidder."""

    def adopt(self, rows: Whole, places: Sequence[tuple[Place, ...]]) -> None:
        """Take over an allocation that packs."""
        for row, mine in zip(rows.tolist(), places, strict=True):
            bidder = self.table.options[row].bidder
            self.shelves.adopt(bidder, mine)
            self.held[bidder] = row

    def mend(self, rows: Whole, priced: Priced) -> Whole:
        """Rows that fit together and come close to these."""
        rows = self._within_caps(rows)
        chosen = [self.table.options[row] for row in rows.tolist()]
        owners = [option.bidder for option in chosen for _ in option.chunks]
        places, without = load_most(self.prepared.machines, needs_of(self.prepared, chosen), owners)
        rest = iter(places)
        for row, option in zip(rows.tolist(), chosen, strict=True):
            mine = tuple(next(rest) for _ in option.chunks)
            if option.bidder not in without:
                self.shelves.adopt(option.bidder, mine)
                self.held[option.bidder] = row
        for bidder in sorted(without):
            self._hold_next_best(bidder, priced)
        self._fill()
        return np.array(sorted(self.held.values()), dtype=np.int64)

    def refill(self, gone: int, priced: Priced) -> Whole:
        """The rows that others can have if one bidder leaves; afterwards everything is as before.

        At the new prices some would rather have another row. They get it where it fits, those who
        gain most first.
        """
        before = dict(self.held)
        places = dict(self.shelves.places)
        if gone in self.held:
            self._drop(gone)
        touched = {gone}
        for _ in range(ROUNDS):
            moves = self._moves(gone, priced)
            done = [move for move in moves if self._move(*move[1:])]
            touched.update(bidder for _, bidder, _ in done)
            if not done:
                break
        touched |= self._fill(gone)
        rows = np.array(sorted(self.held.values()), dtype=np.int64)
        for bidder in sorted(touched):
            if bidder in self.held:
                self._drop(bidder)
        for bidder in sorted(touched):
            if bidder in before:
                self.shelves.adopt(bidder, places[bidder])
                self.held[bidder] = before[bidder]
        return rows

    def _moves(self, gone: int, priced: Priced) -> list[tuple[float, int, int]]:
        """(how much better at these prices, bidder, row), best first, few for each bidder."""
        moves: list[tuple[float, int, int]] = []
        have = priced.none_short.copy()
        for bidder, row in self.held.items():
            have[bidder] = priced.short[row]
        have[gone] = 0.0
        first = self.table.first.tolist()
        for bidder in np.flatnonzero(have > 1e-7).tolist():
            short = priced.short[first[bidder] : first[bidder + 1]]
            moves.extend(
                (float(short[index] - have[bidder]), bidder, first[bidder] + index)
                for index in np.argsort(short, kind="stable")[:CHOICES].tolist()
                if short[index] < have[bidder] - 1e-7
            )
        return sorted(moves)

    def _move(self, bidder: int, row: int) -> bool:
        before = self.held.get(bidder)
        gpus = self.table.options[row].gpus
        spare = self.shelves.free + (0 if before is None else self.table.options[before].gpus)
        if gpus > spare or before == row:
            return False
        if before is None:
            return self._hold(bidder, row)
        if self.table.gain[row] <= self.table.gain[before]:
            return False
        places = self.shelves.places[bidder]
        self._drop(bidder)
        if self._hold(bidder, row):
            return True
        self.shelves.adopt(bidder, places)
        self.held[bidder] = before
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

    def places(self, bidder: int) -> tuple[Place, ...]:
        """Where the chunks of a bidder's row lie."""
        return self.shelves.places[bidder]

    def _drop(self, bidder: int) -> int:
        row = self.held.pop(bidder)
        self.shelves.give(bidder)
        return row

    def _hold(self, bidder: int, row: int) -> bool:
        option = self.table.options[row]
        allowed = self.prepared.bidders[bidder].machines
        if not self.prepared.within_caps([*self._options(), option]):
            return False
        if not self.shelves.take(bidder, option.chunks, allowed):
            return False
        self.held[bidder] = row
        return True

    def _options(self) -> list[Option]:
        if not self.prepared.caps:
            return []
        return [self.table.options[row] for row in self.held.values()]

    def _hold_next_best(self, bidder: int, priced: Priced) -> None:
        first = int(self.table.first[bidder])
        short = priced.short[first : int(self.table.first[bidder + 1])]
        for index in np.argsort(short, kind="stable").tolist():
            if short[index] > priced.none_short[bidder]:
                return
            if self._hold(bidder, first + index):
                return

    def _fill(self, gone: int | None = None) -> set[int]:
        """Give what is free to whoever gains most per GPU by another row; who got one."""
        touched: set[int] = set()
        hopeless = np.zeros(len(self.gpus), dtype=bool)
        if gone is not None:
            hopeless[self.owner == gone] = True
        for _ in range(FILLS):
            have = np.zeros(len(self.prepared.bidders))
            took = np.zeros(len(self.prepared.bidders), dtype=np.int64)
            rows = np.fromiter(self.held.values(), dtype=np.int64, count=len(self.held))
            have[self.owner[rows]] = self.table.gain[rows]
            took[self.owner[rows]] = self.gpus[rows]
            more = self.table.gain - have[self.owner]
            extra = self.gpus - took[self.owner]
            within = np.flatnonzero((more > 1e-9) & (extra <= self.shelves.free) & ~hopeless)
            if not len(within):
                break
            rate = more[within] / np.maximum(extra[within], 0.5)
            changed = False
            for row in within[np.argsort(-rate, kind="stable")[:TRIES]].tolist():
                bidder = int(self.owner[row])
                if self._move(bidder, row):
                    touched.add(bidder)
                    changed = True
                    break
                hopeless[row] = True
            if not changed:
                break
        return touched
