"""Rounds that fail, policies that misbehave, and plans that name something gone."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.scripted_world import Puppet, ScriptedWorld, simple_app
from themis.core.arbiter import events
from themis.core.arbiter.commands import Ask, RecordRound
from themis.core.model import AppId, Constraint, GpuId, LeaseSource, Machine, OwnerId
from themis.core.model.reasons import Reason
from themis.core.policies import Allotment, Notes, Plan, Policy, View, policy
from themis.core.policies.base import AskBids, Round

MakeWorld = Callable[..., ScriptedWorld]

A, B = AppId("a"), AppId("b")


def to(app: str, *gpus: int, until: float | None = None) -> Allotment:
    return Allotment(AppId(app), tuple(GpuId(gpu) for gpu in gpus), LeaseSource.DIRECT, until)


class Asking(Policy):
    """Holds rounds as a function says."""

    name = "asking"

    def __init__(self, hold: Callable[[View], Any]) -> None:
        self.hold = hold

    def hold_round(self, view: View, rng: random.Random) -> Round:
        return self.hold(view)  # type: ignore[no-any-return]  # tests return anything


def raising(view: View) -> Round:
    raise RuntimeError("boom")


def raising_later(view: View) -> Round:
    yield AskBids(())
    raise RuntimeError("boom")


def asking_strangers(view: View) -> Round:
    yield AskBids((AppId("stranger"),))
    return Plan(())


def asking_nonsense(view: View) -> Any:
    yield 42
    return Plan(())


def asking_for_ever(view: View) -> Round:
    while True:
        yield AskBids(())


def returning(plan: object) -> Callable[[View], object]:
    def hold(view: View) -> Any:
        yield from ()
        return plan

    return hold


@pytest.mark.parametrize(
    "hold",
    [
        pytest.param(raising, id="it raises before it begins"),
        pytest.param(raising_later, id="it raises after a question"),
        pytest.param(asking_strangers, id="it asks an app nobody knows"),
        pytest.param(asking_nonsense, id="it asks nonsense"),
        pytest.param(asking_for_ever, id="it never stops asking"),
        pytest.param(lambda view: Plan(()), id="it is no conversation"),
        pytest.param(returning(None), id="it returns nothing"),
        pytest.param(returning("a plan"), id="it returns a string"),
        pytest.param(returning(Plan((to("a", 0), to("b", 0)))), id="one GPU to two apps"),
        pytest.param(returning(Plan((to("a", 0, 0),))), id="one GPU twice"),
        pytest.param(returning(Plan((to("a", 99),))), id="a GPU that was not offered"),
        pytest.param(returning(Plan((to("stranger", 0),))), id="an app nobody knows"),
        pytest.param(returning(Plan((to("a", *range(8)),))), id="more than it can use"),
        pytest.param(returning(Plan((to("a", 0, until=math.nan),))), id="until NaN"),
        pytest.param(returning(Plan((to("a", 0, until=1.0),))), id="until the past"),
        pytest.param(returning(Plan((to("a", 0, until=1e9),))), id="until after the lease"),
        pytest.param(returning(Plan((), (to("a", 0),))), id="a follower of nobody"),
        pytest.param(returning(Plan((to("a", 0),), (to("b", 0),))), id="a follower of no share"),
        pytest.param(returning(Plan((1, 2))), id="allotments that are numbers"),  # type: ignore[arg-type]  # on purpose
        pytest.param(returning(Plan((), None)), id="no followers at all"),  # type: ignore[arg-type]  # on purpose
        pytest.param(returning(Plan((), (), None)), id="no notes"),  # type: ignore[arg-type]  # on purpose
    ],
)
def test_a_round_that_goes_wrong_fails_alone_and_renews(
    make_world: MakeWorld, hold: Callable[[View], Any]
) -> None:
    def first_well(view: View) -> Any:
        return returning(Plan((to("a", 0, 1),)))(view) if view.round == 1 else hold(view)

    world = make_world(Asking(first_well))
    world.submit(simple_app("a", gpus=4))
    world.submit(simple_app("b", gpus=4))
    before = {lease.gpu: lease.token for lease in world.arbiter.ledger.leases()}
    world.advance(700.0)
    record = world.records[-1]
    assert record.failed
    assert record.trigger == "beat"
    assert {lease.gpu: lease.token for lease in world.arbiter.ledger.leases()} == before
    assert {lease.end for lease in world.arbiter.ledger.leases()} == {1200.0}
    assert {line.app: line.reason for line in record.apps} == {
        A: Reason.PARTLY_SERVED,
        B: Reason.ROUND_FAILED,
    }


def test_a_plan_may_not_break_a_constraint(make_world: MakeWorld) -> None:
    machines = (Machine("m0", "r0", (2,)), Machine("m1", "r0", (2,), gpu_model="v100"))
    world = make_world(Puppet(lambda view: Plan((to("a", 0),))), machines=machines)
    world.submit(simple_app("a", gpus=2, constraint=Constraint("v100")))
    assert world.records[-1].failed
    assert world.held("a") == ()


def test_a_plan_may_not_break_a_quota(make_world: MakeWorld) -> None:
    world = make_world(Puppet(lambda view: Plan((to("a", 0), to("b", 1)))))
    world.send(events.QuotaChanged(0.0, OwnerId("ann"), 1))
    world.submit(simple_app("b", owner="ann"))
    world.submit(simple_app("a", owner="ann"))
    assert "quota" in world.records[-1].failed


@pytest.mark.parametrize(("mood", "settled"), [("fails", 562.0), ("silent", 566.0)])
def test_a_lost_or_late_solver_fails_the_round_and_renews(
    make_world: MakeWorld, mood: str, settled: float
) -> None:
    world = make_world(policy("themis", f=0.0))
    world.submit(simple_app("a", gpus=8))
    world.submit(simple_app("b", gpus=8))
    world.advance(561.0)
    before = {lease.gpu: lease.token for lease in world.arbiter.ledger.leases()}
    world.solver_mood = "fails" if mood == "fails" else "silent"
    world.advance(600.0)
    record = world.records[-1]
    assert (record.settled, record.failed.startswith("the solver")) == (settled, True)
    assert {lease.gpu: lease.token for lease in world.arbiter.ledger.leases()} == before
    reasons = {line.reason for line in record.apps if not line.held}
    assert reasons == {Reason.ROUND_FAILED}


def test_a_solution_after_the_deadline_is_refused(make_world: MakeWorld) -> None:
    world = make_world(policy("themis", f=0.0))
    world.solver_mood = "silent"
    world.submit(simple_app("a", gpus=8))
    world.advance(10.0)
    number = world.records[-1].round
    world.send(events.SolveFailed(10.0, number, "too late"))
    assert world.refusals[-1].who == "solver"


def round_that_waits(make_world: MakeWorld) -> ScriptedWorld:
    """Two apps with four GPUs each; the round of the first beat waits for both."""
    world = make_world(policy("themis", f=0.0))
    world.submit(simple_app("a", gpus=8))
    world.submit(simple_app("b", gpus=4))
    world.submit(simple_app("c", gpus=2))
    world.advance(561.0)
    world.silent |= {A, B, AppId("c")}
    world.advance(562.0)
    return world


def test_an_award_to_an_app_that_ended_meanwhile_is_dropped_alone(make_world: MakeWorld) -> None:
    world = make_world(policy("themis", f=0.0))
    for name in ("m0", "m1"):
        world.send(events.MachineCordoned(0.0, name))
    world.submit(simple_app("a", gpus=8, weight=100.0))
    world.submit(simple_app("b", gpus=8))
    for name in ("m0", "m1"):
        world.send(events.MachineUncordoned(0.0, name))
    world.solver_mood = "silent"
    world.advance(31.0)
    world.finish("a")
    world.solve()
    record = world.records[-1]
    assert record.failed == ""
    assert {item.app for item in record.dropped} == {A}
    assert [line.app for line in record.apps] == [B]
    # What was dropped is offered again after the pooling window.
    world.solver_mood = "answers"
    assert world.held("b") == ()
    world.advance(61.0)
    assert len(world.held("b")) == 8


def test_a_bidder_that_ended_does_not_fail_the_round(make_world: MakeWorld) -> None:
    world = round_that_waits(make_world)
    world.speak("b")
    world.finish("b")
    world.advance(566.0)
    world.finish("c")
    assert world.records[-1].failed == ""


def test_a_round_does_not_wait_for_an_app_that_is_gone(make_world: MakeWorld) -> None:
    world = round_that_waits(make_world)
    world.speak("a")
    world.speak("b")
    assert world.arbiter.round_open
    out = world.suspend("c")
    assert any(isinstance(item, RecordRound) for item in out)
    assert not world.arbiter.round_open


def test_an_app_between_phases_keeps_what_it_won(make_world: MakeWorld) -> None:
    world = round_that_waits(make_world)
    world.solver_mood = "fails"
    held = world.held("a")
    world.progress("a", 1000.0)
    for name in ("a", "b", "c"):
        if name in world.unanswered:
            world.speak(name)
    world.advance(570.0)
    assert world.records[-1].failed
    assert world.held("a") == held


def test_an_app_that_ended_between_two_questions_is_not_asked(make_world: MakeWorld) -> None:
    world = make_world(policy("themis", f=0.0, fresh_tables=True))
    world.submit(simple_app("a", gpus=4))
    world.submit(simple_app("b", gpus=4))
    world.advance(561.0)
    world.silent |= {A, B}
    world.advance(562.0)
    world.speak("a")
    world.finish("a")
    out = world.speak("b")
    assert [item.app for item in out if isinstance(item, Ask)] == [B]


def test_a_failed_round_does_not_return_what_was_given_back(make_world: MakeWorld) -> None:
    world = round_that_waits(make_world)
    world.solver_mood = "fails"
    given = world.held("a")[:1]
    world.send(events.GpusReleased(562.0, A, given))
    for name in ("a", "b", "c"):
        world.speak(name)
    world.advance(566.0)
    assert world.records[-1].failed
    assert given[0] not in world.held("a")


def test_an_app_for_which_there_was_no_gpu_fails_no_round(make_world: MakeWorld) -> None:
    """Its mean capacity is zero, so its ideal time is infinite."""
    world = make_world(policy("themis", f=0.0))
    for name in ("m0", "m1"):
        world.send(events.MachineCordoned(0.0, name))
    world.submit(simple_app("a", gpus=4))
    world.advance(10.0)
    world.send(events.MachineUncordoned(10.0, "m0"))
    world.submit(simple_app("b", gpus=4))
    assert [record.failed for record in world.records] == [""]
    assert len(world.held("a")) + len(world.held("b")) == 4


def test_notes_of_a_plan_reach_the_record(make_world: MakeWorld) -> None:
    notes = Notes(declined=(A,))
    world = make_world(Puppet(lambda view: Plan((), (), notes)))
    world.submit(simple_app("a"))
    record = world.records[-1]
    assert record.notes is notes
    assert record.idle == tuple(GpuId(i) for i in range(8))
    assert record.apps[0].reason is Reason.PLACEMENT_TOO_SLOW
