"""Processes and machines that fail: only work since the last checkpoint is done again."""

import csv
import itertools
from datetime import datetime

import pytest

from tests.support.requirements import require_data
from tests.support.small_sims import Auditor, sim_app, workload_of
from themis.core.arbiter import Settings
from themis.core.fairness.loads import total_work
from themis.core.model import AppId, JobId, Machine, Phase, Topology
from themis.core.policies import policy
from themis.errors import ConfigError
from themis.sim import RunConfig, prepare
from themis.sim.counters import Shares
from themis.sim.driver import Simulation
from themis.sim.faults import PHILLY_FAILURES_PER_GPU_HOUR, Faults, back_off
from themis.sim.modelled_jobs import NO_COSTS, JobCosts
from themis.sim.outcome import SimulationOutcome
from themis.sim.workloads import Workload, true_phases

FOUR = Topology(tuple(Machine(f"m{n}", f"r{n // 2}", (2,)) for n in range(4)))
A = AppId("a")


def _run(
    workload: Workload, faults: Faults, rule: str = "tiresias", *, seed: int = 1, costs: JobCosts
) -> SimulationOutcome:
    auditor = Auditor()
    outcome = Simulation(
        FOUR,
        workload,
        policy(rule),
        Settings(),
        seed=seed,
        costs=costs,
        faults=faults,
        observers=[auditor],
    ).run()
    assert auditor.running == {}
    return outcome


def _sweeps() -> Workload:
    phases = (Phase(4, 3000), Phase(2, 4000), Phase(1, 6000))
    return workload_of(
        *(sim_app(f"a{n}", arrival=500.0 * n, jobs=4, max_gpus=2, phases=phases) for n in range(4))
    )


@pytest.mark.parametrize("rule", ["themis", "equal-share", "gandiva", "fifo"])
def test_all_work_is_done_once_in_spite_of_failures(rule: str) -> None:
    faults = Faults(2.0, machine_mtbf=3 * 3600.0, machine_repair=900.0)
    outcome = _run(_sweeps(), faults, rule, costs=JobCosts())
    assert outcome.refused == []
    assert outcome.failed_rounds == 0
    assert outcome.failures > 0
    assert outcome.outages > 0
    for app in _sweeps().apps:
        spent = outcome.spent[app.spec.id]
        assert spent.useful == pytest.approx(total_work(true_phases(app)))
        used = spent.useful + spent.slowed + spent.restart + spent.checkpoint + spent.lost
        assert used <= sum(outcome.apps[app.spec.id].attained.values()) * (1 + 1e-9)
    assert sum(spent.lost for spent in outcome.spent.values()) > 0.0


def test_the_same_seed_breaks_the_same_things() -> None:
    faults = Faults(2.0, machine_mtbf=3 * 3600.0, machine_repair=900.0)
    runs = [_run(_sweeps(), faults, seed=seed, costs=JobCosts()) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_job_goes_on_from_its_last_periodic_checkpoint() -> None:
    rate = _rate_at_which_it_dies_after(2050.0)
    app = sim_app("a", work=2250.0)
    outcome = _run(workload_of(app), Faults(rate, checkpoint_every=100.0), costs=NO_COSTS)
    lost = 50.0
    assert outcome.failures == 1
    assert outcome.spent[A].lost == pytest.approx(lost)
    assert outcome.spent[A].restart == pytest.approx(back_off(1))
    assert outcome.apps[A].end == pytest.approx(2250.0 + lost + back_off(1))


def _rate_at_which_it_dies_after(seconds: float) -> float:
    first, second = (Faults(1.0).time_to_failure(1, A, JobId("j0"), n, 1) for n in (1, 2))
    assert second * seconds / first > 250.0, "its second process must live long enough"
    return first / seconds


def test_twice_the_gpus_fail_twice_as_often_and_twice_as_soon() -> None:
    one, two = (Faults(1.0).time_to_failure(1, A, JobId("j0"), 1, gpus) for gpus in (1, 2))
    assert one == pytest.approx(2 * two)


def test_a_machine_that_is_back_after_all_have_failed_is_used_again() -> None:
    faults = Faults(machine_mtbf=1800.0, machine_repair=3600.0, checkpoint_every=60.0)
    outcome = _run(_sweeps(), faults, "themis", costs=JobCosts())
    assert len(outcome.apps) == 4


def test_failures_that_let_nothing_through_are_refused_with_a_hint() -> None:
    faults = Faults(100_000.0, checkpoint_every=3600.0)
    with pytest.raises(ConfigError, match="checkpoint_every"):
        _run(workload_of(sim_app("a", work=3600.0)), faults, costs=NO_COSTS)


def test_a_job_backs_off_longer_after_each_failure_in_a_row() -> None:
    assert [back_off(n) for n in (1, 2, 3, 6, 1000)] == [10.0, 20.0, 40.0, 300.0, 300.0]


def test_outages_follow_each_other_at_the_mean_distance() -> None:
    outages = list(itertools.islice(Faults(machine_mtbf=1000.0).outages(1, "m0"), 4000))
    ups = [later - back for (_, back), (later, _) in itertools.pairwise(outages)]
    assert sum(ups) / len(ups) == pytest.approx(1000.0, rel=0.05)
    assert all(back - fails == pytest.approx(3600.0) for fails, back in outages)


def test_saved_work_is_whole_periods() -> None:
    faults = Faults(checkpoint_every=300.0)
    assert [faults.saved(seconds) for seconds in (0.0, 299.0, 300.0, 1000.0)] == [0, 0, 300, 900]


def test_the_rate_of_failures_is_that_of_philly() -> None:
    hours, attempts, jobs = 0.0, 0, set()
    with (require_data() / "philly_attempts.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            start, end = (datetime.fromisoformat(row[key]) for key in ("start_time", "end_time"))
            hours += (end - start).total_seconds() / 3600.0 * int(row["num_gpus"])
            attempts += 1
            jobs.add(row["jobid"])
    retried = attempts - len(jobs)
    assert retried / hours == pytest.approx(PHILLY_FAILURES_PER_GPU_HOUR, rel=1e-3)


def test_keys_of_a_run_ask_for_faults() -> None:
    options = {"job_failures_per_gpu_hour": "philly", "machine_mtbf": "30d", "machine_repair": "1h"}
    prepared = prepare(RunConfig(apps=2, options=options))
    assert prepared.faults == Faults(PHILLY_FAILURES_PER_GPU_HOUR, 30 * 86400.0, 3600.0)
    with pytest.raises(ConfigError, match="job_failures_per_gpu_hour"):
        prepare(RunConfig(apps=2, options={"job_failures_per_gpu_hour": "often"}))
    with pytest.raises(ConfigError, match="checkpoint_every"):
        prepare(RunConfig(apps=2, options={"checkpoint_every": 0}))


def test_shares_are_counted_in_bins_that_hold_their_upper_end() -> None:
    shares = Shares()
    assert shares.mean is None
    shares.extend([0.0, 0.05, 0.051, 1.0])
    assert shares.bins[:2] == [2, 1]
    assert shares.bins[-1] == 1
    assert shares.mean == pytest.approx(1.101 / 4)
