"""What a trace holds once it is read: jobs, and an account of every row that gave none.

trace.rows == len(trace.jobs) + sum(trace.problem_counts.values()) + sum(trace.dropped.values())
"""

import gc
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

KEPT_PROBLEMS = 1000
"""This many problems are kept with their line; the others are only counted."""

MAX_GIVEN = 40


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without looking for garbage: rows hold no circles, and each look would be at millions."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class TraceJob(NamedTuple):
    """One job that ran: what it held for how long. Owner and app are as the trace spells them.

    A tuple, because there may be millions and a frozen dataclass takes five times as long to make.
    """

    line: int
    submit: float
    duration: float
    gpus: int
    owner: str
    app: str | None = None
    status: str = ""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be understood. `given` is what stood there, shortened."""

    line: int
    reason: str
    given: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.given!r}" if self.given else self.reason


class Dropped(StrEnum):
    """Why a row that was understood is not in the workload."""

    ZERO_DURATION = "zero duration"
    ZERO_GPUS = "no GPUs"
    NEVER_STARTED = "never started"
    STILL_RUNNING = "still running"
    JOB_STEP = "a step of a job"
    REQUEUED = "begun again later"
    OWNER = "owner dropped"
    WINDOW = "outside the window"
    LIMIT = "beyond the limit of apps"


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace as read, in the order of its lines.

    `origin` is where the trace's clock starts, in the units of `submit`: 0 where the trace counts
    seconds itself, the first submission where it has dates.
    """

    format: str
    rows: int
    jobs: tuple[TraceJob, ...]
    problems: tuple[BadRow, ...] = ()
    problem_counts: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    origin: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether every row was understood."""
        return not self.problem_counts


class BadRowError(Exception):
    """A row that cannot be understood. The reason holds no data, so that reasons can be counted."""

    def __init__(self, reason: str, given: object = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.given = shortened(given)


def shortened(value: object) -> str:
    """A text for messages."""
    try:
        text = value if isinstance(value, str) else json.dumps(value)
    except ValueError:  # integers of thousands of digits have no text
        return "an integer of thousands of digits"
    return text if len(text) <= MAX_GIVEN else text[:MAX_GIVEN] + "..."


@dataclass(slots=True)
class Tally:
    """Gathers what becomes of each row."""

    rows: int = 0
    jobs: list[TraceJob] = field(default_factory=list)
    problems: list[BadRow] = field(default_factory=list)
    problem_counts: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def take(self, result: TraceJob | Dropped) -> None:
        """A row that was understood."""
        self.rows += 1
        if isinstance(result, TraceJob):
            self.jobs.append(result)
        else:
            self.dropped[str(result)] += 1

    def refuse(self, line: int, error: BadRowError) -> None:
        """A row that was not."""
        self.rows += 1
        self.problem_counts[error.reason] += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(BadRow(line, error.reason, error.given))

    def trace(self, kind: str, *, dated: bool) -> Trace:
        """The result. With dates, its clock starts at the first submission."""
        first = min((job.submit for job in self.jobs), default=0.0) if dated else 0.0
        return Trace(
            format=kind,
            rows=self.rows,
            jobs=tuple(self.jobs),
            problems=tuple(self.problems),
            problem_counts=dict(sorted(self.problem_counts.items())),
            dropped=dict(sorted(self.dropped.items())),
            origin=first,
        )
