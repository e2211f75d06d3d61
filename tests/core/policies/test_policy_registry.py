"""Policies by name, and what is said about names that are wrong."""

import sys
from pathlib import Path

import pytest

from themis.core.policies import POLICIES, DirectPolicy, Plan, Policy, View, policy, policy_options
from themis.errors import ConfigError

OUTSIDE = """
import random
from themis.core.policies import DirectPolicy, Plan, View

class Mine(DirectPolicy):
    name = "mine"

    def __init__(self, *, patience: float = 2.0) -> None:
        self.patience = patience

    def plan(self, view: View, rng: random.Random) -> Plan:
        return Plan(())

class Needy(Mine):
    def __init__(self, *, target: int) -> None:
        self.target = target

class Nameless(DirectPolicy):
    def plan(self, view, rng):
        return Plan(())

class Half(DirectPolicy):
    name = "half"

number = 3
"""


@pytest.fixture(autouse=True)
def _outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_package.py").write_text(OUTSIDE)
    (tmp_path / "broken_package.py").write_text("class Mine(:")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_package", raising=False)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_is_made_by_its_name(name: str) -> None:
    assert policy(name).name == name


def test_a_policy_from_outside_is_named_by_module_and_class() -> None:
    mine = policy("some_package:Mine", patience=3.5)
    assert isinstance(mine, Policy)
    assert mine.name == "mine"
    assert vars(mine) == {"patience": 3.5}


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        pytest.param("themsi", {}, "did you mean 'themis'", id="a misspelt policy"),
        pytest.param("zzz", {}, "equal-share, fifo", id="the names that exist"),
        pytest.param("themis", {"paymnt": "gpus"}, "did you mean 'payment'", id="misspelt option"),
        pytest.param("fifo", {"f": 0.5}, "option of policy fifo: got 'f'", id="no such option"),
        pytest.param("themis", {"payment": "lotery"}, "did you mean 'lottery'", id="payment"),
        pytest.param("themis", {"payment": 3}, "payment: got 3", id="a number as payment"),
        pytest.param("themis", {"rank": "nwo"}, "did you mean 'now'", id="rank"),
        pytest.param("themis", {"leftovers": 1.5}, "leftovers: got 1.5", id="leftovers"),
        pytest.param("themis", {"f": 1.1}, "f: got 1.1", id="f above one"),
        pytest.param("themis", {"f": float("nan")}, "f: got nan", id="f not a number"),
        pytest.param("themis", {"f": "a lot"}, "f: got 'a lot'", id="f in words"),
        pytest.param("themis", {"min_invited": 0}, "min_invited: got 0", id="nobody invited"),
        pytest.param("themis", {"guard_rounds": -1}, "guard_rounds: got -1", id="guard"),
        pytest.param("themis", {"hysteresis": -0.1}, "hysteresis: got -0.1", id="hysteresis"),
        pytest.param("themis", {"fresh_tables": 1}, "fresh_tables: got 1", id="not a switch"),
        pytest.param("gandiva", {"margin": -0.1}, "margin: got -0.1", id="margin"),
        pytest.param("slaq", {"steepness": 0.0}, "steepness: got 0.0", id="a flat loss"),
        pytest.param("slaq+pack", {"steepness": "x"}, "steepness: got 'x'", id="loss in words"),
        pytest.param("static", {"parts": 0}, "parts: got 0", id="no parts"),
        pytest.param("static", {"parts": 2.5}, "parts: got 2.5", id="half a part"),
        pytest.param("no_such_package:Mine", {}, "No module named", id="no such module"),
        pytest.param("broken_package:Mine", {}, "SyntaxError", id="a module that does not load"),
        pytest.param("some_package:Mien", {}, "did you mean 'Mine'", id="no such class"),
        pytest.param(
            "some_package:number", {}, "a subclass of themis.core.policies", id="no class"
        ),
        pytest.param("some_package:Half", {}, "it lacks plan", id="an unfinished policy"),
        pytest.param("some_package:Nameless", {}, "a class with a `name`", id="no name"),
        pytest.param("some_package:Needy", {}, "option target", id="a missing option"),
        pytest.param(
            "some_package:Mine", {"patence": 1}, "did you mean 'patience'", id="its own options"
        ),
        pytest.param(":Mine", {}, "an importable module:Class", id="no module"),
        pytest.param("some_package:", {}, "Mine", id="no class named"),
        pytest.param(".relative:Mine", {}, "an importable module:Class", id="a relative module"),
    ],
)
def test_policy_errors_are_reported_clearly(
    name: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        policy(name, **options)
    assert said in str(caught.value)


def test_options_and_defaults_can_be_listed() -> None:
    assert policy_options(POLICIES["fifo"]) == {}
    assert policy_options(POLICIES["themis"])["f"] == 0.8
    paper = policy_options(POLICIES["themis-paper"])
    assert (paper["payment"], paper["leftovers"], paper["rank"]) == ("gpus", "paper", "now")
    assert paper.keys() == policy_options(POLICIES["themis"]).keys()


def test_a_policy_that_asks_nothing_writes_one_function() -> None:
    class Idle(DirectPolicy):
        name = "idle"

        def plan(self, view: View, rng: object) -> Plan:
            return Plan(())

    assert isinstance(Idle(), Policy)


def test_presets_have_their_documented_options() -> None:
    """Everything in which the paper taken literally and our best differ, options aside."""
    ours, paper = POLICIES["themis"], POLICIES["themis-paper"]
    for kind, best in ((ours, True), (paper, False)):
        assert kind.asks_tables
        assert (kind.keeps_to_beats, kind.pools) == (best, best)
        assert (kind.sticky_agents, kind.restart_in_bids) == (best, best)
    assert ours.settings == {
        "bidder": "owner",
        "convention": "fair_share",
        "contention_of": "shares",
    }
    assert paper.settings == {
        "bidder": "app",
        "convention": "paper",
        "idle_after": 0.0,
        "added_work": "extends",
        "audit_tolerance": 0.0,
    }
    assert policy_options(ours) == {
        "f": 0.8,
        "payment": "lottery",
        "rank": "best-case",
        "lookahead": 1.0,
        "urgent": 0.8,
        "hysteresis": 0.05,
        "min_invited": 2,
        "horizon": "lease",
        "leftovers": "ranked",
        "guard_rounds": 5,
        "guard_patience": 24,
        "call_in_gain": 0.05,
        "fresh_tables": False,
    }
    assert policy_options(paper) == {
        "f": 0.8,
        "payment": "gpus",
        "rank": "now",
        "lookahead": 0.0,
        "urgent": 0.0,
        "hysteresis": 0.0,
        "min_invited": 1,
        "horizon": "end",
        "leftovers": "paper",
        "guard_rounds": 0,
        "guard_patience": 1,
        "call_in_gain": 0.0,
        "fresh_tables": True,
    }
