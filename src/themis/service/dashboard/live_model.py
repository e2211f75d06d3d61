"""The live service as the pages show it: the model of `themis.dashboard`, sealed for its viewer.

    board = LiveBoard(service, wall)
    board.board(identity), await board.timeline(identity), board.change(identity, seen)

What costs much is worked out once for all who look, at most once a second; what a viewer may not
see is left out of it afterwards, once for all who see the same.
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.offer import fairness_of
from themis.core.explain import explain
from themis.core.model import AppId
from themis.core.model.reasons import Reason
from themis.core.steward.node_table import NodeEntry
from themis.dashboard.finished import MOST_LEASES, SHORT
from themis.dashboard.model import (
    AppPage,
    AppRow,
    Board,
    DataOrigin,
    GpuRow,
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
from themis.dashboard.snapshots import phase_rows
from themis.errors import RefusedError
from themis.security.permissions import Verb
from themis.security.tokens import Identity
from themis.service.dashboard.gpu_timeline import Lanes
from themis.service.dashboard.page_history import OwnedSegment
from themis.service.explanations import facts_of, facts_of_ended
from themis.service.http import serializers
from themis.service.retained_rows import EndedApp
from themis.service.run_diagnostics import runs_by_app, trouble_of
from themis.service.service import Service
from themis.service.viewer import Viewer, viewer_of

FRESH = 1.0
"""Seconds for which rows are good, half of it once something changed."""
_SPARING = 20.0
"""Rows are good for so many times what they took to work out, if that is longer."""
_DIGITS = 3
"""Of rho: what changes less is no change."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What all see who may see the same, until rows are worked out anew."""

    named: dict[str, AppRow] = field(default_factory=dict)
    others: tuple[AppRow, ...] = ()
    machines: tuple[MachineRow, ...] = ()


@dataclass(slots=True)
class StreamState:
    """What one stream was told already."""

    closed: int
    open: tuple[OwnedSegment, ...] = ()
    sight: Sight = field(default_factory=Sight)


@dataclass(frozen=True, slots=True)
class PageChange:
    """What is new since the last one; None and empty where nothing is."""

    now: float
    wall: float
    gpus: dict[str, int]
    last_round: int | None
    rows: tuple[AppRow, ...]
    """Of apps that the viewer sees by name."""
    gone: tuple[str, ...]
    others: tuple[AppRow, ...] | None
    machines: tuple[MachineRow, ...] | None
    timeline: Timeline | None


class LiveBoard:
    """Makes what pages show from the state of a service."""

    def __init__(self, service: Service, wall: Callable[[], float]) -> None:
        self._service = service
        self._wall = wall
        self._rows: tuple[AppRow, ...] = ()
        self._machines: tuple[MachineRow, ...] = ()
        self._gpus: dict[str, int] = {}
        self._sights: dict[Viewer, Sight] = {}
        self._lanes = Lanes(service)
        self._at = float("-inf")
        self._of = -1
        self._fresh = FRESH

    # Pages

    def board(self, identity: Identity | None) -> Board:
        """The state of everything."""
        self._refresh()
        service, settings = self._service, self._service.steward.arbiter.settings
        viewer = viewer_of(identity, Verb.DASHBOARD)
        sight = self._sight(viewer)
        oldest = service.past.oldest
        topology = service.steward.arbiter.world.topology
        return Board(
            origin=DataOrigin("live", topology.name, service.policy, topology.name, settings.lease),
            viewer=ViewerInfo(
                str(identity.role) if identity else "",
                identity.subject if identity else "",
                viewer.sealed,
            ),
            now=service.now(),
            wall=self._wall(),
            begin=service.now() if oldest is None else oldest.held.start,
            gpus=self._gpus,
            apps=(*sight.named.values(), *sight.others),
            machines=sight.machines,
            last_round=self._last_round(),
        )

    async def timeline(self, identity: Identity | None) -> bytes:
        """Who holds and held which GPU, as JSON: there may be much of it."""
        return await self._lanes.told(viewer_of(identity, Verb.DASHBOARD))

    def rounds(self, before: int, limit: int) -> RoundList:
        """A page of rounds: numbers that everybody may see."""
        book = self._service.book
        numbers = [number for number in book.numbers() if not before or number < before]
        page = [line_of(book.round(number)[0]) for number in numbers[-limit:]]
        return RoundList(tuple(page), page[0].round if len(page) < len(numbers) else None)

    def app(self, name: AppId) -> AppPage:
        """One app in full; whoever asks may see it."""
        self._refresh()
        service = self._service
        state = service.steward.arbiter.world.apps.get(name)
        history = service.past.histories.of(name)
        ended = service.departed.find(name)
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
        now = self._service.now()
        if state is not None:
            return explain(facts_of(self._service, name, now)).lines
        return () if ended is None else explain(facts_of_ended(name, ended, now)).lines

    def change(self, identity: Identity | None, seen: StreamState) -> PageChange:
        """What is new for a stream; notes that it was told."""
        self._refresh()
        service, viewer = self._service, viewer_of(identity, Verb.DASHBOARD)
        sight, before, present = self._sight(viewer), seen.sight, self._lanes.open()
        moved = service.past.closed != seen.closed or present != seen.open
        # Mostly it is the very same, and nothing has to be compared.
        same = sight is before
        change = PageChange(
            now=service.now(),
            wall=self._wall(),
            gpus=self._gpus,
            last_round=self._last_round(),
            rows=() if same else tuple(
                row for name, row in sight.named.items() if before.named.get(name) != row
            ),
            gone=() if same else tuple(name for name in before.named if name not in sight.named),
            others=None if same or sight.others == before.others else sight.others,
            machines=None if same or sight.machines == before.machines else sight.machines,
            timeline=self._lanes.since(viewer, seen.closed) if moved else None,
        )  # fmt: skip
        seen.closed, seen.open, seen.sight = service.past.closed, present, sight
        return change

    def _last_round(self) -> int | None:
        numbers = self._service.book.numbers()
        return numbers[-1] if numbers else None

    def _sight(self, viewer: Viewer) -> Sight:
        sight = self._sights.get(viewer)
        if sight is None:
            mine, others = viewer.app_rows(self._rows)
            machines = viewer.machines(self._machines, self._service.owner_of)
            sight = self._sights[viewer] = Sight({row.app: row for row in mine}, others, machines)
        return sight

    @property
    def behind(self) -> bool:
        """Whether something changed since the rows were worked out that all are shown."""
        return self._service.past.changed != self._of

    # What they are made of, for everybody

    def _refresh(self) -> None:
        now, past = self._service.now(), self._service.past
        if past.changed == self._of and now - self._at < self._fresh:
            return
        if now - self._at < self._fresh / 2:
            return
        began = perf_counter()
        self._at, self._of = now, past.changed
        steward = self._service.steward
        stands, runs = fairness_of(steward.arbiter.world, now), runs_by_app(steward)
        rows = [
            self._row(
                state,
                serializers.app_row(steward, state, stands.get(name), runs.get(name, ()), now),
            )
            for name, state in sorted(steward.arbiter.world.apps.items())
        ]
        active = {row.app for row in rows}
        rows += [self._ended_row(name, ended) for name, ended in past.ended() if name not in active]
        self._rows = tuple(rows)
        self._machines = tuple(
            self._machine(node)
            for name, node in sorted(steward.nodes.items())
            if name not in self._service.removed
        )
        self._gpus = serializers.gpu_counts(steward, self._service.removed)
        self._sights.clear()
        self._fresh = max(FRESH, _SPARING * (perf_counter() - began))

    def _row_now(self, name: AppId, state: AppState | None, ended: EndedApp | None) -> AppRow:
        """The row of an app whose page is asked for.

        The list may be a little older than the app, or have another one of this name.
        """
        if state is None:
            assert ended is not None, "the caller has looked"
            return self._ended_row(name, ended)
        this = (name, state.spec.owner, state.submitted, None)
        for row in self._rows:
            if (row.app, row.owner, row.submitted, row.ended) == this:
                return row
        now, steward = self._service.now(), self._service.steward
        stands, runs = fairness_of(steward.arbiter.world, now), runs_by_app(steward)
        line = serializers.app_row(steward, state, stands.get(name), runs.get(name, ()), now)
        return self._row(state, line)

    def _row(self, state: AppState, line: dict[str, Any]) -> AppRow:
        history = self._service.past.histories.of(state.id)
        ledger = self._service.steward.arbiter.ledger
        return AppRow(
            app=state.id,
            owner=state.spec.owner,
            state=line["state"],
            reason=str(line["reason"]) if line["reason"] else None,
            rho=_rounded(line["rho"], _DIGITS),
            held=line["held"],
            demand=line["demand"],
            submitted=state.submitted,
            elapsed=_rounded(line["elapsed"], 0),
            ideal_seconds=_rounded(line["ideal_seconds"], 0),
            gpu_seconds=_rounded(ledger.attained_total(state.id, self._service.now()), 0),
            history=history.short(SHORT),
        )

    def _ended_row(self, name: AppId, ended: EndedApp) -> AppRow:
        sheet = serializers.ended_app(name, ended)
        failed = sheet["state"] == "failed"
        return AppRow(
            app=name,
            owner=ended.owner,
            state=str(sheet["state"]),
            reason=str(Reason.FAILED if failed else Reason.ENDED),
            rho=_rounded(sheet["rho"], _DIGITS),
            held=0,
            submitted=ended.submitted,
            ended=ended.at,
            elapsed=_rounded(ended.elapsed, 0),
            ideal_seconds=_rounded(sheet["ideal_seconds"], 0),
            history=self._service.past.histories.of(name).short(SHORT),
        )

    def _machine(self, node: NodeEntry) -> MachineRow:
        steward = self._service.steward
        line = serializers.node_row(steward, node, sealed=False)
        ledger, topology = steward.arbiter.ledger, steward.arbiter.world.topology
        gpus = []
        for gpu in line["gpus"]:
            lease = ledger.lease(gpu["gpu"])
            gpus.append(
                GpuRow(
                    gpu=gpu["gpu"],
                    index=gpu["index"],
                    slot=topology.seats[gpu["gpu"]].slot,
                    state=gpu["state"],
                    app=gpu.get("app"),
                    until=finite(lease.end) if lease is not None else None,
                    reason=str(gpu.get("reason", "")),
                )
            )
        state = "silent" if not line["present"] else "cordoned" if line["cordoned"] else "present"
        machine = node.machine
        if machine is None and node.name in topology.number_of:
            machine = topology.machines[topology.number_of[node.name]]
        return MachineRow(
            machine=node.name,
            rack=machine.rack if machine else "",
            gpu_model=machine.gpu_model if machine else "",
            gpu_memory=machine.gpu_memory if machine else 0.0,
            state=state,
            gpus=tuple(gpus),
            # It changes with every heartbeat, and matters only of those that are silent.
            heard=node.heard if state == "silent" else None,
            note=line["trouble"],
            number=topology.number_of.get(node.name),
        )

    def _leases(self, name: AppId) -> Iterable[LeaseSegment]:
        steward = self._service.steward
        owner = self._service.owner_of(name)
        closed = [item.held for item in self._service.past.segments()
                  if item.held.app == name and item.owner == owner]  # fmt: skip
        for item, is_open in (
            *((held, False) for held in closed[-MOST_LEASES:]),
            *((item.held, True) for item in self._lanes.open() if item.held.app == name),
        ):
            machine = serializers.machine_of(steward, item.gpu)
            yield LeaseSegment(item.gpu, machine, item.start, item.end, item.source, is_open)

    def _jobs(
        self, name: AppId, state: AppState | None, ended: EndedApp | None
    ) -> tuple[tuple[JobRow, ...] | None, str]:
        """Jobs with what is known of their trials, and what their metric is called."""
        service = self._service
        trials = service.steward.trials
        try:
            sheet = serializers.results(name, service.steward, service.hosting.sheet(name), ended)
        except RefusedError:  # it was not submitted as a file
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
    """What can be drawn: a loss that is not a number is a gap."""
    return tuple(point for point in curve if math.isfinite(point[0]) and math.isfinite(point[1]))


def _rounded(value: float | None, digits: int) -> float | None:
    known = finite(value)
    return None if known is None else round(known, digits)


def _plain(params: Any) -> dict[str, object]:
    """Parameters as JSON can say them: a search space may give what is not finite."""
    return dict(json.loads(json.dumps(params, default=str), parse_constant=str))
