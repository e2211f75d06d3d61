"""Combinations of rows close to the bound, found by dynamic programming over what they take.

A combination is worth the bound, less its rows' shortfalls, less the worth of what it leaves over.
So within a window below the bound only few rows of each bidder come into question, and combinations
that take the same need not be told apart: a label stands for the best of them.
"""

from dataclasses import dataclass

import numpy as np

from themis.core.auction.solvers.ladder.lp_prices import Priced
from themis.core.auction.solvers.ladder.resource_table import Flags, Real, ResourceTable, Whole
from themis.errors import InvariantError

SLACK = 1e-10
"""Nats: sums of shortfalls are exact to well below this."""

_FEW = 24
"""So few labels are not worth comparing."""

_ODD = np.random.default_rng(20200225).integers(1, 2**62, size=4096, dtype=np.int64) | 1
"""Fixed multipliers, to name what is used by one number; arithmetic wraps around, which is fine."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Combinations within a window, best first. `lost` is how far below the bound each is."""

    lost: Real
    choices: Whole
    """Per combination and free bidder: the table row, or -1 for nothing."""
    fixed: Whole
    """Table rows that every combination has."""
    work: int
    complete: bool
    """Whether nothing in the window is missing but what takes the same as a better one."""

    def rows(self, index: int) -> Whole:
        """The table rows of a combination."""
        chosen = self.choices[index]
        return np.sort(np.concatenate((self.fixed, chosen[chosen >= 0])))


@dataclass(slots=True)
class _Free:
    """A bidder with several rows (or none at all) in the window."""

    rows: Whole
    short: Real
    usage: Whole
    mark: Whole


@dataclass(slots=True)
class _Front:
    """The labels after some bidders."""

    lost: Real
    used: Whole
    name: Whole
    """One number for what a label takes; equal ones are the same label."""


def search(
    table: ResourceTable,
    priced: Priced,
    present: Flags,
    window: float,
    limit: int,
    *,
    apart: bool = False,
) -> Labels:
    """All labels within the window, at most `limit` at a time.

    With `apart`, combinations count as the same only if they demand the same of every kind of
    chunk: those can stand in for each other in any packing.
    """
    free, fixed = _choices(table, priced, present, window)
    spare = table.capacity - table.usage[fixed].sum(axis=0)
    lows = np.array([one.usage.min(axis=0) for one in free], dtype=np.int64).reshape(
        len(free), len(spare)
    )
    highs = np.array([one.usage.max(axis=0) for one in free], dtype=np.int64).reshape(lows.shape)
    if (lows.sum(axis=0) > spare).any():
        return Labels(np.empty(0), np.empty((0, 0), np.int64), fixed, 1, complete=True)
    # Priced resources come first; the others only matter if they can be exceeded.
    dear = np.flatnonzero(priced.prices > 0)
    tracked = np.concatenate(
        (dear, np.flatnonzero((highs.sum(axis=0) > spare) & (priced.prices <= 0)))
    )
    prices, spare = priced.prices[dear], spare[tracked]
    # What may be used once a bidder has chosen, and what the rest can use of what is dear.
    room = spare - _after(lows[:, tracked])
    most = (spare - _after(highs[:, tracked]))[:, : len(dear)]
    names = _odd(len(spare))
    start = np.zeros((1, len(spare)), dtype=np.int64)
    front = _Front(np.zeros(1), start, np.zeros(1, dtype=np.int64))
    steps: list[tuple[Whole, Whole]] = []
    work = 1
    complete = True
    for index, one in enumerate(free):
        usage = one.usage[:, tracked]
        name = usage @ names + (one.mark if apart else 0)
        lost = (front.lost[:, None] + one.short).ravel()
        used = (front.used[:, None, :] + usage).reshape(len(lost), len(spare))
        # What the rest cannot take any more is left over, and lost at its price.
        total = lost + np.maximum(most[index] - used[:, : len(dear)], 0) @ prices
        fits = total <= window + SLACK
        fits &= (used <= room[index]).all(axis=1)
        keep = np.flatnonzero(fits)
        work += len(lost)
        called = (front.name[:, None] + name).ravel()
        if len(keep) > _FEW:
            keep = _distinct(keep, called[keep], lost[keep])
        if len(keep) > limit:
            complete = False
            keep = np.sort(keep[np.argsort(total[keep], kind="stable")[:limit]])
        front = _Front(lost[keep], used[keep], called[keep])
        steps.append((keep // len(one.short), one.rows[keep % len(one.short)]))
    total = front.lost + (spare - front.used)[:, : len(dear)] @ prices
    order = np.flatnonzero(total <= window + SLACK)
    order = order[np.argsort(total[order], kind="stable")]
    return Labels(total[order], _trace(steps, order), fixed, work, complete)


def _after(each: Whole) -> Whole:
    """Sums over all later rows."""
    sums: Whole = np.cumsum(each[::-1], axis=0)[::-1] - each
    return sums


def _odd(count: int) -> Whole:
    """Fixed odd multipliers: sums of them, which may wrap around, name what is used."""
    if count > len(_ODD):
        raise InvariantError("an auction with more limits than anybody foresaw")
    return _ODD[:count]


def _choices(
    table: ResourceTable, priced: Priced, present: Flags, window: float
) -> tuple[list[_Free], Whole]:
    close = np.flatnonzero(priced.short <= window + SLACK)
    ends = np.searchsorted(close, table.first).tolist()
    free: list[_Free] = []
    fixed: list[int] = []
    none_short: list[float] = priced.none_short.tolist()
    short, usage, mark = priced.short[close], table.usage[close], table.mark[close]
    for bidder in np.flatnonzero(present).tolist():
        low, high = ends[bidder], ends[bidder + 1]
        if none_short[bidder] <= window + SLACK:
            if high > low:
                nothing = np.zeros((1, usage.shape[1]), dtype=np.int64)
                free.append(
                    _Free(
                        np.append(close[low:high], -1),
                        np.append(short[low:high], none_short[bidder]),
                        np.concatenate((usage[low:high], nothing)),
                        np.append(mark[low:high], 0),
                    )
                )
        elif high == low + 1:
            fixed.append(low)
        else:
            free.append(_Free(close[low:high], short[low:high], usage[low:high], mark[low:high]))
    # Who has most to decide comes last: what it leaves over is known by then.
    free.sort(key=lambda one: len(one.short))
    return free, close[fixed]


def _distinct(keep: Whole, names: Whole, lost: Real) -> Whole:
    """Of labels that take the same, the one that lost least."""
    order = np.lexsort((lost, names))
    ordered = names[order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return np.sort(keep[order[fresh]])


def _trace(steps: list[tuple[Whole, Whole]], last: Whole) -> Whole:
    """The choices that led to these labels."""
    choices = np.empty((len(last), len(steps)), dtype=np.int64)
    index = last
    for step in range(len(steps) - 1, -1, -1):
        parents, rows = steps[step]
        choices[:, step] = rows[index]
        index = parents[index]
    return choices
