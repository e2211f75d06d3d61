"""What to simulate is checked where it enters: names, numbers, and which key belongs where."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_sims import sim_app, workload_of
from themis.core.arbiter import SETTING_NAMES, BidderKind
from themis.core.fairness.ideal_time import Convention
from themis.errors import ConfigError, DuplicateError
from themis.recording.written_values import parse_value, seconds
from themis.sim import RunConfig, prepare
from themis.sim import config as config_module
from themis.sim.config import allowed_keys
from themis.sim.workloads import Workload


def _prepare(**options: Any) -> Any:
    return prepare(RunConfig(cluster="demo16", apps=2, options=options))


def test_a_run_is_made_of_what_its_keys_name() -> None:
    prepared = _prepare(f=0.5, lease="5m", bursty=True, restart_median="20s", solver="greedy")
    assert prepared.settings.lease == 300.0
    assert prepared.policy_options == {"f": 0.5}
    assert prepared.workload.name == "w2-bursty"
    assert prepared.costs.restart_median == 20.0
    assert prepared.solver == "greedy"
    assert prepared.topology.gpus == 16


def test_settings_that_go_with_a_policy_yield_to_what_is_asked_for() -> None:
    literal = prepare(RunConfig(cluster="demo16", apps=1, policy="themis-paper"))
    assert literal.settings.convention is Convention.PAPER
    assert literal.settings.bidder is BidderKind.APP
    asked = prepare(
        RunConfig(
            cluster="demo16", apps=1, policy="themis-paper", options={"convention": "fair_share"}
        )
    )
    assert asked.settings.convention is Convention.FAIR_SHARE
    assert asked.settings.bidder is BidderKind.APP


@pytest.mark.parametrize(
    ("config", "named", "hint"),
    [
        (RunConfig(policy="themsi"), "policy: got 'themsi'", "'themis'"),
        (RunConfig(cluster="testbed46"), "cluster: got 'testbed46'", "'testbed64'"),
        (RunConfig(workload="w22"), "workload: got 'w22'", "'w2'"),
        (RunConfig(options={"leese": 1}), "got 'leese'", "'lease'"),
        (RunConfig(options={"payment": "lotery"}), "payment: got 'lotery'", "'lottery'"),
        (RunConfig(options={"solver": "hihgs"}), "solver: got 'hihgs'", "'highs'"),
        (RunConfig(options={"convention": "papr"}), "convention: got 'papr'", "'paper'"),
        (RunConfig(options={"bidder": "own"}), "bidder: got 'own'", "'owner'"),
        (RunConfig(options={"hardware": "p10"}), "hardware: got 'p10'", "'p100'"),
    ],
)
def test_unknown_names_are_refused_with_what_is_allowed_and_the_closest(
    config: RunConfig, named: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(config)
    assert named in str(caught.value)
    assert f"did you mean {hint}?" in str(caught.value)
    assert hint.strip("'") in caught.value.allowed


def test_a_key_of_another_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="key for policy fifo: got 'f'"):
        prepare(RunConfig(policy="fifo", options={"f": 0.5}))


IMPOSSIBLE = [-1, -0.5, math.nan, math.inf, -math.inf, True, 10**400, "nan", "-5m", "many", None]


@pytest.mark.parametrize("value", IMPOSSIBLE, ids=lambda value: repr(value)[:12])
@pytest.mark.parametrize(
    "key",
    [
        "lease",
        "grace",
        "guard",
        "pooling",
        "idle_after",
        "starvation",
        "solve_work",
        "restart_median",
        "checkpoint_high",
        "f",
        "eta",
    ],
)
def test_impossible_numbers_are_refused_by_every_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        _prepare(**{key: value})
    assert key in caught.value.key


@pytest.mark.parametrize("value", [*IMPOSSIBLE[:7], 0, 2.5], ids=lambda value: repr(value)[:12])
@pytest.mark.parametrize("key", ["apps", "contention"])
def test_impossible_counts_are_refused(key: str, value: Any) -> None:
    values: dict[str, Any] = {"cluster": "demo16", key: value}
    with pytest.raises(ConfigError) as caught:
        prepare(RunConfig(**values))
    assert key in caught.value.key


@pytest.mark.parametrize("value", [*IMPOSSIBLE[:7], 0, 11.0], ids=lambda value: repr(value)[:12])
def test_impossible_loads_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="load"):
        prepare(RunConfig(cluster="demo16", apps=1, load=value))


@pytest.mark.parametrize("value", [-1, 2**63, True, 1.0])
def test_impossible_seeds_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="seed"):
        prepare(RunConfig(cluster="demo16", apps=1, seed=value))


@pytest.mark.parametrize("value", [0, 0.0, -1, float("nan"), "0s", True])
def test_no_time_to_bid_is_refused_with_what_is_allowed(value: object) -> None:
    with pytest.raises(ConfigError, match=r"bid_deadline: got .*allowed: a number above 0 to 3600"):
        prepare(RunConfig(options={"bid_deadline": value}))


@pytest.mark.parametrize("value", [-1, -0.5, float("nan"), float("inf")])
@pytest.mark.parametrize("key", SETTING_NAMES)
def test_no_setting_of_the_arbiter_is_negative_or_no_number(key: str, value: float) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(RunConfig(options={key: value}))
    assert str(caught.value).startswith(f"{key}: got ")
    assert "1e+18" not in str(caught.value)  # its own range, not that of any duration


def test_a_lease_shorter_than_the_lead_of_a_round_is_refused() -> None:
    with pytest.raises(ConfigError, match="longer than the lead of a round"):
        _prepare(lease=38)


def test_a_gang_larger_than_the_cluster_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_hand(name: str, **options: object) -> Workload:
        del name, options
        return workload_of(sim_app("big", max_gpus=17, min_gpus=17))

    monkeypatch.setattr(config_module, "workload", by_hand)
    with pytest.raises(ConfigError, match=r"min_gpus of big: got 17, allowed: at most .* 16 GPUs"):
        prepare(RunConfig(cluster="demo16", apps=1))


def test_two_apps_of_one_name_are_refused() -> None:
    with pytest.raises(DuplicateError, match="twin"):
        workload_of(sim_app("twin"), sim_app("twin", arrival=1.0))


def test_less_of_the_cluster_keeps_the_workload() -> None:
    whole = prepare(RunConfig(cluster="testbed64", apps=5))
    half = prepare(RunConfig(cluster="testbed64", apps=5, contention=2))
    assert half.topology.gpus == 32
    assert half.workload == whole.workload


@pytest.mark.parametrize(
    ("given_", "expected"),
    [(90, 90.0), ("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), ("2 d", 172800.0)],
)
def test_durations_are_seconds_or_carry_a_unit(given_: object, expected: float) -> None:
    assert seconds(given_, "lease") == expected


@given(st.floats(0.0, 1e12, allow_subnormal=False))
def test_durations_survive_being_written_and_read(value: float) -> None:
    assert seconds(repr(value), "lease") == value


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        assert seconds(text, "lease") >= 0.0
    except ConfigError as error:
        assert error.key == "lease"  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("0.5", 0.5), ("true", True), ("False", False), (" gpus ", "gpus"), ("10m", "10m")],
)
def test_values_on_the_command_line_are_numbers_flags_or_words(text: str, value: object) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


def test_every_key_belongs_to_one_thing() -> None:
    keys = allowed_keys("themis", "w2")
    assert keys["f"] == "policy"
    assert keys["lease"] == "arbiter"
    assert keys["bursty"] == "workload"
    assert keys["restart_p95"] == "costs"
    assert not {"seed", "apps", "gpus", "load"} & set(keys)
