"""The worked numbers that are about whole rounds, through the policies."""

import pytest

from themis.core.model import AppId, Bid, Chunk, LeaseSource, Machine, Row, Topology
from themis.core.policies import View, policy
from themis.testing.policy_fakes import FakeApp, drive, fake_view


def _pool(gpus: int) -> Topology:
    return Topology((Machine("m0", "r0", (gpus,)),))


def test_f_of_70_percent_shows_the_offer_to_3_of_10_apps() -> None:
    apps = [FakeApp(f"app-{i}", ideal_time=100.0 + i) for i in range(10)]
    notes = drive(policy("themis-paper", f=0.7), fake_view(_pool(4), apps)).notes
    assert sum(item.invited for item in notes.standings) == 3


def test_rho_8_and_2_without_the_machine_keeps_one_half() -> None:
    # 2 * (elapsed + lease + rest) / T_id with a lease of 600 s; both reach rho 1 with the machine.
    strong = FakeApp("strong", work=200.0, gang=2, ideal_time=200.0)
    weak = FakeApp("weak", work=800.0, gang=2, ideal_time=1400.0)

    def reach_one(view: View, app: AppId) -> Bid | None:
        return Bid(app, (Row((Chunk(1, 2),), view.find(app).ideal_time),))

    view = fake_view(_pool(2), [strong, weak])
    assert [app.rho_nothing for app in view.apps] == pytest.approx([8.0, 2.0])
    plan = drive(policy("themis", payment="gpus", horizon="end"), view, reach_one)
    assert plan.notes.won == {"strong": (0, 1)}
    assert plan.notes.kept_fractions == pytest.approx({"strong": 0.5})
    assert [(item.app, len(item.gpus), item.source) for item in plan.allotments] == [
        ("strong", 1, LeaseSource.AUCTION),
        ("weak", 1, LeaseSource.LEFTOVER),
    ]


@pytest.mark.parametrize(
    ("bidders", "gpus", "kept"), [(2, 2, 0.5), (4, 12, 0.4219), (8, 56, 0.3927)]
)
def test_identical_linear_bidders_for_one_divisible_pool(
    bidders: int, gpus: int, kept: float
) -> None:
    # As many GPUs as both N and N - 1 divide, so that whole GPUs cost nothing.
    apps = [FakeApp(f"app-{i}", jobs=gpus) for i in range(bidders)]
    notes = drive(policy("themis-paper", f=0.0), fake_view(_pool(gpus), apps)).notes
    assert {len(won) for won in notes.won.values()} == {gpus // bidders}
    assert (1 - 1 / bidders) ** (bidders - 1) == pytest.approx(kept, abs=5e-5)
    for fraction in notes.kept_fractions.values():
        assert fraction == pytest.approx(kept, abs=5e-5)


@pytest.mark.parametrize("gpus", [6, 7, 64])
def test_equal_share_with_weights_2_to_1_splits_gpu_time_accordingly(gpus: int) -> None:
    attained = {"heavy": 0.0, "light": 0.0}
    for number in range(1, 25):
        apps = [
            FakeApp(
                name,
                jobs=gpus,
                weight=weight,
                elapsed=600.0 * (number - 1),
                attained=attained[name],
            )
            for name, weight in (("heavy", 2.0), ("light", 1.0))
        ]
        view = fake_view(_pool(gpus), apps, round_number=number)
        for item in drive(policy("equal-share"), view).allotments:
            attained[item.app] += 600.0 * len(item.gpus)
    assert attained["heavy"] / attained["light"] == pytest.approx(2.0, rel=0.1)


def test_equal_share_keeps_wide_one_job_apps_at_a_rho_of_one() -> None:
    """One-job apps as wide as the cluster, S = 1, no restarts, a short lease: rho <= 1.02."""
    gpus, lease, work = 64, 5.0, 64 * 400.0
    left = {f"app-{i}": work * (1.0 + 0.25 * i) for i in range(3)}
    attained = dict.fromkeys(left, 0.0)
    contention = dict.fromkeys(left, 0.0)
    rhos: dict[str, float] = {}
    now = 0.0
    total = dict(left)
    while left:
        apps = [
            FakeApp(name, work=rest, gang=gpus, elapsed=now, attained=attained[name])
            for name, rest in left.items()
        ]
        view = fake_view(_pool(gpus), apps, lease=lease, round_number=1 + int(now))
        for name in left:
            contention[name] += len(left) * lease
        for item in drive(policy("equal-share"), view).allotments:
            attained[item.app] += len(item.gpus) * lease
            left[item.app] -= len(item.gpus) * lease
        now += lease
        for name in [name for name, rest in left.items() if rest <= 0.0]:
            mean = contention[name] / now
            rhos[name] = now / (total[name] / (gpus / mean))
            del left[name]
    assert len(rhos) == 3
    assert max(rhos.values()) <= 1.02
