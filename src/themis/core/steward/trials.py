"""What is kept of an app's trials: parameters, what became of each, and how its metric went.

An agent that begins anew is told all of it, and people see it as results. It outlasts the app.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from themis.core.model import AppId, JobId
from themis.protocol.agent_messages import Curve, Reached, TrialSaid
from themis.protocol.node_messages import Point

MOST_POINTS = 64
"""Points kept of a job's curve; of longer ones every second is left out."""
TOLD_POINTS = 4096
"""Points of all curves that an agent is told at once."""
WRITE_EVERY = 10.0
"""Seconds between writes of a curve that grows; its end is always written."""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """The parameters of a job, as JSON."""

    app: AppId
    job: JobId
    params: str
    number: int = 0
    """In the order of choosing: a study goes by it."""


@dataclass(frozen=True, slots=True)
class ReachedRow:
    """What an agent said of a job, numbered in the order it was said."""

    app: AppId
    number: int
    reached: Reached


@dataclass(frozen=True, slots=True)
class CurveRow:
    """How a job's metric went."""

    app: AppId
    job: JobId
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class BestRow:
    """Which job won."""

    app: AppId
    job: JobId


Row = TrialRow | ReachedRow | CurveRow | BestRow


def key_of(row: Row) -> str:
    """Under which key a row is stored."""
    match row:
        case TrialRow(app=app, job=job):
            return f"trial/{app}/{job}"
        case ReachedRow(app=app, number=number):
            return f"reached/{app}/{number}"
        case CurveRow(app=app, job=job):
            return f"curve/{app}/{job}"
        case BestRow(app=app):
            return f"best/{app}"


class Trials:
    """The rows by app; `write` and `drop` make them durable."""

    def __init__(
        self, rows: Iterator[Row], write: Callable[[Row], None], drop: Callable[[str], None]
    ) -> None:
        self._write = write
        self._drop = drop
        self._params: dict[AppId, dict[JobId, TrialRow]] = {}
        self._reached: dict[AppId, list[ReachedRow]] = {}
        self._said: dict[AppId, dict[JobId, list[Reached]]] = {}
        """The same by job."""
        self._curves: dict[AppId, dict[JobId, CurveRow]] = {}
        self._best: dict[AppId, BestRow] = {}
        self._written: dict[tuple[AppId, JobId], float] = {}
        for row in rows:
            self._index(row)
        for said in self._reached.values():
            said.sort(key=lambda row: row.number)

    def _index(self, row: Row) -> None:
        match row:
            case TrialRow():
                self._params.setdefault(row.app, {})[row.job] = row
            case ReachedRow():
                self._reached.setdefault(row.app, []).append(row)
                self._said.setdefault(row.app, {}).setdefault(row.reached.job, []).append(
                    row.reached
                )
            case CurveRow():
                self._curves.setdefault(row.app, {})[row.job] = row
            case BestRow():
                self._best[row.app] = row

    def _put(self, row: Row) -> None:
        self._index(row)
        self._write(row)

    def choose(self, app: AppId, job: JobId, params: str) -> None:
        """A job begins with these parameters; those it began with before stay."""
        if job not in self._params.get(app, {}):
            self._put(TrialRow(app, job, params, len(self._params.get(app, ())) + 1))

    def reach(self, app: AppId, reached: Reached, most: int) -> bool:
        """An agent says what became of a job; whether that is kept, of so many words at most."""
        said = self._said.get(app, {}).get(reached.job, ())
        # Said again by an agent that began anew and did not know that it was heard.
        if reached in said:
            return True
        if len(said) >= most:
            return False
        self._put(ReachedRow(app, len(self._reached.get(app, ())) + 1, reached))
        return True

    def win(self, app: AppId, job: JobId) -> None:
        """A job is the best of its app."""
        self._put(BestRow(app, job))

    def grow(
        self,
        app: AppId,
        job: JobId,
        metric: str,
        points: tuple[Point, ...],
        at: float,
        *,
        over: bool,
    ) -> None:
        """A run reported points. What must not be lost is written: the last before its end."""
        row = self._curves.get(app, {}).get(job) or CurveRow(app, job, ())
        known = list(row.points)
        for point in points:
            value = dict(point.values).get(metric)
            if value is None:
                continue
            while known and known[-1][0] >= point.iteration:
                known.pop()  # It lost work, and trains the same again.
            known.append((point.iteration, value))
        if len(known) > 2 * MOST_POINTS:
            known = [*known[:-1:2], known[-1]]
        if tuple(known) != row.points:
            row = replace(row, points=tuple(known))
            self._index(row)
        last = self._written.get((app, job))
        if row.points and (over or last is None or at - last >= WRITE_EVERY):
            self._written[app, job] = at
            self._write(row)

    def params(self, app: AppId) -> Mapping[JobId, str]:
        """Parameters that were chosen on the way, as JSON, by job, in the order of choosing."""
        rows = self._params.get(app, {}).values()
        return {row.job: row.params for row in sorted(rows, key=lambda row: row.number)}

    def reached(self, app: AppId) -> tuple[Reached, ...]:
        """What was said of the jobs of an app, the oldest first."""
        return tuple(row.reached for row in self._reached.get(app, ()))

    def best(self, app: AppId) -> JobId | None:
        """The job that won."""
        row = self._best.get(app)
        return None if row is None else row.job

    def curve(self, app: AppId, job: JobId) -> tuple[tuple[float, float], ...]:
        """How a job's metric went."""
        row = self._curves.get(app, {}).get(job)
        return () if row is None else row.points

    def told(
        self, app: AppId
    ) -> tuple[tuple[TrialSaid, ...], tuple[Reached, ...], tuple[Curve, ...]]:
        """What an agent is told that begins anew."""
        trials = tuple(TrialSaid(job, text) for job, text in self.params(app).items())
        failed = {reached.job for reached in self.reached(app) if reached.failed}
        curves = {job: row for job, row in self._curves.get(app, {}).items() if job not in failed}
        most = max(2, TOLD_POINTS // max(1, len(curves)))
        return (
            trials,
            self.reached(app),
            tuple(Curve(job, _thinned(row.points, most)) for job, row in sorted(curves.items())),
        )

    def forget(self, app: AppId) -> None:
        """Nothing of an app is wanted any more."""
        rows: list[Row] = [
            *self._params.pop(app, {}).values(),
            *self._reached.pop(app, []),
            *self._curves.pop(app, {}).values(),
        ]
        self._said.pop(app, None)
        best = self._best.pop(app, None)
        rows += [best] if best is not None else []
        for row in rows:
            self._drop(key_of(row))
        self._written = {key: at for key, at in self._written.items() if key[0] != app}


def _thinned(points: tuple[tuple[float, float], ...], most: int) -> tuple[tuple[float, float], ...]:
    while len(points) > most:
        points = (*points[:-1:2], points[-1])
        if len(points) <= 2:
            break
    return points
