"""The relay of points alone: each is sent once, in order, and then how the run ended."""

from dataclasses import replace

from tests.support.steward_values import J0, A, B, active_run, report_to, run_end, two_nodes
from themis.core.model import AppId
from themis.core.steward.commands import TellPoints, TellRun
from themis.core.steward.metric_relay import MetricRelay
from themis.core.steward.rows import StewardRow
from themis.core.steward.run_table import RunTable
from themis.protocol.node_messages import Point, RunReport, RunState

ENDED = RunState.EXITED


def reported(
    first: int, last: int, state: RunState = RunState.RUNNING, *, more: bool = False
) -> RunReport:
    points = tuple(Point(float(n)) for n in range(first, last + 1))
    return RunReport(1, A, J0, state, first=first, points=points, more=more)


def sent(first: int, last: int) -> TellPoints:
    return TellPoints(A, J0, 1, first, tuple(Point(float(n)) for n in range(first, last + 1)))


NEWS_OF_END = TellRun(A, J0, 1, ENDED, 0, 3.0)


def relay_of(*rows: StewardRow, apps: tuple[AppId, ...] = (A,)) -> MetricRelay:
    return MetricRelay(RunTable(rows), two_nodes(), apps)


def test_points_are_sent_once_however_often_they_are_reported() -> None:
    run = active_run()
    relay = relay_of(run)
    assert relay.take(run, reported(1, 2)) == sent(1, 2)
    assert relay.take(run, reported(1, 4)) == sent(3, 4)
    assert relay.take(run, reported(2, 4)) is None


def test_only_rank_0s_node_holds_the_points_of_an_active_app() -> None:
    run, nodes = active_run(1, 0, 2), two_nodes()
    relay = MetricRelay(RunTable([run]), nodes, (A,))
    assert relay.run_on(nodes.by_name["m0"], 1) is run
    assert relay.run_on(nodes.by_name["m1"], 1) is None
    assert MetricRelay(RunTable([run]), nodes, (B,)).run_on(nodes.by_name["m0"], 1) is None


def test_the_end_is_sent_once_after_all_points() -> None:
    end = run_end(points_on="m0")
    relay = relay_of(end)
    assert relay.end(end) is None, "its node has not reported yet"
    relay.take(end, reported(1, 2, ENDED, more=True))
    assert relay.end(end) is None, "its node has more"
    relay.take(end, reported(3, 3, ENDED))
    assert relay.end(end) == NEWS_OF_END
    assert relay.end(end) is None


def test_a_run_is_settled_when_its_agent_has_acknowledged_every_point() -> None:
    end = run_end(points_on="m0")
    relay = relay_of(end)
    relay.take(end, reported(1, 3, ENDED))
    relay.end(end)
    assert relay.acknowledge(A, 1, 2) is None
    assert relay.acknowledge(B, 1, 3) is None, "it is another app's"
    assert relay.acknowledge(A, 1, 99) == end
    assert relay.settle(end) == ({"result/1": replace(end, points_on="")}, None)


def test_run_with_lost_points_is_settled_at_its_end() -> None:
    end = run_end(points_on="m0")
    changes, told = relay_of(end).settle(end)
    assert changes == {"result/1": replace(end, points_on="")}
    assert told == NEWS_OF_END


def test_a_new_agent_is_sent_what_was_not_acknowledged() -> None:
    run, nodes = active_run(), two_nodes()
    relay = MetricRelay(RunTable([run]), nodes, (A,))
    node = report_to(nodes, 1, reported(1, 3))
    relay.take(run, reported(1, 3))
    relay.acknowledge(A, 1, 1)
    [(again, report)] = relay.repeat(A)
    assert again is node
    assert relay.take(run, report) == sent(2, 3)


def test_a_node_may_drop_what_was_acknowledged_and_what_no_agent_wants() -> None:
    run, nodes = active_run(), two_nodes()
    relay = MetricRelay(RunTable([run]), nodes, (A,))
    node = report_to(nodes, 1, reported(1, 3), replace(reported(1, 2), run=9))
    relay.take(run, reported(1, 3))
    relay.acknowledge(A, 1, 2)
    assert relay.acknowledged(node) == ((1, 2), (9, 2))


def test_a_node_that_has_more_points_is_answered_soon() -> None:
    run, nodes = active_run(), two_nodes()
    relay = MetricRelay(RunTable([run]), nodes, (A,))
    node = report_to(nodes, 1, reported(1, 2, more=True))
    relay.take(run, reported(1, 2, more=True))
    relay.acknowledge(A, 1, 2)
    assert node.due


def test_a_node_keeps_a_run_until_its_points_are_acknowledged() -> None:
    end, nodes = run_end(points_on="m0"), two_nodes()
    relay = MetricRelay(RunTable([end]), nodes, (A,))
    node = nodes.by_name["m0"]
    assert not relay.keeps(node, 1)
    relay.take(end, reported(1, 2, ENDED))
    assert relay.keeps(node, 1)
    assert not relay.keeps(nodes.by_name["m1"], 1)
    relay.acknowledge(A, 1, 2)
    assert not relay.keeps(node, 1)


def test_ended_run_may_have_points_unless_its_node_denies_it() -> None:
    run, nodes = active_run(), two_nodes()
    relay = MetricRelay(RunTable([run]), nodes, (A,))
    assert relay.node_with_points(run) == "m0"
    report_to(nodes, 1)
    assert relay.node_with_points(run) == ""
    assert relay.node_with_points(replace(run, dispatched=False)) == ""
