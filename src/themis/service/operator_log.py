"""The service's log: machines, GPUs, apps, failed jobs, rounds, refusals.

    OperatorLog(steward).take(event, outcome)

One line for each thing that an operator may look for later. Text from jobs and agents is made
harmless first: none of them can write lines of their own into the log.
"""

import logging
from collections.abc import Iterator
from typing import NamedTuple

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.model import GpuId, Topology
from themis.core.steward.commands import Outcome
from themis.core.steward.events import StewardEvent
from themis.core.steward.rows import RunEnd
from themis.core.steward.steward import Steward
from themis.protocol.node_messages import RunState
from themis.security.redaction import clean

_LOG = logging.getLogger(__name__)


class LogLine(NamedTuple):
    """A line of the log."""

    level: int
    text: str


class OperatorLog:
    """Writes the lines of each outcome."""

    def __init__(self, steward: Steward) -> None:
        self._steward = steward

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Write the lines of an outcome."""
        for line in lines_of(outcome, self._steward.arbiter.world.topology):
            _LOG.log(line.level, "%s", line.text)


def lines_of(outcome: Outcome, topology: Topology) -> Iterator[LogLine]:
    """The lines of an outcome, with the cluster after it."""
    refused = {command.who for command in outcome.commands if isinstance(command, cmd.Refuse)}
    for event in outcome.changes.events:
        if not (refused and _subject(event) in refused):
            yield from _of_event(event, topology)
    rows = outcome.changes.rows or {}
    for row in rows.values():
        # The row of its end is written again when its points were acknowledged; one line is enough.
        if isinstance(row, RunEnd) and f"run/{row.run}" in rows:
            yield from _of_run(row, topology)
    for command in outcome.commands:
        yield from _of_command(command)


def _subject(event: ev.Event) -> str | None:
    """The name that a refusal of an event has."""
    match event:
        case ev.MachineJoined(machine=machine):
            return machine.name
        case ev.AppArrived(app=app):
            return app.id
        case ev.AppSuspended(app=name) | ev.AppResumed(app=name):
            return name
        case _:
            return None


def _of_event(event: ev.Event, topology: Topology) -> Iterator[LogLine]:
    match event:
        case ev.MachineJoined(machine=machine):
            gpus = "1 GPU" if machine.gpus == 1 else f"{machine.gpus} GPUs"
            yield _info(f"node {machine.name} joined, with {gpus} in rack {machine.rack}")
        case ev.MachineLeft(machine=name):
            yield _warning(
                f"node {name} is silent: its leases have ended; it is unused until it reports"
            )
        case ev.MachineCordoned(machine=name, drain=drain):
            yield _info(f"node {name} is {'drained' if drain else 'cordoned'}")
        case ev.MachineUncordoned(machine=name):
            yield _info(f"node {name} is used again")
        case ev.GpuQuarantined(gpu=gpu, reason=reason):
            yield _warning(f"{_gpu(gpu, topology)} is quarantined: {reason}")
        case ev.GpuRestored(gpu=gpu):
            yield _info(f"{_gpu(gpu, topology)} is out of quarantine")
        case ev.AppArrived(app=app):
            jobs = "1 job" if len(app.jobs) == 1 else f"{len(app.jobs)} jobs"
            yield _info(f"app {app.id} of {app.owner} is submitted: {jobs}")
        case ev.AppSuspended(app=app_id, reason=why):
            yield _info(f"app {app_id} is suspended: {why}")
        case ev.AppResumed(app=app_id, reason=why):
            yield _info(f"app {app_id} is resumed: {why}")
        case _:
            return


def _of_run(row: RunEnd, topology: Topology) -> Iterator[LogLine]:
    where = f" on {_machine(row.gpus[0], topology)}" if row.gpus else ""
    name = f"run {row.run}, job {row.job} of {row.app}{where}"
    if row.failed:
        yield _warning(f"{name}, failed: {row.message or f'exited with {row.code}'}")
    elif row.state is RunState.LOST and not row.interrupted:
        yield _warning(f"{name}, is lost: {row.message or 'its node does not know it any more'}")


def _of_command(command: object) -> Iterator[LogLine]:
    match command:
        case cmd.Refuse():
            yield LogLine(logging.INFO, f"refused: {clean(command.who)}: {clean(command.reason)}")
        case cmd.RecordApp(record=record):
            say = _warning if record.outcome.startswith("failed") else _info
            yield say(f"app {record.app} of {record.owner} ended: {record.outcome}")
        case cmd.RecordRound(record=record) if record.failed:
            yield _warning(f"round {record.round} failed, leases go on: {record.failed}")
        case cmd.RecordRound(record=record):
            given = record.offered - len(record.idle)
            told = f"{given} of {record.offered} GPUs for {len(record.apps)} apps"
            yield LogLine(logging.DEBUG, f"round {record.round} ended ({record.trigger}): {told}")
        case _:
            return


def _machine(gpu: GpuId, topology: Topology) -> str:
    return topology.machines[topology.seats[gpu].machine].name


def _gpu(gpu: GpuId, topology: Topology) -> str:
    number = topology.seats[gpu].machine
    index = topology.gpus_of[number].index(gpu)
    return f"GPU {index} of {topology.machines[number].name}"


def _info(text: str) -> LogLine:
    return LogLine(logging.INFO, clean(text))


def _warning(text: str) -> LogLine:
    return LogLine(logging.WARNING, clean(text))
