"""What winners keep, under each reading of "the fraction c"."""

import random

import pytest

from themis.core.auction import Award, Won, best_placed, local_part, payment
from themis.core.model import GpuId, Machine, Topology
from themis.errors import ConfigError

# GPUs 0-3 and 4-7 in machines of two slots of two, 8-9 in a third machine of another rack.
TOPOLOGY = Topology(
    (Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2, 2)), Machine("m2", "r1", (2,)))
)
LEASE = 600.0


def _gpus(*numbers: int) -> tuple[GpuId, ...]:
    return tuple(GpuId(number) for number in numbers)


def _won(*chunks: tuple[GpuId, ...], kept: float, unit: int = 1, lease: float = LEASE) -> Won:
    return Won(chunks, kept, unit, lease, TOPOLOGY)


def _awards(name: str, won: Won, count: int = 2000) -> list[Award]:
    return [payment(name).award(won, random.Random(f"{name}/{i}")) for i in range(count)]


@pytest.mark.parametrize("name", ["gpus", "time", "lottery", "lottery-pf", "floor"])
@pytest.mark.parametrize("unit", [1, 2, 3])
def test_winner_without_effect_on_others_keeps_the_whole_row(name: str, unit: int) -> None:
    won = _won(_gpus(0, 1, 2), _gpus(4, 5), kept=1.0, unit=unit)
    assert set(_awards(name, won, 50)) == {Award(_gpus(0, 1, 2, 4, 5), 1.0)}


@pytest.mark.parametrize("name", ["gpus", "time", "lottery", "lottery-pf", "floor"])
def test_winner_with_nothing_kept_gets_nothing(name: str) -> None:
    won = _won(_gpus(0, 1), kept=0.0)
    assert set(_awards(name, won, 50)) == {Award((), 0.0, paid=_gpus(0, 1))}


@pytest.mark.parametrize(
    ("kept", "unit"),
    [(0.5, 1), (0.37, 1), (0.93, 1), (0.1, 2), (0.5, 2), (0.93, 2), (0.4, 3), (0.2, 5), (0.5, 8)],
)
def test_under_gpus_the_mean_kept_equals_the_share(kept: float, unit: int) -> None:
    won = _won(
        _gpus(0, 1, 2, 3),
        _gpus(
            4,
        ),
        kept=kept,
        unit=unit,
    )
    sizes = [len(award.gpus) for award in _awards("gpus", won)]
    assert sum(sizes) / len(sizes) == pytest.approx(kept * 5, abs=0.15)
    assert all(size % unit == 0 or size == 5 for size in sizes)
    assert len(set(sizes)) <= 2


def test_under_gpus_a_whole_number_of_units_is_not_drawn_for() -> None:
    won = _won(_gpus(0, 1, 2), kept=2 / 3)
    assert {len(award.gpus) for award in _awards("gpus", won, 200)} == {2}


def test_under_floor_one_gpu_becomes_none() -> None:
    assert _awards("floor", _won(_gpus(0), kept=0.99), 1)[0].gpus == ()
    assert len(_awards("floor", _won(_gpus(0, 1, 2), kept=2 / 3), 1)[0].gpus) == 2


def test_under_lottery_it_is_all_or_nothing_with_the_right_frequency() -> None:
    awards = _awards("lottery", _won(_gpus(0, 1, 2), kept=0.3))
    assert {award.gpus for award in awards} == {(), _gpus(0, 1, 2)}
    assert sum(bool(award.gpus) for award in awards) / len(awards) == pytest.approx(0.3, abs=0.04)


def test_time_payment_keeps_the_whole_row_for_part_of_the_lease() -> None:
    row = _gpus(0, 1, 2)
    assert set(_awards("time", _won(row, kept=0.4), 50)) == {
        Award(row, 0.4, paid=row, until_fraction=0.4)
    }


def test_under_time_less_than_the_minimum_is_drawn_for() -> None:
    awards = _awards("time", _won(_gpus(0, 1), kept=0.025))
    assert {award.until_fraction for award in awards if award.gpus} == {0.1}
    wins = sum(bool(award.gpus) for award in awards) / len(awards)
    assert wins == pytest.approx(0.25, abs=0.04)


def test_under_time_a_lease_shorter_than_the_minimum_is_a_lottery() -> None:
    awards = _awards("time", _won(_gpus(0, 1), kept=0.5, lease=30.0))
    assert {(award.gpus, award.until_fraction) for award in awards} == {
        ((), None),
        (_gpus(0, 1), None),
    }


@pytest.mark.parametrize("name", ["gpus", "time", "lottery", "lottery-pf", "floor"])
def test_the_same_seed_gives_the_same_award(name: str) -> None:
    won = _won(_gpus(0, 1, 2, 3), kept=0.33)
    assert _awards(name, won, 30) == _awards(name, won, 30)


@pytest.mark.parametrize(
    ("chunks", "count", "best"),
    [
        pytest.param(((0, 4), (1, 2, 3)), 3, (1, 2, 3), id="the largest whole gang"),
        pytest.param(((0, 4), (6, 7)), 2, (6, 7), id="the most local of equal gangs"),
        pytest.param(((0, 1, 2, 3), (4, 5)), 5, (0, 1, 2, 3, 4), id="a gang, then part of one"),
        pytest.param(((0, 2, 4, 5),), 2, (4, 5), id="one slot rather than two"),
        pytest.param(((0, 1, 2, 4, 5, 6, 7),), 3, (0, 1, 2), id="the tightest machine"),
        pytest.param(((0, 4, 8, 9),), 2, (8, 9), id="one slot in another rack"),
        pytest.param(((0, 4, 8),), 2, (0, 4), id="one rack rather than two"),
        pytest.param(((0, 1), (2, 3)), 0, (), id="nothing"),
    ],
)
def test_a_shrunken_award_keeps_the_best_placed_part(
    chunks: tuple[tuple[int, ...], ...], count: int, best: tuple[int, ...]
) -> None:
    assert best_placed([_gpus(*chunk) for chunk in chunks], count, TOPOLOGY) == _gpus(*best)


def test_a_local_part_spreads_over_as_few_machines_as_it_can() -> None:
    part = local_part(_gpus(0, 1, 2, 4, 5, 6, 7, 8), 5, TOPOLOGY)
    assert sorted(part) == [2, 4, 5, 6, 7]


def test_an_unknown_payment_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="did you mean 'lottery'"):
        payment("lotery")
