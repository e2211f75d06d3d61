"""The past of a service from its store, for the pages; works for a backup, and beside the service.

    open_stored_service("sqlite:///backup.sqlite")

The log is read from its first entry that was not pruned. Curves, parameters and winners of trials
are in rows beside it.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from themis.core.arbiter.events import AppArrived
from themis.core.model import Topology
from themis.core.steward.rows import BestRow, CurveRow, StewardRow, TrialRow
from themis.dashboard.finished_run import FinishedRun
from themis.dashboard.model import DataOrigin
from themis.dashboard.run_builder import RunBuilder
from themis.errors import CorruptLogError, RefusedError
from themis.recording.codec import loads
from themis.service.dashboard.live_model import drawable
from themis.service.persistence.log_entries import commands_in, events_in
from themis.service.persistence.recovery import steward_rows_in
from themis.service.persistence.round_history import arrivals
from themis.service.persistence.start_parameters import StartParameters, parameters_of
from themis.service.persistence.store import open_store


def open_stored_service(url: str) -> FinishedRun:
    """The run in a store, which is only read; a service may be using it.

    Raises:
        StoreError: The store cannot be used.
        CorruptLogError: An entry cannot be read.
    """
    with open_store(url, read_only=True) as store:
        saved = store.load()
        known = parameters_of(saved.kept, store.url)
        terms = list(known.values())[-1] if known else StartParameters("")
        builder = RunBuilder(Topology(()), terms.settings.convention)
        for stored in store.entries():
            try:
                body = loads(stored.entry.body)
                events, commands = events_in(body), commands_in(body)
                taken = {arrival.app for arrival in arrivals(events, commands)}
                for event in events:
                    if not isinstance(event, AppArrived) or event.app.id in taken:
                        builder.event(event)
                for command in commands:
                    builder.command(command, Path(), stored.number)
            except (RefusedError, KeyError, TypeError) as error:
                raise CorruptLogError(store.url, stored.number, str(error)) from None
        rows = steward_rows_in(saved, store.url)
        name = store.url
    title = name.rpartition("/")[2] or name
    origin = DataOrigin("log", title, terms.policy, builder.topology.name, terms.settings.lease)
    return _with_trials(builder.build(origin), rows)


def _with_trials(run: FinishedRun, rows: Mapping[str, StewardRow]) -> FinishedRun:
    """The run with curves, parameters and winners of its trials."""
    curves: dict[tuple[str, str], CurveRow] = {}
    params: dict[tuple[str, str], TrialRow] = {}
    best: dict[str, str] = {}
    for row in rows.values():
        if isinstance(row, CurveRow):
            curves[row.app, row.job] = row
        elif isinstance(row, TrialRow):
            params[row.app, row.job] = row
        elif isinstance(row, BestRow):
            best[row.app] = row.job
    for name, app in run.apps.found.items():
        jobs = []
        for job in app.jobs or ():
            curve, trial = curves.get((name, job.job)), params.get((name, job.job))
            points = drawable(curve.points) if curve is not None else ()
            jobs.append(
                replace(
                    job,
                    curve=points,
                    metric=points[-1][1] if points else None,
                    params=_chosen(trial),
                    best=best.get(name) == job.job,
                )
            )
        run.apps.add(name, jobs=tuple(jobs) or app.jobs)
    return run


def _chosen(trial: TrialRow | None) -> dict[str, object]:
    if trial is not None:
        with suppress(ValueError):
            found = json.loads(trial.params)
            return found if isinstance(found, dict) else {}
    return {}
