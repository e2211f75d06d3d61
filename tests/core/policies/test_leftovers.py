"""What is dealt when tables see no use for it: they have rows for whole gangs only."""

from functools import cached_property

import pytest

from themis.core.model import AppId, GpuId, Machine, TableRow, Topology
from themis.core.policies.leftovers import Hand
from themis.core.policies.placing import Pool
from themis.testing.policy_fakes import FakeApp, fake_view

SEVEN = Topology((Machine("m0", "r0", (4,)), Machine("m1", "r0", (3,))))
ALL = tuple(GpuId(gpu) for gpu in range(7))


class WholeGangs(FakeApp):
    """Its table has rows for multiples of its gang, as those of agents do."""

    @cached_property
    def table(self) -> tuple[TableRow, ...]:
        return tuple(row for row in super().table if row.count % self.gang == 0)


def _dealt(*apps: FakeApp, barred: dict[AppId, list[GpuId]] | None = None) -> dict[str, set[int]]:
    view = fake_view(SEVEN, apps)
    hand = Hand(view, Pool(view.topology, view.offer))
    for app in view.apps:
        hand.deal([app], barred=(barred or {}).get(app.app, ()))
    hand.deal_rest(view.apps, barred or {})
    return {str(app.app): set(hand.given(app.app)) for app in view.apps}


def test_job_on_gpus_beyond_its_gangs_keeps_them() -> None:
    runs = WholeGangs("runs", jobs=10, gang=4, held=ALL)
    view = fake_view(SEVEN, [runs])
    hand = Hand(view, Pool(view.topology, view.offer))
    hand.deal(view.apps)
    assert len(hand.given(runs.app)) == 4  # by its table
    assert _dealt(runs) == {"runs": set(ALL)}


def test_faster_user_of_leftovers_comes_first() -> None:
    runs = WholeGangs("runs", jobs=10, gang=4, held=ALL)
    small = WholeGangs("small", jobs=3)
    assert _dealt(runs, small) == {"runs": {0, 1, 2, 3}, "small": {4, 5, 6}}


def test_paid_gpus_do_not_return_to_the_payer() -> None:
    runs = WholeGangs("runs", jobs=10, gang=4, held=ALL)
    assert _dealt(runs, barred={runs.app: [GpuId(5)]}) == {"runs": set(ALL) - {5}}


@pytest.mark.parametrize(
    ("jobs", "min_gang", "count"),
    [
        pytest.param(7, 1, 7, id="each of its jobs can have one"),
        pytest.param(5, 1, 5, id="no more than jobs that wait"),
        pytest.param(2, 1, 4, id="all of its jobs run"),
        pytest.param(7, 2, 6, id="whole gangs only"),
    ],
)
def test_more_jobs_than_gpus_make_use_of_parts_of_gangs(
    jobs: int, min_gang: int, count: int
) -> None:
    app = WholeGangs("new", jobs=jobs, gang=4, min_gang=min_gang)
    assert len(_dealt(app)["new"]) == count


def test_app_that_was_dealt_nothing_gets_no_scraps() -> None:
    picky = WholeGangs("picky", jobs=10, gang=8, held=ALL)
    assert _dealt(picky) == {"picky": set()}
