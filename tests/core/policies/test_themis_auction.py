"""What bidders win, what they pay, and who gets the rest."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from themis.core.auction import Problem, Solution, solver
from themis.core.model import (
    AppId,
    Bid,
    Chunk,
    GpuId,
    LeaseSource,
    Machine,
    Row,
    Slowdown,
    Topology,
)
from themis.core.policies import Allotment, Plan, Policy, View, policy
from themis.testing.policy_fakes import FakeApp, drive, fake_view, honest

FOUR_GPUS = Topology((Machine("m0", "r0", (4,)),))
TRIED = FakeApp("hungry", gang=4, min_gang=2, attained=9000.0)
TWO_MACHINES = Topology((Machine("m0", "r0", (2,)), Machine("m1", "r0", (2,))))


def _got(allotments: Iterable[Allotment]) -> dict[str, set[int]]:
    result: dict[str, set[int]] = {}
    for item in allotments:
        result.setdefault(item.app, set()).update(item.gpus)
    return result


def _payment_view(gpus: int, seed: int, *, others: int = 0) -> View:
    """`strong` would be at rho 8 without, `weak` at 2, and both are at 1 with the only machine."""
    topology = Topology((Machine("m0", "r0", (gpus,)),))
    apps = [
        FakeApp("strong", work=600.0, jobs=gpus, ideal_time=600.0, starvation=4.0),
        FakeApp("weak", work=600.0, jobs=gpus, ideal_time=600.0, starvation=1.0),
        *(FakeApp(f"other-{i}", work=600.0, ideal_time=1e6) for i in range(others)),
    ]
    return fake_view(topology, apps, seed=seed)


def _all_or_nothing(view: View, app: AppId) -> Bid | None:
    return Bid(app, (Row((Chunk(1, len(view.offer)),), 600.0),))


def test_the_winner_keeps_the_fraction_it_leaves_the_loser() -> None:
    plan = drive(policy("themis", horizon="end", f=0.0), _payment_view(4, seed=0), _all_or_nothing)
    assert plan.notes.won == {"strong": (0, 1, 2, 3)}
    assert plan.notes.kept_fractions == pytest.approx({"strong": 0.5})


def test_late_and_nearly_finished_app_wins_under_lease_valuation() -> None:
    """Its rho is mostly time that has passed: to the end, the other one gains more by GPUs."""
    late = FakeApp("late", work=2400.0, jobs=4, elapsed=20_000.0, ideal_time=10_000.0)
    new = FakeApp("new", work=400_000.0, jobs=4, elapsed=0.0, ideal_time=200_000.0)
    view = fake_view(FOUR_GPUS, [late, new])

    def won(horizon: str) -> dict[str, int]:
        plan = drive(policy("themis", f=0.0, horizon=horizon), view)
        return {str(app): len(gpus) for app, gpus in plan.notes.won.items()}

    assert won("lease") == {"late": 4}
    assert won("end")["new"] > 0


def test_a_lone_bidder_pays_nothing() -> None:
    view = fake_view(FOUR_GPUS, [FakeApp("a", gang=4)])
    for seed in range(5):
        plan = drive(policy("themis"), fake_view(FOUR_GPUS, [FakeApp("a", gang=4)], seed=seed))
        assert _got(plan.allotments) == {"a": {0, 1, 2, 3}}
        assert plan.notes.kept_fractions == {"a": 1.0}
    assert all(
        item.source is LeaseSource.AUCTION for item in drive(policy("themis"), view).allotments
    )


def test_lottery_gives_all_or_nothing_at_the_rate_of_the_fraction() -> None:
    wins = 0
    for seed in range(200):
        plan = drive(
            policy("themis", horizon="end", f=0.0), _payment_view(4, seed), _all_or_nothing
        )
        by_auction = [item for item in plan.allotments if item.source is LeaseSource.AUCTION]
        assert _got(by_auction) in ({}, {"strong": {0, 1, 2, 3}})
        wins += bool(by_auction)
        if not by_auction:
            # No refund: what it paid goes to the other bidder, never back.
            assert plan.notes.paid == {"strong": (0, 1, 2, 3)}
            assert _got(plan.allotments) == {"weak": {0, 1, 2, 3}}
    assert 75 <= wins <= 125


def test_ticket_is_drawn_before_lottery_shares_are_sold() -> None:
    drawn, kept = {"strong": 0, "weak": 0}, {"strong": 0, "weak": 0}
    for seed in range(200):
        themis = policy("themis", f=0.0, payment="lottery-pf")
        plan = drive(themis, _payment_view(4, seed), _all_or_nothing)
        # Two equals in weight: each is drawn half the time, and keeps half of what is drawn.
        ((name, row),) = plan.notes.won.items()
        assert row == (0, 1, 2, 3)
        assert plan.notes.kept_fractions == pytest.approx({name: 0.5})
        by_auction = [item for item in plan.allotments if item.source is LeaseSource.AUCTION]
        drawn[name] += 1
        kept[name] += bool(by_auction)
        assert plan.notes.paid == ({} if by_auction else {name: row})
        assert plan.notes.certificate is not None
        assert plan.notes.certificate.exact
    assert 75 <= drawn["strong"] <= 125
    assert all(0.3 * drawn[name] <= kept[name] <= 0.7 * drawn[name] for name in drawn)


def test_payment_in_gpus_keeps_the_fraction_and_deals_the_rest_to_others() -> None:
    plan = drive(
        policy("themis", horizon="end", payment="gpus", f=0.0), _payment_view(4, 0), _all_or_nothing
    )
    assert len(_got(plan.allotments)["strong"]) == 2
    assert _got(plan.allotments)["weak"] == set(plan.notes.paid[AppId("strong")])
    sources = {item.app: item.source for item in plan.allotments}
    assert sources == {"strong": LeaseSource.AUCTION, "weak": LeaseSource.LEFTOVER}


def test_payment_in_gpus_rounds_at_random_and_floor_always_down() -> None:
    kept = {
        len(
            _got(
                drive(
                    policy("themis", horizon="end", payment="gpus", f=0.0), view, _all_or_nothing
                ).allotments
            ).get("strong", ())
        )
        for view in (_payment_view(1, seed) for seed in range(20))
    }
    assert kept == {0, 1}
    for seed in range(5):
        plan = drive(
            policy("themis", horizon="end", payment="floor", f=0.0),
            _payment_view(1, seed),
            _all_or_nothing,
        )
        assert _got(plan.allotments) == {"weak": {0}}


def test_time_payment_names_a_second_holder_for_the_remaining_lease() -> None:
    view = _payment_view(4, 0)
    plan = drive(policy("themis", horizon="end", payment="time", f=0.0), view, _all_or_nothing)
    (first,) = plan.allotments
    # The leases begin at the beat (600 s) and half of 600 s is kept.
    assert (first.app, first.gpus, first.until) == ("strong", (0, 1, 2, 3), 900.0)
    (second,) = plan.followups
    assert (second.app, second.gpus, second.until) == ("weak", (0, 1, 2, 3), None)
    assert second.source is LeaseSource.LEFTOVER


def test_time_share_between_beats_is_a_share_of_the_remaining_beat() -> None:
    view = replace(_payment_view(4, 0), at_beat=False, now=1000.0)
    plan = drive(policy("themis", horizon="end", payment="time", f=0.0), view, _all_or_nothing)
    assert [item.until for item in plan.allotments] == [1100.0]


def test_second_owners_come_from_outside_the_auction_first() -> None:
    view = _payment_view(1, 0, others=1)
    themis = policy("themis", payment="time", f=0.5, leftovers="outside-first")
    plan = drive(themis, view, _all_or_nothing)
    assert [item.app for item in plan.followups] == ["other-0"]


def test_paper_mechanism_leaves_payments_idle_if_all_were_invited() -> None:
    plan = drive(policy("themis-paper", f=0.0), _payment_view(4, 0), _all_or_nothing)
    assert len(_got(plan.allotments)["strong"]) == 2
    assert set(_got(plan.allotments)) == {"strong"}


def test_paid_gpu_idles_rather_than_returning_to_its_payer() -> None:
    """Everybody else has all it can use, or nobody is left who may have it."""
    rounds = [_payment_view(1, seed) for seed in range(50)]
    unlucky = [
        view for view in rounds if drive(policy("themis", f=0.0), view, _all_or_nothing).notes.paid
    ]
    view = unlucky[0]
    only = fake_view(view.topology, [_as_fake(view, "strong"), _unmovable(view)], seed=view.seed)
    plan = drive(policy("themis", f=0.0), only, _all_or_nothing)
    assert plan.notes.paid == {"strong": (0,)}
    assert plan.allotments == ()
    assert plan.notes.declined == ("weak",)


def _as_fake(view: View, name: str) -> FakeApp:
    found = view.find(AppId(name))
    assert isinstance(found, FakeApp)
    return found


def _unmovable(view: View) -> FakeApp:
    """`weak`, whose cached table says that nothing helps, whatever it bids."""
    weak = _as_fake(view, "weak")

    class Unmovable(FakeApp):
        def seconds_with(self, gpus: object) -> float:
            return float("inf")

    fields = {name: getattr(weak, name) for name in FakeApp.__dataclass_fields__}
    return Unmovable(**fields)


def test_leftovers_go_to_previous_holders_then_outsiders_then_bidders() -> None:
    # Two worst-off bidders that want little; `ran` is outside and runs on GPU 3; `new` outside.
    apps = [
        FakeApp("bidder-1", ideal_time=10.0),
        FakeApp("bidder-2", ideal_time=11.0),
        FakeApp("new", ideal_time=5000.0),
        FakeApp("ran", ideal_time=9000.0, held=(GpuId(3),)),
    ]
    themis = policy("themis", leftovers="outside-first")
    plan = drive(themis, fake_view(FOUR_GPUS, apps))
    got = _got(plan.allotments)
    assert got["ran"] == {3}
    assert set(got) == {"bidder-1", "bidder-2", "new", "ran"}
    tight = drive(themis, fake_view(FOUR_GPUS, apps, offer=[2, 3]), lambda *_: None)
    assert _got(tight.allotments) == {"ran": {3}, "new": {2}}


def test_leftovers_go_to_the_worst_off_bidder_or_not() -> None:
    # Nobody answers, so that everything is left.
    apps = [
        FakeApp("late", ideal_time=10.0),
        FakeApp("later", ideal_time=11.0),
        FakeApp("new", ideal_time=5000.0),
        FakeApp("ran", ideal_time=9000.0, held=(GpuId(3),)),
    ]
    view = fake_view(FOUR_GPUS, apps, offer=[2, 3])
    plan = drive(policy("themis"), view, lambda *_: None)
    assert set(_got(plan.allotments)) == {"late", "later"}


def test_the_papers_leftovers_are_dealt_at_random_to_outsiders() -> None:
    apps = [FakeApp("bidder", ideal_time=10.0), *(FakeApp(f"out-{i}") for i in range(3))]
    lucky = set()
    for seed in range(20):
        view = fake_view(TWO_MACHINES, apps, offer=[0, 1], seed=seed)
        plan = drive(policy("themis-paper"), view)
        assert "bidder" in _got(plan.allotments)
        lucky |= set(_got(plan.allotments)) - {"bidder"}
    assert lucky == {"out-0", "out-1", "out-2"}


def test_an_app_that_would_not_run_faster_declines() -> None:
    averse = Slowdown((1.0, 1.0, 9.0, 9.0))
    app = FakeApp("a", gang=4, min_gang=4, slowdown=averse, held=())
    rival = FakeApp("b", jobs=2, ideal_time=1e6)
    split = drive(policy("worst-first"), fake_view(TWO_MACHINES, [app, rival], offer=[0, 2]))
    assert _got(split.allotments) == {"b": {0, 2}}
    kept = FakeApp("a", gang=4, slowdown=averse, held=(GpuId(0), GpuId(1)))
    plan = drive(policy("themis"), fake_view(TWO_MACHINES, [kept, rival], offer=[2, 3]))
    assert _got(plan.allotments) == {"b": {2, 3}}


def test_a_starved_app_gets_a_gang_before_the_auction() -> None:
    # A lease and 900 s with all it can use: it would need 1.25 times its ideal time.
    late = replace(TRIED, hungry_rounds=5, ideal_time=1200.0)
    view = _beside_worse_off(late)
    assert _guarded(policy("themis"), view) == [("hungry", 2)]
    assert _guarded(policy("themis", guard_rounds=6), view) == []
    assert _guarded(policy("themis", guard_rounds=0), view) == []
    assert _guarded(policy("themis-paper"), view) == []


@pytest.mark.parametrize(
    ("ideal_time", "hungry_rounds", "helped"),
    [
        pytest.param(1499.0, 5, True, id="who is late"),
        pytest.param(1500.0, 5, False, id="who would just be in time"),
        pytest.param(1e7, 119, False, id="who can wait"),
        pytest.param(1e7, 120, True, id="who has waited for most of a day"),
    ],
)
def test_app_with_slack_has_more_patience(
    ideal_time: float, hungry_rounds: int, helped: bool
) -> None:
    app = replace(TRIED, hungry_rounds=hungry_rounds, ideal_time=ideal_time)
    assert bool(_guarded(policy("themis"), _beside_worse_off(app))) is helped


@pytest.mark.parametrize("option", [{"guard_patience": 1}, {"rank": "now"}])
def test_guard_may_help_all_apps_after_the_same_time(option: dict[str, object]) -> None:
    view = _beside_worse_off(replace(TRIED, hungry_rounds=5, ideal_time=1e7))
    assert _guarded(policy("themis", **option), view) == [("hungry", 2)]


def test_app_that_hardly_ran_gets_its_first_gang_soon() -> None:
    """So that a program that does not even start is noticed within the hour."""
    # Half a lease of two GPUs tells; seconds of a lease that was nearly over do not.
    for attained, helped in ((0.0, True), (599.0, True), (600.0, False)):
        new = replace(TRIED, hungry_rounds=5, ideal_time=1e7, attained=attained)
        assert bool(_guarded(policy("themis"), _beside_worse_off(new))) is helped
    waited = replace(TRIED, hungry_rounds=4, ideal_time=1e7, attained=0.0)
    assert _guarded(policy("themis"), _beside_worse_off(waited)) == []


def test_app_holding_gpus_is_not_starved() -> None:
    holder = replace(TRIED, hungry_rounds=500, ideal_time=10.0, held=(GpuId(0),))
    assert _guarded(policy("themis"), _beside_worse_off(holder)) == []


def test_the_guard_helps_the_hungriest_first() -> None:
    hungry = [FakeApp(f"app-{i}", hungry_rounds=5 + i, ideal_time=10.0 + i) for i in range(6)]
    plan = drive(policy("themis"), fake_view(FOUR_GPUS, hungry))
    assert set(_got(plan.allotments)) == {"app-2", "app-3", "app-4", "app-5"}
    assert {item.source for item in plan.allotments} == {LeaseSource.GUARD}


def _beside_worse_off(app: FakeApp) -> View:
    """An app that is not invited, because others are far worse off."""
    rich = [FakeApp(f"app-{i}", gang=4, ideal_time=10.0) for i in range(3)]
    return fake_view(TWO_MACHINES, [app, *rich])


def _guarded(of: Policy, view: View) -> list[tuple[str, int]]:
    """Who was helped before the auction, and to how many GPUs."""
    allotments = drive(of, view).allotments
    return [(str(i.app), len(i.gpus)) for i in allotments if i.source is LeaseSource.GUARD]


def test_starvation_guard_respects_the_quota_of_an_owner() -> None:
    starved = [FakeApp(f"app-{i}", of="ann", hungry_rounds=5) for i in range(3)]
    plan = drive(policy("themis"), fake_view(FOUR_GPUS, starved, quotas={"ann": 2}))
    assert sum(len(gpus) for gpus in _got(plan.allotments).values()) == 2
    assert {item.source for item in plan.allotments} == {LeaseSource.GUARD}


def test_bids_pinned_to_gpus_taken_by_the_guard_only_lose() -> None:
    hungry = FakeApp("hungry", gang=2, min_gang=2, hungry_rounds=5, machines=frozenset({0}))
    bidder = FakeApp("bidder", jobs=4, ideal_time=10.0)

    def pinned(view: View, app: AppId) -> Bid | None:
        return Bid(app, (Row((Chunk(1, 2, machine=0),), 1.0),))

    view = fake_view(TWO_MACHINES, [bidder, hungry])
    plan = drive(policy("themis"), view, pinned)
    assert _got(plan.allotments) == {"hungry": {0, 1}, "bidder": {2, 3}}
    assert plan.notes.won == {}


def test_an_owner_wins_no_more_than_its_quota() -> None:
    apps = [FakeApp(f"a{i}", of="ann", ideal_time=10.0) for i in range(4)]
    for seed in range(5):
        view = fake_view(FOUR_GPUS, apps, quotas={"ann": 3}, seed=seed)
        plan = drive(policy("themis", f=0.0), view)
        assert sum(len(gpus) for gpus in _got(plan.allotments).values()) == 3
        assert sum(map(len, plan.notes.won.values())) <= 3


def test_a_winner_stays_on_the_gpus_it_has() -> None:
    held = (GpuId(1), GpuId(3))
    apps = [FakeApp("a", jobs=2, held=held), FakeApp("b", jobs=2, ideal_time=3000.0)]
    plan = drive(policy("themis", payment="gpus", f=0.0), fake_view(FOUR_GPUS, apps))
    assert set(plan.notes.won[AppId("a")]) == {1, 3}


def test_an_app_that_does_not_answer_is_out_of_the_auction_alone() -> None:
    apps = [FakeApp("alive", jobs=2), FakeApp("dead", jobs=2)]

    def answers(view: View, app: AppId) -> Bid | None:
        return honest(view, app) if app == "alive" else None

    plan = drive(policy("themis"), fake_view(FOUR_GPUS, apps), answers)
    assert len(plan.notes.won[AppId("alive")]) == 2
    assert [bid.app for bid in plan.notes.bids] == ["alive"]
    assert len(_got(plan.allotments)["dead"]) == 2  # from the leftovers


def test_rows_beyond_an_apps_room_are_not_taken() -> None:
    apps = [FakeApp("greedy", jobs=2), FakeApp("other", jobs=2)]

    def more(view: View, app: AppId) -> Bid | None:
        return Bid(app, (Row((Chunk(1, 4),), 1.0), Row((Chunk(1, 2),), 1700.0)))

    plan = drive(policy("themis"), fake_view(FOUR_GPUS, apps), more)
    assert {app: len(gpus) for app, gpus in plan.notes.won.items()} == {"greedy": 2, "other": 2}


def test_a_heuristic_solver_can_stand_in() -> None:
    class Greedy:
        name = "mine"

        def solve(self, problem: Problem, budget: int | None = None) -> Solution:
            return solver("greedy").solve(problem, budget)

    apps = [FakeApp("a", gang=4), FakeApp("b", gang=4)]
    plan: Plan = drive(policy("themis"), fake_view(FOUR_GPUS, apps), solve_with=Greedy())
    assert plan.notes.certificate is not None
    assert plan.notes.certificate.solver == "greedy"


def test_app_without_usable_gpus_has_no_rho_and_blocks_no_auction() -> None:
    lost = FakeApp("lost", ideal_time=float("inf"))
    plan = drive(policy("themis", f=0.0), fake_view(FOUR_GPUS, [lost, FakeApp("a")]))
    assert set(plan.notes.won) == {"a"}
