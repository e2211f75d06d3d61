"""Runs of a node, and the tasks that the engine gets for them."""

import asyncio
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from themis.engines import base
from themis.engines.base import Engine
from themis.engines.task import SourceSpec, Task
from themis.node.core import events as ev
from themis.node.disk import NodeRunRecord
from themis.node.metric_progress import MetricProgress
from themis.protocol.node_messages import LogWanted, MetricsSource, RunOrder

RESUMABLE_CODE = 75
"""The exit code of a run that may go on, also if Themis killed it."""
NO_PROGRAM_CODE = 78
"""The exit code of a run whose program is invalid (EX_CONFIG of sysexits.h)."""
MOST_MESSAGE = 600
MOST_TAIL = 4096
"""Bytes of the log that are reported with the end of a run."""
FAR = 1 << 60
"""An offset behind the end of every log."""
_PORTS = (20000, 10000)
"""Ports where parts of jobs on several machines meet: the first one, and how many."""

_NO_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([\w.]{1,60})'", re.MULTILINE)
_NO_PROGRAM = 127
"""The exit code of a run whose program was not found."""

EventAt = Callable[[float], ev.NodeEvent]
"""Makes an event with the time at which the core takes it."""
Put = Callable[[EventAt], None]


@dataclass(slots=True)
class RunHandle:
    """The state of a run outside of the core."""

    order: RunOrder
    early: float
    """Seconds before its end when it is asked to save, as written down."""
    lease_end: float
    began: float = math.nan
    """When its program began; NaN while that is unknown."""
    iterations: float = 0.0
    overran: bool = False
    over: bool = False
    measuring: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while its samples are read: each sample is read once."""
    progress: MetricProgress = field(default_factory=MetricProgress)
    noted: float = -math.inf
    """When the acknowledged points were last written down."""

    @property
    def record(self) -> NodeRunRecord:
        """Its record for the disk."""
        return NodeRunRecord(self.order, self.lease_end, self.early, *self.progress.mark)


class Runs:
    """All runs of a node, by number and by the engine's name of the job."""

    def __init__(self) -> None:
        self.by_number: dict[int, RunHandle] = {}
        self.by_job: dict[str, int] = {}
        """The last run of each job."""
        self.orphans: dict[str, tuple[int, ...]] = {}
        """Jobs without a record that the engine found, and their GPUs."""

    def add(self, run: RunHandle) -> RunHandle:
        """Add a run as the last one of its job."""
        self.by_number[run.order.run] = run
        self.by_job[job_name(run.order)] = run.order.run
        return run

    def of_job(self, job: str) -> RunHandle | None:
        """The last run of a job, by the engine's name for it."""
        number = self.by_job.get(job)
        return self.by_number.get(number) if number is not None else None

    def is_last(self, run: RunHandle) -> bool:
        """Whether the engine's latest start of its job is this run."""
        return self.by_job.get(job_name(run.order)) == run.order.run


def task_for(order: RunOrder, limits: ev.RunLimits) -> Task:
    """The task of a run, for the engine."""
    first, count = _PORTS
    several = order.world > 1
    return Task(
        job=job_name(order),
        owner=order.owner,
        token=order.token,
        gpus=order.gpus,
        argv=order.program.argv,
        end=limits.until,
        grace=max(0.0, limits.until - limits.checkpoint_at),
        env=dict(order.program.env),
        workdir=order.program.workdir,
        max_iterations=math.floor(order.limit) if order.limit > 0.0 else None,
        rank=order.rank,
        world=order.world,
        rendezvous=f"{order.rendezvous}:{first + order.run % count}" if several else "",
        tokens=order.tokens,
        source=source_of(order.program.metrics),
        tag=tag_of(order),
        place="/".join(filter(None, (order.app, order.born, order.job))),
        number=order.run,
    )


def source_of(metrics: MetricsSource) -> SourceSpec:
    """The source that the engine reads a job's samples from."""
    return SourceSpec(metrics.name, metrics.kind, metrics.path, metrics.pattern)


def job_name(order: RunOrder) -> str:
    """The engine's name of a job: the same in all its runs, so that checkpoints are found."""
    return f"{order.app}/{order.job}"


def tag_of(wanted: RunOrder | LogWanted) -> str:
    """The tag by which the engine finds the log of a run.

    The number alone is not enough: another run of an earlier cluster may have had it.
    """
    return f"{wanted.run} {wanted.owner} {wanted.app}/{wanted.job}"


async def last_output(engine: Engine, order: RunOrder) -> tuple[str, int]:
    """The last lines of a run's output, and the size of all of it."""
    tail = await engine.tail(job_name(order), MOST_TAIL)
    piece = await engine.output(tag_of(order), FAR, 1)
    return tail[-MOST_TAIL:], piece.size if piece is not None else 0


def advice(event: base.ProgramExited, tail: str) -> str:
    """Advice for a run that failed because its machine lacks a program or a module."""
    if event.outcome != "failed":
        return ""
    missing = _NO_MODULE.findall(tail)
    if missing:
        return (
            f"; its Python has no module {missing[-1]}: name one that has it in `command`, or its "
            "folder in `env: {PATH: ...}` (guide on jobs, Which Python)"
        )
    if event.code == _NO_PROGRAM and event.reason.startswith("program "):
        return (
            "; jobs look in /usr/local/bin, /usr/bin and /bin: give its whole path in `command`, "
            "or `env: {PATH: ...}` (guide on jobs, Which Python)"
        )
    return ""


def code_of(event: base.ProgramExited) -> int | None:
    """The exit code that the service acts on; None if it is unknown."""
    if event.outcome == "resumable":
        return RESUMABLE_CODE
    return event.code if event.outcome in {"finished", "failed"} else None
