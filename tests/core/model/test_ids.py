import math

import pytest

from themis.core.model.ids import check_count, check_name, check_number
from themis.errors import ConfigError


@pytest.mark.parametrize("name", ["a", "0", "w2-0001", "a" * 63, "a--b-"])
def test_short_lower_case_names_are_taken(name: str) -> None:
    assert check_name("app", name) == name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("-a", id="starts with a dash"),
        pytest.param("Sweep", id="upper case"),
        pytest.param("a" * 64, id="too long"),
        pytest.param("a b", id="a space"),
        pytest.param("a\n", id="a line end"),
        pytest.param("../etc", id="a path"),
        pytest.param("é", id="not ASCII"),
        pytest.param(7, id="a number"),
        pytest.param(10**5000, id="a number too large to print"),
        pytest.param(None, id="nothing"),
        pytest.param(["a"], id="a list"),
    ],
)
def test_other_names_are_refused(name: object) -> None:
    with pytest.raises(ConfigError) as caught:
        check_name("app", name)
    assert caught.value.key == "app"


def test_the_message_about_a_long_name_stays_short() -> None:
    with pytest.raises(ConfigError) as caught:
        check_name("app", "x" * 1_000_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(True, id="a bool"),
        pytest.param("1", id="a string"),
        pytest.param(None, id="nothing"),
        pytest.param(math.nan, id="NaN"),
        pytest.param(math.inf, id="infinity"),
        pytest.param(-math.inf, id="minus infinity"),
        pytest.param(-1, id="negative"),
        pytest.param(-1e-9, id="just negative"),
        pytest.param(2e15, id="too large"),
        pytest.param(10**400, id="an integer no float holds"),
        pytest.param(-(10**400), id="its negative"),
        pytest.param(1j, id="a complex number"),
    ],
)
def test_absurd_id_number_is_refused(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        check_number("weight", value)
    assert caught.value.key == "weight"
    assert len(str(caught.value)) < 200


def test_a_number_comes_back_as_a_float() -> None:
    assert check_number("weight", 3) == 3.0
    assert isinstance(check_number("weight", 3), float)


def test_zero_is_a_number_unless_it_must_be_above() -> None:
    assert check_number("weight", 0) == 0.0
    with pytest.raises(ConfigError, match="above 0"):
        check_number("weight", 0, above=True)


def test_both_ends_of_a_range_belong_to_it() -> None:
    assert check_number("f", 0.0, low=0.0, high=1.0) == 0.0
    assert check_number("f", 1.0, low=0.0, high=1.0) == 1.0
    with pytest.raises(ConfigError, match="from 0 to 1"):
        check_number("f", 1.0000001, low=0.0, high=1.0)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(True, id="a bool"),
        pytest.param(1.0, id="a float"),
        pytest.param("1", id="a string"),
        pytest.param(0, id="zero"),
        pytest.param(-3, id="negative"),
        pytest.param(10**10, id="too large"),
        pytest.param(10**5000, id="too large to print"),
    ],
)
def test_invalid_count_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="a whole number from 1 to"):
        check_count("jobs", value)


def test_a_count_may_start_elsewhere() -> None:
    assert check_count("level", 0, low=0, high=3) == 0
    assert check_count("level", 3, low=0, high=3) == 3
