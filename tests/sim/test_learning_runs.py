"""Simulations whose agents learn, and what nodes report of training time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support.small_sims import sim_app, simulate, workload_of
from themis.core.arbiter import events
from themis.core.arbiter.commands import Command
from themis.core.model import NO_SLOWDOWN, RACK, AppId, Bid, JobId, Machine, Slowdown, Topology
from themis.core.policies import policy
from themis.errors import ConfigError
from themis.sim import RunConfig, prepare, run
from themis.sim.driver import Simulation
from themis.sim.faults import Faults
from themis.sim.iteration_measuring import NO_LEARNING, Learning
from themis.sim.misreporting import with_errors, without_priors
from themis.sim.modelled_jobs import NO_COSTS, JobCosts
from themis.sim.workloads import SimApp, Workload

PAIRS = Topology(tuple(Machine(f"m{n}", "r0", (2,)) for n in range(4)))
TRUTH = Slowdown((1.0, 1.0, 2.5, 2.5))
LEARN = Learning(learn=True)
A = AppId("a")


class Watch:
    """Remembers bids and samples."""

    def __init__(self) -> None:
        self.bids: dict[AppId, list[Bid]] = {}
        self.samples: list[tuple[float, str, events.ProgressSample]] = []
        self.starts: list[tuple[float, JobId]] = []

    def handled(self, event: events.Event, commands: Sequence[Command]) -> None:
        match event:
            case events.BidReceived(app=app, bid=bid):
                self.bids.setdefault(app, []).append(bid)
            case events.ProgressMeasured(at=at, app=app, samples=samples):
                self.samples += [(at, app, sample) for sample in samples]
            case events.JobStarted(at=at, job=job):
                self.starts.append((at, job))
            case _:
                pass

    def last_seconds(self, app: AppId, level: int, count: int) -> float:
        """What it last thought to need with these, over what it needs with one GPU."""
        table = next(bid.table for bid in reversed(self.bids[app]) if bid.table)
        seconds = {(row.level, row.count): row.seconds for row in table}
        return seconds[level, count] / seconds[0, 1]


def _ignorant(*apps: SimApp) -> Workload:
    return without_priors(workload_of(*apps))


def _wide(name: str, **options: Any) -> SimApp:
    return sim_app(name, work=40000.0, max_gpus=4, slowdown=TRUTH, **options)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_an_app_learns_what_spreading_costs_and_bids_it(noise: float) -> None:
    watch = Watch()
    learning = Learning(learn=True, iteration_noise=noise)
    simulate(PAIRS, _ignorant(_wide("a")), "themis", learning=learning, observers=[watch])
    assert watch.bids[A][0].table[-1].seconds == pytest.approx(10000.0)
    assert watch.last_seconds(A, RACK, 4) == pytest.approx(2.5 / 4, rel=0.06)


def test_without_learning_it_errs_to_the_end() -> None:
    watch = Watch()
    simulate(PAIRS, _ignorant(_wide("a")), "themis", observers=[watch])
    assert watch.last_seconds(A, RACK, 4) == pytest.approx(1.0 / 4)


@pytest.mark.parametrize("rule", ["themis", "equal-share", "fifo"])
def test_learning_agent_stops_spreading_and_ends_sooner(rule: str) -> None:
    def end(workload: Workload, learning: Learning) -> float:
        return simulate(PAIRS, workload, rule, learning=learning).apps[A].end

    knows = end(workload_of(_wide("a")), NO_LEARNING)
    learns = end(_ignorant(_wide("a")), LEARN)
    errs = end(_ignorant(_wide("a")), NO_LEARNING)
    # Two GPUs of one machine do 2 seconds of work a second, four of two machines 1.6.
    assert knows == pytest.approx(20000.0, rel=0.01)
    assert errs == pytest.approx(25000.0, rel=0.01)
    assert knows < learns < knows + 0.2 * (errs - knows)


def test_two_learning_agents_leave_each_other_their_machines() -> None:
    apps = [_wide("a"), _wide("b", arrival=1.0)]
    learned = simulate(PAIRS, _ignorant(*apps), "themis", learning=LEARN)
    ignorant = simulate(PAIRS, _ignorant(*apps), "themis")
    slowed = {
        outcome: sum(account.slowed for account in result.spent.values())
        for outcome, result in (("learned", learned), ("ignorant", ignorant))
    }
    assert slowed["learned"] < 0.2 * slowed["ignorant"]


def test_agent_with_true_beliefs_learns_nothing() -> None:
    def last_table(learning: Learning) -> dict[tuple[int, int], float]:
        watch = Watch()
        simulate(PAIRS, workload_of(_wide("a")), "themis", learning=learning, observers=[watch])
        table = next(bid.table for bid in reversed(watch.bids[A]) if bid.table)
        return {
            (row.level, row.count): watch.last_seconds(A, row.level, row.count) for row in table
        }

    assert last_table(LEARN) == pytest.approx(last_table(NO_LEARNING), rel=1e-3)


def test_learning_agents_err_in_priors_and_not_in_measurements() -> None:
    workload = workload_of(_wide("a"))
    told = with_errors(workload, 0.5, seed=3, learning=True).apps[0]
    factor = with_errors(workload, 0.5, seed=3).apps[0].distortion.slowdown
    assert told.distortion.slowdown == 1.0
    assert told.distortion.work != 1.0
    (prior,) = told.priors
    assert prior.at(RACK, 4) == pytest.approx(max(1.0, 2.5 * factor))
    assert told.planned.jobs[0].slowdown == prior
    assert told.spec.jobs[0].slowdown == TRUTH, "what runs is the truth"


def test_jobs_that_share_a_profile_share_the_wrong_one() -> None:
    app = without_priors(workload_of(sim_app("a", jobs=3, slowdown=TRUTH))).apps[0]
    assert app.priors == (NO_SLOWDOWN,) * 3
    with pytest.raises(ConfigError, match="priors of a"):
        replace(app, priors=app.priors[:2])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"learn": 1}, "learn"),
        ({"learn": "yes"}, "learn"),
        ({"learn": True, "iteration_noise": -0.1}, "iteration_noise"),
        ({"learn": True, "iteration_noise": "much"}, "iteration_noise"),
        ({"iteration_noise": 0.1}, "iteration_noise"),
        ({"prior": "noen"}, "prior"),
    ],
)
def test_keys_of_learning_are_checked(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=f"^{named}:"):
        prepare(RunConfig(cluster="demo16", apps=1, options=options))


def test_run_options_configure_learning() -> None:
    options = {"learn": True, "iteration_noise": 0.05, "prior": "none"}
    config = RunConfig(cluster="demo16", apps=2, load=0.9, policy="equal-share", options=options)
    prepared = prepare(config)
    assert prepared.learning == Learning(learn=True, iteration_noise=0.05)
    assert prepared.workload.apps[0].planned.jobs[0].slowdown == NO_SLOWDOWN
    assert run(prepared).summary == run(config).summary


# What nodes report of training time


def _rates(watch: Watch, app: str) -> list[float]:
    """Iterations per second between neighbouring samples that have seconds."""
    rates, before = [], 0.0
    for _, name, sample in watch.samples:
        if name == app:
            if sample.seconds > 0.0:
                rates.append((sample.iterations - before) / sample.seconds)
            before = sample.iterations
    return rates


def test_samples_tell_the_seconds_of_training_without_start_and_checkpoint() -> None:
    watch = Watch()
    workload = workload_of(_wide("a"), _wide("b", arrival=3000.0))
    simulate(PAIRS, workload, "equal-share", costs=JobCosts(), observers=[watch])
    assert len(watch.starts) >= 2
    # Two GPUs of one machine, or four of two: nothing else runs, and nothing slower.
    for app in ("a", "b"):
        rates = _rates(watch, app)
        assert len(rates) > 10
        for rate in rates:
            assert 1.6 - 1e-9 <= rate <= 2.0 + 1e-9


def test_seconds_of_all_samples_add_up_to_the_time_trained() -> None:
    watch = Watch()
    app = sim_app("a", work=5000.0, max_gpus=2, costs=(7.5, 35.0))
    simulate(PAIRS, workload_of(app), "themis", costs=JobCosts(), observers=[watch])
    assert sum(sample.seconds for *_, sample in watch.samples) == pytest.approx(2500.0)


def test_after_a_process_died_a_sample_has_no_seconds() -> None:
    watch = Watch()
    workload = workload_of(sim_app("a", work=20000.0, max_gpus=2))
    outcome = Simulation(
        PAIRS,
        workload,
        policy("equal-share"),
        prepare(RunConfig(cluster="demo16", apps=1)).settings,
        seed=1,
        costs=NO_COSTS,
        faults=Faults(1.0, checkpoint_every=300.0),
        observers=[watch],
    ).run()
    assert outcome.failures > 0
    assert [s for *_, s in watch.samples if s.seconds == 0.0]
    assert _rates(watch, "a") == pytest.approx([2.0] * len(_rates(watch, "a")))
