"""Limits that the ladder adds: broken by what does not fit, kept by everything that does."""

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from themis.core.auction import Problem
from themis.core.auction.packing import one_pass as loading
from themis.core.auction.packing.exact import needs_of, pack
from themis.core.auction.solvers.ladder import cuts
from themis.core.auction.solvers.ladder import resource_table as resources
from themis.core.auction.solvers.prepared import Option, PreparedProblem, prepare


def _combinations(prepared: PreparedProblem) -> Iterator[list[Option]]:
    for choice in product(*((None, *options) for options in prepared.options)):
        chosen = [option for option in choice if option is not None]
        if chosen:
            yield chosen


def test_cut_keeps_every_feasible_point_and_rejects_its_counterexample(
    make_problem: Callable[[int], Problem],
) -> None:
    found = {"limit": 0, "wide_limit": 0}
    for seed in range(500):
        prepared = prepare(make_problem(seed))
        table = resources.tabulate(prepared)
        number = {id(option): row for row, option in enumerate(table.options)}
        cutter = cuts.Cutter(prepared.machines, table)
        fitting: list[npt.NDArray[np.int64]] = []
        failing: list[npt.NDArray[np.int64]] = []
        for chosen in _combinations(prepared):
            rows = np.array([number[id(option)] for option in chosen])
            fits = pack(prepared.machines, needs_of(prepared, chosen)) is not None
            (fitting if fits else failing).append(rows)
        for rows, search in product(failing[:20], (cutter.limit, cutter.wide_limit)):
            limit = search(rows)
            if limit is not None:
                usage, room = limit
                found[search.__name__] += 1
                assert usage[rows].sum() > room, seed
                assert all(usage[other].sum() <= room for other in fitting), seed
    assert min(found.values()) > 25, found


def test_resources_hold_for_all_that_fits(make_problem: Callable[[int], Problem]) -> None:
    for seed in range(150):
        prepared = prepare(make_problem(seed))
        table = resources.tabulate(prepared)
        number = {id(option): row for row, option in enumerate(table.options)}
        for chosen in _combinations(prepared):
            if prepared.within_caps(chosen) and pack(prepared.machines, needs_of(prepared, chosen)):
                rows = [number[id(option)] for option in chosen]
                assert (table.usage[rows].sum(axis=0) <= table.capacity).all(), seed


@pytest.mark.parametrize("load", ["load", "load_by_racks"])
def test_loaded_rows_fit(load: str, make_problem: Callable[[int], Problem]) -> None:
    loaded = 0
    for seed in range(150):
        prepared = prepare(make_problem(seed))
        for chosen in _combinations(prepared):
            needs = needs_of(prepared, chosen)
            done = getattr(loading, load)(prepared.machines, needs)
            if done is not None:
                loaded += 1
                _check(prepared, needs, done.places(needs))
    assert loaded > 50


def _check(prepared: PreparedProblem, needs: list, places: list) -> None:  # type: ignore[type-arg]
    free = {m.machine: list(m.slots) for m in prepared.machines}
    for need, place in zip(needs, places, strict=True):
        assert sum(count for _, _, count in place) == need.chunk.count
        for machine, slot, count in place:
            free[machine][slot] -= count
            assert free[machine][slot] >= 0
        machines = {machine for machine, _, _ in place}
        racks = {m.rack for m in prepared.machines if m.machine in machines}
        if need.chunk.machine is not None:
            assert machines == {need.chunk.machine}
        if need.chunk.count > 1:
            assert need.chunk.level > 0 or len(place) == 1
            assert need.chunk.level > 1 or len(machines) == 1
            assert need.chunk.level > 2 or len(racks) == 1
