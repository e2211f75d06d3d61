"""What HiGHS says is believed as far as it can be checked."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.support.random_auctions import generated_problem
from themis.core.auction import Bidder, Candidate, OfferedMachine, Problem, check_solution, solver
from themis.core.auction.packing.exact import PackingLimitError
from themis.core.auction.solution import Place
from themis.core.auction.solvers.ladder import ladder as ladder_module
from themis.core.auction.solvers.ladder.ladder import Ladder
from themis.core.auction.solvers.milp import build
from themis.core.auction.solvers.milp_decode import MilpAnswer, decode
from themis.core.auction.solvers.prepared import prepare
from themis.core.auction.solvers.registry import Determination
from themis.core.model import SLOT, AppId, Chunk
from themis.errors import InvariantError


@pytest.fixture
def only_highs_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither loading nor the packing search finds out anything."""

    def give_up(*_: object) -> None:
        raise PackingLimitError

    monkeypatch.setattr(ladder_module, "pack", give_up)
    monkeypatch.setattr(ladder_module, "load", lambda *_, **__: None)


def _winners() -> tuple[Ladder, Determination]:
    prepared = prepare(generated_problem(64, 8, 3))
    found = Ladder(prepared)(tuple(range(8)), None)
    assert found.exact
    return Ladder(prepared), found


@pytest.mark.usefixtures("only_highs_packs")
def test_rows_that_gain_next_to_nothing_are_found_to_fit() -> None:
    finder, found = _winners()
    finder.prepared = replace(
        finder.prepared,
        options=tuple(
            tuple(replace(option, gain=1e-13 * option.gain) for option in rows)
            for rows in finder.prepared.options
        ),
    )
    finder.table.options = [o for rows in finder.prepared.options for o in rows]
    names = {(option.bidder, option.row) for option in found.chosen}
    rows = [i for i, o in enumerate(finder.table.options) if (o.bidder, o.row) in names]
    assert finder.packs(np.array(rows), 100) is True


@pytest.mark.usefixtures("only_highs_packs")
def test_rows_that_fit_are_placed_even_when_time_is_up() -> None:
    # Whoever puts a 3 into the smaller slot is stuck, so no quick answer holds both rows.
    machines = tuple(OfferedMachine(number, 0, (5, 4)) for number in range(2))
    bidders = tuple(
        Bidder(
            AppId(f"app-{number}"),
            1.0,
            8.0,
            (Candidate(tuple(Chunk(SLOT, size, number) for size in (3, 2, 2, 2)), 1.0),),
        )
        for number in range(2)
    )
    finder = Ladder(prepare(Problem(machines, bidders)), lambda: 0.0)
    chosen = tuple(rows[0] for rows in finder.prepared.options)
    assert [len(places) for places in finder._place(chosen)] == [4, 4]


def test_an_optimum_that_its_own_bound_exceeds_is_not_called_exact() -> None:
    prepared = prepare(generated_problem(64, 4, 3))
    model = build(prepared)
    everyone = tuple(range(4))
    nothing: Sequence[int] = [0] * len(model.program.cost)
    hopes = sum(rows[0].gain for rows in prepared.options)
    found = decode(prepared, model, everyone, MilpAnswer(nothing, exact=True, bound=hopes, work=1))
    assert not found.exact
    assert found.bound == pytest.approx(hopes)


def test_an_answer_of_highs_that_does_not_fit_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = generated_problem(64, 8, 3, fragmented=True)
    truth = solver("ladder").solve(problem)

    def too_much(*_: object) -> object:
        def place() -> tuple[tuple[Place, ...], ...]:
            raise InvariantError("the rows that the solver chose do not fit")

        prepared = prepare(problem)
        chosen = tuple(rows[0] for rows in prepared.options if rows)
        value = sum(option.gain for option in chosen)
        return lambda *_: Determination(chosen, value, True, 1, place)

    monkeypatch.setattr(
        "themis.core.auction.solvers.ladder.winner_determination.start_of", lambda _: too_much
    )
    monkeypatch.setattr(
        "themis.core.auction.solvers.ladder.winner_determination.Climb._search", _nothing_found
    )
    solution = solver("ladder").solve(problem)
    check_solution(problem, solution)
    assert not solution.exact
    assert solution.value <= truth.value + 1e-9
    assert solution.bound >= truth.value - 1e-9


class _NoLabels:
    lost: tuple[float, ...] = ()
    complete = False


def _nothing_found(*_: object, **__: object) -> _NoLabels:
    return _NoLabels()
