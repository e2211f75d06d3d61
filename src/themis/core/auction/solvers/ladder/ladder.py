"""The exact solver for auctions of any size: prices, labels, packing, and HiGHS as the last rung.

Prices prove a bound and leave few rows of each bidder within a window below it. The label search
finds the best combination of those by what it takes of everything scarce; if that packs, it is the
best there is. If it does not, a limit that it breaks is added, or combinations are told apart by
all that packing depends on. The window grows until something is found. See docs/concepts/solver.md.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from themis.core.auction.packing.exact import PackingLimitError, by_option, needs_of, pack
from themis.core.auction.packing.one_pass import load, load_by_racks
from themis.core.auction.solution import Place
from themis.core.auction.solvers.greedy import first_that_packs, serve
from themis.core.auction.solvers.ladder.cuts import Cutter
from themis.core.auction.solvers.ladder.lp_prices import Market
from themis.core.auction.solvers.ladder.repair import Mender
from themis.core.auction.solvers.ladder.resource_table import Whole, tabulate
from themis.core.auction.solvers.ladder.winner_determination import MANY_MACHINES, Climb
from themis.core.auction.solvers.prepared import Option, PreparedProblem
from themis.core.auction.solvers.registry import Determination, Find, Left, is_late, start_of
from themis.errors import InvariantError

PACKING_LIMIT = 100
"""Steps of the packing search before HiGHS decides."""

PROVABLE = 320
"""Offered GPUs up to which there is proof within a second."""

ROUNDING = 1e-7
"""A value above its bound by more than this part is no rounding error."""

LOADING = 2e-5
"""Seconds for each machine that loading all of them takes, with all that follows from it."""

PROGRAM = 4e-6
"""Seconds for each row that a linear program takes."""


How = Literal["once", "several", "racks"]
"""Attempts to load rows: one, the usual ones, those with every choice of racks for wide chunks."""


@dataclass(frozen=True, slots=True)
class SolveEffort:
    """How hard to try. A unit of work is about ten microseconds on a machine of 2024."""

    window: float
    """Nats: where to look first."""
    labels: int
    """The most labels at a time."""
    cuts: int
    """New limits per determination."""
    tries: int
    """Combinations to pack when they are told apart by all that packing depends on."""
    racks: bool
    """Whether to look for limits across racks."""
    highs: bool
    """Whether to ask HiGHS where all else fails; if not, allocations are repaired until they
    pack."""
    enough: float = 0.0
    """Nats: a gap that needs no closing."""
    covers: int = 0
    """Rounds of limits against rows taken in part, before anything else is tried."""
    fair: float = 0.0
    """Nats: such a gap in a re-solve; it is felt by one winner only."""


def effort_for(gpus: int, bidders: int) -> SolveEffort:
    """Proof for clusters of hundreds of GPUs; beyond, a gap far below what payments can show.

    More bidders make it no harder: few of their rows come near what so few GPUs are worth.
    """
    window = 0.08 / max(10, bidders)
    if gpus <= PROVABLE:
        return SolveEffort(window, 6_000, 12, 40, racks=True, highs=True, covers=3)
    return SolveEffort(
        window, 300, 12, 1, racks=False, highs=False, enough=4e-3, covers=6, fair=1.5e-2
    )


def start(prepared: PreparedProblem, left: Left | None = None) -> Find:
    """Begin; what one determination learns, the next ones use."""
    return Ladder(prepared, left)


class Ladder:
    """Winner determinations on one problem; they share prices, limits, packings and a window."""

    def __init__(self, prepared: PreparedProblem, left: Left | None = None) -> None:
        self.prepared = prepared
        self.left = left
        gpus = sum(offered.gpus for offered in prepared.machines)
        self.effort = effort_for(gpus, len(prepared.bidders))
        self.table = tabulate(prepared)
        self.market = Market(self.table)
        self.window = self.effort.window
        self.guess: Whole | None = None
        self.fruitless = 0
        """How often no limit was found: some auctions do not yield to any."""
        self._cutter: Cutter | None = None
        self._packed: dict[int, bool] = {}
        self._unloaded: set[tuple[int, How]] = set()
        """What some attempts did not pack, though it may fit."""
        self._unlimited: set[tuple[int, bool]] = set()
        """What breaks no limit that could be found, by racks or not."""
        self._placed: dict[tuple[tuple[int, int], ...], tuple[tuple[Place, ...], ...]] = {}
        """Where rows lie that only HiGHS found to fit, so that it need not be asked again."""
        self.lacking = 0.0
        """Nats that the first allocation may be short of the best one."""
        self.base: Mender | None = None
        """Large auctions: the first allocation on its machines, for the re-solves to start from."""

    def __call__(self, bidders: tuple[int, ...], budget: int | None) -> Determination:
        """Determine the winners among these bidders."""
        climb = Climb(self, bidders, math.inf if budget is None else budget)
        exact = climb.run()
        if climb.rows is None:
            climb.take_anything()
        if climb.rows is None or not len(climb.rows):
            climb.take(self.rows_of(first_that_packs(self.prepared, bidders).chosen))
            climb.places = climb.mender = None
        self._check(climb)
        if len(bidders) == len(self.prepared.bidders):
            self.guess = climb.rows
            self.lacking = 0.0 if exact else max(0.0, climb.gap)
        chosen = self.chosen(climb.rows)
        bound = climb.value if exact else max(climb.bound, climb.value)
        places = climb.places
        if places is None and self.base is None and not self.effort.highs:
            places = self._place(chosen)
        work, without = math.ceil(climb.work), climb.priced.without
        if places is None:
            return Determination(chosen, bound, exact, work, lambda: self._place(chosen), without)
        if self.base is None and not self.is_late():
            self.base = climb.mender or Mender(self.prepared, self.table, self)
            if climb.mender is None and climb.rows is not None:
                self.base.adopt(climb.rows, places)
            self.base.seating.absent = frozenset()
            self.base.aims = frozenset((*self.market.most_of_rows().tolist(), *climb.wanted))
        return Determination(chosen, bound, exact, work, lambda: places, without)

    def _check(self, climb: Climb) -> None:
        """What is said of the others must be about them: kept fractions rest on it."""
        strangers = sorted({o.bidder for o in self.chosen(climb.rows)} - set(climb.bidders))
        if strangers:
            raise InvariantError("rows went to bidders who do not take part", strangers)
        if climb.value > climb.bound + ROUNDING * max(1.0, abs(climb.bound)):
            raise InvariantError("an allocation exceeds its bound", (climb.value, climb.bound))

    def revalued(self, prepared: PreparedProblem) -> Find:
        """Start again at the gains of this problem; limits and packings stay what they were.

        Bidders without rows there are not going to be asked for, so their gains do not matter.
        """
        fresh = {(o.bidder, o.row): o for rows in prepared.options for o in rows}
        table = self.table
        table.options = [fresh.get((o.bidder, o.row), o) for o in table.options]
        table.gain = np.array([option.gain for option in table.options], dtype=np.float64)
        self.market.revalue()
        self.prepared = prepared
        self.base = None
        return self

    def is_late(self) -> bool:
        """Whether the answer is due."""
        return is_late(self.left)

    def is_short(self, *, program: bool = False) -> bool:
        """Whether there is time left for one loading at most, and a linear program."""
        if self.left is None:
            return False
        needed = LOADING * len(self.prepared.machines)
        return self.left() <= needed + (PROGRAM * len(self.table.options) if program else 0.0)

    def chosen(self, rows: Whole | None) -> tuple[Option, ...]:
        """The options of some table rows."""
        return () if rows is None else tuple(self.table.options[row] for row in rows.tolist())

    def rows_of(self, chosen: tuple[Option, ...]) -> Whole:
        """The table rows of some options."""
        wanted = {(option.bidder, option.row) for option in chosen}
        rows = [
            row
            for row, option in enumerate(self.table.options)
            if (option.bidder, option.row) in wanted
        ]
        return np.array(rows, dtype=np.int64)

    def greedy(self, bidders: tuple[int, ...]) -> Whole:
        """A feasible allocation at once."""
        return self.rows_of(serve(self.prepared, bidders).chosen)

    def cutter(self) -> Cutter:
        """Where new limits come from."""
        if self._cutter is None:
            self._cutter = Cutter(self.prepared.machines, self.table, racks=self.effort.racks)
        return self._cutter

    def loads(self, rows: Whole, how: How = "several") -> bool:
        """Whether one of these attempts fits rows together; False proves nothing."""
        # First: names tell chunks apart and not owners, who may have quotas.
        if (self.table.usage[rows].sum(axis=0) > self.table.capacity).any():
            return False
        name = int(self.table.mark[rows].sum())
        if name in self._packed or (name, how) in self._unloaded:
            return self._packed.get(name, False)
        machines = self.prepared.machines
        needs = [need for need in needs_of(self.prepared, self.chosen(rows)) if not need.anywhere]
        if how == "racks":
            loaded = load_by_racks(machines, needs)
        else:
            loaded = load(machines, needs, once=how == "once" or len(machines) > MANY_MACHINES)
        if loaded is None:
            self._unloaded.add((name, how))
            return False
        self._packed[name] = True
        return True

    def limit(self, rows: Whole, *, racks: bool) -> tuple[Whole, int] | None:
        """A limit that these rows break, by machines or by racks; what had none has none."""
        name = (int(self.table.mark[rows].sum()), racks)
        if name in self._unlimited:
            return None
        cutter = self.cutter()
        found = cutter.wide_limit(rows) if racks else cutter.limit(rows)
        if found is None:
            self._unlimited.add(name)
            self.fruitless += racks or not self.effort.racks
        return found

    def packs(self, rows: Whole, nodes: int) -> bool | None:
        """Whether rows fit together; None when that could not be found out."""
        name = int(self.table.mark[rows].sum())
        if name in self._packed:
            return self._packed[name]
        if not self.effort.highs:
            return None
        chosen = self.chosen(rows)
        needs = [need for need in needs_of(self.prepared, chosen) if not need.anywhere]
        try:
            fits = pack(self.prepared.machines, needs, PACKING_LIMIT) is not None
        except PackingLimitError:
            places, proven = self._by_highs(chosen, nodes, self.left)
            fits = places is not None
            if places is not None:
                self._placed[_names(chosen)] = places
            elif not proven:
                return None
        self._packed[name] = fits
        return fits

    def _by_highs(
        self, chosen: tuple[Option, ...], nodes: int | None, left: Left | None
    ) -> tuple[tuple[tuple[Place, ...], ...] | None, bool]:
        """Where rows lie together if HiGHS finds that they fit; else, whether they cannot."""
        options: list[tuple[Option, ...]] = [()] * len(self.prepared.bidders)
        for option in chosen:
            # All count the same: one that gains next to nothing is not to be left out for that.
            options[option.bidder] = (replace(option, gain=1.0),)
        find = start_of("highs")(replace(self.prepared, options=tuple(options)), left)
        found = find(tuple(option.bidder for option in chosen), nodes)
        if len(found.chosen) < len(chosen):
            return None, found.exact
        try:
            return found.place(), True
        except InvariantError:
            return None, False  # within its tolerances, but not on the machines

    def _place(self, chosen: tuple[Option, ...]) -> tuple[tuple[Place, ...], ...]:
        known = self._placed.get(_names(chosen))
        if known is not None:
            return known
        needs = needs_of(self.prepared, chosen)
        machines = self.prepared.machines
        loaded = load(machines, needs) or load_by_racks(machines, needs)
        if loaded is not None:
            return by_option(chosen, loaded.places(needs))
        try:
            places = pack(machines, needs, 10 * PACKING_LIMIT)
        except PackingLimitError:
            # No deadline here: rows that were found to fit must be placed, and that is quick.
            found, _ = self._by_highs(chosen, None, None)
            if found is not None:
                return found
            places = None
        if places is None:
            raise InvariantError("rows that were found to fit do not", chosen)
        return by_option(chosen, places)


def _names(chosen: tuple[Option, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((option.bidder, option.row) for option in chosen)
