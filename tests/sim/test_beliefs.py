"""Errors and lies: bids and declarations change, the truth does not."""

from collections.abc import Sequence

import pytest

from tests.support.small_sims import Auditor, sim_app, simulate, workload_of
from themis.core.agent.bidder import BidContext
from themis.core.agent.job_assignment import JobNeed
from themis.core.arbiter import events
from themis.core.arbiter.commands import Command
from themis.core.fairness.loads import total_work
from themis.core.model import (
    AppId,
    Bid,
    JobId,
    JobSpec,
    Machine,
    MeasuredSlowdown,
    Phase,
    Slowdown,
    Topology,
)
from themis.errors import ConfigError
from themis.sim import RunConfig, prepare, run
from themis.sim.distorted_bids import HONEST, Distortion
from themis.sim.misreporting import LIES, with_errors, with_liar, with_lie
from themis.sim.modelled_jobs import iteration_limits
from themis.sim.outcome import SimulationOutcome
from themis.sim.workloads import SimApp, Workload, true_phases

VGG = Slowdown((1.0, 1.1, 1.5, 2.0))
PAIRS = Topology(tuple(Machine(f"m{n}", f"r{n // 2}", (2, 2)) for n in range(4)))
HALVING = (Phase(4, 600), Phase(2, 900), Phase(1, 1500))


class Bids:
    """Remembers what was bid."""

    def __init__(self) -> None:
        self.first: dict[AppId, Bid] = {}

    def handled(self, event: events.Event, commands: Sequence[Command]) -> None:
        if isinstance(event, events.BidReceived):
            self.first.setdefault(event.app, event.bid)


def _eight() -> Workload:
    return workload_of(
        *(
            sim_app(f"a{n}", jobs=4, max_gpus=4, phases=HALVING, slowdown=VGG, costs=(7.5, 35.0))
            for n in range(4)
        )
    )


def _outcome(workload: Workload, rule: str = "themis") -> tuple[SimulationOutcome, Bids]:
    bids, auditor = Bids(), Auditor()
    outcome = simulate(PAIRS, workload, rule, observers=[bids, auditor])
    assert outcome.refused == []
    assert outcome.failed_rounds == 0
    return outcome, bids


def _standing(slowdown: Slowdown = VGG) -> BidContext:
    job = JobSpec(JobId("j0"), 1.0, 4, 2, slowdown)
    return BidContext((JobNeed(job, 100.0),), ((JobNeed(job, 50.0),),), {})


def test_factors_reach_the_phase_under_way_and_those_to_come() -> None:
    seen = Distortion(work=1.5, demand=2.0).of(_standing())
    assert seen.needs[0].work == 150.0
    assert seen.needs[0].spec.max_gpus == 8
    ((later,),) = seen.later
    assert (later.work, later.spec.max_gpus, later.spec.min_gpus) == (75.0, 8, 2)


def test_demand_is_never_less_than_a_gang() -> None:
    assert Distortion(demand=0.1).of(_standing()).needs[0].spec.max_gpus == 2


def test_an_estimated_slowdown_is_never_below_one() -> None:
    seen = Distortion(slowdown=0.8).of(_standing()).needs[0].spec.slowdown
    assert list(seen.levels) == pytest.approx([1.0, 1.0, 1.2, 1.6])


def test_spread_gangs_are_those_beyond_one_machine() -> None:
    seen = Distortion(spread_slowdown=2.0).of(_standing()).needs[0].spec.slowdown
    assert seen.levels == (1.0, 1.1, 3.0, 4.0)


def test_lie_about_dense_gangs_may_promise_speed_up_and_spares_singles() -> None:
    truth = Slowdown(VGG.levels, (MeasuredSlowdown(2, 4, 1.4),))
    seen = Distortion(dense_slowdown=0.5).of(_standing(truth)).needs[0].spec.slowdown
    assert seen.at(0, 4) == 0.5
    assert seen.at(1, 4) == pytest.approx(0.55)
    assert seen.at(2, 4) == 1.4
    assert seen.at(0, 1) == 1.0


def test_errors_scale_with_their_size_and_stay_within_it() -> None:
    large, small = (with_errors(_eight(), error, seed=3).apps for error in (0.2, 0.1))
    for more, less in zip(large, small, strict=True):
        for name in ("work", "slowdown"):
            factor = getattr(more.distortion, name)
            assert 0.8 <= factor <= 1.2
            assert factor - 1 == pytest.approx(2 * (getattr(less.distortion, name) - 1))
    assert len({app.distortion.work for app in large}) == len(large)
    assert with_errors(_eight(), 0.0, seed=3) == _eight()


def test_errors_change_bids_and_no_other_message() -> None:
    erring = with_errors(_eight(), 0.2, seed=1)
    assert all(app.submitted == app.planned == app.spec for app in erring.apps)
    (truth, honest), (outcome, bids) = _outcome(_eight()), _outcome(erring)
    assert all(bids.first[app] != bid for app, bid in honest.first.items())
    for app in erring.apps:
        work = total_work(true_phases(app))
        assert outcome.spent[app.spec.id].useful == pytest.approx(work)
        assert outcome.apps[app.spec.id].phases == truth.apps[app.spec.id].phases


def test_bids_scale_with_the_error_in_the_iterations_left() -> None:
    _, honest = _outcome(_eight())
    _, bids = _outcome(with_liar(_eight(), "a1", [("left", 1.5)]))
    for before, after in zip(
        honest.first[AppId("a1")].table, bids.first[AppId("a1")].table, strict=True
    ):
        assert after.seconds == pytest.approx(1.5 * before.seconds)


BY_DEEDS = ("total", "later", "early", "idle")
"""Lies that are not told in bids."""


@pytest.mark.parametrize("kind", [kind for kind in LIES if kind not in BY_DEEDS])
def test_a_liar_changes_its_own_bid_only_and_still_does_its_work(kind: str) -> None:
    lying = with_liar(_eight(), "a2", [(kind, 2)])
    (_, honest), (outcome, bids) = _outcome(_eight()), _outcome(lying)
    changed = [app for app, bid in honest.first.items() if bids.first[app] != bid]
    assert changed == ["a2"]
    for app in _eight().apps:
        assert outcome.spent[app.spec.id].useful == pytest.approx(total_work(true_phases(app)))


def test_a_job_is_stopped_at_the_limit_that_was_declared() -> None:
    liar = with_lie(_eight().apps[0], "total", 0.5)
    outcome, _ = _outcome(workload_of(liar, *_eight().apps[1:]))
    whole = total_work(true_phases(liar))
    assert outcome.spent[liar.spec.id].useful == pytest.approx(whole / 2)
    assert total_work(true_phases(liar, liar.planned)) == pytest.approx(whole / 2)


@pytest.mark.parametrize("rule", ["themis", "equal-share", "tiresias"])
def test_overstating_app_ends_when_its_real_work_is_done(rule: str) -> None:
    liar = with_lie(_eight().apps[0], "total", 2.0)
    outcome, _ = _outcome(workload_of(liar, *_eight().apps[1:]), rule)
    assert outcome.spent[liar.spec.id].useful == pytest.approx(total_work(true_phases(liar)))


def test_overstated_work_is_served_later_under_shortest_first() -> None:
    first = sim_app("first", work=4800.0, max_gpus=16)
    short = sim_app("short", arrival=10.0, work=6000.0, max_gpus=16)
    longer = sim_app("longer", arrival=10.0, work=8000.0, max_gpus=16)
    honest, _ = _outcome(workload_of(first, short, longer), "optimus")
    lying, _ = _outcome(workload_of(first, with_lie(short, "serial", 3.0), longer), "optimus")
    orders = [sorted(run.apps, key=lambda app: run.apps[app].end) for run in (honest, lying)]
    assert orders == [["first", "short", "longer"], ["first", "longer", "short"]]


def test_limits_add_up_over_phases() -> None:
    halving = sim_app("a", jobs=4, phases=HALVING)
    assert set(iteration_limits(halving.spec).values()) == {3000.0}
    curves = sim_app("b", jobs=2, phases=[Phase(2, 9, (5, 9))])
    assert iteration_limits(curves.spec) == {"j0": 5.0, "j1": 9.0}


def test_declaration_must_describe_the_same_app() -> None:
    one, other = sim_app("a", jobs=2), sim_app("b", jobs=2)
    with pytest.raises(ConfigError, match="the same app"):
        SimApp(one.spec, 0.0, "m", one.qualities, declared=other.spec)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        pytest.param({"error": 1.5}, "error", id="an error of more than all"),
        pytest.param({"lie": "spread"}, "liar", id="a lie without a liar"),
        pytest.param({"liar": "nobody"}, "nobody", id="an unknown liar"),
        pytest.param({"liar": "w2-0001", "lie": "spraed"}, "spread", id="an unknown lie"),
        pytest.param({"liar": "w2-0001", "lie_factor": 0}, "lie_factor", id="a factor of nothing"),
    ],
)
def test_errors_and_lies_that_cannot_be_are_refused(options: dict[str, object], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        prepare(RunConfig(cluster="demo16", apps=2, options=options))


def test_keys_of_a_run_inject_errors_and_a_lie() -> None:
    name = prepare(RunConfig(cluster="demo16", apps=3)).workload.apps[1].spec.id
    options = {"error": 0.2, "liar": name, "lie": "spread", "lie_factor": 1.5}
    prepared = prepare(RunConfig(cluster="demo16", apps=3, options=options))
    assert all(app.distortion != HONEST for app in prepared.workload.apps)
    assert [app.distortion.spread_slowdown for app in prepared.workload.apps] == [1.0, 1.5, 1.0]
    result = run(prepared)
    assert result.summary["apps"] == 3
