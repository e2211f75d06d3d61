"""A run that was written down and begun again in the middle goes on as if nothing had been."""

from dataclasses import replace

import pytest

from themis.core.arbiter import AppRecord, Settings
from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.core.model.presets import preset
from themis.core.policies import policy, policy_class
from themis.core.tuners import hyperband_phases, jobs_needed
from themis.errors import ConfigError
from themis.recording.cluster_snapshots import Snapshot, dumps_snapshot, snapshot_from
from themis.recording.codec import loads
from themis.recording.written_settings import settings_for
from themis.sim.faults import Faults
from themis.sim.iteration_measuring import Learning
from themis.sim.modelled_jobs import NO_COSTS, JobCosts
from themis.sim.snapshot_sim import Fork
from themis.sim.workloads import SimApp, Workload

TOPOLOGY = preset("testbed64", 4)
POLICIES = ("themis", "themis-paper", "tiresias", "equal-share", "worst-first", "drf", "fifo")
MOMENTS = (0.0, 1000.0, 2765.0, 6000.0, 9001.5, 20000.0)


def app(
    index: int, phases: tuple[Phase, ...], jobs: int, seconds: float, most: int = 4, least: int = 1
) -> SimApp:
    name = f"app-{index}"
    specs = tuple(
        JobSpec(JobId(f"{job:02d}"), seconds * (1.0 + 0.1 * job), most, least)
        for job in range(jobs)
    )
    # Which job is how good: anything but their order.
    qualities = tuple(float((job * 7 + index) % 11) for job in range(jobs))
    spec = AppSpec(AppId(name), OwnerId(f"owner-{index % 3}"), specs, phases)
    return SimApp(spec, 700.0 * index, "vgg16", qualities)


def crowd() -> tuple[SimApp, ...]:
    brackets = hyperband_phases(9, 3)
    halving = (Phase(8, 20), Phase(4, 40), Phase(2, 80), Phase(1, 160))
    targets = (Phase(3, 300, targets=(100, 300, 200)),)
    return (
        app(0, halving, 8, 40.0),
        app(1, brackets, jobs_needed(brackets), 90.0, most=2),
        app(2, targets, 3, 50.0, most=8, least=2),
        app(3, halving, 8, 25.0, most=1),
        app(4, (Phase(1, 500),), 1, 60.0, most=8),
        app(5, halving, 8, 30.0, most=2, least=2),
        app(6, targets, 3, 20.0),
    )


def workload(apps: tuple[SimApp, ...]) -> Workload:
    return Workload("crowd", apps, 1.0, 0.0, 1, "test", 1)


def settings(name: str) -> Settings:
    return settings_for(policy_class(name), {"solve_work": 500})


def run(name: str, costs: JobCosts, apps: tuple[SimApp, ...], **more: object) -> Fork:
    rule = policy(name)
    return Fork(TOPOLOGY, workload(apps), rule, settings(name), seed=3, costs=costs, **more)  # type: ignore[arg-type]


def resumed(snapshot: Snapshot, costs: JobCosts, apps: tuple[SimApp, ...], seed: int = 3) -> Fork:
    truths = {each.spec.id: each for each in apps}
    coming = [each for each in apps if each.arrival > snapshot.at]
    return Fork.of(snapshot, truths, coming, policy(snapshot.policy), seed=seed, costs=costs)


def written(snapshot: Snapshot) -> Snapshot:
    return snapshot_from(loads(dumps_snapshot(snapshot)))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("costs", [NO_COSTS, JobCosts()], ids=["nothing is drawn", "with costs"])
def test_a_fork_with_nothing_added_ends_as_the_undisturbed_run(name: str, costs: JobCosts) -> None:
    apps = crowd()
    whole = run(name, costs, apps).run().apps
    undisturbed = run(name, costs, apps)
    crowded = 0
    for moment in MOMENTS:
        undisturbed.advance(moment)
        snapshot = undisturbed.snapshot(name)
        crowded = max(crowded, len(snapshot.apps))
        left: dict[AppId, AppRecord] = resumed(written(snapshot), costs, apps).run().apps
        assert left == {each: record for each, record in whole.items() if each in left}
        assert len(left) == len(apps) - len(undisturbed.outcome.apps)
    assert crowded >= 4  # Else nothing was shown.


def test_writing_down_changes_nothing() -> None:
    apps = crowd()
    whole = run("themis", JobCosts(), apps).run().apps
    disturbed = run("themis", JobCosts(), apps)
    for moment in range(0, 20000, 500):
        disturbed.advance(float(moment))
        disturbed.snapshot("themis")
    assert disturbed.run().apps == whole


def test_a_fork_of_a_fork_is_one_too() -> None:
    apps = crowd()
    whole = run("themis", JobCosts(), apps).run().apps
    once = run("themis", JobCosts(), apps)
    once.advance(3000.0)
    twice = resumed(written(once.snapshot("themis")), JobCosts(), apps)
    twice.advance(5000.0)
    left = resumed(written(twice.snapshot("themis")), JobCosts(), apps).run().apps
    assert left == {each: record for each, record in whole.items() if each in left}


def test_another_seed_draws_other_starts() -> None:
    apps = crowd()
    before = run("themis", JobCosts(), apps)
    before.advance(3000.0)
    snapshot = written(before.snapshot("themis"))
    one, other = (resumed(snapshot, JobCosts(), apps, seed).run().apps for seed in (3, 4))
    assert {each: record.end for each, record in one.items()} != {
        each: record.end for each, record in other.items()
    }


def test_without_an_agenda_what_runs_goes_on_and_ends() -> None:
    # As of a live cluster, where nobody knows when a process ends.
    apps = crowd()
    before = run("themis", NO_COSTS, apps)
    before.advance(4000.0)
    blind = replace(before.snapshot("themis"), agenda=None)
    known = {app.app: replace(app, waiting=None) for app in blind.apps}
    blind = replace(blind, apps=tuple(known.values()))
    left = resumed(written(blind), NO_COSTS, apps).run().apps
    assert set(left) == {each.spec.id for each in apps} - set(before.outcome.apps)
    assert all(record.outcome == "finished" for record in left.values())


def test_learned_state_is_not_written_into_forks() -> None:
    learning = run("themis", JobCosts(), crowd(), learning=Learning(learn=True))
    failing = run("themis", JobCosts(), crowd(), faults=Faults(job_failures_per_gpu_hour=0.1))
    for simulation in (learning, failing):
        with pytest.raises(ConfigError, match="faults or learning"):
            simulation.snapshot("themis")
