"""Changing leases: granting, renewing, revoking, and reclaiming idle GPUs.

Everything here acts on the world at once and gathers what apps must be told.
"""

import math
from collections.abc import Iterable, Mapping

from themis.core.arbiter.alarms import Alarms, CheckIdle, TakeAsEmpty, TellToLeave
from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.cluster_state import World
from themis.core.arbiter.lease_changes import LeaseChanges
from themis.core.arbiter.state_parts import Shelf, WatchedPart, Written, take
from themis.core.model import AppId, GpuId, Lease, LeaseSource
from themis.core.model.reasons import Reason
from themis.core.policies.base import Allotment, Plan, View

LEASE_ENDS = "its lease ends"
CALLED_IN = "called in for an app that cannot wait"
DRAINING = "its machine is draining"

GIVEN_BACK = "given back"
SHARE_OVER = "its share of the lease is over"
"""Why a lease is taken back, beside the reasons that people know."""


class Leasing:
    """The hands of the arbiter. `now` is set by it before anything else."""

    def __init__(self, world: World, alarms: Alarms, *, on_beats: bool) -> None:
        self._world = world
        self._alarms = alarms
        self._on_beats = on_beats
        self._idle_checks: set[AppId] = set()
        self._touched: set[AppId] = set()
        """Of these it may have changed whether they are checked."""
        self.now = -math.inf
        self.changes = LeaseChanges()
        self.freed = False
        """Whether a GPU came free since this was last looked at."""
        self.emptied: set[AppId] = set()
        """Apps that left a slot since this was last looked at."""

    @property
    def touched(self) -> bool:
        """Whether there is something to tell, to close or to deal."""
        return self.freed or bool(self.emptied) or self.changes.any

    # Ending

    def take_away(self, gpu: GpuId, app: AppId, why: str) -> None:
        """End what an app holds or is promised on a GPU; a process gets until the lease's end."""
        ledger = self._world.ledger
        dropped = ledger.unqueue(gpu, app)
        if dropped is None:
            dropped = ledger.evict(gpu)
            if dropped is not None:
                last = max(dropped.end, self.now) + self._world.settings.guard
                self._alarms.set(last, TakeAsEmpty(gpu, dropped.token))
        if dropped is not None:
            self.changes.revoked(dropped, why)
            self._note_waiting_of(app)

    def empty(self, gpu: GpuId, token: int) -> None:
        """A slot is empty under a token; whoever waits for it begins."""
        handover = self._world.ledger.vacate(gpu, token, self.now)
        if handover.ended is None:
            return
        self.changes.ended(handover.ended)
        self.emptied.add(handover.ended.app)
        self._note_waiting_of(handover.ended.app)
        if handover.begun is not None:
            self.watch_idle(handover.begun.app)
        else:
            self.freed = True

    def release(self, state: AppState, gpus: Iterable[GpuId]) -> None:
        """An app gives GPUs back on which nothing of it runs.

        For a while it is offered no others: it would give them back too.
        """
        for gpu in gpus:
            lease = self._world.ledger.holdings(state.id).get(gpu)
            if lease is None:
                continue
            if self._world.ledger.unqueue(gpu, state.id) is None:
                self.empty(gpu, lease.token)
            else:
                self.changes.revoked(lease, GIVEN_BACK)
        state.give_back(len(self._world.ledger.holdings(state.id)))
        self.note_waiting(state)

    def lose(self, leases: Iterable[Lease], reason: str) -> None:
        """The GPUs of these leases are gone, and so is whatever ran there."""
        for lease in leases:
            self.changes.revoked(lease, reason)
            self.changes.ended(lease)
            self.emptied.add(lease.app)
            self._note_waiting_of(lease.app)

    def tell_to_leave(self, gpu: GpuId, token: int) -> None:
        """A lease that ends before its beat: its holder must go now."""
        ledger = self._world.ledger
        lease = next((x for x in ledger.chain(gpu) if x.token == token), None)
        present = ledger.lease(gpu)
        if lease is None or (lease is present and ledger.is_leaving(gpu)):
            return
        if lease.end - self._world.settings.grace > self.now + 1e-6:
            return  # It was renewed since.
        if lease is not present and lease.end > self.now:
            # Whoever was there before is slow to go: it may still have a little of its time.
            self._alarms.set(lease.end, TellToLeave(gpu, token))
            return
        self.take_away(gpu, lease.app, SHARE_OVER)

    def take_as_empty(self, gpu: GpuId, token: int) -> None:
        """A revoked lease has ended and the guard has passed."""
        if self._world.ledger.is_leaving(gpu):
            self.empty(gpu, token)

    # Giving

    def carry_out(self, plan: Plan, view: View) -> tuple[Allotment, ...]:
        """Bring the ledger in line; parts that name something gone are dropped, and only they."""
        first = {gpu: item for item in plan.allotments for gpu in item.gpus}
        second = {gpu: item for item in plan.followups for gpu in item.gpus}
        dropped: list[Allotment] = []
        going_on = self._extend(plan, second, view)
        for gpu in sorted({*first, *view.holders} - going_on):
            item, follower = first.get(gpu), second.get(gpu)
            if item is not None and not (self._keeps(gpu, item) or self._still_good(gpu, item)):
                dropped.append(Allotment(item.app, (gpu,), item.source, item.until))
                item = None
            self._hand_over(gpu, item, view)
            if follower is not None and item is not None and self._still_good(gpu, follower):
                self._follow(gpu, follower, view)
            elif follower is not None:
                dropped.append(Allotment(follower.app, (gpu,), follower.source))
        # Another app may want the dropped GPUs; a failed round would fail again.
        self.freed = self.freed or bool(dropped)
        return tuple(dropped)

    def _extend(self, plan: Plan, second: Mapping[GpuId, Allotment], view: View) -> set[GpuId]:
        """Renew where nothing changes but the end of leases: on most GPUs, at a beat."""
        going_on: set[GpuId] = set()
        if not view.at_beat or not self._on_beats:
            return going_on
        ledger, keeps = self._world.ledger, self._world.keeps_leases
        for item in plan.allotments:
            if item.until is not None:
                continue
            gpus = [gpu for gpu in ledger.going_on(item.app, item.gpus) if keeps(gpu)]
            if second:
                gpus = [gpu for gpu in gpus if gpu not in second]
            if gpus:
                renewed = ledger.extend(
                    item.app, gpus, at=self.now, end=view.end, source=item.source
                )
                self.changes.extended(item.app, renewed)
                going_on.update(gpus)
        return going_on

    def _keeps(self, gpu: GpuId, item: Allotment) -> bool:
        """Whether it goes on where it is: it may be between phases, or its machine cordoned."""
        tail = self._world.ledger.tail(gpu)
        return tail is not None and tail.app == item.app and self._world.keeps_leases(gpu)

    def _still_good(self, gpu: GpuId, item: Allotment) -> bool:
        state = self._world.apps.get(item.app)
        return state is not None and state.active and self._world.takes_leases(gpu)

    def _hand_over(self, gpu: GpuId, item: Allotment | None, view: View) -> None:
        """Give one offered GPU to its new owner, to its old one, or leave it idle."""
        ledger = self._world.ledger
        tail = ledger.tail(gpu)
        while tail is not None and (item is None or tail.app != item.app):
            self.take_away(gpu, tail.app, LEASE_ENDS if view.at_beat else CALLED_IN)
            tail = ledger.tail(gpu)
        if item is not None and tail is not None:
            # Called in and won back, it is what it was.
            source = item.source if view.at_beat else tail.source
            self.renew(gpu, tail, source, view.end, item.until)
        elif item is not None:
            end = self._full_end(gpu, view) if item.until is None else item.until
            # Results tell apart what a round between beats gave, whatever settled it.
            source = item.source if view.at_beat else LeaseSource.ARRIVAL
            lease = ledger.grant(gpu, item.app, at=self.now, end=end, source=source)
            self.changes.granted(lease)
            self._after(lease, early=item.until is not None)

    def _follow(self, gpu: GpuId, item: Allotment, view: View) -> None:
        end = self._full_end(gpu, view)
        if gpu in self._world.ledger.holdings(item.app):
            # Its share of the last lease is nearly over; it comes back after the one between.
            self.take_away(gpu, item.app, LEASE_ENDS)
        self.changes.granted(self._world.ledger.follow(gpu, item.app, end=end, source=item.source))

    def _full_end(self, gpu: GpuId, view: View) -> float:
        """When a full lease given in this round ends."""
        if self._on_beats:
            return view.end
        lease = self._world.ledger.lease(gpu)
        start = lease.end if lease is not None else view.now
        return max(start, view.now) + view.lease

    def renew(
        self, gpu: GpuId, tail: Lease, source: LeaseSource, beat: float, until: float | None = None
    ) -> None:
        """Extend the last lease on a GPU: to a beat, or for part of the time to it."""
        if until is not None:
            end = until
        elif self._on_beats:
            end = beat
        else:
            end = tail.end + self._world.settings.lease
        lease = self._world.ledger.renew(gpu, tail.app, at=self.now, end=end, source=source)
        self.changes.renewed(lease)
        self._after(lease, early=until is not None)

    def _after(self, lease: Lease, *, early: bool) -> None:
        if early:
            last = max(self.now, lease.end - self._world.settings.grace)
            self._alarms.set(last, TellToLeave(lease.gpu, lease.token))
        if self._world.ledger.lease(lease.gpu) is lease:
            self.watch_idle(lease.app)

    def watch_all(self) -> None:
        """Settings changed: check every app again later."""
        for app in sorted(self._world.apps):
            self.watch_idle(app)

    # Use it or lose it

    def watch_idle(self, app: AppId) -> None:
        """Look again later whether an app uses what it has leased."""
        after = self._world.settings.idle_after
        if after > 0 and app not in self._idle_checks:
            self._check_at(self.now + after, app)

    def _check_at(self, at: float, app: AppId) -> None:
        self._idle_checks.add(app)
        self._touched.add(app)
        self._alarms.set(at, CheckIdle(app))

    def reclaim_idle(self, app: AppId) -> None:
        """Take back what an app has leased and not used for too long."""
        self.forget(app)
        state = self._world.apps.get(app)
        after = self._world.settings.idle_after
        if state is None or after <= 0:
            return
        first, reclaimed = math.inf, False
        for gpu in self._world.ledger.idle(app):
            since = self._world.ledger.idle_since(gpu)
            lease = self._world.ledger.lease(gpu)
            if since is None or lease is None:
                continue
            if self.now >= since + after:
                self.changes.revoked(lease, Reason.IDLE_RECLAIMED)
                self.empty(gpu, lease.token)
                state.explain(Reason.IDLE_RECLAIMED)
                reclaimed = True
            else:
                first = min(first, since)
        if math.isfinite(first):
            self._check_at(first + after, app)
        elif reclaimed and not self._world.ledger.holdings(app):
            # It had what it waited for and ran nothing: it has not been waiting after all.
            state.leave_empty()
            self._world.count_anew(state, self.now)
        self.note_waiting(state)

    def _note_waiting_of(self, app: AppId) -> None:
        state = self._world.apps.get(app)
        if state is not None:
            self.note_waiting(state)

    def note_waiting(self, state: AppState) -> None:
        """Remember since when an app has had nothing."""
        if self._world.ledger.holdings(state.id):
            state.wait_since(math.inf)
        elif state.waiting_since == math.inf:
            state.wait_since(self.now)

    def forget(self, app: AppId) -> None:
        """Forget the alarm of an app: the app ended, or the alarm has rung."""
        self._touched.add(app)
        self._idle_checks.discard(app)

    # After the arbiter was away

    def bridge(self, lead: float) -> None:
        """Let nothing end that lapsed, or would before a round with this lead could settle.

        Whoever holds a GPU holds it until a round that opens now could take it away: the same
        token, so that what still runs there runs on (docs/decisions/0034). Somebody who is
        followed by another has had its share.
        """
        ledger, end = self._world.ledger, self.now + lead
        early = self._alarms.leave_early()
        ledger.look_anew(self.now)
        for gpu in map(GpuId, range(len(ledger))):
            tail = ledger.tail(gpu)
            if tail is not None and tail.end < end:
                lease = ledger.renew(gpu, tail.app, at=self.now, end=end, source=tail.source)
                self.changes.renewed(lease)
                self._after(lease, early=(gpu, tail.token) in early)

    # Writing down

    def parts(self, *, changed: bool) -> Written:
        """All parts, or those that changed since they were last asked for."""
        for app in take(self._touched) if changed else sorted(self._idle_checks):
            yield f"watched/{app}", WatchedPart() if app in self._idle_checks else None

    def take_back(self, shelf: Shelf) -> None:
        """Become what was written down."""
        self._idle_checks = set(map(AppId, shelf.all(WatchedPart)))
