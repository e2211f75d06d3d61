"""How the points of many runs share one report."""

import pytest

from themis.core.model import AppId, JobId, Machine, OwnerId
from themis.node.core import commands as cmd
from themis.node.core import events as ev
from themis.node.core.commands import NodeMemory
from themis.node.core.node_core import NodeCore
from themis.node.core.report_budget import share_report
from themis.protocol.node_messages import (
    MOST_POINTS,
    MOST_REPORTED,
    Point,
    Program,
    RunOrder,
    RunState,
    weight_of,
)


def points(count: int, values: int = 1) -> tuple[Point, ...]:
    named = tuple((f"v{n}", 0.5) for n in range(values))
    return tuple(Point(float(n), None, named) for n in range(1, count + 1))


@pytest.mark.parametrize(
    ("waiting", "counts"),
    [
        pytest.param([], [], id="no run has any"),
        pytest.param([points(3), (), points(7)], [3, 0, 7], id="there is room for all"),
        pytest.param([points(20), points(2), points(20)], [9, 2, 9], id="a small need is met"),
        pytest.param([points(3, 8), points(20)], [1, 10], id="points of many values weigh more"),
    ],
)
def test_runs_share_the_room_of_a_report(
    waiting: list[tuple[Point, ...]], counts: list[int]
) -> None:
    assert share_report(waiting, 1, 20) == counts


def test_every_run_has_its_turn_where_there_are_too_many() -> None:
    waiting, most = [points(4, 8)] * 5, 16
    seen: set[int] = set()
    for turn in range(5):
        counts = share_report(waiting, turn, most)
        assert sum(weight_of(of[:n]) for of, n in zip(waiting, counts, strict=True)) <= most
        seen |= {place for place, count in enumerate(counts) if count}
    assert seen == set(range(5))


def test_a_report_never_has_more_points_than_the_service_takes() -> None:
    machine = Machine("m0", "r0", (1,))
    runs = range(1, 13)
    limits = ev.RunLimits(60.0, 50.0, 60.0)
    found = [
        ev.FoundRun(
            RunOrder(
                n, AppId("a"), OwnerId("ann"), JobId(f"j{n}"), (0,), (n,), Program(("train",))
            ),
            RunState.EXITED,
            limits,
            0,
        )
        for n in runs
    ]
    core = NodeCore(machine, NodeMemory())
    core.handle(ev.Adopted(0.0, tuple(found)))
    for n in runs:
        core.handle(ev.PointsRead(0.1, n, points(MOST_POINTS)))
    [report] = [c.report for c in core.handle(ev.Ticked(99.0)) if isinstance(c, cmd.Send)]
    told = [len(run.points) for run in report.runs]
    assert sum(told) <= MOST_REPORTED
    assert min(told) == max(told) == MOST_REPORTED // len(runs)
    assert all(run.more for run in report.runs)
