"""Lies told by deeds: what they do in a run, and what each defence leaves of their gain."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support.small_sims import Auditor, sim_app, simulate, workload_of
from themis.core.arbiter import Settings, events
from themis.core.arbiter.commands import Command
from themis.core.fairness.loads import total_work
from themis.core.model import AppId, Machine, Phase, Slowdown, Topology
from themis.errors import ConfigError
from themis.sim import RunConfig, prepare, run
from themis.sim.misreporting import split, with_liar, with_lie
from themis.sim.modelled_jobs import JobCosts
from themis.sim.outcome import SimulationOutcome
from themis.sim.workloads import Workload, contender, true_phases

CLUSTER = Topology(tuple(Machine(f"m{n}", f"r{n // 2}", (2, 2)) for n in range(2)))
VGG = Slowdown((1.0, 1.1, 1.5, 2.0))
LIAR = "a1"


class Log:
    """Remembers what the arbiter heard."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def handled(self, event: events.Event, commands: Sequence[Command]) -> None:
        self.events.append(event)


def _rivals() -> Workload:
    """Four apps that want all of eight GPUs."""
    return workload_of(
        *(
            sim_app(f"a{n}", arrival=3000.0 + 10.0 * n, work=6000.0, jobs=4, max_gpus=2)
            for n in range(4)
        )
    )


def _run(
    workload: Workload, lies: Sequence[tuple[str, float]] = (), **settings: Any
) -> tuple[SimulationOutcome, Log]:
    log = Log()
    told = with_liar(workload, LIAR, lies) if lies else workload
    outcome = simulate(
        CLUSTER, told, "themis", Settings(**settings), costs=JobCosts(), observers=[log, Auditor()]
    )
    assert outcome.failed_rounds == 0
    return outcome, log


def test_work_that_is_declared_later_is_done_all_the_same() -> None:
    outcome, log = _run(_rivals(), [("later", 0.5)])
    added = [event for event in log.events if isinstance(event, events.WorkAdded)]
    assert {event.app for event in added} == {LIAR}
    assert sorted(event.targets for event in added) == [((f"j{n}", 6000.0),) for n in range(4)]
    assert outcome.refused == []
    for app in _rivals().apps:
        assert outcome.spent[app.spec.id].useful == pytest.approx(total_work(true_phases(app)))
    assert outcome.apps[AppId(LIAR)].arrival == 3010.0
    assert total_work(outcome.apps[AppId(LIAR)].phases) == pytest.approx(24_000.0)


def test_a_job_stands_still_at_its_limit_until_more_is_declared() -> None:
    _, log = _run(_rivals(), [("later", 0.5)])
    limit: dict[str, float] = {}
    for event in log.events:
        if isinstance(event, events.WorkAdded):
            limit |= dict(event.targets)
        if isinstance(event, events.ProgressMeasured) and event.app == LIAR:
            for sample in event.samples:
                assert sample.iterations <= limit.get(sample.job, 3000.0)
    assert len(limit) == 4


def test_early_submission_starts_nothing_before_it_is_ready() -> None:
    _, log = _run(_rivals(), [("early", 2000.0)], idle_after=0.0)
    arrived = {e.app.id: e.at for e in log.events if isinstance(e, events.AppArrived)}
    started = [e.at for e in log.events if isinstance(e, events.JobStarted) and e.app == LIAR]
    assert arrived[AppId(LIAR)] == 1010.0
    assert min(started) >= 3010.0


def test_dawdling_app_leaves_its_gpus_empty_at_every_start() -> None:
    _, log = _run(_rivals(), [("idle", 20.0)])
    granted, started = [
        min(e.at for e in log.events if isinstance(e, kind) and e.app == LIAR)
        for kind in (events.BidReceived, events.JobStarted)
    ]
    assert started - granted >= 20.0


def test_the_parts_of_a_split_app_are_the_app() -> None:
    app = _rivals().apps[1]
    parts = split(with_lie(app, "total", 2.0), 3)
    assert [part.spec.id for part in parts] == ["a1-p1", "a1-p2", "a1-p3"]
    assert {part.spec.owner for part in parts} == {app.spec.owner}
    assert sorted(job.id for part in parts for job in part.spec.jobs) == [
        job.id for job in app.spec.jobs
    ]
    assert sum(total_work(true_phases(part)) for part in parts) == total_work(true_phases(app))
    assert all(part.submitted.phases[0].iterations == 12_000 for part in parts)
    assert split(app, 1) == (app,)
    assert len(split(app, 9)) == 4


@pytest.mark.parametrize("lie", ["split", "later"])
def test_lies_for_one_phase_are_refused_for_several(lie: str) -> None:
    halving = sim_app(LIAR, jobs=4, phases=(Phase(4, 100), Phase(2, 100)))
    with pytest.raises(ConfigError, match="several phases"):
        with_liar(workload_of(halving), LIAR, [(lie, 2.0)])


def test_several_lies_combine() -> None:
    options = {"liar": "truth-02", "lie": "spread, ideal,early", "lie_factor": "1.5,0.5,60"}
    made = prepare(RunConfig("truth64", workload="truth", apps=8, options=options)).workload
    liar = next(app for app in made.apps if app.spec.id == "truth-02")
    assert liar.distortion.spread_slowdown == 1.5
    assert liar.claim is not None
    assert liar.claim.ideal_time == 0.5
    with pytest.raises(ConfigError, match="as many as there are lies"):
        prepare(RunConfig("truth64", workload="truth", apps=8,
                          options=options | {"lie_factor": "1.5"}))  # fmt: skip


# What the defences leave of it; how much each lie gains is measured by E16


@pytest.mark.parametrize(("inputs", "pays"), [("claimed", True), ("computed", False)])
def test_a_claimed_ideal_time_pays_only_where_it_is_believed(inputs: str, pays: bool) -> None:
    options = {"floor": False, "gpu_hours": 3.0, "gap": 450.0, "inputs": inputs}
    lie = {"liar": contender(), "lie": "ideal", "lie_factor": 0.2}
    honest, lying = [
        next(app.end for app in run(config, keep_segments=False).apps if app.app == contender())
        for more in ({}, lie)
        for config in (RunConfig("demo16", workload="rivals", apps=8, options=options | more),)
    ]
    assert (lying < honest) if pays else (lying == honest)


def test_audit_marks_only_the_liar() -> None:
    outcome, _ = _run(_rivals(), [("serial", 0.3)])
    assert [app for app, record in outcome.apps.items() if record.contradicted] == [LIAR]
    outcome, _ = _run(_rivals(), [("serial", 0.3)], audit_tolerance=0.0)
    assert not any(record.contradicted for record in outcome.apps.values())


def test_false_spread_tolerance_is_detected_when_the_app_is_spread() -> None:
    wide = [sim_app(f"a{n}", work=40_000.0, max_gpus=3, slowdown=VGG) for n in range(2)]
    apart = Topology(tuple(Machine(f"m{n}", f"r{n}", (1,)) for n in range(6)))
    told = with_liar(workload_of(*wide), LIAR, [("cluster", 0.5)])
    outcome = simulate(apart, told, "themis")
    assert [app for app, record in outcome.apps.items() if record.contradicted] == [LIAR]


def test_lies_in_a_workload_keep_the_order_of_arrival() -> None:
    told = with_liar(_rivals(), "a3", [("early", 25.0)])
    assert [app.spec.id for app in told.apps] == ["a0", "a3", "a1", "a2"]
    assert replace(told.apps[1], arrival=3030.0, ready=0.0) == _rivals().apps[3]
