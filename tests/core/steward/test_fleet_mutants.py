"""Every defence matters: with it switched off, the checker finds out within a few seeds."""

import pytest

from tests.support.fleet import DEFENCES, IN_DEPTH, Broken, run_seeds
from themis.errors import InvariantError

SEEDS = 120
"""Most show within ten."""


def complaint_about(broken: Broken, seeds: int = SEEDS) -> str:
    """The first thing the checker finds, or nothing."""
    try:
        run_seeds(range(seeds), broken=broken)
    except InvariantError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", DEFENCES)
def test_a_defence_that_is_switched_off_is_missed(name: str) -> None:
    assert complaint_about(DEFENCES[name]), f"nobody notices that {name} no more"


def test_with_all_defences_nothing_is_wrong_in_the_same_weather() -> None:
    weathers = dict.fromkeys(broken.weather for broken in DEFENCES.values())
    for weather in weathers:
        run_seeds(range(1000, 1006), weather=weather)


@pytest.mark.parametrize("name", IN_DEPTH)
def test_a_second_line_holds_when_the_first_is_down(name: str) -> None:
    what, first_down, both_down = IN_DEPTH[name]
    seeds = 12
    assert not any(what in complaint_of(seed, first_down) for seed in range(seeds))
    assert any(what in complaint_of(seed, both_down) for seed in range(seeds))


def complaint_of(seed: int, broken: Broken) -> str:
    try:
        run_seeds([seed], broken=broken)
    except InvariantError as error:
        return str(error)
    return ""


def test_there_are_at_least_twelve_defences() -> None:
    assert len(DEFENCES) >= 12
