"""The workloads of single experiments: two jobs among others, and apps that are all alike."""

import pytest

from themis.errors import ConfigError
from themis.sim.workloads import SimApp, generate_truth, generate_w2, true_phases


def work(app: SimApp) -> float:
    return sum(job.work for phase in true_phases(app) for job in phase)


def test_two_inserted_jobs_change_no_other() -> None:
    plain, more = generate_w2(seed=3, apps=10), generate_w2(seed=3, apps=10, two_jobs=True)
    extra = {app.spec.id: app for app in more.apps if app not in plain.apps}
    assert [app for app in more.apps if app.spec.id not in extra] == list(plain.apps)
    assert set(extra) == {"long", "short"}
    assert {name: work(app) for name, app in extra.items()} == {"long": 34800.0, "short": 4980.0}
    assert {name: app.spec.jobs[0].max_gpus for name, app in extra.items()} == {
        "long": 4, "short": 2,
    }  # fmt: skip
    for app in extra.values():
        assert 0.25 * more.horizon <= app.arrival <= 0.75 * more.horizon


def test_apps_of_the_truth_workload_differ_in_name_only() -> None:
    made = generate_truth(seed=1, gpu_hours=2.0)
    assert len(made.apps) == 8
    assert {(app.arrival, app.model, work(app)) for app in made.apps} == {(0.0, "VGG16", 7200.0)}
    assert made.apps == generate_truth(seed=2, gpu_hours=2.0).apps
    assert made.load == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="come at once"):
        generate_truth(seed=1, load=0.5)
