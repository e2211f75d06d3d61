"""The arbiter: an event goes in, commands come out.

It never sleeps, reads a clock, opens a socket or starts a thread. The simulator and the service are
two drivers that carry its commands out differently.

    arbiter = Arbiter(topology, policy, Settings(), seed=1)
    for command in arbiter.handle(AppArrived(at=12.0, app=app)):
        ...
"""

import math
from typing import assert_never

from themis.core.arbiter import events as ev
from themis.core.arbiter.alarms import (
    Alarm,
    AlarmPart,
    Alarms,
    AlarmsPart,
    CheckIdle,
    CloseAdmission,
    CloseAnswers,
    OpenBeat,
    OpenFree,
    TakeAsEmpty,
    TellToLeave,
)
from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.app_status import FINISHED
from themis.core.arbiter.cluster_state import GONE, World, first_beat_after
from themis.core.arbiter.commands import Ask, Command, RecordApp, Refuse, WakeMe
from themis.core.arbiter.lease_changes import LeaseChanges
from themis.core.arbiter.leasing import Leasing
from themis.core.arbiter.ledger import Ledger
from themis.core.arbiter.rounds import FIRST_TABLE, Rounds
from themis.core.arbiter.settings import AddedWork, Settings
from themis.core.arbiter.state_parts import (
    ArbiterPart,
    AwaitedPart,
    RoundsPart,
    SettingsPart,
    Shelf,
    Written,
    take,
)
from themis.core.auction.problem import check_bid
from themis.core.model import AppId, Bid, Offer, Topology
from themis.core.model.ids import check_count, check_name, check_number, check_weight
from themis.core.model.reasons import SUSPENSIONS, Reason
from themis.core.policies.base import Policy
from themis.errors import ConfigError, RefusedError, StaleAnswerError


class Arbiter:
    """The state machine. `handle` is its only door."""

    def __init__(
        self,
        topology: Topology,
        policy: Policy,
        settings: Settings | None = None,
        *,
        seed: int = 0,
        tells_rho: bool = True,
    ) -> None:
        self._start(World(topology, settings or Settings()), policy, seed)
        # Records that are not kept omit the rho of every app, which is costly to compute.
        self._rounds.tells_rho &= tells_rho

    def _start(self, world: World, policy: Policy, seed: int) -> None:
        self._world = world
        self._policy = policy
        self._now = -math.inf
        self._alarms = Alarms()
        self._leasing = Leasing(self._world, self._alarms, on_beats=policy.keeps_to_beats)
        self._rounds = Rounds(self._world, self._alarms, self._leasing, policy, seed)
        self._next_settings: Settings | None = None
        self._settings_changed = False
        """Since they were last written down."""
        self._beat: float | None = None
        self._late_beat: float | None = None
        """A beat whose round is due."""
        self._pool_at: float | None = None
        self._wants_round = False
        self._awaiting_tables: dict[AppId, float] = {}
        """Apps whose valuations are waited for outside any round, and until when."""
        self._touched_tables: set[AppId] = set()
        self._held_until: float | None = None
        """When rounds may open again, if they are held back."""
        self._out: list[Command] = []

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
        return self._rounds.count

    @property
    def round_open(self) -> bool:
        """Whether a round is under way; it is no part of what is written down."""
        return self._rounds.open is not None

    @property
    def next_alarm(self) -> float | None:
        """When its next alarm is due, whether or not it asked to be woken."""
        return self._alarms.first

    def before_alarm(self, at: float) -> float:
        """When to tell it, at some time, how far all jobs are: just before an alarm that is due.

        If the driver sent the first event alone, a round would open before the others arrive.
        """
        alarm = self.next_alarm
        return at if alarm is None or alarm > at else math.nextafter(alarm, 0.0)

    @property
    def next_round(self) -> float | None:
        """When the next round opens, as far as known."""
        lead = self.settings.round_lead
        known = [self._pool_at, None if self._beat is None else self._beat - lead]
        due = [at for at in known if at is not None]
        return max(min(due), self._held_until or -math.inf) if due else self._held_until

    def round_due(self, at: float) -> bool:
        """Whether being woken at this time opens a round, so that progress should be known."""
        if self._held_until is not None:
            return at >= self._held_until and (self._late_beat is not None or self._wants_round)
        beat = self._beat is not None and self._beat - self.settings.round_lead <= at
        return beat or (self._pool_at is not None and self._pool_at <= at)

    def may_open_round(self, event: ev.Event) -> bool:
        """Whether an event may open a round at once, so that progress should be known before."""
        if self.round_due(event.at):
            return True
        alarm = self._alarms.first
        rings = alarm is not None and alarm <= event.at
        if self._rounds.open is not None:
            # Its end lets the next one begin, if that is wanted already.
            ends = rings or isinstance(event, ev.BidReceived | ev.Solved | ev.SolveFailed)
            return ends and (self._late_beat is not None or self._wants_round)
        if self._awaiting_tables:
            return rings or not isinstance(event, ev.JobStarted | ev.JobStopped)
        at_once = ev.AppArrived | ev.AppResumed | ev.QuotaChanged | ev.RoundsHeld
        return not self._policy.pools or isinstance(event, at_once)

    # The door

    def handle(self, event: ev.Event) -> list[Command]:
        """Take one event; returns what is to be done, in order."""
        at = event.at
        if not 0.0 <= at < math.inf:
            reason = f"time must be finite and not negative, got {at!r}"
            return [Refuse(type(event).__name__, reason)]
        self._out = self._rounds.out = []
        if at > self._now:
            self._now = self._leasing.now = self._rounds.now = at
        try:
            self._apply(event)
        except (RefusedError, ConfigError) as error:
            who = error.who if isinstance(error, RefusedError) else error.key
            self._out.append(Refuse(who, str(error)))
        if self._held_until is not None and self._held_until <= self._now:
            self._hold_rounds(self._now)
        leasing, alarms = self._leasing, self._alarms
        if leasing.touched:
            self._tidy()
        while (alarm := alarms.due(self._now)) is not None:
            self._ring(alarm)
            self._tidy()
        if self._late_beat is not None or self._wants_round:
            self._open_if_wanted()
        if self._beat is None and self._late_beat is None:
            self._arm_beat()
        if leasing.touched:
            self._tidy()
        wake = alarms.next_wake(self._now)
        if wake is not None:
            self._out.append(WakeMe(wake))
        return self._out

    def _tidy(self) -> None:
        """Tell apps their changes, close ended apps, and deal out GPUs that came free."""
        leasing = self._leasing
        if leasing.changes.any:
            self._out.extend(leasing.changes.commands(self._now))
            leasing.changes = LeaseChanges()
        if leasing.emptied:
            for app in sorted(leasing.emptied):
                state = self._world.apps.get(app)
                if state is not None and state.outcome and not self._world.ledger.present(app):
                    self._out.append(RecordApp(self._world.remove(state)))
                    leasing.forget(app)
                    self._await_no_table(app)
            leasing.emptied.clear()
        if leasing.freed:
            leasing.freed = False
            self._pool()

    def _apply(self, event: ev.Event) -> None:
        match event:
            case ev.ProgressMeasured():  # The most frequent ones first: each case takes its time.
                self._on_progress(event)
            case ev.GpusVacated() | ev.GpusReleased() | ev.JobStarted() | ev.JobStopped():
                self._on_slots(event)
            case ev.Woken():
                pass
            case ev.AppArrived():
                self._on_arrival(event)
            case ev.AppEnded():
                self._on_end(event)
            case ev.PhaseStarted():
                self._on_phase(event)
            case ev.TargetsRevised():
                self._on_revision(event)
            case ev.WorkAdded():
                self._on_added(event)
            case ev.AppSuspended() | ev.AppResumed():
                self._on_suspension(event)
            case ev.BidReceived():
                self._on_bid(event.app, event.round, event.bid)
            case ev.Solved() | ev.SolveFailed():
                self._rounds.take_solution(event)
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
                self._on_settings(event)
            case ev.ServiceRestarted():
                self._on_restart(event)
            case ev.RoundsHeld(until=until):
                self._hold_rounds(until)
            case _:
                assert_never(event)

    # Apps

    def _on_arrival(self, event: ev.AppArrived) -> None:
        state = self._world.admit(event.app, self._now)
        if self._policy.asks_tables:
            self._ask_table(state)
        else:
            self._wants_round = True

    def _ask_table(self, state: AppState) -> None:
        """Ask for a valuation outside any round, over every GPU the app could use."""
        deadline = self._now + self.settings.bid_deadline
        self._awaiting_tables[state.id] = deadline
        self._touched_tables.add(state.id)
        self._alarms.set(deadline, CloseAdmission(state.id))
        offer = Offer(FIRST_TABLE, self._world.allowed_gpus(state.spec.constraint), ())
        self._out.append(Ask(state.id, offer, deadline))

    def _await_no_table(self, app: AppId) -> None:
        self._touched_tables.add(app)
        self._awaiting_tables.pop(app, None)

    def _on_end(self, event: ev.AppEnded) -> None:
        state = self._world.app(event.app)
        state.end(event.outcome or FINISHED, self._now)
        self._withdraw(state, state.outcome)

    def _on_suspension(self, event: ev.AppSuspended | ev.AppResumed) -> None:
        if event.reason not in SUSPENSIONS:
            raise RefusedError(event.app, f"{event.reason} does not suspend an app")
        state = self._world.app(event.app)
        if isinstance(event, ev.AppSuspended):
            state.suspend(event.reason)
            self._withdraw(state, event.reason)
            state.explain(state.suspension or event.reason)
        elif event.reason in state.suspended:
            state.resume(event.reason)
            self._world.sync_activity(state, self._now)
            state.explain(state.suspension or Reason.PENDING_EVALUATION)
            self._wants_round = True

    def _withdraw(self, state: AppState, why: str) -> None:
        """Take everything from an app that must not run now."""
        self._world.sync_activity(state, self._now)
        for gpu in sorted(self._world.ledger.holdings(state.id)):
            self._leasing.take_away(gpu, state.id, why)
        self._leasing.note_waiting(state)
        self._leasing.emptied.add(state.id)
        self._rounds.expect_no_bid(state.id)

    def _on_phase(self, event: ev.PhaseStarted) -> None:
        state = self._world.app(event.app)
        for _, target in event.targets:
            check_number(f"target of {event.app}", target)
        state.start_phase(event.phase, event.targets)
        self._world.sync_activity(state, self._now)
        if self._policy.asks_tables_each_phase and state.active:
            self._ask_table(state)
        self._pool()

    def _on_revision(self, event: ev.TargetsRevised) -> None:
        state = self._world.app(event.app)
        for job, target in event.targets:
            check_number(f"target of {event.app}/{job}", target)
        state.revise_targets(event.targets)
        self._world.sync_activity(state, self._now)

    def _on_added(self, event: ev.WorkAdded) -> None:
        state = self._world.app(event.app)
        for job, target in event.targets:
            check_number(f"target of {event.app}/{job}", target)
        state.add_work(event.targets)
        self._world.sync_activity(state, self._now)
        if self.settings.added_work is AddedWork.ARRIVES:
            self._world.let_arrive(state, self._now)
        if self._policy.asks_tables and state.active:
            self._ask_table(state)
        self._pool()

    def _on_progress(self, event: ev.ProgressMeasured) -> None:
        state = self._world.app(event.app)
        for sample in event.samples:
            if type(sample.iterations) is not float or not 0.0 <= sample.iterations <= 1e15:
                check_number(f"iterations of {event.app}/{sample.job}", sample.iterations)
            if type(sample.seconds) is not float or not 0.0 <= sample.seconds <= 1e15:
                check_number(f"seconds of {event.app}/{sample.job}", sample.seconds)
        tolerance = self._world.settings.audit_tolerance
        for sample in event.samples:
            state.measure(sample.job, sample.iterations)
            if (tolerance or state.audit.estimated) and state.check_speed(
                sample.job, sample.iterations, sample.seconds, tolerance
            ):
                # It came so far by looking small: what it waited with false claims is lost.
                self._world.count_anew(state, self._now)
        self._world.sync_activity(state, self._now)

    def _on_bid(self, app: AppId, number: int, bid: Bid) -> None:
        if bid.app != app:
            raise RefusedError(app, f"it cannot bid for {bid.app!r}")
        state = self._world.app(app)
        if number != FIRST_TABLE:
            self._rounds.take_bid(state, number, bid)
            return
        if app not in self._awaiting_tables:
            raise StaleAnswerError(app, "its valuation is not waited for")
        self._await_no_table(app)
        self._wants_round = True
        check_bid(Bid(bid.app, (), bid.table, bid.profile, bid.claim), ())
        state.hear(bid, self.settings.audit_tolerance)

    # Shares and settings

    def _on_share(self, event: ev.WeightChanged | ev.QuotaChanged) -> None:
        if isinstance(event, ev.QuotaChanged):
            check_name("owner", event.owner)
            if event.gpus is not None:
                check_count(f"quota of {event.owner}", event.gpus, low=0)
            self._world.set_quota(event.owner, event.gpus)
            self._wants_round = True
            return
        check_weight("weight", event.weight)
        if event.app is not None:
            self._world.set_app_weight(event.app, event.weight, self._now)
        elif event.owner is not None:
            self._world.set_owner_weight(event.owner, event.weight, self._now)
        else:
            raise RefusedError("weight", "name an app or an owner")

    def _on_settings(self, event: ev.SettingsChanged) -> None:
        self._settings_changed = True
        if self._world.apps:
            # At a beat every lease ends, so that a new grid of beats leaves none behind.
            self._next_settings = event.settings
        else:
            self._world.apply_settings(event.settings, self._now)
            self._beat = None  # Of the old grid.

    # GPUs

    def _on_slots(self, event: ev.SlotEvent) -> None:
        match event:
            case ev.GpusVacated(gpus=slots):
                self._world.check_gpus([gpu for gpu, _ in slots])
                for gpu, token in slots:
                    self._leasing.empty(gpu, token)
            case ev.GpusReleased(app=app, gpus=gpus):
                self._world.check_gpus(gpus)
                self._leasing.release(self._world.app(app), gpus)
            case ev.JobStarted(app=app, job=job, gpus=gpus):
                self._world.check_gpus(gpus)
                state = self._world.app(app)
                for gpu in gpus:
                    self._world.ledger.mark_busy(gpu, app)
                state.use()
                if gpus:
                    state.start_process(job, self._world.topology.level(gpus), len(gpus))
            case ev.JobStopped(app=app, gpus=gpus):
                self._world.check_gpus(gpus)
                for gpu in gpus:
                    self._world.ledger.mark_idle(gpu, app, self._now)
                if app in self._world.apps:
                    self._leasing.watch_idle(app)
            case _:
                assert_never(event)

    def _on_hardware(self, event: ev.HardwareEvent) -> None:
        world = self._world
        match event:
            case ev.MachineJoined(machine=machine):
                world.join_machine(machine, self._now)
                self._pool()
            case ev.MachineLeft(machine=name):
                number = world.machine_number(name)
                self._leasing.lose(world.lose_machine(number, self._now), GONE)
                self._pool()
            case ev.MachineCordoned(machine=name, drain=drain):
                world.cordon(world.machine_number(name), drain=drain, at=self._now)
            case ev.MachineUncordoned(machine=name):
                world.uncordon(world.machine_number(name), self._now)
                self._pool()
            case ev.GpuQuarantined(gpu=gpu, reason=reason):
                world.check_gpus((gpu,))
                self._leasing.lose(world.lose_gpus((gpu,), reason, self._now), reason)
                self._pool()
            case ev.GpuRestored(gpu=gpu):
                world.check_gpus((gpu,))
                world.restore_gpu(gpu, self._now)
                self._pool()
            case _:
                assert_never(event)

    # Time

    def _ring(self, alarm: Alarm) -> None:
        match alarm:
            case OpenBeat(beat=beat):
                if beat == self._beat:
                    self._beat = None
                    self._late_beat = beat
                    self._open_if_wanted()
            case OpenFree():
                if self._pool_at is not None and self._pool_at <= self._now:
                    self._pool_at = None
                    self._wants_round = True
            case CloseAnswers(round=number, question=question):
                self._rounds.stop_waiting(number, question)
            case CloseAdmission(app=app):
                # It may have been asked again since.
                if self._awaiting_tables.get(app, math.inf) <= self._now:
                    self._await_no_table(app)
                    self._wants_round = True
            case TellToLeave(gpu=gpu, token=token):
                self._leasing.tell_to_leave(gpu, token)
            case TakeAsEmpty(gpu=gpu, token=token):
                self._leasing.take_as_empty(gpu, token)
            case CheckIdle(app=app):
                self._leasing.reclaim_idle(app)
            case _:
                assert_never(alarm)

    def _pool(self) -> None:
        """GPUs came free or demand rose: open a round soon, together with what else comes."""
        if not self._policy.pools:
            self._wants_round = True
        elif self._pool_at is None:
            self._pool_at = self._now + self.settings.pooling
            self._alarms.set(self._pool_at, OpenFree())

    def _arm_beat(self) -> None:
        """Make sure that the next leases to end get their round."""
        if self._policy.keeps_to_beats:
            if self._world.apps:
                self._beat = first_beat_after(self._now, self.settings)
        elif self._rounds.open_beat is None:  # Else what it decides on would seem to end once more.
            self._beat = self._world.ledger.first_end()
            if self._beat is None and self._world.apps:
                # Every app paid or declined and no lease is left to end: retry later.
                self._beat = self._now + self.settings.lease
        if self._beat is not None:
            self._alarms.set(self._beat - self.settings.round_lead, OpenBeat(self._beat))

    def _open_if_wanted(self) -> None:
        """Open a round if one is due: at a beat always, between beats if it can give anything."""
        if self._rounds.open is not None:
            return  # One round at a time: its end comes here again.
        if self._held_until is not None:
            return  # Those who would bid are on their way back; an alarm is set.
        if self._late_beat is not None:
            beat, self._late_beat = self._late_beat, None
            if self._next_settings is not None:
                self._world.apply_settings(self._next_settings, self._now)
                self._next_settings = None
                self._settings_changed = True
                self._leasing.watch_all()
            self._rounds.begin(beat)
        elif self._wants_round and not self._awaiting_tables:
            self._wants_round = False
            if self._rounds.could_give():
                self._rounds.begin()

    # Being away

    def _on_restart(self, event: ev.ServiceRestarted) -> None:
        # As if restored, also where the log is replayed and an open round is still known.
        self._late_beat, self._wants_round = self._due()
        self._rounds.forget()
        self._world.ledger.raise_tokens(event.token_floor)
        self._alarms.ask_again()
        self._hold_rounds(event.rounds_from)
        for state in [self._world.apps[app] for app in sorted(self._awaiting_tables)]:
            if state.active:
                self._ask_table(state)

    def _hold_rounds(self, until: float) -> None:
        """Open no round for some time, and let nothing end that a round could have renewed.

        Raises:
            RefusedError: Leases would have to be told to end before that.
        """
        settings = self.settings
        if not until <= self._now + settings.bid_deadline + settings.solve_budget + 1e-6:
            raise RefusedError("rounds", "they can be held for as long as they may take")
        self._held_until = until if until > self._now else None
        if self._held_until is not None:
            self._alarms.set(self._held_until, OpenFree())
        # The round of a beat that is due begins with the settings that wait for it.
        beat = self._beat if self._late_beat is None else self._late_beat
        due = beat is not None and beat - settings.round_lead <= self._now
        coming = self._next_settings if due else None
        self._leasing.bridge((coming or settings).round_lead)

    def _due(self) -> tuple[float | None, bool]:
        """The beat whose round is due, and whether one between beats is: an open one is again."""
        beat, late = self._rounds.open_beat, self._late_beat
        # A later beat deals with everything that an earlier one would.
        between = self._rounds.open is not None and beat is None
        return late if late is not None else beat, self._wants_round or between

    def parts(self, *, changed: bool = False) -> Written:
        """Its state without an open round: all of it, or what changed since this was last asked."""
        late_beat, wants_round = self._due()
        now = None if self._now == -math.inf else self._now
        yield "arbiter", ArbiterPart(now, self._beat, late_beat, self._pool_at, wants_round)
        yield "rounds", self._rounds.part()
        if self._settings_changed or not changed:
            yield "settings", SettingsPart(self.settings, self._next_settings)
        yield from self._alarms.parts(changed=changed)
        yield from self._world.parts(changed=changed)
        for app in take(self._touched_tables) if changed else sorted(self._awaiting_tables):
            until = self._awaiting_tables.get(app)
            yield f"awaited/{app}", None if until is None else AwaitedPart(until)
        yield from self._leasing.parts(changed=changed)
        if changed:
            self._settings_changed = False

    @staticmethod
    def restored(shelf: Shelf, policy: Policy, *, seed: int) -> "Arbiter":
        """The arbiter that was written down."""
        settings = shelf.one(SettingsPart)
        arbiter = Arbiter.__new__(Arbiter)
        arbiter._start(World.restored(shelf, settings.present), policy, seed)
        arbiter._take_back(shelf)
        arbiter._next_settings = settings.pending
        return arbiter

    def _take_back(self, shelf: Shelf) -> None:
        part = shelf.one(ArbiterPart)
        if part.now is not None:
            self._now = self._leasing.now = self._rounds.now = part.now
        self._beat, self._late_beat = part.beat, part.late_beat
        self._pool_at, self._wants_round = part.pool_at, part.wants_round
        self._alarms.take_back(shelf.one(AlarmsPart), shelf.all(AlarmPart))
        self._rounds.take_back(shelf.one(RoundsPart))
        self._leasing.take_back(shelf)
        awaited = shelf.all(AwaitedPart)
        self._awaiting_tables = {AppId(app): part.until for app, part in awaited.items()}
