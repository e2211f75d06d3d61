"""The live service as the pages show it: the model of `themis.dashboard`, sealed for its viewer.

    board = LiveBoard(service)
    board.board(identity), board.timeline(identity), board.change(identity, seen)

What costs much is worked out once for all who look, at most once a second; what a viewer may not
see is left out of it afterwards.
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from themis.arbiter.apps import AppState
from themis.arbiter.offering import fairness_of
from themis.dashboard.columns import Gathering, Held
from themis.dashboard.model import (
    ANONYMOUS,
    AppPage,
    AppRow,
    Board,
    GpuRow,
    JobRow,
    LeaseRow,
    MachineRow,
    Origin,
    Point,
    RoundList,
    Timeline,
    Viewer,
    finite,
)
from themis.dashboard.pictures import phase_rows
from themis.dashboard.recording import MOST_LEASES, SHORT
from themis.dashboard.sheets import line_of
from themis.errors import RefusedError
from themis.explain import explain
from themis.fleet.roster import Node
from themis.live import views
from themis.live.access import Access, Verb, decide
from themis.live.credentials import Identity
from themis.live.explaining import facts_of, facts_of_ended
from themis.live.keeping import Ended
from themis.live.past import Owned
from themis.live.reasons import runs_by_app, trouble_of
from themis.live.sealing import owns
from themis.live.service import Service
from themis.model import AppId, OwnerId
from themis.model.reasons import Reason

FRESH = 1.0
"""Seconds for which rows are good."""
_DIGITS = 3
"""Of rho: what changes less is no change."""


@dataclass(slots=True)
class Seen:
    """What one stream was told already."""

    closed: int
    open: tuple[Held, ...] = ()
    rows: dict[str, AppRow] = field(default_factory=dict)
    others: tuple[AppRow, ...] = ()
    machines: tuple[MachineRow, ...] = ()
    last_round: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
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
        self._at = float("-inf")
        self._of = -1

    # Pages

    def board(self, identity: Identity | None) -> Board:
        """The state of everything."""
        self._refresh()
        service, settings = self._service, self._service.steward.arbiter.settings
        mine, others = self._sealed_rows(identity)
        numbers = service.book.numbers()
        oldest = service.past.oldest
        topology = service.steward.arbiter.world.topology
        return Board(
            origin=Origin("live", topology.name, service.policy, topology.name, settings.lease),
            viewer=Viewer(
                str(identity.role) if identity else "",
                identity.subject if identity else "",
                _sealed(identity),
            ),
            now=service.now(),
            wall=self._wall(),
            begin=service.now() if oldest is None else oldest.held.start,
            gpus=views.gpu_counts(service.steward, service.removed),
            apps=(*mine, *others),
            machines=self._sealed_machines(identity),
            last_round=numbers[-1] if numbers else None,
        )

    def timeline(self, identity: Identity | None, since: int | None = None) -> Timeline:
        """Who holds and held which GPU."""
        past, gathering = self._service.past, Gathering()
        closed = gathering.columns(_anonymous(past.segments(since), identity))
        present = gathering.columns(_anonymous(self._open(), identity))
        return gathering.timeline(closed, present, past.closed)

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
        row = next((row for row in self._rows if row.app == name), None)
        ended = service.departed.find(name)
        if row is None and ended is not None:
            row = self._ended_row(name, ended)
        assert row is not None, "the caller has looked"
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
        self, name: AppId, state: AppState | None, ended: Ended | None
    ) -> tuple[str, ...]:
        now = self._service.now()
        if state is not None:
            return explain(facts_of(self._service, name, now)).lines
        return () if ended is None else explain(facts_of_ended(name, ended, now)).lines

    def change(self, identity: Identity | None, seen: Seen) -> Change:
        """What is new for a stream; notes that it was told."""
        self._refresh()
        service = self._service
        mine, others = self._sealed_rows(identity)
        rows = {row.app: row for row in mine}
        machines, present = (
            self._sealed_machines(identity),
            tuple(item.held for item in self._open()),
        )
        numbers = service.book.numbers()
        moved = service.past.closed != seen.closed or present != seen.open
        change = Change(
            now=service.now(),
            wall=self._wall(),
            gpus=views.gpu_counts(service.steward, service.removed),
            last_round=numbers[-1] if numbers else None,
            rows=tuple(row for name, row in rows.items() if seen.rows.get(name) != row),
            gone=tuple(name for name in seen.rows if name not in rows),
            others=others if others != seen.others else None,
            machines=machines if machines != seen.machines else None,
            timeline=self.timeline(identity, seen.closed) if moved else None,
        )  # fmt: skip
        seen.closed, seen.open, seen.rows = service.past.closed, present, rows
        seen.others, seen.machines, seen.last_round = others, machines, change.last_round
        return change

    @property
    def behind(self) -> bool:
        """Whether something changed since the rows were worked out that all are shown."""
        return self._service.past.changed != self._of

    # What they are made of, for everybody

    def _refresh(self) -> None:
        now, past = self._service.now(), self._service.past
        if past.changed == self._of and now - self._at < FRESH:
            return
        if now - self._at < FRESH / 2:
            return
        self._at, self._of = now, past.changed
        steward = self._service.steward
        stands, runs = fairness_of(steward.arbiter.world, now), runs_by_app(steward)
        rows = [
            self._row(
                state, views.app_line(steward, state, stands.get(name), runs.get(name, ()), now)
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

    def _ended_row(self, name: AppId, ended: Ended) -> AppRow:
        sheet = views.ended_sheet(name, ended)
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

    def _machine(self, node: Node) -> MachineRow:
        steward = self._service.steward
        line = views.node_line(steward, node, sealed=False)
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

    def _open(self) -> Iterable[Owned]:
        ledger, service = self._service.steward.arbiter.ledger, self._service
        owners: dict[str, OwnerId | None] = {}
        for gpu in range(len(ledger)):
            lease = ledger.lease(gpu)  # type: ignore[arg-type]  # GPU ids are dense
            if lease is None:
                continue
            if lease.app not in owners:
                owners[lease.app] = service.owner_of(lease.app)
            held = Held(gpu, lease.app, lease.start, lease.end, str(lease.source))
            yield Owned(held, owners[lease.app])

    def _leases(self, name: AppId) -> Iterable[LeaseRow]:
        steward = self._service.steward
        owner = self._service.owner_of(name)
        closed = [item.held for item in self._service.past.segments()
                  if item.held.app == name and item.owner == owner]  # fmt: skip
        for item, is_open in (
            *((held, False) for held in closed[-MOST_LEASES:]),
            *((item.held, True) for item in self._open() if item.held.app == name),
        ):
            machine = views.machine_of(steward, item.gpu)
            yield LeaseRow(item.gpu, machine, item.start, item.end, item.source, is_open)

    def _jobs(
        self, name: AppId, state: AppState | None, ended: Ended | None
    ) -> tuple[tuple[JobRow, ...] | None, str]:
        """Jobs with what is known of their trials, and what their metric is called."""
        service = self._service
        trials = service.steward.trials
        try:
            sheet = views.results_sheet(name, service.steward, service.hosting.sheet(name), ended)
        except RefusedError:  # it was not submitted as a file
            sheet = {"jobs": (), "metric": {"name": ""}, "best": trials.best(name)}
        known = {str(job["job"]): job for job in sheet["jobs"]}
        lines = (
            list(views.job_lines(service.steward, state).values())
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

    # Sealed for a viewer

    def _sealed_rows(self, identity: Identity | None) -> tuple[tuple[AppRow, ...], ...]:
        """Rows with names, and rows of others, of whom there are only those that go on."""
        if not _sealed(identity):
            return self._rows, ()
        mine = tuple(row for row in self._rows if owns(identity, OwnerId(row.owner)))
        others = [
            AppRow(ANONYMOUS, ANONYMOUS, "", rho=row.rho, held=row.held, demand=row.demand,
                   sealed=True)
            for row in self._rows
            if row.ended is None and not owns(identity, OwnerId(row.owner))
        ]  # fmt: skip
        others.sort(key=lambda row: (-(row.held or 0), -(row.demand or 0), row.rho or 0.0))
        return mine, tuple(others)

    def _sealed_machines(self, identity: Identity | None) -> tuple[MachineRow, ...]:
        if not _sealed(identity):
            return self._machines
        service = self._service
        return tuple(
            MachineRow(
                item.machine, item.rack, item.gpu_model, item.gpu_memory, item.state,
                tuple(
                    gpu
                    if gpu.app is not None and owns(identity, service.owner_of(AppId(gpu.app)))
                    else GpuRow(gpu.gpu, gpu.index, gpu.slot, gpu.state,
                                None if gpu.app is None else ANONYMOUS,
                                # The text may name an app.
                                reason="out of use" if gpu.reason else "")
                    for gpu in item.gpus
                ),
                item.heard,
                number=item.number,
            )
            for item in self._machines
        )  # fmt: skip


def _sealed(identity: Identity | None) -> bool:
    return decide(identity, Verb.DASHBOARD).access is not Access.ALLOW


def _anonymous(items: Iterable[Owned], identity: Identity | None) -> Iterable[Held]:
    if not _sealed(identity):
        return [item.held for item in items]
    return [
        item.held
        if owns(identity, item.owner)
        else Held(item.held.gpu, ANONYMOUS, item.held.start, item.held.end, "")
        for item in items
    ]


def drawable(curve: Iterable[Point]) -> tuple[Point, ...]:
    """What can be drawn: a loss that is not a number is a gap."""
    return tuple(point for point in curve if math.isfinite(point[0]) and math.isfinite(point[1]))


def _rounded(value: float | None, digits: int) -> float | None:
    known = finite(value)
    return None if known is None else round(known, digits)


def _plain(params: Any) -> dict[str, object]:
    """Parameters as JSON can say them: a search space may give what is not finite."""
    return dict(json.loads(json.dumps(params, default=str), parse_constant=str))
