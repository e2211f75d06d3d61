"""Arbiters broken on purpose: each must be found out, and by the check that is meant for it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support import arbiter_invariants
from tests.support.arbiter_invariants import Check, Watch
from tests.support.scripted_world import Puppet, ScriptedWorld, simple_app
from themis.core.arbiter import Arbiter, Ledger, Settings, events, rounds
from themis.core.arbiter.app_reasons import explain_round
from themis.core.arbiter.app_view import ArbiterAppView
from themis.core.arbiter.cluster_state import World
from themis.core.arbiter.commands import Assign
from themis.core.arbiter.leasing import Leasing
from themis.core.model import AppId, GpuId, Lease, LeaseSource, Machine, OwnerId, Topology
from themis.core.model.reasons import Reason
from themis.core.policies import Allotment, Plan, Policy, policy
from themis.core.policies.leftovers import Hand
from themis.errors import InvariantError

A = AppId("a")
Break = Callable[[pytest.MonkeyPatch], None]
Story = Callable[[ScriptedWorld], None]


def world_of(rule: str | Policy, *checks: Check) -> ScriptedWorld:
    topology = Topology((Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2, 2))))
    chosen = policy(rule) if isinstance(rule, str) else rule
    return ScriptedWorld(topology, chosen, Settings(), seed=4, on_event=[Watch(checks or None)])


# Ways to break it


def skip_evict(patch: pytest.MonkeyPatch) -> None:
    """A new owner is let in while the old one was never told to go."""

    def keep(self: Leasing, gpu: GpuId, app: AppId, why: str) -> None:
        return None

    patch.setattr(Leasing, "take_away", keep)
    patch.setattr(Ledger, "grant", lambda self, gpu, app, **how: self._promise(gpu, app, **how))
    patch.setattr(Leasing, "_hand_over", _grant_anyway)


def _grant_anyway(self: Any, gpu: GpuId, item: Allotment | None, view: Any) -> None:
    if item is not None and item.app not in {x.app for x in self._world.ledger.chain(gpu)}:
        lease = self._world.ledger.grant(
            gpu, item.app, at=self.now, end=view.end, source=item.source
        )
        self.changes.granted(lease)


def reuse_tokens(patch: pytest.MonkeyPatch) -> None:
    whole = Ledger._promise

    def promise(self: Ledger, gpu: GpuId, app: AppId, **how: Any) -> Lease:
        self._next_token = 1
        return whole(self, gpu, app, **how)

    patch.setattr(Ledger, "_promise", promise)


def forget_the_queue(patch: pytest.MonkeyPatch) -> None:
    """A lost GPU keeps what was promised behind its holder."""

    def quarantine(self: Ledger, gpu: GpuId, reason: str, at: float) -> list[Lease]:
        entry = self._gpus[gpu]
        lost = [self._end(gpu, at)] if entry.lease is not None else []
        entry.quarantine = reason
        self._free.discard(gpu)
        return lost

    patch.setattr(Ledger, "quarantine", quarantine)


def keep_renewals_secret(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "themis.core.arbiter.lease_changes.LeaseChanges.renewed", lambda self, lease: None
    )
    patch.setattr(
        "themis.core.arbiter.lease_changes.LeaseChanges.extended", lambda self, app, leases: None
    )


def renew_backwards(patch: pytest.MonkeyPatch) -> None:
    whole = Ledger.extend

    def extend(self: Ledger, app: AppId, gpus: list[GpuId], **how: Any) -> list[Lease]:
        return whole(self, app, gpus, **{**how, "end": how["at"]})

    patch.setattr(Ledger, "extend", extend)


def renew_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rounds, "_renewal", lambda current, world: Plan(()))


def refund_payments(patch: pytest.MonkeyPatch) -> None:
    whole = Hand.deal

    def deal(self: Hand, apps: Any, barred: Any = (), limits: Any = None) -> None:
        whole(self, apps, (), limits)

    patch.setattr(Hand, "deal", deal)


def lose_part_of_the_offer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rounds, "_idle", lambda plan, current: ())


def ignore_cordons(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "takes_leases", lambda self, gpu: True)


def ignore_pauses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leasing, "_still_good", lambda self, gpu, item: True)


def keep_what_paused_apps_hold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Arbiter, "_withdraw", lambda self, state, why: None)


def ignore_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ArbiterAppView, "_room", lambda self: 8)


def ignore_quotas(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "quotas_left", lambda self, offered: {})


def open_two_rounds(patch: pytest.MonkeyPatch) -> None:
    whole = Arbiter._open_if_wanted

    def hasty(self: Arbiter) -> None:
        if self._wants_round:
            self._rounds.open = None
        whole(self)

    patch.setattr(Arbiter, "_open_if_wanted", hasty)


def forget_beats(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Arbiter, "_arm_beat", lambda self: None)


def explain_only_the_served(patch: pytest.MonkeyPatch) -> None:
    def explain(*args: Any, **flags: Any) -> Any:
        return tuple(line for line in explain_round(*args, **flags) if line.held)

    patch.setattr(rounds, "explain_round", explain)


def forget_other_suspensions(patch: pytest.MonkeyPatch) -> None:
    whole = Arbiter._on_suspension

    def hasty(self: Arbiter, event: Any) -> None:
        whole(self, event)
        self._world.apps[event.app].reason = Reason.PENDING_EVALUATION

    patch.setattr(Arbiter, "_on_suspension", hasty)


# Stories in which it shows


def two_beats(world: ScriptedWorld) -> None:
    world.submit(simple_app("a", gpus=8))
    world.submit(simple_app("b", gpus=8))
    world.submit(simple_app("c", gpus=8))
    world.advance(1900.0)
    world.send(events.Woken(1900.0))


def lost_in_handover(world: ScriptedWorld) -> None:
    world.stuck |= {GpuId(i) for i in range(8)}
    world.submit(simple_app("a", gpus=8))
    world.submit(simple_app("b", gpus=8))
    world.advance(1163.0)
    world.send(events.MachineLeft(1163.0, "m0"))


def a_lost_solver(world: ScriptedWorld) -> None:
    two_beats(world)
    world.solver_mood = "fails"
    world.advance(3000.0)


def a_cordoned_machine(world: ScriptedWorld) -> None:
    world.send(events.MachineCordoned(0.0, "m0"))
    two_beats(world)


def a_pause_during_a_round(world: ScriptedWorld) -> None:
    world.solver_mood = "silent"
    world.submit(simple_app("a", gpus=8))
    world.suspend("a")
    world.solve()


def a_pause(world: ScriptedWorld) -> None:
    world.submit(simple_app("a", gpus=8))
    world.suspend("a")


def small_demand(world: ScriptedWorld) -> None:
    world.submit(simple_app("a", gpus=2))


def a_quota(world: ScriptedWorld) -> None:
    world.send(events.QuotaChanged(0.0, OwnerId("a"), 1))
    world.submit(simple_app("a", gpus=2))


def many_arrivals(world: ScriptedWorld) -> None:
    world.solver_mood = "silent"
    for name in ("a", "b", "c"):
        world.submit(simple_app(name, gpus=8))


def two_suspensions(world: ScriptedWorld) -> None:
    world.submit(simple_app("a"))
    world.suspend("a", Reason.HELD_BY_ADMIN)
    world.suspend("a", Reason.PAUSED_BY_USER)
    world.resume("a", Reason.PAUSED_BY_USER)


def swap() -> Puppet:
    """All GPUs to one app, then all to another."""

    def decide(plan: Any) -> Plan:
        app = plan.apps[plan.round % len(plan.apps)]
        return Plan((Allotment(app.app, plan.offer[: app.room], LeaseSource.DIRECT),))

    return Puppet(decide)


def auction() -> Policy:
    return policy("themis", f=0.0, payment="gpus")


def greedy() -> Policy:
    return policy("fifo")


VARIANTS = [
    (skip_evict, swap, two_beats, arbiter_invariants.check_exclusive),
    (reuse_tokens, swap, two_beats, arbiter_invariants.check_tokens),
    (forget_the_queue, swap, lost_in_handover, arbiter_invariants.check_conservation),
    (keep_renewals_secret, greedy, two_beats, arbiter_invariants.check_conservation),
    (renew_backwards, greedy, two_beats, arbiter_invariants.check_renewals),
    (renew_nobody, auction, a_lost_solver, arbiter_invariants.check_failed_rounds),
    (refund_payments, auction, two_beats, arbiter_invariants.check_no_refund),
    (lose_part_of_the_offer, greedy, small_demand, arbiter_invariants.check_partition),
    (ignore_cordons, greedy, a_cordoned_machine, arbiter_invariants.check_barred),
    (ignore_pauses, auction, a_pause_during_a_round, arbiter_invariants.check_suspended),
    (keep_what_paused_apps_hold, greedy, a_pause, arbiter_invariants.check_suspended),
    (ignore_room, swap, small_demand, arbiter_invariants.check_room),
    (ignore_quotas, greedy, a_quota, arbiter_invariants.check_room),
    (open_two_rounds, auction, many_arrivals, arbiter_invariants.check_one_offer),
    (forget_beats, greedy, two_beats, arbiter_invariants.check_expiry),
    (explain_only_the_served, greedy, two_beats, arbiter_invariants.check_reasons),
    (forget_other_suspensions, greedy, two_suspensions, arbiter_invariants.check_reasons),
]


@pytest.mark.parametrize(
    ("sabotage", "make_policy", "story", "check"),
    [pytest.param(*row, id=row[0].__name__.replace("_", " ")) for row in VARIANTS],
)
def test_broken_arbiter_is_detected(
    monkeypatch: pytest.MonkeyPatch,
    sabotage: Break,
    make_policy: Callable[[], Policy],
    story: Story,
    check: Check,
) -> None:
    story(world_of(make_policy()))  # whole, it passes every check
    sabotage(monkeypatch)
    with pytest.raises(InvariantError):
        story(world_of(make_policy(), check))


def test_every_check_detects_a_broken_variant() -> None:
    assert {row[3] for row in VARIANTS} == set(arbiter_invariants.ALL_CHECKS)


def test_unchecked_overlapping_plans_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = Puppet(
        lambda view: Plan(
            tuple(Allotment(x.app, (GpuId(0),), LeaseSource.DIRECT) for x in view.apps)
        )
    )
    world = world_of(twice)
    world.submit(simple_app("a"))
    world.submit(simple_app("b"))
    assert world.records[-1].failed  # checked, the round fails and the arbiter lives
    monkeypatch.setattr(rounds, "check_plan", lambda plan, view: None)
    world = world_of(twice, arbiter_invariants.check_partition)
    world.submit(simple_app("a"))
    with pytest.raises(InvariantError):
        world.submit(simple_app("b"))


def test_themis_without_payments_keeps_its_invariants() -> None:
    """The refund is found because payments happen, not because the story has none."""
    world = world_of(policy("themis", f=0.0, payment="gpus"))
    two_beats(world)
    assert any(record.notes.paid for record in world.records)


def test_renewal_without_a_lease_is_detected() -> None:
    world = world_of("fifo", arbiter_invariants.check_renewals)
    world.submit(simple_app("a", gpus=1))
    (lease,) = world.arbiter.ledger.leases()
    watch = Watch([arbiter_invariants.check_renewals])
    foreign = replace(lease, token=99)
    with pytest.raises(InvariantError):
        watch(world.arbiter, events.Woken(0.0), [Assign(A, renewed=(foreign,))])
