"""Runs that nobody simulated: records made up for tests of what follows from them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from themis.core.fairness.ideal_time import Convention
from themis.core.model import AppId
from themis.evaluation.experiment import Experiment, Results, Scope
from themis.recording.codec import dumps
from themis.sim.config import RunConfig
from themis.sim.metrics import AppResult
from themis.sim.runs.result_cache import CachedRun, GpuUsage, ResultCache, Stored
from themis.sim.runs.run_timing import Span, Timing

SPANS = {"bid": Span(10, 0.1, 0.01, 0.02, 0.03), "auction": Span(5, 2.5, 0.5, 1.0, 1.5)}

Numbers = Callable[[RunConfig], Mapping[str, Any]]
Finished = Callable[[Experiment, Scope, Numbers], Results]
Begun = Callable[[Experiment, Scope, Numbers, Callable[[RunConfig], bool]], Results]


def record(config: RunConfig, **numbers: Any) -> CachedRun:
    """A run of two apps with a summary of our choice; `rho` is that of the worse one.

    `named` are more apps by name, with a number that is their rho and their completion time.
    """
    rho = float(numbers.pop("rho", 1.0))
    named: Mapping[str, float] = numbers.pop("named", {})
    scores = numbers.pop("scores", ((1.0, 3600.0),))
    both = dict.fromkeys(Convention, rho)
    apps = tuple(
        AppResult(AppId(name), 0.0, 10.0, 10.0, 100.0, rhos, rhos)
        for name, rhos in (("late", both), ("early", dict.fromkeys(Convention, 0.5)))
    )
    apps += tuple(
        AppResult(AppId(name), 0.0, value, value, 100.0, both, both)
        for name, value in named.items()
        for both in (dict.fromkeys(Convention, value),)
    )
    summary = {
        **{f"max_rho{end}": {str(kind): rho for kind in Convention} for end in ("", "_ref")},
        "p95_rho_ref": {"fair_share": rho, "paper": rho},
        "share_fair_ref": {"fair_share": 0.5, "paper": 0.5},
        "mean_completion_h": 1.0,
        "fluid_completion_h": 1.25,
        "floor_rho_ref": None,
        "placed_floor_rho_ref": None,
        "placed_fluid_h": None,
        "placed_over_work": None,
        "most_fair_ref": None,
        "max_rho_alone": {"fair_share": None, "paper": None},
        "jain": 0.9,
        "auction_share_contended": 0.25,
        "mean_kept_fraction": 0.5,
        "gpu_hours": 100.0,
        "gpu_hours_spent": {
            "useful": 80.0, "slowed": 10.0, "restart": 5.0, "checkpoint": 5.0, "lost": 0.0
        },
        "placement_score": 0.9,
        "moves": 3,
        **numbers,
    }  # fmt: skip
    return CachedRun("0", config, summary, apps, tuple(scores), GpuUsage(3600.0, (1.0,)))


def keep(store: ResultCache, config: RunConfig, numbers: Numbers) -> None:
    """Put a run with these numbers among the finished ones."""
    made = record(config, **numbers(config))
    timing = dumps(Timing(config, 1.0, SPANS, "abc")).encode()
    store.save(config, Stored(dumps(made).encode() + b"\n", b"", timing))


@pytest.fixture
def finished(tmp_path: Path) -> Finished:
    """Results in which every run of an experiment is there, with the numbers given for it."""

    def make(experiment: Experiment, scope: Scope, numbers: Numbers) -> Results:
        results = Results(scope, ResultCache(tmp_path / "runs"))
        results.store.make()
        while todo := [one for one in experiment.plan(results) if not results.has(one)]:
            for config in todo:
                keep(results.store, config, numbers)
        return results

    return make


@pytest.fixture
def begun(tmp_path: Path) -> Begun:
    """Results in which only those runs are there that are wanted, of all that were named so far."""

    def make(
        experiment: Experiment, scope: Scope, numbers: Numbers, there: Callable[[RunConfig], bool]
    ) -> Results:
        results = Results(scope, ResultCache(tmp_path / "runs"))
        results.store.make()
        for _ in range(4):  # a search names more once it has seen some
            for config in list(experiment.plan(results)):
                if there(config) and not results.has(config):
                    keep(results.store, config, numbers)
        return results

    return make
