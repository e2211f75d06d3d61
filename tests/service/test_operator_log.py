"""What an operator finds in the service's log."""

import asyncio
import logging
from pathlib import Path

import pytest

from tests.support.http_service import http_service
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.model import AppId, GpuId, JobId, Machine, Topology
from themis.core.model.reasons import Reason
from themis.core.steward.commands import DurableChanges, Outcome
from themis.core.steward.rows import RunEnd
from themis.protocol.node_messages import RunState
from themis.service.operator_log import lines_of

TOPOLOGY = Topology((Machine("m0", "r0", (2,)), Machine("m1", "r0", (2, 2))))
GPU = GpuId(4)
"""The third of m1."""
APP = AppId("sweep")


def said(outcome: Outcome) -> list[tuple[str, str]]:
    lines = lines_of(outcome, TOPOLOGY)
    return [(logging.getLevelName(line.level), line.text) for line in lines]


@pytest.mark.parametrize(
    ("event", "level", "words"),
    [
        (ev.MachineJoined(1.0, TOPOLOGY.machines[1]), "INFO", "node m1 joined, with 4 GPUs"),
        (ev.MachineLeft(1.0, "m1"), "WARNING", "node m1 is silent"),
        (ev.MachineCordoned(1.0, "m1"), "INFO", "node m1 is cordoned"),
        (ev.MachineCordoned(1.0, "m1", drain=True), "INFO", "node m1 is drained"),
        (ev.MachineUncordoned(1.0, "m1"), "INFO", "node m1 is used again"),
        (ev.GpuQuarantined(1.0, GPU, "ECC"), "WARNING", "GPU 2 of m1 is quarantined: ECC"),
        (ev.GpuRestored(1.0, GPU), "INFO", "GPU 2 of m1 is out of quarantine"),
        (ev.AppSuspended(1.0, APP, Reason.HELD_BY_ADMIN), "INFO", "suspended: HELD_BY_ADMIN"),
    ],
)
def test_machine_and_app_events_are_logged(event: ev.Event, level: str, words: str) -> None:
    [(found, text)] = said(Outcome(DurableChanges((event,))))
    assert (found, words in text) == (level, True), text


def test_a_refused_event_is_logged_as_a_refusal_only() -> None:
    refusal = cmd.Refuse("m1", "a machine of this name has another shape")
    joined, left = ev.MachineJoined(1.0, TOPOLOGY.machines[1]), ev.MachineLeft(1.0, "m0")
    told = said(Outcome(DurableChanges((joined, left)), commands=(refusal,)))
    assert [text.partition(":")[0] for _, text in told] == ["node m0 is silent", "refused"]


def result(code: int | None, *, told: bool = False, message: str = "boom") -> RunEnd:
    state = RunState.LOST if code is None else RunState.EXITED
    return RunEnd(
        7, APP, JobId("0"), "k", state, code, 5.0, message, gpus=(GPU,), interrupted=told
    )  # fmt: skip


def test_failed_run_is_logged_exactly_when_it_ends() -> None:
    [(level, text)] = said(Outcome(DurableChanges(rows={"run/7": None, "result/7": result(3)})))
    assert (level, text) == ("WARNING", "run 7, job 0 of sweep on m1, failed: boom")
    assert said(Outcome(DurableChanges(rows={"result/7": result(3)}))) == [], (
        "its points were heard"
    )
    [(_, text)] = said(Outcome(DurableChanges(rows={"run/7": None, "result/7": result(None)})))
    assert "is lost: boom" in text
    for well in (result(0), result(75), result(1, told=True), result(None, told=True)):
        assert said(Outcome(DurableChanges(rows={"run/7": None, "result/7": well}))) == []


def test_text_from_outside_adds_no_lines_to_the_log() -> None:
    evil = result(3, message="x\nroot logged in\x1b[2J themis_0123456789ab_abcdefgh")
    [(_, text)] = said(Outcome(DurableChanges(rows={"run/7": None, "result/7": evil})))
    assert text.isprintable()
    assert "abcdefgh" not in text


def test_the_service_logs_what_people_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            await http.submit("ann", "sweep", "ann")
            await http.call("root", "POST", "/v1/nodes/m0/drain")
            await http.call("ann", "POST", "/v1/apps/sweep/cancel")

    with caplog.at_level(logging.INFO, logger="themis"):
        asyncio.run(work())
    for words in (
        "app sweep of ann is submitted: 2 jobs", "node m0 is drained",
        "app sweep of ann ended: cancelled",
    ):  # fmt: skip
        assert caplog.messages.count(words) == 1, caplog.messages
