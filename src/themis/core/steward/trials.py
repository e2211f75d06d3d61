"""The trials of apps: their parameters, what became of each, and how its metric went.

An agent that begins anew is told all of it, and people see it as results. It outlasts the app.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from themis.core.model import AppId, JobId
from themis.core.steward.rows import (
    BestRow,
    CurveRow,
    ReachedRow,
    RowChanges,
    TrialRow,
    TrialsRow,
    deleted,
    stored,
)
from themis.protocol.agent_messages import Curve, Reached, TrialParams
from themis.protocol.node_messages import Point

MOST_POINTS = 64
"""Points kept of a job's curve; of a longer one every second is dropped."""
TOLD_POINTS = 4096
"""Points of all curves that an agent is sent at once."""
WRITE_EVERY = 10.0
"""Seconds between writes of a curve that grows; its end is always written."""
_WORDS_IN_A_PHASE = 8
"""Reports of one job that are kept: one for each phase, and some for agents that began anew."""

CurvePoints = tuple[tuple[float, float], ...]


class Trials:
    """The trials of all apps."""

    def __init__(self, rows: Iterable[TrialsRow] = ()) -> None:
        self._params: dict[AppId, dict[JobId, TrialRow]] = {}
        self._reached: dict[AppId, list[ReachedRow]] = {}
        self._curves: dict[AppId, dict[JobId, CurveRow]] = {}
        self._best: dict[AppId, BestRow] = {}
        self._written: dict[tuple[AppId, JobId], float] = {}
        """When each curve was last written."""
        for row in rows:
            self._put(row)
        for reports in self._reached.values():
            reports.sort(key=lambda row: row.number)

    def _put(self, row: TrialsRow) -> RowChanges:
        match row:
            case TrialRow():
                self._params.setdefault(row.app, {})[row.job] = row
            case ReachedRow():
                self._reached.setdefault(row.app, []).append(row)
            case CurveRow():
                self._curves.setdefault(row.app, {})[row.job] = row
            case BestRow():
                self._best[row.app] = row
        return stored(row)

    def add_params(self, app: AppId, job: JobId, params: str) -> RowChanges:
        """A job begins with these parameters; those that it began with before stay."""
        known = self._params.get(app, {})
        return {} if job in known else self._put(TrialRow(app, job, params, len(known) + 1))

    def add_reached(self, app: AppId, reached: Reached, phases: int) -> RowChanges | None:
        """An agent reports what became of a job; None if it has reported too much of that job."""
        known = self._reached.get(app, ())
        of_job = [row.reached for row in known if row.reached.job == reached.job]
        if reached in of_job:
            return {}  # Repeated by an agent that began anew.
        if len(of_job) >= _WORDS_IN_A_PHASE * phases:
            return None
        return self._put(ReachedRow(app, len(known) + 1, reached))

    def set_best(self, app: AppId, job: JobId) -> RowChanges:
        """A job is the best of its app."""
        return self._put(BestRow(app, job))

    def add_points(
        self,
        app: AppId,
        job: JobId,
        metric: str,
        points: Iterable[Point],
        at: float,
        *,
        ended: bool,
    ) -> RowChanges:
        """A run reported points. The curve is written now and then, and when the run has ended."""
        row = self._curves.get(app, {}).get(job) or CurveRow(app, job, ())
        known = list(row.points)
        for point in points:
            value = dict(point.values).get(metric)
            if value is None:
                continue
            while known and known[-1][0] >= point.iteration:
                known.pop()  # The job lost work, and trains the same iterations again.
            known.append((point.iteration, value))
        if len(known) > 2 * MOST_POINTS:
            known = [*known[:-1:2], known[-1]]
        if tuple(known) != row.points:
            row = replace(row, points=tuple(known))
            self._put(row)
        last = self._written.get((app, job))
        if row.points and (ended or last is None or at - last >= WRITE_EVERY):
            self._written[app, job] = at
            return stored(row)
        return {}

    # What is known

    def params(self, app: AppId) -> Mapping[JobId, str]:
        """Parameters as JSON, by job, in the order in which the tuner chose them."""
        rows = self._params.get(app, {}).values()
        return {row.job: row.params for row in sorted(rows, key=lambda row: row.number)}

    def reached(self, app: AppId) -> tuple[Reached, ...]:
        """What agents reported of the jobs of an app, the oldest first."""
        return tuple(row.reached for row in self._reached.get(app, ()))

    def gave_up(self, app: AppId, job: JobId) -> bool:
        """Whether an agent has given a job up."""
        return any(reached.job == job and reached.failed for reached in self.reached(app))

    def best(self, app: AppId) -> JobId | None:
        """The job that won."""
        row = self._best.get(app)
        return None if row is None else row.job

    def curve(self, app: AppId, job: JobId) -> CurvePoints:
        """The metric of a job over its iterations."""
        row = self._curves.get(app, {}).get(job)
        return () if row is None else row.points

    def for_agent(
        self, app: AppId
    ) -> tuple[tuple[TrialParams, ...], tuple[Reached, ...], tuple[Curve, ...]]:
        """What an agent that begins anew is told."""
        trials = tuple(TrialParams(job, text) for job, text in self.params(app).items())
        reached = self.reached(app)
        failed = {each.job for each in reached if each.failed}
        curves = {job: row for job, row in self._curves.get(app, {}).items() if job not in failed}
        most = max(2, TOLD_POINTS // max(1, len(curves)))
        thinned = tuple(
            Curve(job, _thinned(row.points, most)) for job, row in sorted(curves.items())
        )
        return trials, reached, thinned

    def forget(self, app: AppId) -> RowChanges:
        """Drop the trials of an app that has expired, or whose name is used again."""
        rows: list[TrialsRow] = [
            *self._params.pop(app, {}).values(),
            *self._reached.pop(app, []),
            *self._curves.pop(app, {}).values(),
        ]
        best = self._best.pop(app, None)
        rows += [best] if best is not None else []
        self._written = {key: at for key, at in self._written.items() if key[0] != app}
        return deleted(*rows)


def _thinned(points: CurvePoints, most: int) -> CurvePoints:
    while len(points) > most:
        points = (*points[:-1:2], points[-1])
        if len(points) <= 2:
            break
    return points
