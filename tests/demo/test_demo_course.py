"""The course of a demo on a pretend stage, and what is made of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from themis.apps import parse_app, plan_app
from themis.core.model import AppId, OwnerId
from themis.demo.observer import INTERVAL, DemoObserver, Observation, ObservedGpu, holders
from themis.demo.summary import in_words, summarize, timeline, waits
from themis.demo.tenants import Tenant, tenants
from themis.demo.training_program import ProgramLocation
from themis.errors import ThemisError, UnavailableError

G0, G1 = ObservedGpu("r0", "m0", 0), ObservedGpu("r0", "m0", 1)
PLACE = ProgramLocation(Path("/demo {x}/program"), "/opt/{py}/python")


def tenant(name: str, after: float) -> Tenant:
    return Tenant(f"owner-of-{name}", "a sweep", after, {"name": name})


class Pretend:
    """A stage where each app takes three looks."""

    def __init__(self) -> None:
        self.now = 0.0
        self.submitted: list[tuple[float, str, str]] = []
        self.asked: dict[str, int] = {}
        self.broken: Exception | None = None
        self.lasting = 3

    @property
    def admin(self) -> "Pretend":
        return self

    def submit(self, owner: str, app: dict[str, Any], seed: int) -> str:
        self.submitted.append((self.now, owner, app["name"]))
        return f"{app['name']}-2"  # The service may give another name.

    def check(self) -> None:
        if self.broken is not None:
            raise self.broken

    def nodes(self) -> dict[str, Any]:
        gpus = [{"index": 1}, {"index": 0, "app": "a-2"}]
        return {"nodes": [{"rack": "r0", "node": "m0", "gpus": gpus}]}

    def status(self, app: str) -> dict[str, Any]:
        self.asked[app] = self.asked.get(app, 0) + 1
        if self.asked[app] > self.lasting:
            return {"app": app, "outcome": "finished", "rho": 1.0}
        return {"app": app, "held": 1, "demand": 2, "reason": "OUTBID"}

    def results(self, app: str) -> dict[str, Any]:
        jobs = [{"job": job, "params": {"lr": 0.1}, "metric": 0.5, "iterations": 9} for job in "01"]
        return {"best": "1", "jobs": jobs}

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 1e-3)


def watched(stage: Pretend, cast: Sequence[Tenant]) -> DemoObserver:
    return DemoObserver(stage, cast, clock=lambda: stage.now, sleep=stage.sleep)


def test_tenants_come_when_it_is_their_time_and_all_are_waited_for() -> None:
    stage = Pretend()
    watch = watched(stage, [tenant("a", 0.0), tenant("b", 2.2)])
    watch.run()
    assert [(name, owner) for _, owner, name in stage.submitted] == [
        ("a", "owner-of-a"),
        ("b", "owner-of-b"),
    ]
    assert stage.submitted[1][0] == pytest.approx(2.2, abs=INTERVAL)
    assert list(watch.apps) == ["a-2", "b-2"]
    assert all("outcome" in sheet for sheet in watch.looks[-1].sheets.values())
    # What is over is not asked for again.
    assert stage.asked["a-2"] == stage.lasting + 1


def test_demo_reports_a_lost_service() -> None:
    stage = Pretend()
    stage.broken = ThemisError("the service ended")
    with pytest.raises(ThemisError, match="the service ended"):
        watched(stage, [tenant("a", 0.0)]).run()


def test_a_demo_that_never_ends_is_ended() -> None:
    stage = Pretend()
    stage.lasting = 10**6
    with pytest.raises(UnavailableError, match="within 20 s"):
        watched(stage, [tenant("a", 0.0)]).run(limit=20.0)


def test_gpus_are_sorted_for_any_input_order() -> None:
    assert list(holders(Pretend().nodes()).items()) == [(G0, "a-2"), (G1, "")]


def look(at: float, held: Mapping[ObservedGpu, str], **sheets: Mapping[str, Any]) -> Observation:
    return Observation(at, held, sheets)


def test_waiting_is_counted_by_reason_and_only_while_an_app_is_there() -> None:
    none = {"held": 0, "demand": 4, "reason": "NO_FREE_GPUS"}
    outbid = {"held": 0, "demand": 4, "reason": "OUTBID"}
    some = {"held": 2, "demand": 4, "reason": "PARTLY_SERVED"}
    every = {"held": 4, "demand": 4, "reason": "SERVED"}
    looks = [
        look(0.0, {}),
        look(1.0, {}, a=none),
        look(3.0, {}, a=outbid),
        look(8.0, {}, a=some),
        look(8.5, {}, a=every),
        look(20.0, {}, a={"outcome": "finished"}),
        look(30.0, {}, a={"outcome": "finished"}),
    ]
    assert waits("a", looks, held=False) == [
        {"reason": "OUTBID", "seconds": 5.0},
        {"reason": "NO_FREE_GPUS", "seconds": 2.0},
    ]
    assert waits("a", looks, held=True) == [{"reason": "PARTLY_SERVED", "seconds": 0.5}]


def test_timeline_has_spans_for_holders_and_idle_time() -> None:
    looks = [
        look(0.0, {G0: "", G1: "a"}),
        look(1.0, {G0: "a", G1: "a"}),
        look(2.0, {G0: "b", G1: "a"}),
        look(3.0, {G0: "b", G1: ""}),
    ]
    first, second = timeline(looks)
    assert [(each["app"], each["from"], each["until"]) for each in first["spans"]] == [
        (None, 0.0, 1.0),
        ("a", 1.0, 2.0),
        ("b", 2.0, 3.0),
    ]
    assert [(each["app"], each["until"]) for each in second["spans"]] == [("a", 3.0)]


def test_a_summary_has_rho_winner_and_gpu_time() -> None:
    stage = Pretend()
    watch = watched(stage, [tenant("a", 0.0)])
    watch.run()
    made = summarize(watch.looks, watch.apps, watch.results())
    (app,) = made["apps"]
    assert (app["app"], app["outcome"], app["rho"]) == ("a-2", "finished", 1.0)
    assert app["winner"] == {"job": "1", "params": {"lr": 0.1}, "metric": 0.5, "iterations": 9}
    assert made["gpu_seconds"] == {"a-2": pytest.approx(made["seconds"])}
    assert made["used"] == pytest.approx(0.5)


def test_an_app_that_never_ended_has_no_rho_and_no_winner() -> None:
    made = summarize([look(0.0, {})], {"a": tenant("a", 0.0)}, {"a": {"best": None, "jobs": []}})
    assert (made["apps"][0]["outcome"], made["apps"][0]["winner"]) == (None, None)
    assert made["used"] is None


def test_unknown_reason_code_is_still_shown() -> None:
    assert in_words("OUTBID").startswith("other apps gained more")
    assert in_words("SOMETHING_NEW") == "something new"


@pytest.mark.parametrize("quick", [False, True])
def test_the_three_sweeps_are_apps_that_can_be_planned(quick: bool) -> None:
    cast = tenants(PLACE, quick=quick)
    assert len({each.owner for each in cast}) == 3
    assert [each.after for each in cast] == sorted(each.after for each in cast)
    for each in cast:
        plan = plan_app(parse_app(dict(each.app)), AppId(each.name), OwnerId(each.owner), each.seed)
        assert len(plan.trials) >= 4
        assert not plan.spec.estimated
    # Together they want more than there is, or nobody would ever wait.
    assert sum(each.app["search"]["n"] * each.app["gpus"]["per_job_max"] for each in cast) > 16


def test_braces_in_a_path_stand_for_themselves() -> None:
    app = parse_app(dict(tenants(PLACE)[0].app))
    assert app.command[0] == "/opt/{{py}}/python"
    assert app.workdir == "/demo {x}/program"
