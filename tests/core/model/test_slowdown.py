import math

import pytest

from themis.core.model import (
    CLUSTER,
    LEVELS,
    MACHINE,
    NO_SLOWDOWN,
    RACK,
    SLOT,
    MeasuredSlowdown,
    Slowdown,
)
from themis.errors import ConfigError

VGG = Slowdown((1.0, 1.05, 1.29, 1.44))


@pytest.mark.parametrize("level", LEVELS)
def test_one_gpu_is_never_slowed(level: int) -> None:
    measured = VGG.with_measured(level, 1, 3.0)
    assert measured.at(level, 1) == 1.0
    assert measured.rate(level, 1) == 1.0


def test_a_count_without_data_takes_its_level_s_value() -> None:
    measured = VGG.with_measured(RACK, 4, 1.6)
    assert measured.at(RACK, 2) == 1.29
    assert measured.at(RACK, 8) == 1.29
    assert measured.at(CLUSTER, 4) == 1.44


def test_a_measurement_replaces_the_prior() -> None:
    assert VGG.with_measured(RACK, 4, 1.6).at(RACK, 4) == 1.6


def test_a_newer_measurement_replaces_an_older_one() -> None:
    twice = VGG.with_measured(RACK, 4, 1.6).with_measured(RACK, 4, 1.5)
    assert twice.at(RACK, 4) == 1.5
    assert len(twice.measured) == 1


def test_the_order_of_measurements_does_not_matter() -> None:
    one = VGG.with_measured(RACK, 4, 1.6).with_measured(MACHINE, 2, 1.1)
    other = VGG.with_measured(MACHINE, 2, 1.1).with_measured(RACK, 4, 1.6)
    assert one == other


def test_measurements_may_be_below_one_and_out_of_order() -> None:
    odd = VGG.with_measured(CLUSTER, 4, 0.85)
    assert odd.at(CLUSTER, 4) == 0.85
    assert odd.at(CLUSTER, 4) < odd.at(SLOT, 4)


def test_the_rate_is_the_count_over_the_slowdown() -> None:
    assert VGG.rate(RACK, 4) == pytest.approx(4 / 1.29)
    assert NO_SLOWDOWN.rate(CLUSTER, 8) == 8.0


@pytest.mark.parametrize("value", [0.99, 0.0, -1.0, math.nan, math.inf, 1e7])
def test_a_prior_that_cannot_be_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="slowdown at level 2"):
        Slowdown((1.0, 1.0, value, 1.0))


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(MeasuredSlowdown(4, 2, 1.0), id="no such level"),
        pytest.param(MeasuredSlowdown(-1, 2, 1.0), id="a negative level"),
        pytest.param(MeasuredSlowdown(RACK, 0, 1.0), id="no GPUs"),
        pytest.param(MeasuredSlowdown(RACK, 2, 0.0), id="infinitely quick"),
        pytest.param(MeasuredSlowdown(RACK, 2, math.nan), id="NaN"),
    ],
)
def test_a_measurement_that_cannot_be_is_refused(item: MeasuredSlowdown) -> None:
    with pytest.raises(ConfigError, match="measured slowdown"):
        Slowdown(measured=(item,))
