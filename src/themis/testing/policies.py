"""What every policy must keep to. A policy of your own inherits the tests with one fixture.

    class TestMine(PolicyContract):
        @pytest.fixture
        def policy(self) -> Policy:
            return Mine()

Needs pytest and hypothesis, which `themis-scheduler[dev]` brings.
"""

import math
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from themis.core.arbiter.round_session import check_plan
from themis.core.model import AppId, GpuId, Machine, Slowdown, Topology
from themis.core.policies import Allotment, AppView, Plan, Policy, View
from themis.testing.policy_fakes import FakeApp, drive, fake_view

SHAPES = ((1,), (2,), (4,), (2, 2), (1, 1), (1, 3))
SLOWDOWNS = (
    Slowdown(),
    Slowdown((1.0, 1.05, 1.3, 1.45)),
    Slowdown((1.0, 1.2, 2.14, 2.7)),
    Slowdown((1.0, 4.0, 4.0, 4.0)),
)
"""Indifferent, mild, as a language model, and one that hates to leave its slot."""

_FASTER = 1e-6

_every_policy = settings(
    # Many tests share the same kind of rounds, so each may do with fewer of them.
    max_examples=max(10, settings().max_examples // 2),
    # Policies keep no state between rounds, so one fixture serves all examples, and a subclass
    # runs the same test as its siblings.
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.differing_executors,
        HealthCheck.too_slow,
    ],
)


def random_view(seed: int, machines: int, apps: int) -> View:
    """A round of any kind: GPUs free, held and offered, kept, or out of use; quotas; owners."""
    rng = random.Random(seed)
    racks = rng.randint(1, 2)
    topology = Topology.in_locality_order(
        Machine(f"m{i}", f"r{i % racks}", rng.choice(SHAPES)) for i in range(machines)
    )
    everybody = [_random_app(f"app-{i}", machines, rng) for i in range(apps)]
    at_beat = rng.random() < 0.5
    held: list[list[GpuId]] = [[] for _ in everybody]
    offer: list[GpuId] = []
    for seat in topology.seats:
        holder = rng.randint(-2, apps - 1)
        if holder < 0 or not _may_use(everybody[holder], seat.machine):
            offer += [seat.gpu] if rng.random() < 0.8 else []
            continue
        held[holder].append(seat.gpu)
        # Between beats only free GPUs are to be had.
        offer += [seat.gpu] if at_beat and rng.random() < 0.7 else []
    return fake_view(
        topology,
        [replace(app, held=tuple(mine)) for app, mine in zip(everybody, held, strict=True)],
        offer=offer,
        quotas={owner: rng.randint(0, 6) for owner in ("ann", "bob") if rng.random() < 0.3},
        at_beat=at_beat,
        by_owner=rng.random() < 0.5,
        round_number=rng.randint(1, 50),
        seed=seed,
    )


def _random_app(name: str, machines: int, rng: random.Random) -> FakeApp:
    gang = rng.randint(1, 4)
    elapsed = rng.choice((0.0, 600.0, 5000.0))
    some = frozenset(rng.sample(range(machines), rng.randint(1, machines)))
    return FakeApp(
        name,
        work=rng.choice((60.0, 3600.0, 50_000.0)),
        jobs=rng.randint(1, 3),
        gang=gang,
        min_gang=rng.choice((1, rng.randint(1, gang))),
        slowdown=rng.choice(SLOWDOWNS),
        of=rng.choice(("ann", "bob", "cid")),
        weight=rng.choice((0.5, 1.0, 2.0)),
        arrival=rng.choice((0.0, 100.0)),
        waiting_since=rng.choice((0.0, 300.0)),
        elapsed=elapsed,
        ideal_time=rng.choice((500.0, 4000.0)),
        attained=rng.choice((0.0, 1000.0)) if elapsed else 0.0,
        hungry_rounds=rng.choice((0, 0, 5)),
        machines=rng.choice((None, some)),
    )


def _may_use(app: FakeApp, machine: int) -> bool:
    return app.machines is None or machine in app.machines


def views() -> st.SearchStrategy[View]:
    """Rounds of all kinds; failures shrink to few machines and apps.

    One number decides the rest: drawing every GPU by itself would take longer than the test.
    """
    return st.builds(
        random_view,
        seed=st.integers(0, 2**32),
        machines=st.integers(1, 5),
        apps=st.integers(0, 5),
    )


class PolicyContract:
    """Tests for a policy given by the fixture `policy`."""

    work_conserving: ClassVar[bool] = True
    """Set to False for a policy that leaves GPUs idle on purpose."""

    @_every_policy
    @given(view=views())
    def test_plans_can_be_carried_out(self, policy: Policy, view: View) -> None:
        """Only what was offered, nothing twice, nobody beyond room or quota."""
        plan = drive(policy, view)
        check_plan(plan, view)
        assert all(item.gpus for item in (*plan.allotments, *plan.followups))

    @_every_policy
    @given(view=views())
    def test_apps_get_gpus_only_on_machines_they_may_use(self, policy: Policy, view: View) -> None:
        """Constraints hold."""
        plan = drive(policy, view)
        for item in (*plan.allotments, *plan.followups):
            allowed = view.find(item.app).machines
            used = {view.topology.seats[gpu].machine for gpu in item.gpus}
            assert allowed is None or used <= allowed

    @_every_policy
    @given(view=views())
    def test_gpus_kept_past_the_round_are_left_alone(self, policy: Policy, view: View) -> None:
        """A lease that does not end in this round is nobody's to give."""
        plan = drive(policy, view)
        kept = {gpu for app in view.apps for gpu in app.kept}
        assert not kept & _gpus((*plan.allotments, *plan.followups))

    @_every_policy
    @given(view=views(), order=st.randoms(use_true_random=False))
    def test_the_order_of_apps_and_of_answers_decides_nothing(
        self, policy: Policy, view: View, order: random.Random
    ) -> None:
        """Messages may arrive in any order."""
        apps = list(view.apps)
        order.shuffle(apps)
        shuffled = drive(policy, replace(view, apps=tuple(apps)), shuffle=order)
        assert _canonical(shuffled) == _canonical(drive(policy, view))

    @_every_policy
    @given(view=views(), other=views())
    def test_a_round_can_be_held_again(self, policy: Policy, view: View, other: View) -> None:
        """The same plan for the same seed, whatever happened in between."""
        first = drive(policy, view)
        drive(policy, other)
        assert drive(policy, view) == first
        assert drive(policy, view) == first  # and not only every other time

    @_every_policy
    @given(view=views())
    def test_no_gpu_idles_that_would_make_an_app_faster(self, policy: Policy, view: View) -> None:
        """Work is conserved, except that nobody gets back what it paid in the same round."""
        if not self.work_conserving:
            return
        plan = drive(policy, view)
        idle = set(view.offer) - _gpus(plan.allotments)
        for app in view.apps:
            found = _overlooked(app, plan, view, idle)
            assert not found, f"{app.app} would be faster with {found}"

    @_every_policy
    @given(view=views())
    def test_nobody_is_given_less_than_a_gang(self, policy: Policy, view: View) -> None:
        """Below its smallest gang an app cannot run at all."""
        plan = drive(policy, view)
        for app in view.apps:
            given_now = _of(plan.allotments, app.app)
            assert not given_now or len(app.kept) + len(given_now) >= app.min_gang
            later = _of(plan.followups, app.app)
            assert not later or len(app.kept) + len(given_now | later) >= app.min_gang

    @_every_policy
    @given(view=views())
    def test_round_ends_without_any_answer(self, policy: Policy, view: View) -> None:
        """Agents die."""
        check_plan(drive(policy, view, lambda _view, _app: None), view)

    def test_nobody_is_given_anything_when_nothing_is_offered(self, policy: Policy) -> None:
        """An empty offer is a round like any other."""
        view = fake_view(_cluster((4,)), [FakeApp("a", gang=2)], offer=())
        assert drive(policy, view).allotments == ()

    def test_nothing_is_given_away_when_there_are_no_apps(self, policy: Policy) -> None:
        """All users may be on holiday."""
        assert drive(policy, fake_view(_cluster((4,)), [])).allotments == ()

    def test_satisfied_apps_get_nothing_more(self, policy: Policy) -> None:
        """Demand met is demand met."""
        apps = [FakeApp("a", gang=2, held=(GpuId(0), GpuId(1))), FakeApp("b", held=(GpuId(2),))]
        view = fake_view(_cluster((4,)), apps, offer=[3])
        assert drive(policy, view).allotments == ()

    def test_an_app_alone_gets_all_it_can_use(self, policy: Policy) -> None:
        """Nobody competes, so nobody pays."""
        view = fake_view(_cluster((2, 2), (2,)), [FakeApp("a", gang=4)])
        count = len(_gpus(drive(policy, view).allotments))
        assert count == 4 or (not self.work_conserving and count < 4)

    def test_one_gpu_goes_to_one_app(self, policy: Policy) -> None:
        """The smallest cluster."""
        view = fake_view(_cluster((1,)), [FakeApp("a"), FakeApp("b")])
        plan = drive(policy, view)
        check_plan(plan, view)
        assert len(_gpus(plan.allotments)) <= 1

    def test_many_apps_and_a_fragmented_offer_are_no_trouble(self, policy: Policy) -> None:
        """A busy cluster with every other GPU free."""
        topology = _cluster(*[(2, 2)] * 8)
        apps = [FakeApp(f"app-{i}", gang=1 + i % 4, elapsed=10.0 * i) for i in range(60)]
        view = fake_view(topology, apps, offer=range(0, topology.gpus, 2))
        plan = drive(policy, view)
        check_plan(plan, view)
        assert plan.allotments


def _cluster(*shapes: tuple[int, ...]) -> Topology:
    return Topology(tuple(Machine(f"m{i}", "r0", shape) for i, shape in enumerate(shapes)))


def _gpus(allotments: Iterable[Allotment]) -> set[GpuId]:
    return {gpu for item in allotments for gpu in item.gpus}


def _of(allotments: Iterable[Allotment], app: AppId) -> set[GpuId]:
    return {gpu for item in allotments if item.app == app for gpu in item.gpus}


def _canonical(plan: Plan) -> tuple[list[Allotment], list[Allotment]]:
    def key(item: Allotment) -> tuple[str, str, tuple[GpuId, ...]]:
        return (item.app, item.source, item.gpus)

    return sorted(plan.allotments, key=key), sorted(plan.followups, key=key)


def _overlooked(app: AppView, plan: Plan, view: View, idle: set[GpuId]) -> list[GpuId]:
    """Idle GPUs that the app may have and that would make it faster, if there are any."""
    have = [*app.kept, *sorted(_of(plan.allotments, app.app))]
    room = app.room - len(_of(plan.allotments, app.app)) - len(_of(plan.followups, app.app))
    if app.owner in view.quotas:
        mine = [other.app for other in view.apps if other.owner == app.owner]
        given_all = sum(
            len(_of(part, name)) for part in (plan.allotments, plan.followups) for name in mine
        )
        room = min(room, view.quotas[app.owner] - given_all)
    seats = view.topology.seats
    free = [
        gpu
        for gpu in sorted(idle.difference(plan.notes.paid.get(app.app, ())))
        if app.machines is None or seats[gpu].machine in app.machines
    ]
    before = app.seconds_with(have) if len(have) >= app.min_gang else math.inf
    groups: dict[tuple[int, ...], list[GpuId]] = {}
    for gpu in free:
        groups.setdefault((seats[gpu].machine,), []).append(gpu)
        groups.setdefault((seats[gpu].machine, seats[gpu].slot), []).append(gpu)
    # One slot's, one machine's, or all of them: to find the best of all subsets is asking a lot.
    for more in (*groups.values(), free):
        chosen = more[: max(0, room)]
        complete = more is not free or len(free) <= room
        if complete and app.seconds_with([*have, *chosen]) < before * (1.0 - _FASTER):
            return chosen
    return []
