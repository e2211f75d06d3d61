"""The arbiter: an event goes in, commands come out.

It never sleeps, reads a clock, opens a socket or starts a thread. The simulator and the service are
two drivers that carry its commands out differently.

    arbiter = Arbiter(topology, policy, Settings(), seed=1)
    for command in arbiter.handle(AppArrived(at=12.0, app=app)):
        ...
"""

import math
from collections.abc import Iterable
from typing import assert_never

from themis.arbiter import events as ev
from themis.arbiter.alarms import (
    Alarm,
    Alarms,
    CheckIdle,
    CloseAdmission,
    CloseAnswers,
    OpenBeat,
    OpenFree,
    TakeAsEmpty,
    TellToLeave,
)
from themis.arbiter.apps import AppState
from themis.arbiter.changes import Changes
from themis.arbiter.commands import Ask, Close, Command, Refuse, Report, Solve, WakeMe
from themis.arbiter.ledger import Ledger
from themis.arbiter.reasons import explain_round
from themis.arbiter.record import RoundRecord
from themis.arbiter.rounds import OpenRound, bid_from_cache, check_plan, open_round
from themis.arbiter.settings import BidderKind, Settings
from themis.arbiter.view import Seen, Surroundings
from themis.arbiter.world import GONE, World, first_beat_after
from themis.auction.problem import check_bid
from themis.errors import ConfigError, InvariantError, RefusedError, StaleAnswerError
from themis.fairness.valuation import Valuation
from themis.model import AppId, Bid, GpuId, Lease, Offer, Source, Topology
from themis.model.ids import check_count, check_name, check_number
from themis.model.reasons import SUSPENSIONS, Reason
from themis.policies.base import Allotment, AskBids, AskSolve, Plan, Policy, View

FIRST_TABLE = 0
"""The round number under which a new app is asked for its first valuation."""


class Arbiter:
    """The state machine. `handle` is its only door."""

    def __init__(
        self,
        topology: Topology,
        policy: Policy,
        settings: Settings | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self._world = World(topology, settings or Settings())
        self._policy = policy
        self._seed = seed
        self._now = -math.inf
        self._alarms = Alarms()
        self._round: OpenRound | None = None
        self._rounds = 0
        self._next_settings: Settings | None = None
        self._beat: float | None = None
        self._pool_at: float | None = None
        self._again = False
        self._late_beat = False
        self._idle_checks: set[AppId] = set()
        self._awaiting_tables: set[AppId] = set()
        self._out: list[Command] = []
        self._changes = Changes()

    # What a driver may read

    @property
    def now(self) -> float:
        """The time of the last event."""
        return self._now

    @property
    def ledger(self) -> Ledger:
        """The leases; read only."""
        return self._world.ledger

    @property
    def world(self) -> World:
        """Machines, apps and clocks; read only."""
        return self._world

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._world.settings

    @property
    def rounds(self) -> int:
        """How many rounds have been opened."""
        return self._rounds

    @property
    def round_open(self) -> bool:
        """Whether a round is under way; snapshots are taken only between rounds."""
        return self._round is not None

    # The door

    def handle(self, event: ev.Event) -> list[Command]:
        """Take one event; returns what is to be done, in order."""
        self._out = []
        self._changes = Changes()
        if not math.isfinite(event.at):
            return [Refuse(type(event).__name__, f"time must be finite, got {event.at!r}")]
        self._now = max(self._now, event.at)
        try:
            self._apply(event)
        except (RefusedError, ConfigError) as error:
            who = error.who if isinstance(error, RefusedError) else error.key
            self._out.append(Refuse(who, str(error)))
        while (alarm := self._alarms.due(self._now)) is not None:
            self._ring(alarm)
        self._open_if_wanted()
        self._arm_beat()
        self._flush()
        wake = self._alarms.next_wake(self._now)
        if wake is not None:
            self._out.append(WakeMe(wake))
        return self._out

    def _flush(self) -> None:
        self._out.extend(self._changes.commands(self._now))
        self._changes = Changes()

    def _apply(self, event: ev.Event) -> None:
        match event:
            case ev.AppArrived():
                self._on_arrival(event)
            case ev.AppEnded():
                self._on_end(event)
            case ev.PhaseStarted():
                self._on_phase(event)
            case ev.ProgressMeasured():
                self._on_progress(event)
            case ev.AppSuspended() | ev.AppResumed():
                self._on_suspension(event)
            case ev.BidReceived():
                self._on_bid(event.app, event.round, event.bid)
            case ev.Solved() | ev.SolveFailed():
                self._on_solver(event)
            case ev.GpusVacated():
                self._on_vacated(event)
            case ev.GpusReleased():
                self._on_released(event)
            case ev.JobStarted() | ev.JobStopped():
                self._on_process(event)
            case (
                ev.MachineJoined()
                | ev.MachineLeft()
                | ev.MachineCordoned()
                | ev.MachineUncordoned()
                | ev.GpuQuarantined()
                | ev.GpuRestored()
            ):
                self._on_hardware(event)
            case ev.WeightChanged() | ev.QuotaChanged():
                self._on_share(event)
            case ev.SettingsChanged():
                if self._world.apps:
                    self._next_settings = event.settings
                else:
                    self._world.apply_settings(event.settings, self._now)
            case ev.Woken():
                pass
            case _:
                assert_never(event)

    # Apps

    def _on_arrival(self, event: ev.AppArrived) -> None:
        state = self._world.admit(event.app, self._now)
        if self._policy.asks_tables:
            self._ask_table(state)
        else:
            self._again = True

    def _ask_table(self, state: AppState) -> None:
        """Ask for a valuation outside any round, over every GPU the app could use."""
        machines = self._world.allowed_machines(state.spec.constraint)
        topology = self._world.topology
        numbers = range(len(topology.machines)) if machines is None else sorted(machines)
        gpus = tuple(
            gpu
            for number in numbers
            for gpu in topology.gpus_of[number]
            if self._world.takes_leases(gpu)
        )
        deadline = self._now + self.settings.bid_deadline
        self._awaiting_tables.add(state.id)
        self._alarms.set(deadline, CloseAdmission(state.id))
        self._out.append(Ask(state.id, Offer(FIRST_TABLE, gpus, ()), deadline))

    def _on_end(self, event: ev.AppEnded) -> None:
        state = self._world.app(event.app)
        state.outcome = event.outcome or "finished"
        state.ended_at = self._now
        self._withdraw(state, event.outcome)

    def _on_suspension(self, event: ev.AppSuspended | ev.AppResumed) -> None:
        if event.reason not in SUSPENSIONS:
            raise RefusedError(event.app, f"{event.reason} does not suspend an app")
        state = self._world.app(event.app)
        if isinstance(event, ev.AppSuspended):
            state.suspended.add(event.reason)
            self._withdraw(state, event.reason)
            state.reason = event.reason
        else:
            state.suspended.discard(event.reason)
            self._world.sync_activity(state, self._now)
            state.waiting_since = self._now
            state.reason = Reason.PENDING_EVALUATION
            self._again = True

    def _withdraw(self, state: AppState, why: str) -> None:
        """Take everything from an app that must not run now."""
        self._world.sync_activity(state, self._now)
        for gpu in sorted(self._world.ledger.holdings(state.id)):
            self._take_away(gpu, state.id, why)
        self._close_if_over(state)

    def _close_if_over(self, state: AppState) -> None:
        if state.outcome and not self._world.ledger.present(state.id):
            self._flush()
            self._out.append(Close(self._world.remove(state)))
            self._idle_checks.discard(state.id)
            self._awaiting_tables.discard(state.id)

    def _on_phase(self, event: ev.PhaseStarted) -> None:
        state = self._world.app(event.app)
        for _, target in event.targets:
            check_number(f"target of {event.app}", target)
        state.start_phase(event.phase, event.targets)
        self._world.sync_activity(state, self._now)
        if self._policy.asks_tables_each_phase:
            self._ask_table(state)
        self._pool()

    def _on_progress(self, event: ev.ProgressMeasured) -> None:
        state = self._world.app(event.app)
        for sample in event.samples:
            check_number(f"iterations of {event.app}/{sample.job}", sample.iterations)
        for sample in event.samples:
            state.measure(sample.job, sample.iterations)
        self._world.sync_activity(state, self._now)

    def _on_share(self, event: ev.WeightChanged | ev.QuotaChanged) -> None:
        if isinstance(event, ev.QuotaChanged):
            check_name("owner", event.owner)
            if event.gpus is None:
                self._world.quotas.pop(event.owner, None)
                self._again = True
            else:
                limit = check_count(f"quota of {event.owner}", event.gpus, low=0)
                self._world.quotas[event.owner] = limit
            return
        check_number("weight", event.weight, above=True, high=1e6)
        if event.app is not None:
            self._world.set_app_weight(event.app, event.weight, self._now)
        elif event.owner is not None:
            self._world.set_owner_weight(event.owner, event.weight, self._now)
        else:
            raise RefusedError("weight", "name an app or an owner")

    # GPUs

    def _on_hardware(self, event: ev.HardwareEvent) -> None:
        world = self._world
        match event:
            case ev.MachineJoined(machine=machine):
                world.join_machine(machine, self._now)
                self._pool()
            case ev.MachineLeft(machine=name):
                self._lose(world.topology.gpus_of[world.machine_number(name)], GONE)
            case ev.MachineCordoned(machine=name, drain=drain):
                world.cordon(world.machine_number(name), drain=drain, at=self._now)
            case ev.MachineUncordoned(machine=name):
                world.uncordon(world.machine_number(name), self._now)
                self._pool()
            case ev.GpuQuarantined(gpu=gpu, reason=reason):
                world.check_gpu(gpu)
                self._lose((gpu,), reason)
            case ev.GpuRestored(gpu=gpu):
                world.check_gpu(gpu)
                world.restore_gpu(gpu, self._now)
                self._pool()
            case _:
                assert_never(event)

    def _on_vacated(self, event: ev.GpusVacated) -> None:
        for gpu, _ in event.gpus:
            self._world.check_gpu(gpu)
        for gpu, token in event.gpus:
            self._empty(gpu, token)

    def _empty(self, gpu: GpuId, token: int) -> None:
        """A slot is empty under a token; whoever waits for it begins."""
        handover = self._world.ledger.vacate(gpu, token, self._now)
        if handover.ended is None:
            return
        self._changes.ended(handover.ended)
        if handover.begun is not None:
            self._began(handover.begun)
        else:
            self._pool()
        state = self._world.apps.get(handover.ended.app)
        if state is not None:
            self._close_if_over(state)

    def _on_released(self, event: ev.GpusReleased) -> None:
        state = self._world.app(event.app)
        for gpu in event.gpus:
            self._world.check_gpu(gpu)
        for gpu in event.gpus:
            lease = self._world.ledger.holdings(state.id).get(gpu)
            if lease is None:
                continue
            if self._world.ledger.unqueue(gpu, state.id) is None:
                self._empty(gpu, lease.token)
        self._note_waiting(state)

    def _on_process(self, event: ev.JobStarted | ev.JobStopped) -> None:
        for gpu in event.gpus:
            self._world.check_gpu(gpu)
        self._world.app(event.app)
        for gpu in event.gpus:
            if isinstance(event, ev.JobStarted):
                self._world.ledger.mark_busy(gpu, event.app)
            else:
                self._world.ledger.mark_idle(gpu, event.app, self._now)
        if isinstance(event, ev.JobStopped):
            self._watch_idle(event.app)

    def _lose(self, gpus: Iterable[GpuId], reason: str) -> None:
        """GPUs are gone, and so is whatever ran there."""
        for lease in self._world.lose_gpus(gpus, reason, self._now):
            self._changes.revoked(lease, reason)
            self._changes.ended(lease)
            state = self._world.apps.get(lease.app)
            if state is not None:
                self._note_waiting(state)
                self._close_if_over(state)

    def _take_away(self, gpu: GpuId, app: AppId, why: str) -> None:
        """End what an app holds or is promised on a GPU; a process gets until the lease's end."""
        ledger = self._world.ledger
        dropped = ledger.unqueue(gpu, app)
        if dropped is None:
            dropped = ledger.evict(gpu)
            if dropped is not None:
                last = max(dropped.end, self._now) + self.settings.guard
                self._alarms.set(last, TakeAsEmpty(gpu, dropped.token))
        if dropped is not None:
            self._changes.revoked(dropped, why)

    def _began(self, lease: Lease) -> None:
        self._watch_idle(lease.app)

    def _watch_idle(self, app: AppId) -> None:
        if self.settings.idle_after > 0 and app not in self._idle_checks:
            self._idle_checks.add(app)
            self._alarms.set(self._now + self.settings.idle_after, CheckIdle(app))

    def _reclaim_idle(self, app: AppId) -> None:
        """Use it or lose it."""
        self._idle_checks.discard(app)
        state = self._world.apps.get(app)
        if state is None or self.settings.idle_after <= 0:
            return
        ledger = self._world.ledger
        waiting = math.inf
        for gpu in sorted(ledger.holdings(app)):
            since = ledger.idle_since(gpu)
            lease = ledger.lease(gpu)
            if since is None or lease is None or lease.app != app:
                continue
            if self._now - since >= self.settings.idle_after - 1e-9:
                self._changes.revoked(lease, Reason.IDLE_RECLAIMED)
                self._empty(gpu, lease.token)
                state.reason = Reason.IDLE_RECLAIMED
            else:
                waiting = min(waiting, since)
        if math.isfinite(waiting):
            self._idle_checks.add(app)
            self._alarms.set(waiting + self.settings.idle_after, CheckIdle(app))
        self._note_waiting(state)

    def _note_waiting(self, state: AppState) -> None:
        """Remember since when an app has had nothing."""
        if not self._world.ledger.holdings(state.id) and state.waiting_since == math.inf:
            state.waiting_since = self._now

    # Time

    def _ring(self, alarm: Alarm) -> None:
        match alarm:
            case OpenBeat(beat=beat):
                if beat == self._beat:
                    self._beat = None
                    self._open("beat")
            case OpenFree():
                if self._pool_at is not None and self._pool_at <= self._now:
                    self._pool_at = None
                    self._again = True
            case CloseAnswers(round=number, question=question):
                self._give_up_waiting(number, question)
            case CloseAdmission(app=app):
                if app in self._awaiting_tables:
                    self._awaiting_tables.discard(app)
                    self._again = True
            case TellToLeave(gpu=gpu, token=token):
                lease = self._world.ledger.lease(gpu)
                if lease is not None and lease.token == token:
                    self._take_away(gpu, lease.app, "its share of the lease is over")
            case TakeAsEmpty(gpu=gpu, token=token):
                if self._world.ledger.is_leaving(gpu):
                    self._empty(gpu, token)
            case CheckIdle(app=app):
                self._reclaim_idle(app)
            case _:
                assert_never(alarm)

    def _pool(self) -> None:
        """GPUs came free or demand rose: open a round soon, together with what else comes."""
        if not self._policy.pools:
            self._again = True
        elif self._pool_at is None:
            self._pool_at = self._now + self.settings.pooling
            self._alarms.set(self._pool_at, OpenFree())

    def _arm_beat(self) -> None:
        """Make sure that the next leases to end get their round."""
        if self._beat is not None or self._round is not None:
            return
        if self._policy.keeps_to_beats:
            if self._world.apps:
                self._beat = first_beat_after(self._now, self.settings)
        else:
            self._beat = self._first_end()
        if self._beat is not None:
            self._alarms.set(self._beat - self.settings.round_lead, OpenBeat(self._beat))

    def _first_end(self) -> float | None:
        ends = [
            tail.end
            for index in range(len(self._world.ledger))
            if (tail := self._world.ledger.tail(GpuId(index))) is not None
        ]
        return min(ends, default=None)

    def _open_if_wanted(self) -> None:
        """Open a round between beats when somebody asked for one and it could give anything."""
        if self._late_beat and self._round is None:
            self._late_beat = False
            self._open("beat")
        if not self._again or self._round is not None:
            return
        self._again = False
        if self._awaiting_tables:
            self._again = True
            return
        if any(self._world.takes_leases(gpu) for gpu in self._world.ledger.free()) and any(
            state.active and state.demand > len(self._world.ledger.holdings(state.id))
            for state in self._world.apps.values()
        ):
            self._open("free")

    # Rounds

    def _open(self, trigger: str) -> None:
        at_beat = trigger == "beat"
        if self._round is not None:
            # One round at a time: what this one was for is looked at when the other is over.
            self._late_beat |= at_beat
            self._again = True
            return
        # At a beat every lease ends, so that a new grid of beats leaves none behind.
        if self._next_settings is not None and at_beat:
            self._world.apply_settings(self._next_settings, self._now)
            self._next_settings = None
        offer = self._offer(at_beat=at_beat)
        if not offer:
            return
        self._rounds += 1
        view = self._view(offer, at_beat=at_beat)
        self._round = open_round(self._rounds, trigger, view, self._policy, self._seed)
        self._advance(None)

    def _offer(self, *, at_beat: bool) -> tuple[GpuId, ...]:
        """What is available: free GPUs, and at a beat those whose leases end with it."""
        world = self._world
        horizon = self._now + self.settings.round_lead + 1e-6
        offer = []
        for index in range(len(world.ledger)):
            gpu = GpuId(index)
            tail = world.ledger.tail(gpu)
            if tail is None:
                if world.takes_leases(gpu):
                    offer.append(gpu)
            elif at_beat and tail.end <= horizon:
                if world.takes_leases(gpu):
                    offer.append(gpu)
                elif world.keeps_leases(gpu):
                    self._renew(gpu, tail, tail.source)
                else:
                    self._take_away(gpu, tail.app, "its machine is draining")
        return tuple(offer)

    def _view(self, offer: tuple[GpuId, ...], *, at_beat: bool) -> View:
        world, now = self._world, self._now
        offered = frozenset(offer)
        quotas = world.quotas_left(offered)
        around = Surroundings(
            now=now,
            settings=world.settings,
            topology=world.topology,
            offered=offered,
            elapsed=lambda app: world.contention.elapsed(app, now),
            mean_contention=lambda app: world.contention.mean_contention(app, now),
            mean_capacity=lambda app: world.capacity.mean_capacity(app, now),
            attained=lambda app: world.ledger.attained_total(app, now),
            weight=world.weight,
            quota_left=quotas.get,
        )
        holders = {}
        for gpu in offer:
            tail = world.ledger.tail(gpu)
            if tail is not None:
                holders[gpu] = tail.app
        apps = tuple(
            Seen(
                state,
                tuple(world.ledger.holdings(app)),
                world.allowed_machines(state.spec.constraint),
                around,
            )
            for app, state in sorted(world.apps.items())
            if state.active
        )
        return View(
            now=now,
            round=self._rounds,
            at_beat=at_beat,
            topology=world.topology,
            offer=offer,
            holders=holders,
            apps=apps,
            lease=world.settings.lease,
            end=self._view_end(),
            quotas=quotas,
            by_owner=world.settings.bidder is BidderKind.OWNER,
            seed=self._seed,
        )

    def _view_end(self) -> float:
        if self._policy.keeps_to_beats:
            return first_beat_after(self._now, self.settings)
        return self._now + self.settings.round_lead + self.settings.lease

    def _advance(self, answer: object) -> None:
        """Carry the conversation on until it waits for somebody or is over."""
        current = self._round
        if current is None:
            raise InvariantError("no round is open")
        current.advance(answer)
        while current.plan is None and not current.failed:
            match current.question:
                case AskBids(apps=apps):
                    self._ask(current, apps)
                    if current.waiting:
                        return
                    current.advance(current.sorted_bids())
                case AskSolve(problem=problem):
                    deadline = self._now + self.settings.solve_budget + self.settings.heartbeat
                    self._alarms.set(deadline, CloseAnswers(current.number, current.questions))
                    self._out.append(
                        Solve(current.number, problem, self.settings.solve_work, deadline)
                    )
                    return
                case other:
                    current.failed = f"the policy asked {other!r}"
        self._settle(current)

    def _ask(self, current: OpenRound, apps: Iterable[AppId]) -> None:
        current.bids = {}
        deadline = self._now + self.settings.bid_deadline
        for app in sorted(set(apps)):
            view = current.view.find(app)
            gpus = tuple(
                gpu
                for gpu in current.view.offer
                if view.machines is None
                or current.view.topology.seats[gpu].machine in view.machines
            )
            current.waiting.add(app)
            offer = Offer(current.number, gpus, view.kept, view.expiring)
            self._out.append(Ask(app, offer, deadline))
        if current.waiting:
            self._alarms.set(deadline, CloseAnswers(current.number, current.questions))

    def _on_bid(self, app: AppId, number: int, bid: Bid) -> None:
        if bid.app != app:
            raise RefusedError(app, f"it cannot bid for {bid.app!r}")
        state = self._world.app(app)
        if number == FIRST_TABLE:
            self._on_first_table(state, bid)
            return
        current = self._round
        if current is None or number != current.number or not current.awaits_bid(app):
            raise StaleAnswerError(app, f"no bid of round {number} is waited for")
        try:
            current.take_bid(bid)
            self._keep_valuation(state, bid)
        finally:
            if not current.waiting:
                self._advance(current.sorted_bids())

    def _on_first_table(self, state: AppState, bid: Bid) -> None:
        if state.id not in self._awaiting_tables:
            raise StaleAnswerError(state.id, "its first valuation is not waited for")
        self._awaiting_tables.discard(state.id)
        self._again = True
        check_bid(Bid(bid.app, (), bid.table), ())
        self._keep_valuation(state, bid)

    def _keep_valuation(self, state: AppState, bid: Bid) -> None:
        if bid.table:
            state.valuation = Valuation(bid.table, state.work_left)

    def _on_solver(self, event: ev.Solved | ev.SolveFailed) -> None:
        current = self._round
        if current is None or event.round != current.number or not current.awaits_solution():
            raise StaleAnswerError("solver", f"no solution of round {event.round} is waited for")
        if isinstance(event, ev.Solved):
            self._advance(event.solution)
        else:
            current.failed = f"the solver failed: {event.reason}"
            self._settle(current)

    def _give_up_waiting(self, number: int, question: int) -> None:
        current = self._round
        if current is None or current.number != number or current.questions != question:
            return
        if current.awaits_solution():
            current.failed = "the solver did not answer in time"
            self._settle(current)
            return
        for app in sorted(current.waiting):
            state = self._world.apps.get(app)
            if state is not None and state.valuation is not None:
                view = current.view.find(app)
                current.bids[app] = bid_from_cache(
                    view, state.valuation, state.work_left, len(current.view.offer)
                )
        current.waiting.clear()
        self._advance(current.sorted_bids())

    def _settle(self, current: OpenRound) -> None:
        """Carry the plan out, or renew everybody if there is none."""
        self._round = None
        plan = current.plan
        if plan is not None and not current.failed:
            try:
                check_plan(plan, current.view)
            except InvariantError as error:
                current.failed = error.what
        if plan is None or current.failed:
            plan = self._renewal(current)
        dropped = self._carry_out(plan, current)
        self._finish(current, plan, dropped)

    def _renewal(self, current: OpenRound) -> Plan:
        """A failed round never ends training: whoever holds a GPU keeps it for one beat."""
        mine: dict[AppId, list[GpuId]] = {}
        for gpu, app in sorted(current.view.holders.items()):
            mine.setdefault(app, []).append(gpu)
        return Plan(
            tuple(Allotment(app, tuple(gpus), Source.RENEWED) for app, gpus in mine.items())
        )

    def _carry_out(self, plan: Plan, current: OpenRound) -> tuple[Allotment, ...]:
        """Bring the ledger in line; parts that name something gone are dropped, and only they."""
        first = {gpu: item for item in plan.allotments for gpu in item.gpus}
        second = {gpu: item for item in plan.followups for gpu in item.gpus}
        dropped: list[Allotment] = []
        ledger = self._world.ledger
        for gpu in current.view.offer:
            item = first.get(gpu)
            if item is not None and not self._still_good(gpu, item, current):
                dropped.append(Allotment(item.app, (gpu,), item.source, item.until))
                item = None
            tail = ledger.tail(gpu)
            if item is not None and tail is not None and tail.app == item.app:
                self._renew(gpu, tail, item.source, item.until)
            else:
                if tail is not None:
                    self._take_away(gpu, tail.app, "its lease ends")
                    rest = ledger.tail(gpu)
                    if rest is not None:
                        self._take_away(gpu, rest.app, "its lease ends")
                if item is not None:
                    self._grant(gpu, item, current)
            follower = second.get(gpu)
            if item is not None and follower is not None:
                if self._still_good(gpu, follower, current):
                    lease = ledger.follow(
                        gpu, follower.app, end=self._full_end(gpu, current), source=follower.source
                    )
                    self._changes.granted(lease)
                else:
                    dropped.append(Allotment(follower.app, (gpu,), follower.source))
        return tuple(dropped)

    def _still_good(self, gpu: GpuId, item: Allotment, current: OpenRound) -> bool:
        state = self._world.apps.get(item.app)
        if state is None or not state.active:
            return False
        return self._world.takes_leases(gpu)

    def _full_end(self, gpu: GpuId, current: OpenRound) -> float:
        """When a full lease given in this round ends."""
        if self._policy.keeps_to_beats:
            return current.view.end
        lease = self._world.ledger.lease(gpu)
        start = lease.end if lease is not None else current.opened
        return max(start, current.opened) + self.settings.lease

    def _grant(self, gpu: GpuId, item: Allotment, current: OpenRound) -> None:
        end = self._full_end(gpu, current) if item.until is None else item.until
        lease = self._world.ledger.grant(gpu, item.app, at=self._now, end=end, source=item.source)
        self._changes.granted(lease)
        self._after_lease(lease, early=item.until is not None)

    def _renew(self, gpu: GpuId, tail: Lease, source: Source, until: float | None = None) -> None:
        if until is not None:
            end = until
        elif self._policy.keeps_to_beats:
            end = first_beat_after(self._now, self.settings)
        else:
            end = tail.end + self.settings.lease
        lease = self._world.ledger.renew(gpu, tail.app, at=self._now, end=end, source=source)
        self._changes.renewed(lease)
        self._after_lease(lease, early=until is not None)

    def _after_lease(self, lease: Lease, *, early: bool) -> None:
        if early:
            last = max(self._now, lease.end - self.settings.grace)
            self._alarms.set(last, TellToLeave(lease.gpu, lease.token))
        if self._world.ledger.lease(lease.gpu) is lease:
            self._began(lease)

    def _finish(self, current: OpenRound, plan: Plan, dropped: tuple[Allotment, ...]) -> None:
        ledger = self._world.ledger
        for view in current.view.apps:
            state = self._world.apps.get(view.app)
            if state is None:
                continue
            if ledger.holdings(view.app):
                state.waiting_since = math.inf
                state.hungry_rounds = 0
            else:
                self._note_waiting(state)
                if current.view.at_beat:
                    state.hungry_rounds += 1
        lines = explain_round(current, plan, self._world)
        for line in lines:
            self._world.apps[line.app].reason = line.reason
        self._flush()
        self._out.append(
            Report(
                RoundRecord(
                    round=current.number,
                    opened=current.opened,
                    settled=self._now,
                    trigger=current.trigger,
                    offered=len(current.view.offer),
                    allotments=plan.allotments,
                    followups=plan.followups,
                    dropped=dropped,
                    apps=lines,
                    notes=plan.notes,
                    failed=current.failed,
                )
            )
        )
