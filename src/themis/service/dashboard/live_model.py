"""The live service as the pages show it: the model of `themis.dashboard`, redacted for its viewer.

    model = LiveModel(service, wall)
    model.board(identity), await model.timeline(identity), model.change(identity, seen)

Rows are made once for all viewers, at most once a second; what a viewer may not see is then left
out, once for all viewers who see the same.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.offer import Fairness, fairness_of
from themis.core.explain import explain
from themis.core.model import AppId
from themis.core.model.reasons import Reason
from themis.core.steward.node_table import NodeEntry
from themis.core.steward.rows import ActiveRun
from themis.dashboard.arbiter_rows import app_row, gpu_row, phase_rows, rounded
from themis.dashboard.model import (
    MOST_LEASES,
    SHORT,
    AppPage,
    AppRow,
    Board,
    DataOrigin,
    JobRow,
    LeaseSegment,
    MachineRow,
    Point,
    RoundList,
    Timeline,
    ViewerInfo,
    finite,
)
from themis.dashboard.round_view import line_of
from themis.errors import RefusedError
from themis.security.permissions import Verb
from themis.security.tokens import Identity
from themis.service.dashboard.gpu_timeline import GpuTimeline
from themis.service.dashboard.page_history import OwnedSegment
from themis.service.explanations import facts_of, facts_of_ended
from themis.service.http import serializers
from themis.service.retained_rows import EndedApp
from themis.service.run_diagnostics import reason_of, runs_by_app, trouble_of
from themis.service.service import Service
from themis.service.viewer import Viewer, viewer_of

FRESH = 1.0
"""How long rows stay valid, in seconds; half as long once something has changed."""
_SPARING = 20.0
"""Rows that take long to make stay valid for this many times as long."""


@dataclass(frozen=True, slots=True)
class VisibleRows:
    """What one viewer sees of the rows, until they are made anew."""

    named: dict[str, AppRow] = field(default_factory=dict)
    others: tuple[AppRow, ...] = ()
    machines: tuple[MachineRow, ...] = ()


@dataclass(slots=True)
class StreamState:
    """What one stream has sent already."""

    closed: int
    open: tuple[OwnedSegment, ...] = ()
    visible: VisibleRows = field(default_factory=VisibleRows)


@dataclass(frozen=True, slots=True)
class PageChange:
    """What is new since the last change; None and empty where nothing is."""

    now: float
    wall: float
    gpus: dict[str, int]
    last_round: int | None
    rows: tuple[AppRow, ...]
    """New or changed, of apps that the viewer sees by name."""
    gone: tuple[str, ...]
    others: tuple[AppRow, ...] | None
    machines: tuple[MachineRow, ...] | None
    timeline: Timeline | None


class LiveModel:
    """Makes what pages show from the state of a service."""

    def __init__(self, service: Service, wall: Callable[[], float]) -> None:
        self._service = service
        self._wall = wall
        self._rows: tuple[AppRow, ...] = ()
        self._machines: tuple[MachineRow, ...] = ()
        self._gpus: dict[str, int] = {}
        self._visible_rows: dict[Viewer, VisibleRows] = {}
        self._gpu_timeline = GpuTimeline(service)
        self._at = float("-inf")
        self._of = -1
        self._fresh = FRESH

    # Pages

    def board(self, identity: Identity | None) -> Board:
        """The state of everything."""
        self._refresh()
        service, settings = self._service, self._service.steward.arbiter.settings
        viewer = viewer_of(identity, Verb.DASHBOARD)
        visible = self._visible(viewer)
        oldest = service.past.oldest
        topology = service.steward.arbiter.world.topology
        return Board(
            origin=DataOrigin(
                "live", topology.name, service.parameters.policy, topology.name, settings.lease
            ),
            viewer=ViewerInfo(
                str(identity.role) if identity else "",
                identity.subject if identity else "",
                viewer.sealed,
            ),
            now=service.now(),
            wall=self._wall(),
            begin=service.now() if oldest is None else oldest.held.start,
            gpus=self._gpus,
            apps=(*visible.named.values(), *visible.others),
            machines=visible.machines,
            last_round=self._last_round(),
        )

    async def timeline(self, identity: Identity | None) -> bytes:
        """Which app holds and held which GPU, as JSON: there may be megabytes of it."""
        return await self._gpu_timeline.as_json(viewer_of(identity, Verb.DASHBOARD))

    def rounds(self, before: int, limit: int) -> RoundList:
        """A page of rounds: only numbers that every viewer may see."""
        book = self._service.rounds
        numbers = [number for number in book.numbers() if not before or number < before]
        page = [line_of(book.round(number)[0]) for number in numbers[-limit:]]
        return RoundList(tuple(page), page[0].round if len(page) < len(numbers) else None)

    def app(self, name: AppId) -> AppPage:
        """One app in full. The caller has checked that the viewer may see it."""
        self._refresh()
        service = self._service
        state = service.steward.arbiter.world.apps.get(name)
        history = service.past.histories.of(name)
        ended = service.ended.find(name)
        row = self._row_now(name, state, ended)
        leases = tuple(self._leases(name))
        if row.gpu_seconds is None:
            row = replace(row, gpu_seconds=sum(item.end - item.start for item in leases))
        jobs, metric = self._jobs(name, state, ended)
        reasons = history.reasons
        if row.reason and (not reasons or reasons[-1][1] != row.reason):
            reasons = (*reasons, (row.ended or service.now(), row.reason))
        return AppPage(
            row=row,
            now=service.now(),
            weight=state.weight if state is not None else None,
            outcome=ended.outcome if ended is not None and state is None else "",
            metric=metric,
            phases=phase_rows(state) if state is not None else (),
            jobs=jobs,
            leases=leases,
            reasons=reasons,
            history=history.rho,
            held=history.held,
            explanation=self._explained(name, state, ended),
        )

    def _explained(
        self, name: AppId, state: AppState | None, ended: EndedApp | None
    ) -> tuple[str, ...]:
        service, now = self._service, self._service.now()
        if state is not None:
            seen = service.agents.heard_at().get(name)
            return explain(facts_of(service.steward, service.rounds, name, now, seen)).lines
        return () if ended is None else explain(facts_of_ended(name, ended, now)).lines

    def change(self, identity: Identity | None, seen: StreamState) -> PageChange:
        """What is new for a stream; notes in `seen` that it was sent."""
        self._refresh()
        service, viewer = self._service, viewer_of(identity, Verb.DASHBOARD)
        visible, before, present = self._visible(viewer), seen.visible, self._gpu_timeline.open()
        moved = service.past.closed != seen.closed or present != seen.open
        # Mostly these are the same rows, and nothing has to be compared.
        same = visible is before
        change = PageChange(
            now=service.now(),
            wall=self._wall(),
            gpus=self._gpus,
            last_round=self._last_round(),
            rows=() if same else tuple(
                row for name, row in visible.named.items() if before.named.get(name) != row
            ),
            gone=() if same else tuple(name for name in before.named if name not in visible.named),
            others=None if same or visible.others == before.others else visible.others,
            machines=None if same or visible.machines == before.machines else visible.machines,
            timeline=self._gpu_timeline.since(viewer, seen.closed) if moved else None,
        )  # fmt: skip
        seen.closed, seen.open, seen.visible = service.past.closed, present, visible
        return change

    def _last_round(self) -> int | None:
        numbers = self._service.rounds.numbers()
        return numbers[-1] if numbers else None

    def _visible(self, viewer: Viewer) -> VisibleRows:
        visible = self._visible_rows.get(viewer)
        if visible is None:
            mine, others = viewer.app_rows(self._rows)
            machines = viewer.machines(self._machines, self._service.owner_of)
            visible = self._visible_rows[viewer] = VisibleRows(
                {row.app: row for row in mine}, others, machines
            )
        return visible

    @property
    def behind(self) -> bool:
        """Whether something has changed since the rows were made."""
        return self._service.past.changed != self._of

    # Rows, before they are redacted

    def _refresh(self) -> None:
        now, past = self._service.now(), self._service.past
        if past.changed == self._of and now - self._at < self._fresh:
            return
        if now - self._at < self._fresh / 2:
            return
        began = perf_counter()
        self._at, self._of = now, past.changed
        steward = self._service.steward
        standings, runs = fairness_of(steward.arbiter.world, now), runs_by_app(steward)
        rows = [
            self._row(state, standings.get(name), runs.get(name, ()), now)
            for name, state in sorted(steward.arbiter.world.apps.items())
        ]
        active = {row.app for row in rows}
        rows += [self._ended_row(name, ended) for name, ended in past.ended() if name not in active]
        self._rows = tuple(rows)
        self._machines = tuple(
            self._machine(node)
            for name, node in sorted(steward.nodes.items())
            if name not in self._service.retired
        )
        self._gpus = serializers.gpu_counts(steward, self._service.retired)
        self._visible_rows.clear()
        self._fresh = max(FRESH, _SPARING * (perf_counter() - began))

    def _row_now(self, name: AppId, state: AppState | None, ended: EndedApp | None) -> AppRow:
        """The row for the page of an app.

        The rows may be a little older than the app, or have another app of this name.
        """
        if state is None:
            assert ended is not None, "the caller has looked"
            return self._ended_row(name, ended)
        this = (name, state.spec.owner, state.submitted, None)
        for row in self._rows:
            if (row.app, row.owner, row.submitted, row.ended) == this:
                return row
        now, steward = self._service.now(), self._service.steward
        standings, runs = fairness_of(steward.arbiter.world, now), runs_by_app(steward)
        return self._row(state, standings.get(name), runs.get(name, ()), now)

    def _row(
        self,
        state: AppState,
        fairness: Fairness | None,
        runs: Sequence[ActiveRun],
        now: float,
    ) -> AppRow:
        steward = self._service.steward
        reason = reason_of(steward, state, runs, now)
        return app_row(
            steward.arbiter,
            state,
            fairness,
            now,
            reason=str(reason) if reason else None,
            history=self._service.past.histories.of(state.id).short(SHORT),
        )

    def _ended_row(self, name: AppId, ended: EndedApp) -> AppRow:
        sheet = serializers.ended_app(name, ended)
        failed = sheet["state"] == "failed"
        return AppRow(
            app=name,
            owner=ended.owner,
            state=str(sheet["state"]),
            reason=str(Reason.FAILED if failed else Reason.ENDED),
            rho=rounded(sheet["rho"], 3),
            held=0,
            submitted=ended.submitted,
            ended=ended.at,
            elapsed=rounded(ended.elapsed),
            ideal_seconds=rounded(sheet["ideal_seconds"]),
            history=self._service.past.histories.of(name).short(SHORT),
        )

    def _machine(self, node: NodeEntry) -> MachineRow:
        arbiter = self._service.steward.arbiter
        number = arbiter.world.topology.number_of.get(node.name)
        machine = node.machine
        if machine is None and number is not None:
            machine = arbiter.world.topology.machines[number]
        cordoned = number is not None and arbiter.world.is_cordoned(number)
        state = "silent" if not node.present else "cordoned" if cordoned else "present"
        return MachineRow(
            machine=node.name,
            rack=machine.rack if machine else "",
            gpu_model=machine.gpu_model if machine else "",
            gpu_memory=machine.gpu_memory if machine else 0.0,
            state=state,
            gpus=tuple(gpu_row(arbiter, gpu, index) for index, gpu in enumerate(node.gpus)),
            # It changes with every heartbeat, and matters only for silent machines.
            heard=node.heard if state == "silent" else None,
            note=serializers.shape_trouble(self._service.steward, node),
            number=number,
        )

    def _leases(self, name: AppId) -> Iterable[LeaseSegment]:
        steward = self._service.steward
        owner = self._service.owner_of(name)
        closed = [item.held for item in self._service.past.segments()
                  if item.held.app == name and item.owner == owner]  # fmt: skip
        for item, is_open in (
            *((held, False) for held in closed[-MOST_LEASES:]),
            *((item.held, True) for item in self._gpu_timeline.open() if item.held.app == name),
        ):
            machine = serializers.machine_of(steward, item.gpu)
            yield LeaseSegment(item.gpu, machine, item.start, item.end, item.source, is_open)

    def _jobs(
        self, name: AppId, state: AppState | None, ended: EndedApp | None
    ) -> tuple[tuple[JobRow, ...] | None, str]:
        """Jobs with their trials, and the name of their metric."""
        service = self._service
        trials = service.steward.trials
        try:
            sheet = serializers.results(name, service.steward, service.files.file(name), ended)
        except RefusedError:  # its owner runs its agent: there is no app file
            sheet = {"jobs": (), "metric": {"name": ""}, "best": trials.best(name)}
        known = {str(job["job"]): job for job in sheet["jobs"]}
        lines = (
            list(serializers.job_rows(service.steward, state).values())
            if state is not None
            else [{**job, "gpus": [], "message": job["failed"]} for job in known.values()]
        )
        if not lines:
            return None, ""
        now = service.now()
        troubles = {run.job: trouble_of(service.steward, run, now)
                    for run in service.steward.runs.values() if run.app == name}  # fmt: skip
        rows = tuple(
            JobRow(
                job=line["job"],
                state=line["state"],
                gpus=tuple(line["gpus"]),
                iterations=finite(line["iterations"]),
                target=finite(line.get("target")),
                metric=finite(line["metric"]),
                message="; ".join(filter(None, (line["message"], troubles.get(line["job"])))),
                params=_plain(known.get(line["job"], {}).get("params", {})),
                curve=drawable(trials.curve(name, line["job"])),
                best=line["job"] == sheet["best"],
            )
            for line in lines
        )
        return rows, str(sheet["metric"]["name"])


def drawable(curve: Iterable[Point]) -> tuple[Point, ...]:
    """The points that can be drawn: a loss that is not a number leaves a gap."""
    return tuple(point for point in curve if math.isfinite(point[0]) and math.isfinite(point[1]))


def _plain(params: Any) -> dict[str, object]:
    """Parameters as plain JSON: a search space may have infinite values."""
    return dict(json.loads(json.dumps(params, default=str), parse_constant=str))
