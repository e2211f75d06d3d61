"""What large auctions are made of: covers, seatings with a way back, holes by size."""

import random
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from tests.support.random_auctions import generated_problem
from themis.core.auction import OfferedMachine, Problem
from themis.core.auction.packing.exact import needs_of, pack
from themis.core.auction.packing.free_gpus import Holes, Room
from themis.core.auction.solvers.ladder import assignment_trial as seating
from themis.core.auction.solvers.ladder import cover_cuts as covers
from themis.core.auction.solvers.ladder import lp_prices as prices
from themis.core.auction.solvers.ladder import resource_table as resources
from themis.core.auction.solvers.prepared import prepare
from themis.core.model import RACK


def test_a_cover_cuts_off_rows_in_part_and_nothing_that_fits(
    make_problem: Callable[[int], Problem],
) -> None:
    found = 0
    for seed in range(500):
        prepared = prepare(make_problem(seed))
        table = resources.tabulate(prepared)
        market = prices.Market(table)
        priced = market.settle()
        limits = covers.covers(table, market.taken(), priced.prices)
        found += len(limits)
        for usage, room in limits:
            assert usage @ market.taken() > room + 1e-3, seed
        if limits:
            number = {id(option): row for row, option in enumerate(table.options)}
            for choice in product(*((None, *options) for options in prepared.options)):
                chosen = [option for option in choice if option is not None]
                if prepared.within_caps(chosen) and pack(
                    prepared.machines, needs_of(prepared, chosen)
                ):
                    rows = [number[id(option)] for option in chosen]
                    assert all(usage[rows].sum() <= room for usage, room in limits), seed
    assert found > 20


def test_trial_assignment_can_be_undone() -> None:
    prepared = prepare(generated_problem(1024, 40, 1, fragmented=True))
    table = resources.tabulate(prepared)
    seats = seating.Seating(prepared, table)
    rng = random.Random(5)
    rows = rng.sample(range(len(table.options)), 200)
    for row in rows[:60]:
        if table.options[row].bidder not in seats.held:
            seats.hold(row)
    before = (dict(seats.held), dict(seats.shelves.places), seats.free)
    seats.begin()
    for bidder in sorted(seats.held)[::2]:
        seats.drop(bidder)
    seats.begin()
    for row in rows[60:]:
        if table.options[row].bidder not in seats.held:
            seats.hold(row)
    gained = seats.gained(2)
    seats.keep()
    now = sum(float(table.gain[row]) for row in seats.held.values())
    assert gained == pytest.approx(now - sum(float(table.gain[row]) for row in before[0].values()))
    seats.undo()
    assert (dict(seats.held), dict(seats.shelves.places), seats.free) == before


def test_holes_by_size_are_split_as_holes_one_by_one() -> None:
    rng = random.Random(3)
    for _ in range(50):
        machines = tuple(
            OfferedMachine(i, 0, tuple(rng.randint(0, 2) for _ in range(4))) for i in range(12)
        )
        plain, quick = Room(machines), Room(machines)
        holes = Holes(quick)
        left = sum(m.gpus for m in machines)
        while left:
            count = rng.randint(1, min(left, 9))
            assert plain.spread(range(12), count) == holes.spread(count)
            left -= count


def test_demand_in_full_is_what_the_entries_say() -> None:
    table = resources.tabulate(prepare(generated_problem(64, 12, 2)))
    weights = np.arange(1, 1 + 2 * len(table.kinds), dtype=np.int64).reshape(2, -1)
    assert (table.entries.weighed(weights) == table.demand @ weights.T).all()


def test_prices_that_follow_demand_prove_nearly_what_the_program_does() -> None:
    for seed in range(3):
        table = resources.tabulate(prepare(generated_problem(1024, 40, seed, fragmented=True)))
        market = prices.Market(table)
        stepped, finished_early = market.step(), market.finished
        assert not finished_early
        assert market.whole_rows() is None  # there is no program yet to have taken any
        settled = market.settle()
        assert market.finished
        assert settled.bound - 1e-9 <= stepped.bound <= 1.01 * settled.bound


def test_chunks_that_were_only_counted_find_gpus_in_the_end() -> None:
    prepared = prepare(generated_problem(1024, 70, 2, fragmented=True))
    table = resources.tabulate(prepared)
    seats = seating.Seating(prepared, table)
    rows = list(range(len(table.options)))
    random.Random(8).shuffle(rows)
    for row in rows:  # until hardly anything fits any more
        if table.options[row].bidder not in seats.held:
            seats.hold(row)
    free = {(m.machine, slot): n for m in prepared.machines for slot, n in enumerate(m.slots)}
    racks = {m.machine: m.rack for m in prepared.machines}
    wide = 0
    for row, places in zip(seats.rows().tolist(), seats.places(), strict=True):
        for chunk, place in zip(table.options[row].chunks, places, strict=True):
            assert sum(count for _, _, count in place) == chunk.count
            for machine, slot, count in place:
                free[machine, slot] -= count
            if chunk.level == RACK:
                assert len({racks[machine] for machine, _, _ in place}) == 1
                wide += 1
    assert min(free.values()) >= 0
    assert sum(free.values()) == seats.free
    assert wide > 5
