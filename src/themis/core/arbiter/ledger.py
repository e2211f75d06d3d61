"""Who holds which GPU: leases, fencing tokens, and what waits behind them.

Every GPU is in exactly one state: free, leased, fencing (its holder was told to go and the slot is
not yet reported empty) or quarantined. A GPU may have leases queued behind the present one; each
starts when the one before it has gone.

    lease = ledger.grant(gpu, app, at=0.0, end=600.0, source=Source.AUCTION)
    ledger.evict(gpu)                         # told to go
    ledger.vacate(gpu, lease.token, at=20.0)  # reported empty: the next in the queue begins
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from themis.core.arbiter.state_parts import AccountPart, GpuPart, LedgerPart, Shelf, Written, take
from themis.core.model import AppId, GpuId, Lease, LeaseSource
from themis.core.model.values import value
from themis.errors import InvariantError


class GpuState(StrEnum):
    """Free + leased + fencing + quarantined = all."""

    FREE = "free"
    LEASED = "leased"
    FENCING = "fencing"
    QUARANTINED = "quarantined"


@dataclass(slots=True)
class _Gpu:
    lease: Lease | None = None
    leaving: bool = False
    queue: deque[Lease] = field(default_factory=deque)
    quarantine: str | None = None
    segment_start: float = 0.0
    """Since when the present lease has had its present source."""
    busy: bool = False
    idle_since: float = 0.0


@dataclass(slots=True)
class _Account:
    """GPU-seconds of one app: those booked, and those that its present slots still gather."""

    booked: float = 0.0
    slots: int = 0
    starts: float = 0.0
    """The sum of the times since when they gather."""


@value
class Handover:
    """What became of a slot: the lease that ended, and the one that began."""

    ended: Lease | None = None
    begun: Lease | None = None


class Ledger:
    """All leases. The only place that issues tokens."""

    def __init__(self, gpus: int, *, first_token: int = 1) -> None:
        self._gpus = [_Gpu() for _ in range(gpus)]
        self._next_token = first_token
        self._holdings: dict[AppId, dict[GpuId, Lease]] = {}
        self._attained: dict[AppId, dict[LeaseSource, float]] = {}
        self._accounts: dict[AppId, _Account] = {}
        self._free: set[GpuId] = {GpuId(index) for index in range(gpus)}
        self._leaving: set[GpuId] = set()
        self._idle: set[GpuId] = set()
        """Leased, not being vacated, and without a process."""
        self._held: dict[AppId, tuple[GpuId, ...]] = {}
        self._touched: set[GpuId] = set()
        self._touched_accounts: set[AppId] = set()

    # Reading

    def __len__(self) -> int:
        return len(self._gpus)

    @property
    def next_token(self) -> int:
        """The token of the next grant; everything issued so far is below it."""
        return self._next_token

    def state(self, gpu: GpuId) -> GpuState:
        """The one state this GPU is in."""
        entry = self._gpus[gpu]
        if entry.quarantine is not None:
            return GpuState.QUARANTINED
        if entry.lease is None:
            return GpuState.FREE
        return GpuState.FENCING if entry.leaving else GpuState.LEASED

    def counts(self) -> dict[GpuState, int]:
        """How many GPUs are in each state."""
        result = dict.fromkeys(GpuState, 0)
        for index in range(len(self._gpus)):
            result[self.state(GpuId(index))] += 1
        return result

    def free(self) -> set[GpuId]:
        """Free GPUs (do not change this set)."""
        return self._free

    def unpromised(self) -> list[GpuId]:
        """GPUs without holder or successor, those being vacated included; sorted."""
        leaving = (gpu for gpu in self._leaving if not self._gpus[gpu].queue)
        return sorted((*self._free, *leaving))

    def ending(self, horizon: float) -> list[GpuId]:
        """GPUs promised to no app past a time; sorted, without those in quarantine."""
        gpus = []
        for index, entry in enumerate(self._gpus):
            if entry.queue:
                last: Lease | None = entry.queue[-1]
            else:
                last = None if entry.leaving else entry.lease
            if entry.quarantine is None and (last is None or last.end <= horizon):
                gpus.append(GpuId(index))
        return gpus

    def lease(self, gpu: GpuId) -> Lease | None:
        """The present lease of a GPU, also while it is fencing."""
        return self._gpus[gpu].lease

    def is_leaving(self, gpu: GpuId) -> bool:
        """Whether its present holder was told to go."""
        return self._gpus[gpu].leaving

    def queue(self, gpu: GpuId) -> tuple[Lease, ...]:
        """Leases that begin after the present one."""
        return tuple(self._gpus[gpu].queue)

    def chain(self, gpu: GpuId) -> tuple[Lease, ...]:
        """The present lease, then those that begin after it."""
        entry = self._gpus[gpu]
        return (*((entry.lease,) if entry.lease is not None else ()), *entry.queue)

    def tail(self, gpu: GpuId) -> Lease | None:
        """The last lease promised on a GPU that still stands; None if nothing is promised."""
        entry = self._gpus[gpu]
        if entry.queue:
            return entry.queue[-1]
        return None if entry.leaving else entry.lease

    def first_end(self) -> float | None:
        """When the first of the last leases on the GPUs ends; None if nothing is promised."""
        first = math.inf
        for entry in self._gpus:
            last = entry.queue[-1] if entry.queue else None if entry.leaving else entry.lease
            if last is not None and last.end < first:
                first = last.end
        return first if first < math.inf else None

    def promised(self, gpus: Iterable[GpuId]) -> dict[GpuId, AppId]:
        """The last app in line for each of these GPUs."""
        owners = {}
        for gpu in gpus:
            entry = self._gpus[gpu]
            if entry.queue:
                owners[gpu] = entry.queue[-1].app
            elif entry.lease is not None and not entry.leaving:
                owners[gpu] = entry.lease.app
        return owners

    def holdings(self, app: AppId) -> dict[GpuId, Lease]:
        """GPUs an app holds or is promised (do not change this mapping)."""
        return self._holdings.get(app, {})

    def held(self, app: AppId) -> tuple[GpuId, ...]:
        """The same GPUs, sorted."""
        held = self._held.get(app)
        if held is None:
            held = self._held[app] = tuple(sorted(self._holdings.get(app, ())))
        return held

    def holders(self) -> tuple[AppId, ...]:
        """Apps that hold, are promised or still occupy a GPU, sorted."""
        present = (app for app, account in self._accounts.items() if account.slots)
        return tuple(sorted({*self._holdings, *present}))

    def present(self, app: AppId) -> int:
        """How many slots an app's leases occupy now, fencing ones included."""
        account = self._accounts.get(app)
        return account.slots if account is not None else 0

    def leases(self) -> Iterator[Lease]:
        """Every present and promised lease, by GPU."""
        for entry in self._gpus:
            if entry.lease is not None:
                yield entry.lease
            yield from entry.queue

    def attained(self, app: AppId, at: float) -> dict[LeaseSource, float]:
        """GPU-seconds an app has held up to now, by source."""
        total = dict(self._attained.get(app, {}))
        mine = self._holdings.get(app, {})
        for gpu in self.held(app):  # sorted: in another order floats add up to something else
            entry, lease = self._gpus[gpu], mine[gpu]
            if entry.lease is lease:
                held = max(0.0, at - entry.segment_start)
                total[lease.source] = total.get(lease.source, 0.0) + held
        return total

    def attained_total(self, app: AppId, at: float) -> float:
        """GPU-seconds that an app has occupied up to now, also where it is leaving."""
        account = self._accounts.get(app)
        return account.booked + account.slots * at - account.starts if account is not None else 0.0

    def idle_since(self, gpu: GpuId) -> float | None:
        """Since when a leased GPU has had no process; None if it has one or is not leased."""
        entry = self._gpus[gpu]
        if entry.lease is None or entry.leaving or entry.busy:
            return None
        return entry.idle_since

    def idle(self, app: AppId) -> list[GpuId]:
        """GPUs that an app has leased and runs nothing on, sorted."""
        gpus = []
        for gpu in self._idle:
            lease = self._gpus[gpu].lease
            if lease is not None and lease.app == app:
                gpus.append(gpu)
        return sorted(gpus)

    def quarantine_reason(self, gpu: GpuId) -> str | None:
        """Why a GPU is quarantined, if it is."""
        return self._gpus[gpu].quarantine

    # Changing

    def add(self, gpus: int) -> None:
        """More GPUs, at the end, free."""
        for _ in range(gpus):
            gpu = GpuId(len(self._gpus))
            self._free.add(gpu)
            self._touched.add(gpu)
            self._gpus.append(_Gpu())

    def grant(self, gpu: GpuId, app: AppId, *, at: float, end: float, source: LeaseSource) -> Lease:
        """Give a GPU to an app, at once if it is free, else when its leaving holder has gone."""
        entry = self._gpus[gpu]
        if entry.quarantine is not None:
            raise InvariantError(f"GPU {gpu} is quarantined and cannot be granted to {app}")
        tail = self.tail(gpu)
        if tail is not None:
            raise InvariantError(f"GPU {gpu} is promised to {tail.app}; {app} cannot have it")
        return self._promise(gpu, app, at=at, end=end, source=source)

    def follow(self, gpu: GpuId, app: AppId, *, end: float, source: LeaseSource) -> Lease:
        """Promise a GPU to an app from the end of the last lease on it."""
        tail = self.tail(gpu)
        if tail is None:
            raise InvariantError(f"GPU {gpu} has no lease that {app} could follow")
        return self._promise(gpu, app, at=tail.end, end=end, source=source)

    def _promise(
        self, gpu: GpuId, app: AppId, *, at: float, end: float, source: LeaseSource
    ) -> Lease:
        if app in {lease.app for lease in self._promised(gpu)}:
            raise InvariantError(f"GPU {gpu} is promised to {app} already")
        lease = Lease(gpu, app, self._next_token, at, end, source)
        self._next_token += 1
        self._touched.add(gpu)
        entry = self._gpus[gpu]
        self._holdings.setdefault(app, {})[gpu] = lease
        self._held.pop(app, None)
        if entry.lease is None:
            self._begin(entry, lease, at)
        else:
            entry.queue.append(lease)
        return lease

    def _promised(self, gpu: GpuId) -> list[Lease]:
        entry = self._gpus[gpu]
        present = [] if entry.lease is None or entry.leaving else [entry.lease]
        return [*present, *entry.queue]

    def renew(self, gpu: GpuId, app: AppId, *, at: float, end: float, source: LeaseSource) -> Lease:
        """Extend the last lease on a GPU: same token, later end, process untouched."""
        tail = self.tail(gpu)
        if tail is None or tail.app != app:
            raise InvariantError(f"GPU {gpu} is not held by {app} and cannot be renewed")
        entry = self._gpus[gpu]
        self._touched.add(gpu)
        renewed = Lease(gpu, app, tail.token, tail.start, end, source)
        self._holdings[app][gpu] = renewed
        if entry.queue:
            entry.queue[-1] = renewed
        else:
            if source != tail.source:
                self._close_segment(entry, tail, at)
            entry.lease = renewed
        return renewed

    def going_on(self, app: AppId, gpus: Iterable[GpuId]) -> list[GpuId]:
        """Those of these GPUs that an app holds and keeps, with no app in line behind."""
        mine = self._holdings.get(app)
        if mine is None:
            return []
        entries = self._gpus
        return [
            gpu
            for gpu in gpus
            if gpu in mine and mine[gpu] is entries[gpu].lease and not entries[gpu].queue
        ]

    def extend(
        self, app: AppId, gpus: Iterable[GpuId], *, at: float, end: float, source: LeaseSource
    ) -> list[Lease]:
        """Renew leases that go on, many at a time."""
        mine = self._holdings[app]
        renewed = []
        for gpu in gpus:
            entry = self._gpus[gpu]
            lease = entry.lease
            if lease is None or lease.app != app or entry.leaving or entry.queue:
                raise InvariantError(f"GPU {gpu} is not held by {app} and cannot be renewed")
            if lease.source is not source:
                self._close_segment(entry, lease, at)
            lease = Lease(gpu, app, lease.token, lease.start, end, source)
            entry.lease = mine[gpu] = lease
            self._touched.add(gpu)
            renewed.append(lease)
        return renewed

    def evict(self, gpu: GpuId) -> Lease | None:
        """Tell the present holder to go; the slot is fencing until it is reported empty."""
        entry = self._gpus[gpu]
        if entry.lease is None or entry.leaving:
            return None
        entry.leaving = True
        self._touched.add(gpu)
        self._leaving.add(gpu)
        self._idle.discard(gpu)
        self._drop_holding(entry.lease)
        return entry.lease

    def unqueue(self, gpu: GpuId, app: AppId) -> Lease | None:
        """Take back a promise that has not begun."""
        entry = self._gpus[gpu]
        for lease in entry.queue:
            if lease.app == app:
                entry.queue.remove(lease)
                self._touched.add(gpu)
                self._drop_holding(lease)
                return lease
        return None

    def vacate(self, gpu: GpuId, token: int, at: float) -> Handover:
        """The slot is empty: end the lease under this token and begin the next, if any.

        An older token has no effect.
        """
        entry = self._gpus[gpu]
        if entry.lease is None or entry.lease.token != token:
            return Handover()
        ended = self._end(gpu, at)
        begun = None
        if entry.queue:
            begun = replace(entry.queue.popleft(), start=at)
            self._holdings[begun.app][gpu] = begun
            self._begin(entry, begun, at)
        return Handover(ended, begun)

    def quarantine(self, gpu: GpuId, reason: str, at: float) -> list[Lease]:
        """Take a GPU out of use; returns the leases and promises that ended with it."""
        entry = self._gpus[gpu]
        self._touched.add(gpu)
        lost = list(entry.queue)
        for lease in lost:
            self._drop_holding(lease)
        entry.queue.clear()
        if entry.lease is not None:
            lost.insert(0, self._end(gpu, at))
        entry.quarantine = reason
        self._free.discard(gpu)
        return lost

    def restore(self, gpu: GpuId) -> None:
        """A quarantined GPU is free again."""
        if self._gpus[gpu].quarantine is not None:
            self._gpus[gpu].quarantine = None
            self._touched.add(gpu)
            self._free.add(gpu)

    def mark_busy(self, gpu: GpuId, app: AppId) -> None:
        """A process of the holder runs on a GPU."""
        entry = self._gpus[gpu]
        if entry.lease is not None and entry.lease.app == app:
            entry.busy = True
            self._touched.add(gpu)
            self._idle.discard(gpu)

    def mark_idle(self, gpu: GpuId, app: AppId, at: float) -> None:
        """No process of the holder runs on a GPU."""
        entry = self._gpus[gpu]
        if entry.lease is not None and entry.lease.app == app:
            entry.busy = False
            entry.idle_since = at
            self._touched.add(gpu)
            if not entry.leaving:
                self._idle.add(gpu)

    def look_anew(self, at: float) -> None:
        """Count the time for which leased GPUs have had no process from now on."""
        for gpu in self._idle:
            self._gpus[gpu].idle_since = at
            self._touched.add(gpu)

    def raise_tokens(self, floor: int) -> None:
        """Let every token to come be above this one."""
        self._next_token = max(self._next_token, floor + 1)

    def forget(self, app: AppId) -> None:
        """Drop the accounts of an ended app."""
        self._attained.pop(app, None)
        self._accounts.pop(app, None)
        self._held.pop(app, None)
        self._touched_accounts.add(app)

    def _begin(self, entry: _Gpu, lease: Lease, at: float) -> None:
        account = self._accounts.get(lease.app)
        if account is None:
            account = self._accounts[lease.app] = _Account()
        account.slots += 1
        account.starts += at
        self._touched.add(lease.gpu)
        self._touched_accounts.add(lease.app)
        entry.lease = lease
        entry.leaving = False
        entry.busy = False
        entry.idle_since = at
        entry.segment_start = at
        self._free.discard(lease.gpu)
        self._idle.add(lease.gpu)

    def _end(self, gpu: GpuId, at: float) -> Lease:
        entry = self._gpus[gpu]
        lease = entry.lease
        if lease is None:
            raise InvariantError(f"GPU {gpu} has no lease to end")
        self._close_segment(entry, lease, at)
        self._touched.add(gpu)
        if not entry.leaving:
            self._drop_holding(lease)
        account = self._accounts[lease.app]
        account.slots -= 1
        # Without slots exactly zero: what floats round away must not add up over weeks.
        account.starts = account.starts - at if account.slots else 0.0
        entry.lease = None
        entry.leaving = False
        self._leaving.discard(gpu)
        self._idle.discard(gpu)
        self._free.add(gpu)
        return lease

    def _close_segment(self, entry: _Gpu, lease: Lease, at: float) -> None:
        self._touched_accounts.add(lease.app)
        account = self._attained.setdefault(lease.app, {})
        held = max(0.0, at - entry.segment_start)
        account[lease.source] = account.get(lease.source, 0.0) + held
        total = self._accounts[lease.app]
        total.booked += held
        total.starts += at - entry.segment_start
        entry.segment_start = at

    def _drop_holding(self, lease: Lease) -> None:
        mine = self._holdings.get(lease.app)
        if mine is None:
            return
        # A fencing lease is no longer a holding, and its app may have been promised the GPU anew.
        held = mine.get(lease.gpu)
        if held is not None and held.token == lease.token:
            del mine[lease.gpu]
            self._held.pop(lease.app, None)
        if not mine:
            del self._holdings[lease.app]

    # Writing down

    def parts(self, *, changed: bool) -> Written:
        """All parts, or those that changed since they were last asked for."""
        yield "ledger", LedgerPart(self._next_token)
        for gpu in take(self._touched) if changed else map(GpuId, range(len(self._gpus))):
            yield f"gpu/{gpu}", self._gpu_part(self._gpus[gpu])
        for app in take(self._touched_accounts) if changed else sorted(self._accounts):
            yield f"account/{app}", self._account_part(app)

    @staticmethod
    def _gpu_part(entry: _Gpu) -> GpuPart:
        if entry.lease is None:
            return GpuPart(quarantine=entry.quarantine)
        return GpuPart(
            entry.lease,
            entry.leaving,
            tuple(entry.queue),
            entry.quarantine,
            entry.segment_start,
            entry.busy,
            entry.idle_since,
        )

    def _account_part(self, app: AppId) -> AccountPart | None:
        account = self._accounts.get(app)
        if account is None:
            return None
        attained = tuple(self._attained.get(app, {}).items())
        return AccountPart(account.booked, account.starts, attained)

    def take_back(self, shelf: Shelf) -> None:
        """Become what was written down of these GPUs."""
        self._next_token = shelf.one(LedgerPart).next_token
        for name, account in shelf.all(AccountPart).items():
            self._accounts[AppId(name)] = _Account(account.booked, starts=account.starts)
            if account.attained:
                self._attained[AppId(name)] = dict(account.attained)
        for index, entry in enumerate(self._gpus):
            self._take_back_gpu(GpuId(index), entry, shelf)

    def _take_back_gpu(self, gpu: GpuId, entry: _Gpu, shelf: Shelf) -> None:
        part = shelf.one(GpuPart, gpu)
        entry.lease, entry.leaving, entry.quarantine = part.lease, part.leaving, part.quarantine
        entry.queue = deque(part.queue)
        entry.segment_start, entry.idle_since = part.segment_start, part.idle_since
        entry.busy = part.busy
        if part.lease is not None or part.quarantine is not None:
            self._free.discard(gpu)
        for lease in self._promised(gpu):
            self._holdings.setdefault(lease.app, {})[gpu] = lease
        if part.lease is None:
            return
        shelf.one(AccountPart, part.lease.app)
        self._accounts[part.lease.app].slots += 1
        if part.leaving:
            self._leaving.add(gpu)
        elif not part.busy:
            self._idle.add(gpu)
