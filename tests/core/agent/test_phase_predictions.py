"""Bids against what comes of them: phases on GPUs that stay, without costs or noise."""

import random
import statistics

import pytest

from tests.support.phase_timing import Stage, Trial, needs_of, trials
from tests.support.small_sims import sim_app
from themis.core.model import AppId, AppSpec, GpuId, JobId, JobSpec, OwnerId, Phase
from themis.core.model.presets import preset
from themis.sim.workloads import SimApp, workload


def _sampled(name: str, cluster: str) -> list[Trial]:
    topology = preset(cluster)
    return [
        trial
        for seed in (11, 12, 13)
        for app in workload(name, seed=seed, apps=12, gpus=topology.gpus).apps
        for trial in trials(app, topology, random.Random(f"{seed}/{app.spec.id}"))
    ]


@pytest.mark.parametrize("cluster", ["testbed64", "sim256"])
@pytest.mark.parametrize("name", ["w1", "w2"])
def test_median_phase_time_prediction_is_within_5_percent(name: str, cluster: str) -> None:
    found = _sampled(name, cluster)
    phases = {trial.phase for trial in found}
    assert phases == {0} if name == "w1" else len(phases) > 3
    assert statistics.median(abs(trial.error) for trial in found) <= 0.05
    assert statistics.median(abs(trial.bid_error) for trial in found) <= 0.05
    # One job alone is easy to foresee: those that share too few GPUs must do as well.
    crowded = [trial for trial in found if trial.crowded]
    assert len(crowded) >= 20
    assert statistics.median(abs(trial.error) for trial in crowded) <= 0.05


def _sweep(serial: tuple[float, ...], phases: tuple[Phase, ...], max_gpus: int) -> SimApp:
    jobs = tuple(JobSpec(JobId(f"j{n}"), time, max_gpus) for n, time in enumerate(serial))
    spec = AppSpec(AppId("a"), OwnerId("a"), jobs, phases)
    return SimApp(spec, 0.0, "by-hand", tuple(map(float, range(len(jobs)))))


def test_two_survivors_on_two_gpus_take_as_long_as_the_paper_says() -> None:
    app = _sweep((120.0, 100.0), (Phase(2, 16), Phase(1, 36)), max_gpus=8)
    stage = Stage(app, preset("testbed64"))
    assert [need.work for need in needs_of(stage.tuner)] == [1920.0, 1600.0]
    # Each on one GPU until the shorter ends; then the longer one has both.
    assert stage.run_phase([GpuId(0), GpuId(1)]) == pytest.approx(1760.0)
    assert not stage.over
    assert stage.run_phase([GpuId(2)]) == pytest.approx(36 * 120.0)
    assert stage.over


def test_jobs_are_whole_so_a_last_wave_takes_longer_than_bid() -> None:
    """The lower bound at its worst: why the tail of the errors is not as good as the median."""
    app = sim_app("a", jobs=5, work=1000.0)
    stage = Stage(app, preset("testbed64"))
    assert stage.run_phase([GpuId(gpu) for gpu in range(4)]) == pytest.approx(2000.0)
    worst = min(trial.error for trial in _sampled("w2", "sim256"))
    assert -0.5 < worst < -0.2
