"""An undoable assignment: which bidder has which row, and where it lies.

seating.begin()
seating.drop(bidder)
seating.keep() if seating.hold(row) else seating.undo()
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from themis.core.auction.problem import OfferedMachine
from themis.core.auction.solution import Place
from themis.core.auction.solvers.ladder.free_index import Shelves
from themis.core.auction.solvers.ladder.resource_table import ResourceTable, Whole
from themis.core.auction.solvers.prepared import Option, PreparedProblem
from themis.core.model import CLUSTER, MACHINE, RACK, SLOT, Chunk

_Before = tuple[int, tuple[Place, ...]] | None
"""What a bidder had: its row and its places."""


class Seating:
    """Bidders on machines. Changes since `begin` can be undone."""

    def __init__(self, prepared: PreparedProblem, table: ResourceTable) -> None:
        self.prepared = prepared
        self.table = table
        self.shelves = Shelves(prepared.machines)
        self.held: dict[int, int] = {}
        """The table row of each bidder."""
        self.absent: frozenset[int] = frozenset()
        """Bidders who may have nothing: the re-solves ask what the others get without them."""
        self.tried = 0
        """How often a bidder was to be given a row: the work there was."""
        self._trials: list[dict[int, _Before]] = []

    @property
    def free(self) -> int:
        """GPUs that no bidder has."""
        return self.shelves.free

    def offered(self) -> tuple[OfferedMachine, ...]:
        """The machines with what is free of them."""
        if not self.held:
            return self.prepared.machines
        slots = self.shelves.slots
        return tuple(replace(m, slots=tuple(slots[m.machine])) for m in self.prepared.machines)

    def rows(self) -> Whole:
        """The table rows that are held, in order."""
        return np.array(sorted(self.held.values()), dtype=np.int64)

    def places(self) -> list[tuple[Place, ...]]:
        """Where the chunks lie of the rows that are held, in their order."""
        settled = self.shelves.settled()
        return [settled[self.table.options[row].bidder] for row in sorted(self.held.values())]

    def adopt(self, row: int, places: tuple[Place, ...]) -> None:
        """Take over a row that has its places already."""
        bidder = self.table.options[row].bidder
        self._note(bidder)
        self.shelves.adopt(bidder, self._counted(row, places))
        self.held[bidder] = row

    def _counted(self, row: int, places: tuple[Place, ...]) -> tuple[Place, ...]:
        option = self.table.options[row]
        if self.prepared.bidders[option.bidder].machines is not None:
            return places
        counted = self.shelves.counted
        return tuple([counted(c, place) for c, place in zip(option.chunks, places, strict=True)])

    def adopt_all(self, rows: Mapping[int, tuple[Place, ...]]) -> None:
        """Take over many rows; this cannot be undone."""
        options = self.table.options
        self.shelves.adopt_all(
            {options[row].bidder: self._counted(row, mine) for row, mine in rows.items()}
        )
        self.held.update((options[row].bidder, row) for row in rows)

    def hold(self, row: int) -> bool:
        """Give a bidder who has nothing this row, if it fits."""
        option = self.table.options[row]
        bidder = option.bidder
        if bidder in self.absent:
            return False
        self.tried += 1
        if self.prepared.caps and not self.prepared.within_caps([*self._options(), option]):
            return False
        allowed = self.prepared.bidders[bidder].machines
        # The same hole again and again is found one by one, if it is there.
        if not self.shelves.take(bidder, option.chunks, allowed) and (
            len(option.counts) == 1 or not self.shelves.take_packed(bidder, option.chunks, allowed)
        ):
            return False
        self._note(bidder)
        self.held[bidder] = row
        return True

    def drop(self, bidder: int) -> None:
        """Take away what a bidder has."""
        self._note(bidder)
        del self.held[bidder]
        self.shelves.give(bidder)

    def _options(self) -> list[Option]:
        return [self.table.options[row] for row in self.held.values()]

    def _note(self, bidder: int) -> None:
        if self._trials and bidder not in self._trials[-1]:
            row = self.held.get(bidder)
            self._trials[-1][bidder] = None if row is None else (row, self.shelves.places[bidder])

    def begin(self) -> None:
        """What follows may be undone; such trials may be nested."""
        self._trials.append({})

    def touched(self) -> set[int]:
        """Who has not been left alone in the last trial."""
        return set(self._trials[-1])

    def keep(self) -> None:
        """Make the last trial part of the one around it."""
        done = self._trials.pop()
        if self._trials:
            for bidder, before in done.items():
                self._trials[-1].setdefault(bidder, before)

    def undo(self) -> None:
        """Everything as it was when the last trial began."""
        before = self._trials.pop()
        trials, self._trials = self._trials, []
        for bidder in before:
            if bidder in self.held:
                self.drop(bidder)
        for had in before.values():
            if had is not None:
                self.adopt(*had)
        self._trials = trials

    def gained(self, trials: int = 1) -> float:
        """What the last trials have changed in value."""
        first: dict[int, _Before] = {}
        for trial in self._trials[-trials:]:
            for bidder, had in trial.items():
                first.setdefault(bidder, had)
        gain = self.table.gain
        return sum(
            (float(gain[self.held[bidder]]) if bidder in self.held else 0.0)
            - (0.0 if had is None else float(gain[had[0]]))
            for bidder, had in first.items()
        )

    def rack_wanted(self) -> int:
        """How many GPUs of one rack the chunk that last failed needs; 0 if it needs no rack."""
        chunk = self.shelves.failed
        wide = chunk is not None and chunk.machine is None and chunk.level == RACK
        return chunk.count if chunk is not None and wide else 0

    def in_the_way(self, count: int, willing: set[int]) -> list[list[int]]:
        """Per rack, few bidders without whom it had this many GPUs free; the fewest first."""
        inside: dict[int, dict[int, int]] = {}
        for bidder in sorted(willing):
            for place in self.shelves.places[bidder]:
                for machine, _, part in place:
                    rack = self.shelves.rack_of(machine)
                    if rack is not None:
                        theirs = inside.setdefault(rack, {})
                        theirs[bidder] = theirs.get(bidder, 0) + part
        found: list[tuple[int, int, list[int]]] = []
        for rack, theirs in inside.items():
            room = self.shelves.racks[rack]
            if room + sum(theirs.values()) < count:
                continue
            some: list[int] = []
            for part, bidder in sorted(((n, b) for b, n in theirs.items()), reverse=True):
                if room >= count:
                    break
                some.append(bidder)
                room += part
            found.append((len(some), rack, some))
        return [some for _, _, some in sorted(found)]

    def would_help(self, bidder: int) -> bool:
        """Whether the chunk that last failed might fit once this bidder has left."""
        chunk = self.shelves.failed
        if chunk is None:
            return False
        if chunk.level == CLUSTER and chunk.machine is None:
            return True
        freed: dict[int, int] = {}
        crowded = self._crowded(chunk)
        for place in self.shelves.places[bidder]:
            for machine, slot, count in place:
                if machine < 0 and crowded is not None and self.shelves.rack_of(machine) == crowded:
                    return True
                where = self._where(chunk, machine, slot)
                if where is not None:
                    freed[where] = freed.get(where, 0) + count
        return any(self._room(chunk, where) + more >= chunk.count for where, more in freed.items())

    def _crowded(self, chunk: Chunk) -> int | None:
        """The rack in which a pinned chunk has its hole, but not enough is left for it."""
        if chunk.machine is None or chunk.machine not in self.shelves.rack:
            return None
        slots = self.shelves.slots[chunk.machine]
        room = max(slots, default=0) if chunk.level == SLOT else sum(slots)
        return self.shelves.rack[chunk.machine] if room >= chunk.count else None

    def _where(self, chunk: Chunk, machine: int, slot: int) -> int | None:
        """A number for the place of a GPU at the level that matters to a chunk."""
        if chunk.level == RACK and chunk.machine is None:
            return self.shelves.rack_of(machine)
        if machine < 0 or (chunk.machine is not None and chunk.machine != machine):
            return None
        return machine * 4096 + slot if chunk.level == SLOT else machine

    def _room(self, chunk: Chunk, where: int) -> int:
        if chunk.level == RACK:
            return self.shelves.racks[where]
        if chunk.level == SLOT:
            return self.shelves.slots[where // 4096][where % 4096]
        return sum(self.shelves.slots[where])

    def hardness(self, row: int) -> tuple[int, int]:
        """An order in which rows go well: pins first, then by the widest hole they need."""
        chunks = self.table.options[row].chunks
        if any(chunk.machine is not None for chunk in chunks):
            return (0, 0)
        holes = [chunk.count for chunk in chunks if chunk.level <= MACHINE and chunk.count > 1]
        if holes:
            return (1, -max(holes))
        spans = [chunk.count for chunk in chunks if chunk.level == RACK]
        return (2, -max(spans)) if spans else (3, -sum(chunk.count for chunk in chunks))
