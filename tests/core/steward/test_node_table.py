"""The table of nodes alone: what reports prove, and when nodes are answered or given up."""

from dataclasses import replace

import pytest

from tests.support.steward_values import (
    EPOCH,
    GUARD,
    HEARTBEAT,
    J0,
    TOPOLOGY,
    TTL,
    A,
    report_to,
    two_nodes,
)
from themis.core.arbiter import events as ev
from themis.core.model import GpuId
from themis.core.steward.node_table import NodeTable, check_ttl
from themis.core.steward.rows import LongestTtl
from themis.errors import ConfigError
from themis.protocol.node_messages import RunReport, RunState, SlotReport, SlotState

BUSY, BROKEN = SlotState.RUNNING, SlotState.QUARANTINED


def test_slots_count_as_empty_only_by_a_report_of_this_epoch() -> None:
    nodes = two_nodes()
    assert nodes.empty(report_to(nodes, 1, epoch=EPOCH - 1)) == []
    node = report_to(nodes, 2, slots=(BUSY, SlotState.EMPTY))
    assert nodes.empty(node) == [GpuId(1)]
    nodes.answered(node)
    assert nodes.empty(node) == []


@pytest.mark.parametrize(
    ("boot", "number", "newer"), [(1, 5, False), (1, 6, True), (2, 1, True), (0, 9, False)]
)
def test_a_report_is_newer_by_boot_and_then_by_number(boot: int, number: int, newer: bool) -> None:
    nodes = two_nodes()
    node = report_to(nodes, 5)
    assert node.last is not None
    report = replace(node.last, boot=boot, number=number)
    assert nodes.is_newer(node, report) is newer


def test_report_is_answered_on_new_orders_or_after_a_heartbeat() -> None:
    nodes = two_nodes()
    node = report_to(nodes, 1, at=5.0)
    assert list(nodes.take_answerable()) == []
    assert nodes.next_time == 5.0 + HEARTBEAT
    nodes.end_holds(5.0 + HEARTBEAT)
    assert list(nodes.take_answerable()) == [node]
    nodes.answered(node)
    report_to(nodes, 2, at=7.0)
    nodes.touch(GpuId(1))
    assert nodes.take_touched() == [node]
    assert list(nodes.take_answerable()) == [node]


def test_reports_that_overtake_each_other_are_held_for_one_heartbeat_in_all() -> None:
    nodes = two_nodes()
    report_to(nodes, 1, at=5.0)
    report_to(nodes, 2, at=5.4)
    node = report_to(nodes, 3, at=5.9)
    nodes.end_holds(6.0)
    assert list(nodes.take_answerable()) == [node]


def test_silent_node_is_lost_after_its_ttl_and_guard() -> None:
    nodes = two_nodes()
    node = report_to(nodes, 1, at=10.0)
    other = nodes.by_name["m1"]
    assert list(nodes.silent(TTL + GUARD, GUARD)) == [other]
    nodes.give_up(other)
    assert list(nodes.silent(9.9 + TTL + GUARD, GUARD)) == []
    assert list(nodes.silent(10.0 + TTL + GUARD, GUARD)) == [node]


def test_silence_during_a_service_outage_loses_no_node() -> None:
    nodes = two_nodes()
    nodes.excuse_silence(30.0)
    assert list(nodes.silent(29.0 + TTL + GUARD, GUARD)) == []


def test_nodes_keep_the_ttl_granted_by_an_earlier_service() -> None:
    nodes = NodeTable([LongestTtl(60.0)], epoch=EPOCH, node_ttl=TTL)
    assert nodes.changes_at_start == {}
    node = nodes.add("m0", 0.0)
    nodes.join(node, TOPOLOGY, GUARD)
    assert nodes.silent_at(node, GUARD) == 60.0 + GUARD
    assert node.last is None
    report = replace(report_to(two_nodes(), 1), name="m0").last
    assert report is not None
    assert nodes.take(node, report, 5.0, HEARTBEAT) == {"ttl": LongestTtl(TTL)}
    assert nodes.silent_at(node, GUARD) == 5.0 + TTL + GUARD


def test_longer_ttl_is_stored_before_any_node_receives_it() -> None:
    nodes = NodeTable([LongestTtl(5.0)], epoch=EPOCH, node_ttl=TTL)
    assert nodes.changes_at_start == {"ttl": LongestTtl(TTL)}


def test_quarantine_follows_node_reports_and_not_operator_requests() -> None:
    nodes = two_nodes()
    node = report_to(nodes, 1, slots=(BROKEN, SlotState.EMPTY))
    assert node.held is not None
    reasons = {GpuId(0): None, GpuId(1): "node: hot"}
    assert list(nodes.quarantine_changes(node, reasons.get, 2.0)) == [
        ev.GpuQuarantined(2.0, GpuId(0), "node: "),
        ev.GpuRestored(2.0, GpuId(1)),
    ]
    reasons = {GpuId(0): "node: hot", GpuId(1): "an operator tests it"}
    assert list(nodes.quarantine_changes(node, reasons.get, 2.0)) == []


def test_absent_machine_rejoins_only_idle_and_with_its_known_shape() -> None:
    nodes = two_nodes()
    alive = RunReport(1, A, J0, RunState.RUNNING)
    node = report_to(nodes, 1, alive)
    nodes.give_up(node)
    assert not nodes.may_join(report_to(nodes, 2, alive), TOPOLOGY)
    assert not nodes.may_join(report_to(nodes, 3, slots=(BUSY, BUSY)), TOPOLOGY)
    assert nodes.may_join(report_to(nodes, 4, slots=(SlotState.EMPTY, BROKEN)), TOPOLOGY)
    node.machine = replace(TOPOLOGY.machines[0], rack="r9")
    assert not nodes.may_join(report_to(nodes, 5), TOPOLOGY), "its operator must rename it"


def test_a_node_may_forget_runs_of_its_held_report() -> None:
    nodes = two_nodes()
    nodes.let_forget(nodes.by_name["m0"], 7)
    node = report_to(nodes, 1)
    nodes.let_forget(node, 1)
    assert node.forget == (1,), "the node had not reported before"
    assert list(nodes.take_answerable()) == [node]


def test_slots_match_gpus_by_their_number_on_the_machine() -> None:
    nodes = two_nodes()
    node = report_to(nodes, 1, slots=(BUSY, SlotState.EMPTY), name="m1")
    assert node.held is not None
    assert node.held.slots[1] == SlotReport(1, 0, SlotState.EMPTY)
    assert nodes.empty(node) == [GpuId(3)]
    assert nodes.names_of([GpuId(3), GpuId(0), GpuId(2)]) == ["m1", "m0"]


def test_a_ttl_of_few_heartbeats_is_refused() -> None:
    with pytest.raises(ConfigError, match="5 heartbeats"):
        check_ttl(4.0, 1.0)
