"""Every defence matters: without it the checker finds a violation within a few seeds."""

import pytest

from tests.support.fleet import DEFENCES, IN_DEPTH, Broken, run_seeds
from themis.errors import InvariantError

SEEDS = 120
"""Most show within ten."""


def complaint_about(broken: Broken, seeds: int = SEEDS) -> str:
    """The first violation that the checker finds; empty if there is none."""
    try:
        run_seeds(range(seeds), broken=broken)
    except InvariantError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", DEFENCES)
def test_the_checker_notices_a_missing_defence(name: str) -> None:
    assert complaint_about(DEFENCES[name]), f"not noticed: {name}"


def test_with_all_defences_the_same_faults_violate_nothing() -> None:
    weathers = dict.fromkeys(broken.weather for broken in DEFENCES.values())
    for weather in weathers:
        run_seeds(range(1000, 1006), weather=weather)


@pytest.mark.parametrize("name", IN_DEPTH)
def test_the_second_line_of_defence_holds_without_the_first(name: str) -> None:
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
