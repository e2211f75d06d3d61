"""Forecasts: what an app that is not there would meet, and what it would do to others."""

import math
from dataclasses import replace

import pytest

from tests.support.small_sims import snapshot_after
from themis.core.arbiter import Settings
from themis.core.arbiter.events import AppSuspended
from themis.core.model import AppId, AppSpec, JobId, JobSpec, Machine, OwnerId, Phase, Topology
from themis.core.model.apps import Constraint
from themis.core.model.reasons import Reason
from themis.core.policies import policy
from themis.errors import InvariantError, RefusedError
from themis.forecast import CaseAnswer, Forecast, ForecastRange, foresee
from themis.forecast.run_ahead import Ahead
from themis.recording.cluster_snapshots import Snapshot
from themis.recording.codec import decode, dumps, loads
from themis.recording.forecast_questions import ForecastCase, ForecastQuestion
from themis.sim.driver import StuckError
from themis.sim.modelled_jobs import NO_COSTS
from themis.sim.snapshot_sim import Fork
from themis.sim.workloads import SimApp, Workload

HOUR = 3600.0
MACHINES = Topology(tuple(Machine(f"m{index}", "r0", (2, 2)) for index in range(2)))


class Ticks:
    """A clock that goes on whenever somebody looks."""

    def __init__(self, each: float = 0.0) -> None:
        self.now, self.each = 0.0, each

    def __call__(self) -> float:
        self.now += self.each
        return self.now


def spec(name: str, hours: float, *, gpus: int = 4, owner: str = "", least: int = 1) -> AppSpec:
    job = JobSpec(JobId("0"), 1.0, gpus, least)
    phases = (Phase(1, round(hours * HOUR)),)
    return AppSpec(AppId(name), OwnerId(owner or name), (job,), phases)


def state(*apps: AppSpec, name: str = "equal-share", until: float = 1000.0) -> Snapshot:
    arrivals = tuple(SimApp(app, float(index), "", (0.5,)) for index, app in enumerate(apps))
    workload = Workload("some", arrivals, 1.0, 0.0, 1, "test", 1)
    fork = Fork(MACHINES, workload, policy(name), Settings(), seed=1, costs=NO_COSTS)
    fork.advance(until)
    # As of a live cluster, of which nobody knows what comes.
    snapshot = fork.snapshot(name)
    blind = tuple(replace(app, waiting=None) for app in snapshot.apps)
    return replace(snapshot, agenda=None, apps=blind)


def asked(
    snapshot: Snapshot, *cases: ForecastCase, seeds: int = 2, clock: Ticks | None = None
) -> Forecast:
    return list(foresee(snapshot, ForecastQuestion(cases, seeds), clock or Ticks()))[-1]


def of(snapshot: Snapshot, case: ForecastCase) -> CaseAnswer:
    return asked(snapshot, case).cases[0]


def mid(interval: ForecastRange | None) -> float:
    assert interval is not None
    return interval.mid


def test_alone_on_an_empty_cluster_an_app_starts_at_once() -> None:
    found = of(state(), ForecastCase("as written", spec("new", 4.0)))
    assert mid(found.start) < 60.0
    assert mid(found.finish) == pytest.approx(HOUR, abs=120.0)  # four GPUs
    assert mid(found.rho) == pytest.approx(1.0, abs=0.05)
    assert (found.seeds, found.unfinished, found.others) == (2, 0, ())


def test_on_a_crowded_cluster_it_waits_and_others_finish_later() -> None:
    crowded = state(spec("big", 40.0, gpus=8), spec("other", 40.0, gpus=8))
    found = of(crowded, ForecastCase("as written", spec("new", 4.0, gpus=8)))
    assert mid(found.finish) > 1.3 * HOUR  # With a third of eight GPUs.
    later = {other.app: other.later.mid for other in found.others}
    # Four hours of eight GPUs' work are half an hour, which both of the others lose.
    assert set(later) == {"big", "other"}
    assert sum(later.values()) == pytest.approx(2 * 0.5 * HOUR, rel=0.35)


def test_app_without_competitors_delays_no_other() -> None:
    found = of(state(spec("narrow", 10.0, gpus=1)), ForecastCase("as written", spec("new", 2.0)))
    assert [abs(other.later.mid) < 60.0 for other in found.others] == [True]


def test_variants_stand_side_by_side() -> None:
    crowded = state(spec("big", 8.0, gpus=8))
    new = spec("new", 8.0, gpus=1)
    answer = asked(
        crowded,
        ForecastCase("as written", new),
        ForecastCase("gpus 8", spec("new", 8.0, gpus=8)),
        ForecastCase("at +2h", new, delay=2 * HOUR),
        ForecastCase("add", new, machines=(Machine("extra", "r0", (4,)),)),
        ForecastCase("fifo", spec("new", 8.0, gpus=8), policy="fifo"),
    )
    written, wider, tonight, more, fifo = answer.cases
    assert mid(wider.finish) < mid(written.finish)
    assert mid(tonight.start) >= 2 * HOUR
    assert mid(tonight.finish) == pytest.approx(mid(written.finish) + 2 * HOUR, rel=0.05)
    # What the newcomer takes, the new machine gives back.
    assert more.others[0].later.mid < written.others[0].later.mid
    # First come, first served: it waits for the other one.
    assert mid(fifo.start) > mid(wider.start)
    assert [case.label for case in answer.cases] == [
        "as written", "gpus 8", "at +2h", "add", "fifo",
    ]  # fmt: skip


def test_answers_get_better_and_the_first_one_comes_before_any_run() -> None:
    question = ForecastQuestion((ForecastCase("as written", spec("new", 4.0)),), 3)
    answers = list(foresee(state(spec("big", 9.0)), question, Ticks()))
    first, last = answers[0], answers[-1]
    assert (first.done, first.final, first.cases[0].rough) == (0, False, True)
    assert mid(first.cases[0].finish) == pytest.approx(HOUR, rel=0.01)  # on its half of the GPUs
    assert (last.done, last.total, last.final, last.cases[0].rough) == (6, 6, True, False)
    seeds = [answer.cases[0].seeds for answer in answers]
    assert seeds == sorted(seeds)
    assert seeds[-1] == 3
    for narrower in answers:
        interval = narrower.cases[0].finish
        assert interval is not None
        assert interval.low <= interval.mid <= interval.high


def test_when_time_is_up_the_answer_is_what_there_is() -> None:
    answer = asked(state(spec("big", 9.0)), ForecastCase("as written", spec("new", 4.0)),
                   clock=Ticks(each=25.0))  # fmt: skip
    assert answer.final
    assert answer.done < answer.total
    assert answer.cases[0].rough


def test_seeds_vary_unknowns_and_are_reproducible() -> None:
    jobs = tuple(JobSpec(JobId(f"{index}"), 1.0 + index, 2) for index in range(4))
    phases = (Phase(4, 900), Phase(1, 2000))
    sweep = AppSpec(AppId("new"), OwnerId("ann"), jobs, phases)
    snapshot = state(spec("big", 9.0, gpus=8))
    once = asked(snapshot, ForecastCase("as written", sweep), seeds=4)
    again = asked(snapshot, ForecastCase("as written", sweep), seeds=4)
    assert once == again
    finish = once.cases[0].finish
    assert finish is not None
    assert finish.high > finish.low


def test_trials_under_curves_may_end_early() -> None:
    jobs = tuple(JobSpec(JobId(f"{index}"), 1.0, 1) for index in range(2))
    sweep = AppSpec(AppId("new"), OwnerId("ann"), jobs, (Phase(2, 10_000),))
    whole = of(state(), ForecastCase("as written", sweep, "single"))
    curves = of(state(), ForecastCase("as written", sweep, "curves"))
    assert 0.3 * mid(whole.finish) < mid(curves.finish) < mid(whole.finish)


def test_starting_takes_as_long_as_the_app_says() -> None:
    quick = replace(spec("new", 4.0), restart_seconds=0.0)
    slow = replace(spec("new", 4.0), restart_seconds=600.0)
    at_once, later = (
        mid(of(state(), ForecastCase("as written", each)).finish) for each in (quick, slow)
    )
    assert at_once == pytest.approx(HOUR, abs=1.0)
    assert at_once + 300.0 < later < at_once + 1200.0


def test_paused_app_stays_paused_and_delays_no_other() -> None:
    paused = spec("paused", 40.0, gpus=8)
    workload = Workload("some", (SimApp(paused, 0.0, "", (0.5,)),), 1.0, 0.0, 1, "test", 1)
    fork = Fork(MACHINES, workload, policy("equal-share"), Settings(), seed=1, costs=NO_COSTS)
    fork.advance(1000.0)
    fork.look(1000.0)
    pause = AppSuspended(1000.0, AppId("paused"), Reason.PAUSED_BY_USER)
    snapshot = replace(snapshot_after(fork, workload, pause), agenda=None)
    found = of(snapshot, ForecastCase("as written", spec("new", 8.0, gpus=8)))
    assert mid(found.finish) == pytest.approx(HOUR, abs=150.0)


def test_day_long_app_gets_an_outline_before_its_first_run() -> None:
    crowded = state(spec("big", 900.0, gpus=8), spec("other", 900.0, gpus=8))
    case = ForecastCase("as written", spec("new", 150.0, gpus=8))
    # A clock by which every step is worth an answer, and a minute is long enough for an outline.
    told = [each.cases[0] for each in foresee(crowded, ForecastQuestion((case,), 1), Ticks(0.05))]
    kinds = [(each.rough, each.outlined) for each in told]
    assert list(dict.fromkeys(kinds)) == [(True, False), (True, True), (False, False)]
    outline, exact = next(each for each in told if each.outlined), told[-1]
    assert outline.start is None
    assert exact.seeds == 1
    assert mid(outline.finish) == pytest.approx(mid(exact.finish), rel=0.15)
    assert mid(outline.rho) == pytest.approx(mid(exact.rho), rel=0.15)


def test_a_short_app_needs_no_outline() -> None:
    told = foresee(
        state(), ForecastQuestion((ForecastCase("as written", spec("new", 4.0)),), 1), Ticks(0.2)
    )
    assert not any(each.cases[0].outlined for each in told)


def test_forecast_waits_for_an_app_while_all_others_are_paused() -> None:
    arrivals = (SimApp(spec("paused", 40.0, gpus=8), 0.0, "", (0.5,)),)
    workload = Workload("some", arrivals, 1.0, 0.0, 1, "test", 1)
    short = Settings(lease=60.0)
    fork = Fork(MACHINES, workload, policy("equal-share"), short, seed=1, costs=NO_COSTS)
    fork.advance(100.0)
    pause = AppSuspended(100.0, AppId("paused"), Reason.PAUSED_BY_USER)
    snapshot = replace(snapshot_after(fork, workload, pause), agenda=None)
    found = of(snapshot, ForecastCase("tomorrow", spec("new", 1.0), delay=24 * HOUR))
    assert mid(found.start) == pytest.approx(24 * HOUR, abs=120.0)
    assert (found.seeds, found.unfinished) == (2, 0)


def broken(snapshot: Snapshot, **changes: object) -> Snapshot:
    picture = snapshot.apps[0]
    jobs = tuple(
        replace(job, process=job.process and replace(job.process, **changes))  # type: ignore[arg-type]
        for job in picture.jobs
    )
    return replace(snapshot, apps=(replace(picture, jobs=jobs), *snapshot.apps[1:]))


@pytest.mark.parametrize("gpus", [(), (99,), (-1,)], ids=["none", "unknown", "negative"])
def test_processes_on_gpus_that_are_not_there_are_refused(gpus: tuple[int, ...]) -> None:
    with pytest.raises(RefusedError, match="GPUs"):
        of(broken(state(spec("old", 4.0)), gpus=gpus), ForecastCase("as written", spec("new", 1.0)))


def test_two_processes_in_one_place_are_refused() -> None:
    crowded = state(spec("old", 4.0), spec("other", 4.0))
    process = crowded.apps[1].jobs[0].process
    assert process is not None
    with pytest.raises(RefusedError, match="no other one is on"):
        of(broken(crowded, gpus=process.gpus), ForecastCase("as written", spec("new", 1.0)))


def test_impossible_app_is_refused() -> None:
    with pytest.raises(RefusedError, match="needs 64 GPUs"):
        # Before anything is said of when it would be done.
        next(
            iter(
                foresee(
                    state(),
                    ForecastQuestion((ForecastCase("", spec("new", 1.0, gpus=64, least=64)),)),
                    Ticks(),
                )
            )
        )


def test_refused_caller_gets_its_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = Ahead(state(), ForecastCase("", spec("new", 1.0, gpus=64, least=64)), 1)
    advance = ahead.fork.advance

    def others_too(until: float) -> float | None:
        found = advance(until)
        ahead.fork.outcome.refused.append("theirs: it has no such GPU")
        return found

    monkeypatch.setattr(ahead.fork, "advance", others_too)
    with pytest.raises(RefusedError, match="new: a job needs 64 GPUs") as caught:
        list(ahead.steps())
    assert "theirs" not in str(caught.value)


@pytest.mark.parametrize("kind", [StuckError, InvariantError])
def test_only_a_run_that_is_stuck_counts_as_never_served(
    monkeypatch: pytest.MonkeyPatch, kind: type[InvariantError]
) -> None:
    ahead = Ahead(state(), ForecastCase("", spec("new", 1.0)), 1)

    def broken_off(until: float) -> float | None:
        raise kind("something is wrong")

    monkeypatch.setattr(ahead.fork, "advance", broken_off)
    if kind is StuckError:
        assert list(ahead.steps()) == []
        assert ahead.stuck
    else:
        with pytest.raises(InvariantError, match="something is wrong"):
            list(ahead.steps())


def test_app_that_no_machine_can_run_now_is_not_promised() -> None:
    job = JobSpec(JobId("0"), 1.0, 1)
    picky = AppSpec(AppId("new"), OwnerId("ann"), (job,), (Phase(1, 10),), 1.0, Constraint("h100"))
    with pytest.raises(RefusedError):
        of(state(), ForecastCase("as written", picky))


def test_questions_survive_being_written_down() -> None:
    case = ForecastCase("add", spec("new", 1.0), "halving", 5.0, "fifo", (Machine("x", "r", (4,)),))
    question = ForecastQuestion((case,), 3, 10.0)
    assert decode(ForecastQuestion, loads(dumps(question))) == question


def test_an_interval_of_nothing_is_none() -> None:
    assert ForecastRange.of([]) is None
    assert ForecastRange.of([3.0, 1.0, 2.0]) == ForecastRange(1.0, 2.0, 3.0)
    assert not math.isnan(ForecastRange(1.0, 2.0, 3.0).mid)
