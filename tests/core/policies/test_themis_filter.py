"""Who is invited to the auction, and in which order."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from themis.core.model import AppId, Bid, GpuId, Machine, Topology
from themis.core.model.reasons import Reason
from themis.core.policies import AskBids, Policy, View, policy
from themis.core.policies.ranking import invited_count
from themis.testing.policy_fakes import FakeApp, drive, fake_view, honest

ONE_MACHINE = Topology((Machine("m0", "r0", (4,)),))


def _asked(chosen: Policy, view: View) -> list[AppId]:
    """The apps that see the offer."""
    questions: list[tuple[AppId, ...]] = []

    conversation = chosen.hold_round(view, view.rng("test"))
    try:
        question = next(conversation)
        while isinstance(question, AskBids):
            questions.append(question.apps)
            question = conversation.send({})
    except StopIteration:
        pass
    return list(questions[-1]) if questions else []


def _apps(rhos: Sequence[float]) -> list[FakeApp]:
    """Apps whose best-case rho is as given: one GPU, an hour of work, nothing elapsed."""
    return [FakeApp(f"app-{number}", ideal_time=3600.0 / rho) for number, rho in enumerate(rhos)]


@pytest.mark.parametrize(
    ("f", "bidders", "count"),
    [
        pytest.param(0.7, 10, 3, id="the paper's example"),
        pytest.param(0.8, 10, 2, id="a product that is not exact in binary"),
        pytest.param(0.8, 11, 3, id="parts of an app count as one"),
        pytest.param(0.0, 7, 7, id="everybody"),
        pytest.param(1.0, 7, 1, id="never nobody"),
        pytest.param(0.9, 10, 1, id="one of ten"),
    ],
)
def test_the_share_of_apps_that_sees_an_offer(f: float, bidders: int, count: int) -> None:
    assert invited_count(f, bidders) == count


def test_the_worst_off_are_invited() -> None:
    view = fake_view(ONE_MACHINE, _apps([1, 5, 2, 9, 3, 4, 6, 7, 8, 0.5]))
    assert _asked(policy("themis", f=0.7), view) == ["app-3", "app-8", "app-7"]


def test_apps_without_unmet_demand_count_but_are_not_invited() -> None:
    apps = _apps([9, 8, 7, 6, 5, 4, 3, 2, 1, 0.5])
    apps[0] = FakeApp("app-0", ideal_time=100.0, held=(GpuId(0),))
    view = fake_view(ONE_MACHINE, apps, offer=[1, 2, 3])
    assert _asked(policy("themis", f=0.8), view) == ["app-1", "app-2"]


def test_themis_invites_at_least_two_and_the_paper_one() -> None:
    view = fake_view(ONE_MACHINE, _apps([3, 2, 1]))
    assert _asked(policy("themis", f=0.9), view) == ["app-0", "app-1"]
    assert _asked(policy("themis", f=0.9, min_invited=3), view) == ["app-0", "app-1", "app-2"]
    assert _asked(policy("themis-paper", f=0.9), view) == ["app-0"]


def test_equals_are_ordered_by_waiting() -> None:
    apps = [FakeApp(f"app-{i}", waiting_since=100.0 - i) for i in range(4)]
    view = fake_view(ONE_MACHINE, apps)
    assert _asked(policy("themis"), view) == ["app-3", "app-2"]


def test_last_tie_is_broken_by_seed_and_round_for_any_name() -> None:
    apps = [FakeApp(f"app-{i}") for i in range(4)]
    first = {
        _asked(policy("themis"), fake_view(ONE_MACHINE, apps, seed=seed, round_number=number))[0]
        for seed in range(5)
        for number in range(1, 9)
    }
    assert first == {"app-0", "app-1", "app-2", "app-3"}


def test_best_case_rank_favours_savable_apps_and_rank_now_starved_ones() -> None:
    # `late` runs at full speed but has waited long; `new` has nothing and all the time it needs.
    late = FakeApp("late", jobs=2, elapsed=7200.0, held=(GpuId(0),), work=1000.0)
    new = FakeApp("new", jobs=2, work=1000.0, ideal_time=600.0)
    third = FakeApp("third", jobs=2, work=10.0, ideal_time=36000.0)
    view = fake_view(ONE_MACHINE, [late, new, third], offer=[1, 2, 3])
    # Best case: (7200 + 500) / 3600 = 2.14 against 500 / 600 = 0.83.
    # Now: (7200 + 1000) / 3600 = 2.28 against 2 * (600 + 1000) / 600 = 5.33.
    assert _asked(policy("themis"), view) == ["late", "new"]
    assert _asked(policy("themis", rank="now"), view) == ["new", "late"]


def test_running_app_is_ranked_slightly_worse_off() -> None:
    holder = FakeApp("holder", jobs=2, ideal_time=3600.0, held=(GpuId(0),))
    rival = FakeApp("rival", jobs=2, ideal_time=3600.0 / 1.04)
    loser = FakeApp("third", jobs=2, ideal_time=36000.0)
    view = fake_view(ONE_MACHINE, [holder, rival, loser])
    assert _asked(policy("themis", urgent=0), view) == ["holder", "rival"]
    assert _asked(policy("themis", urgent=0, hysteresis=0.03), view) == ["rival", "holder"]


def test_app_unable_to_wait_for_the_next_beat_goes_first() -> None:
    # With all it can use `short` would be in time, but not a lease of 600 s later.
    short = FakeApp("short", work=300.0, ideal_time=400.0)
    long = FakeApp("long", work=3600.0, ideal_time=3650.0)
    view = fake_view(ONE_MACHINE, [long, short, FakeApp("third", ideal_time=1e6)])
    assert _asked(policy("themis", urgent=0), view) == ["short", "long"]
    assert _asked(policy("themis", urgent=0, lookahead=0), view) == ["long", "short"]


def test_shortest_app_with_slack_goes_first() -> None:
    small = FakeApp("small", work=600.0, ideal_time=1e6)
    large = FakeApp("large", work=6000.0, ideal_time=1e5)
    late = FakeApp("late", work=60000.0, ideal_time=60000.0)
    view = fake_view(ONE_MACHINE, [large, late, small])
    assert _asked(policy("themis", f=0), view) == ["late", "small", "large"]
    assert _asked(policy("themis", f=0, urgent=0), view) == ["late", "large", "small"]


def test_urgently_started_app_stays_urgent_a_little_longer() -> None:
    """Or it would lose what it has just won, wait, and be urgent again at the next beat."""
    # With a lease of 600 s and 1800 s at full demand: 0.79 and 0.75 of the ideal time. Were it not
    # urgent it would be far behind, for it has a day's work for all GPUs.
    nearly = FakeApp("runs", work=3.6e5, jobs=200, ideal_time=2400 / 0.79, held=(GpuId(0),))
    short = FakeApp("short", work=60.0, ideal_time=1e6)

    def first(app: FakeApp, hysteresis: float) -> str:
        view = fake_view(ONE_MACHINE, [app, short])
        return _asked(policy("themis", hysteresis=hysteresis), view)[0]

    assert first(nearly, 0.05) == "runs"
    assert first(nearly, 0.01) == "short"
    assert first(replace(nearly, ideal_time=2400 / 0.75), 0.05) == "short"
    assert first(replace(nearly, held=()), 0.05) == "short"


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("work", [600.0, 6e5])
def test_more_urgent_app_never_ranks_behind(runs: bool, work: float) -> None:
    """Also around the step from which on rho decides, with the bonus for who runs and without."""

    def app(name: str, gpu: int, rho: float) -> FakeApp:
        held = (GpuId(gpu),) if runs else ()
        return FakeApp(name, work=work, jobs=4, ideal_time=(600 + work / 4) / rho, held=held)

    for step in range(700, 900, 5):
        less, more = app("less", 0, (step - 5) / 1000), app("more", 1, step / 1000)
        if step * (1.05 if runs else 1.0) >= 800:
            assert _asked(policy("themis"), fake_view(ONE_MACHINE, [less, more]))[0] == "more", step


def test_best_case_rho_is_reported() -> None:
    """Not what apps are ordered by, which says little to anybody."""
    patient = FakeApp("patient", jobs=2, ideal_time=24000.0, held=(GpuId(0),))
    plan = drive(policy("themis"), fake_view(ONE_MACHINE, [patient]))
    assert [item.rho for item in plan.notes.standings] == [pytest.approx(0.1)]


def test_app_with_slack_never_ranks_before_an_urgent_one() -> None:
    urgent = FakeApp("urgent", jobs=2, ideal_time=2400 / 0.8001)
    small = FakeApp("small", work=60.0, ideal_time=1e6, held=(GpuId(0),))
    assert _asked(policy("themis"), fake_view(ONE_MACHINE, [small, urgent]))[0] == "urgent"


def test_a_fresh_claim_moves_the_rank_only_where_tables_are_asked_afresh() -> None:
    a = FakeApp("a", jobs=2, held=(GpuId(0),))
    b = FakeApp("b", jobs=2, held=(GpuId(1),), ideal_time=3000.0)
    view = fake_view(ONE_MACHINE, [a, b])

    def claims(view: View, app: AppId) -> Bid | None:
        bid = honest(view, app)
        assert bid is not None
        if app == "a":  # it pretends to be slower than it is
            table = tuple(type(row)(row.level, row.count, row.seconds * 1.4) for row in bid.table)
            return Bid(bid.app, bid.rows, table)
        return bid

    options = {"rank": "now", "hysteresis": 0.0, "f": 0.9}
    cached = drive(policy("themis", **options), view, claims).notes.standings
    fresh = drive(policy("themis", fresh_tables=True, **options), view, claims).notes.standings
    assert [item.app for item in cached] == ["b", "a"]
    assert [item.app for item in fresh] == ["a", "b"]


def test_only_apps_that_could_be_given_more_are_asked_for_fresh_tables() -> None:
    full = FakeApp("full", held=(GpuId(0),))
    wanting = FakeApp("wanting", jobs=2, held=(GpuId(1),))
    view = fake_view(ONE_MACHINE, [full, wanting], offer=[2, 3])
    first = next(policy("themis-paper").hold_round(view, view.rng("test")))
    assert first == AskBids((AppId("wanting"),), tables_only=True)


def test_all_apps_of_the_worst_off_owners_are_invited() -> None:
    apps = [
        FakeApp("a1", of="ann", ideal_time=100.0),
        FakeApp("a2", of="ann", ideal_time=9000.0),
        FakeApp("b1", of="bob", ideal_time=1000.0),
        FakeApp("c1", of="cid", ideal_time=2000.0),
    ]
    view = fake_view(ONE_MACHINE, apps, by_owner=True)
    assert _asked(policy("themis", f=0.9, min_invited=1), view) == ["a1", "a2"]
    assert _asked(policy("themis", f=0.9), view) == ["a1", "b1", "a2"]
    # Four apps, three owners: a third of the owners is one.
    assert _asked(policy("themis", f=0.67, min_invited=1), view) == ["a1", "a2"]


def test_owners_whose_demand_is_met_count_but_are_not_invited() -> None:
    full = [FakeApp(f"full-{i}", held=(GpuId(i),)) for i in range(2)]
    wanting = [FakeApp(f"app-{i}", ideal_time=1000.0 + i) for i in range(2)]
    view = fake_view(ONE_MACHINE, [*full, *wanting], offer=[2, 3], by_owner=True)
    # Half of four owners is two; half of the two that want something would be one.
    assert _asked(policy("themis", f=0.5, min_invited=1), view) == ["app-0", "app-1"]


def test_notes_record_the_rank_of_every_app() -> None:
    apps = [
        FakeApp("a", ideal_time=1000.0),
        FakeApp("b", ideal_time=2000.0),
        FakeApp("c", ideal_time=3000.0),
        FakeApp("full", held=(GpuId(3),)),
    ]
    notes = drive(policy("themis"), fake_view(ONE_MACHINE, apps, offer=[0, 1])).notes
    told = {item.app: (item.rank, item.invited, item.why_not) for item in notes.standings}
    assert told == {
        "a": (1, True, None),
        "b": (2, True, None),
        "c": (3, False, Reason.NOT_IN_AUCTION),
        "full": (4, False, Reason.SERVED),
    }
    assert notes.standings[0].rho == pytest.approx(3.6 + 0.6)
    assert [bid.app for bid in notes.bids] == ["a", "b"]
    assert notes.certificate is not None
    assert notes.certificate.exact
    assert notes.certificate.bound >= notes.certificate.value > 0
