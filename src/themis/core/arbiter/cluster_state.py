"""The arbiter's state between rounds: machines, leases, apps, owners, clocks."""

import math
from collections.abc import Hashable, Iterable

from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.app_status import AppMarks
from themis.core.arbiter.equal_shares import ShareTracker
from themis.core.arbiter.ledger import Ledger
from themis.core.arbiter.records import AppRecord
from themis.core.arbiter.settings import BidderKind, ContentionOf, Settings
from themis.core.arbiter.state_parts import (
    AppPart,
    CapacityPart,
    ClockPart,
    ClusterPart,
    ContentionPart,
    MachinePart,
    OwnerPart,
    Shelf,
    Written,
    take,
)
from themis.core.fairness.contention import CapacityClock, ContentionClock, MeterState
from themis.core.fairness.exact_sums import IntegralState
from themis.core.fairness.ideal_time import ideal_time_of_sums
from themis.core.fairness.rho import best_case_of_sums
from themis.core.model import (
    AppId,
    AppSpec,
    Constraint,
    GpuId,
    Lease,
    Machine,
    OwnerId,
    Topology,
)
from themis.errors import DuplicateError, RefusedError, UnknownAppError

GONE = "machine left"


class World:
    """Everything that is true now. No decisions are taken here."""

    def __init__(self, topology: Topology, settings: Settings) -> None:
        self.topology = topology
        self.settings = settings
        self.ledger = Ledger(topology.gpus)
        self.apps: dict[AppId, AppState] = {}
        self.contention = ContentionClock()
        self.capacity = CapacityClock()
        self.sharing = ShareTracker()
        self.quotas: dict[OwnerId, int] = {}
        self.owner_weights: dict[OwnerId, float] = {}
        self._gone: set[int] = set()
        self._cordoned: set[int] = set()
        self._draining: set[int] = set()
        self._active_of: dict[OwnerId, set[AppId]] = {}
        self._constraints: dict[Constraint, frozenset[int]] = {}
        self._stretches: dict[AppId, list[tuple[float, float, float]]] = {}
        """Elapsed time, contention and capacity of apps up to when they were counted anew."""
        self._marks = AppMarks()
        self._touched_machines: set[int] = set()
        self._touched_owners: set[OwnerId] = set()
        self._recounted = False
        """Whether capacities may have changed since they were last written down."""
        self.keep_shares(0.0)

    # Machines

    def machine_number(self, name: str) -> int:
        """The number of a machine.

        Raises:
            RefusedError: There is no such machine.
        """
        number = self.topology.number_of.get(name)
        if number is None:
            raise RefusedError(name, "there is no such machine")
        return number

    def is_gone(self, number: int) -> bool:
        """Whether a machine has left."""
        return number in self._gone

    def join_machine(self, machine: Machine, at: float) -> None:
        """Add a machine, or take one back that had left, in the same shape."""
        known = self.topology.number_of.get(machine.name)
        if known is None:
            self._touched_machines.add(len(self.topology.machines))
            self.topology = self.topology.joined_by(machine)
            self.ledger.add(machine.gpus)
        elif self.topology.machines[known] != machine:
            raise RefusedError(machine.name, "a machine of this name has another shape")
        else:
            self._touched_machines.add(known)
            self._gone.discard(known)
            for gpu in self.topology.gpus_of[known]:
                if self.ledger.quarantine_reason(gpu) == GONE:
                    self.ledger.restore(gpu)
        self._recount(at)

    def lose_machine(self, number: int, at: float) -> list[Lease]:
        """A machine is gone; returns the leases that ended with it."""
        self._touched_machines.add(number)
        self._gone.add(number)
        # A GPU that was quarantined before stays so for its own reason when the machine is back.
        well = [
            gpu
            for gpu in self.topology.gpus_of[number]
            if self.ledger.quarantine_reason(gpu) is None
        ]
        return self.lose_gpus(well, GONE, at)

    def lose_gpus(self, gpus: Iterable[GpuId], reason: str, at: float) -> list[Lease]:
        """Take GPUs out of use; returns the leases that ended with them."""
        lost = [lease for gpu in gpus for lease in self.ledger.quarantine(gpu, reason, at)]
        self._recount(at)
        return lost

    def restore_gpu(self, gpu: GpuId, at: float) -> None:
        """Take a GPU back into use, at once or when its machine is back."""
        if self.topology.seats[gpu].machine in self._gone:
            self.ledger.quarantine(gpu, GONE, at)
        else:
            self.ledger.restore(gpu)
        self._recount(at)

    def check_gpus(self, gpus: Iterable[GpuId]) -> None:
        """Refuse GPUs that do not exist.

        Raises:
            RefusedError: The cluster has no such GPU.
        """
        count = len(self.ledger)
        for gpu in gpus:
            if not 0 <= gpu < count:
                raise RefusedError(f"GPU {gpu}", f"the cluster has GPUs 0 to {count - 1}")

    def cordon(self, number: int, *, drain: bool, at: float) -> None:
        """Give no new leases on a machine; when draining, renew none either."""
        self._touched_machines.add(number)
        self._cordoned.add(number)
        if drain:
            self._draining.add(number)
        self._recount(at)

    def uncordon(self, number: int, at: float) -> None:
        """Let a machine take leases again."""
        self._touched_machines.add(number)
        self._cordoned.discard(number)
        self._draining.discard(number)
        self._recount(at)

    def is_cordoned(self, number: int) -> bool:
        """Whether a machine takes no new leases."""
        return number in self._cordoned

    def is_draining(self, number: int) -> bool:
        """Whether a machine takes no new leases and renews none."""
        return number in self._draining

    @property
    def any_cordoned(self) -> bool:
        """Whether there is a machine that takes no new leases."""
        return bool(self._cordoned)

    def takes_leases(self, gpu: GpuId) -> bool:
        """Whether a GPU may be leased to a new app."""
        if self._cordoned and self.topology.seats[gpu].machine in self._cordoned:
            return False
        return self.ledger.quarantine_reason(gpu) is None

    def keeps_leases(self, gpu: GpuId) -> bool:
        """Whether a present lease on this GPU may be renewed."""
        return not self._draining or self.topology.seats[gpu].machine not in self._draining

    def usable_gpus(self, constraint: Constraint) -> int:
        """GPUs that are not quarantined, draining or cordoned and match a constraint."""
        return sum(
            1
            for number, machine in enumerate(self.topology.machines)
            if number not in self._cordoned and constraint.allows(machine)
            for gpu in self.topology.gpus_of[number]
            if self.ledger.quarantine_reason(gpu) is None
        )

    def present_gpus(self, constraint: Constraint) -> int:
        """GPUs that match a constraint and are there, on cordoned machines too."""
        return sum(
            1
            for number, machine in enumerate(self.topology.machines)
            if constraint.allows(machine)
            for gpu in self.topology.gpus_of[number]
            if self.ledger.quarantine_reason(gpu) is None
        )

    def allowed_machines(self, constraint: Constraint) -> frozenset[int] | None:
        """Machines an app may use; None for all."""
        return None if constraint.trivial else self._constraints[constraint]

    def allowed_gpus(self, constraint: Constraint) -> tuple[GpuId, ...]:
        """Every GPU that an app with this constraint may be leased now or later."""
        return tuple(
            gpu
            for number, machine in enumerate(self.topology.machines)
            if constraint.allows(machine)
            for gpu in self.topology.gpus_of[number]
            if self.takes_leases(gpu)
        )

    def _recount(self, at: float) -> None:
        for constraint in self._constraints:
            self._count(constraint, at)
        if self.sharing.is_on:
            self.sharing.set_capacity(float(self.usable_gpus(Constraint())), at)

    def _count(self, constraint: Constraint, at: float) -> None:
        self._recounted = True
        self._constraints[constraint] = self._matching(constraint)
        self.capacity.set_capacity(constraint, float(self.usable_gpus(constraint)), at)

    def _matching(self, constraint: Constraint) -> frozenset[int]:
        machines = enumerate(self.topology.machines)
        return frozenset(number for number, machine in machines if constraint.allows(machine))

    # Apps

    def app(self, app: AppId) -> AppState:
        """The state of an app that is not over.

        Raises:
            UnknownAppError: There is none.
        """
        state = self.apps.get(app)
        if state is None or state.outcome:
            raise UnknownAppError(app, "there is no such app, or it has ended")
        return state

    def admit(self, spec: AppSpec, at: float) -> AppState:
        """Take a new app in.

        Raises:
            RefusedError: Its name is taken, or it could never run on this cluster.
        """
        if spec.id in self.apps:
            raise DuplicateError(spec.id, "an app of this name is running")
        self.check_fits(spec)
        state = AppState(spec, at, self._marks)
        if spec.constraint not in self._constraints:
            self._count(spec.constraint, at)
        self.apps[spec.id] = state
        self.sync_activity(state, at)
        return state

    def check_fits(self, spec: AppSpec) -> None:
        """Let an app pass that could run on this cluster, if all of its machines were there.

        Raises:
            RefusedError: It never could.
        """
        largest = sum(m.gpus for m in self.topology.machines if spec.constraint.allows(m))
        gang = max(job.min_gpus for job in spec.jobs)
        if gang > largest:
            raise RefusedError(
                spec.id, f"a job needs {gang} GPUs at once, the cluster has {largest} that match"
            )

    def sync_activity(self, state: AppState, at: float) -> None:
        """Let clocks, shares and owner weights follow what an app has to do, and whether it can."""
        owner, active = state.spec.owner, state.active
        self.sharing.follow(state, at)
        if active == (state.id in self._active_of.get(owner, ())):
            return
        mine = self._active_of.setdefault(owner, set())
        if active:
            mine.add(state.id)
            self.contention.join(state.id, self.weight(state.id), at)
            self.capacity.start(state.id, state.spec.constraint, at)
            self.sharing.take(state, *self._group(state), at)
        else:
            mine.discard(state.id)
            self.contention.leave(state.id, at)
            self.capacity.stop(state.id, at)
            self.sharing.rest(state.id, at)
        self._reweigh(state.spec.owner, at)
        if not mine:
            del self._active_of[state.spec.owner]

    def count_anew(self, state: AppState, at: float) -> None:
        """Let elapsed time, contention and capacity of an app begin now, as if it had just come.

        Results go on counting from its submission.
        """
        if not state.active:
            return
        self._stretches[state.id] = [self._whole_stretch(state, at)]
        self.contention.leave(state.id, at)
        self.contention.forget(state.id)
        self.capacity.stop(state.id, at)
        self.capacity.forget(state.id)
        self.contention.join(state.id, self.weight(state.id), at)
        self.capacity.start(state.id, state.spec.constraint, at)
        self.sharing.take_anew(state, *self._group(state), at)

    def contention_inside(self, app: AppId, at: float) -> float:
        """The contention of an active app in the ideal time inside the scheduler."""
        expected = self.sharing.expected_contention(app)
        return self.contention.mean_contention(app, at) if expected is None else expected

    def let_arrive(self, state: AppState, at: float) -> None:
        """Count an app to which work was added as arriving now, unless that would favour it.

        What is left of an app that is nearly done is narrow, and narrow apps are urgent from their
        first second: then it goes on as if all had been declared from the start.
        """
        if not state.active:
            return
        self.sharing.advance(at)
        left = state.sums_left()
        # If it waits for one more lease, as a policy that looks ahead would see it.
        rest = self.settings.lease + best_case_of_sums(left)
        whole, work = state.whole_sums()
        convention = self.settings.convention
        elapsed, _, capacity = self._stretch(state, at)
        contention = self.contention_inside(state.id, at)
        since_start = ideal_time_of_sums(
            convention, whole, work, contention=contention, capacity=max(1.0, capacity)
        )
        from_now = ideal_time_of_sums(
            convention,
            left,
            state.work_left,
            contention=self.contention.total_weight / self.weight(state.id),
            capacity=max(1.0, self.capacity.capacity_now(state.spec.constraint)),
        )
        if rest / from_now <= (elapsed + rest) / since_start:
            state.begin_anew(at)
            self.count_anew(state, at)

    def _stretch(self, state: AppState, at: float) -> tuple[float, float, float]:
        return (
            self.contention.elapsed(state.id, at),
            self.contention.mean_contention(state.id, at),
            self.capacity.mean_capacity(state.id, at),
        )

    def _whole_stretch(self, state: AppState, at: float) -> tuple[float, float, float]:
        """The same since its submission, however often it was counted anew."""
        last = self._stretch(state, at)
        stretches = [*self._stretches.get(state.id, ()), last]
        elapsed = math.fsum(seconds for seconds, _, _ in stretches)
        if len(stretches) == 1 or elapsed <= 0.0:
            return last
        contention = math.fsum(part[0] * part[1] for part in stretches) / elapsed
        capacity = math.fsum(part[0] * part[2] for part in stretches) / elapsed
        return elapsed, contention, capacity

    def weight(self, app: AppId) -> float:
        """An app's weight: its own, or its part of its owner's."""
        state = self.apps[app]
        if self.settings.bidder is BidderKind.APP:
            return state.weight
        siblings = self._active_of.get(state.spec.owner, ())
        return self._owner_weight(state) / max(1, len(siblings))

    def _owner_weight(self, state: AppState) -> float:
        """The weight of an app's owner."""
        siblings = self._active_of.get(state.spec.owner, ())
        own = self.owner_weights.get(state.spec.owner)
        if own is None:
            # An owner without a weight weighs as much as its heaviest active app.
            own = max((self.apps[name].weight for name in siblings), default=state.weight)
        return own

    def _group(self, state: AppState) -> tuple[str, float]:
        """Whose weight an app shares, and how much that is."""
        if self.settings.bidder is BidderKind.APP:
            return state.id, state.weight
        return state.spec.owner, self._owner_weight(state)

    def queued_work(self, app: AppId) -> float:
        """Work left of an app, or of all apps of its owner, with what was added counted twice."""
        state = self.apps[app]
        if self.settings.bidder is BidderKind.APP:
            return state.work_left + state.added_work
        mine = sorted(self._active_of.get(state.spec.owner, ())) or [app]
        return math.fsum(self.apps[name].work_left + self.apps[name].added_work for name in mine)

    def set_app_weight(self, app: AppId, weight: float, at: float) -> None:
        """Change the weight of one app."""
        state = self.app(app)
        state.weigh(weight)
        self._reweigh(state.spec.owner, at)

    def set_owner_weight(self, owner: OwnerId, weight: float, at: float) -> None:
        """Change the weight of an owner."""
        self._touched_owners.add(owner)
        self.owner_weights[owner] = weight
        self._reweigh(owner, at)

    def set_quota(self, owner: OwnerId, gpus: int | None) -> None:
        """Let an owner hold at most this many GPUs; None lifts the limit."""
        self._touched_owners.add(owner)
        if gpus is None:
            self.quotas.pop(owner, None)
        else:
            self.quotas[owner] = gpus

    def apply_settings(self, settings: Settings, at: float) -> None:
        """Use other settings from now on."""
        if settings.bidder is not self.settings.bidder and self.sharing.is_on:
            self.sharing.end()  # Others weigh together now.
        self.settings = settings
        self.keep_shares(at)
        for owner in sorted(self._active_of):
            self._reweigh(owner, at)

    def _reweigh(self, owner: OwnerId, at: float) -> None:
        apps = sorted(self._active_of.get(owner, ()))
        shared = self.settings.bidder is BidderKind.OWNER
        # Of one owner all weigh the same; looking at all of them for each would take squares.
        weight = self.weight(apps[0]) if shared and apps else 0.0
        for app in apps:
            self.contention.set_weight(app, weight if shared else self.weight(app), at)
        for app in apps[:1] if shared else apps:
            self.sharing.set_weight(*self._group(self.apps[app]), at)

    def keep_shares(self, at: float) -> None:
        """Keep equal shares up if the settings ask for them, from now on if there were none."""
        if self.settings.contention_of is not ContentionOf.SHARES:
            if self.sharing.is_on:
                self.sharing.end()
            return
        if not self.sharing.is_on:
            self.sharing.begin(float(self.usable_gpus(Constraint())), at)
        for app, state in sorted(self.apps.items()):
            if state.active and app not in self.sharing:
                self.sharing.take(state, *self._group(state), at)

    def remove(self, state: AppState) -> AppRecord:
        """Forget an ended app whose slots are empty; returns its record."""
        end = state.ended_at
        elapsed, contention, capacity = self._whole_stretch(state, end)
        self._stretches.pop(state.id, None)
        record = AppRecord(
            app=state.id,
            owner=state.spec.owner,
            weight=state.weight,
            arrival=state.submitted,
            end=end,
            elapsed=elapsed,
            mean_contention=contention,
            mean_capacity=capacity,
            budget=state.spec.budget,
            phases=state.ran(),
            attained=self.ledger.attained(state.id, end),
            outcome=state.outcome,
            contradicted=state.audit.alarms > 0,
        )
        self.contention.forget(state.id)
        self.capacity.forget(state.id)
        self.ledger.forget(state.id)
        self._marks.all(state.id)
        del self.apps[state.id]
        return record

    def quotas_left(self, offered: frozenset[GpuId]) -> dict[OwnerId, int]:
        """GPUs that owners with a quota may be given, on top of what they keep past a round."""
        left = dict(sorted(self.quotas.items()))
        for state in self.apps.values():
            if state.spec.owner in left:
                kept = sum(1 for gpu in self.ledger.holdings(state.id) if gpu not in offered)
                left[state.spec.owner] -= kept
        return {owner: max(0, gpus) for owner, gpus in left.items()}

    # Writing down

    def parts(self, *, changed: bool) -> Written:
        """All parts, or those that changed since they were last asked for."""
        if not changed:
            yield "cluster", ClusterPart(self.topology.name)
        machines = range(len(self.topology.machines))
        for number in take(self._touched_machines) if changed else machines:
            part = self._machine_part(number)
            yield f"machine/{part.machine.name}", part
        for owner in take(self._touched_owners) if changed else self._owners():
            yield f"owner/{owner}", self._owner_part(owner)
        yield from self._app_parts(changed=changed)
        yield from self._clock_parts(changed=changed)
        yield from self.sharing.parts(changed=changed)
        yield from self.ledger.parts(changed=changed)

    def _owners(self) -> list[OwnerId]:
        return sorted({*self.quotas, *self.owner_weights})

    def _machine_part(self, number: int) -> MachinePart:
        return MachinePart(
            number,
            self.topology.machines[number],
            gone=number in self._gone,
            cordoned=number in self._cordoned,
            draining=number in self._draining,
        )

    def _owner_part(self, owner: OwnerId) -> OwnerPart | None:
        part = OwnerPart(self.quotas.get(owner), self.owner_weights.get(owner))
        return None if part == OwnerPart() else part

    def _app_parts(self, *, changed: bool) -> Written:
        marks, apps = self._marks, self.apps
        kinds = (
            ("app", marks.declared, AppState.app_part),
            ("work", marks.work, AppState.work_part),
            ("claims", marks.claims, AppState.claims_part),
            ("audit", marks.audit, AppState.audit_part),
            ("standing", marks.standing, AppState.standing_part),
        )
        for kind, touched, write in kinds:
            for app in take(touched) if changed else sorted(apps):
                yield f"{kind}/{app}", write(apps[app]) if app in apps else None

    def _clock_parts(self, *, changed: bool) -> Written:
        meters = {*self.contention.touched, *self.capacity.touched} if changed else set(self.apps)
        if not changed or self._recounted:
            for constraint in self._constraints:
                name = f"{constraint.gpu_model}/{float(constraint.gpu_memory)!r}"
                integral = self.capacity.class_state(constraint)
                yield f"capacity/{name}", CapacityPart(constraint, integral)
        if not changed or self.contention.touched:
            yield "contention", ContentionPart(self.contention.state())
        for app in sorted(meters):
            yield f"clock/{app}", self._clock_part(app) if app in self.apps else None
        if changed:
            self._recounted = False
            self.contention.touched.clear()
            self.capacity.touched.clear()

    def _clock_part(self, app: AppId) -> ClockPart:
        return ClockPart(
            self.contention.meter_state(app),
            self.capacity.meter_state(app),
            tuple(self._stretches.get(app, ())),
        )

    @staticmethod
    def restored(shelf: Shelf, settings: Settings) -> "World":
        """The world that was written down."""
        machines = sorted(shelf.all(MachinePart).values(), key=lambda part: part.number)
        if [part.number for part in machines] != list(range(len(machines))):
            raise RefusedError("machine", "a machine of the cluster is missing")
        name = shelf.one(ClusterPart).name
        world = World(Topology(tuple(part.machine for part in machines), name), settings)
        for part in machines:
            if part.gone:
                world._gone.add(part.number)
            if part.cordoned:
                world._cordoned.add(part.number)
            if part.draining:
                world._draining.add(part.number)
        for owner, part_of in shelf.all(OwnerPart).items():
            if part_of.quota is not None:
                world.quotas[OwnerId(owner)] = part_of.quota
            if part_of.weight is not None:
                world.owner_weights[OwnerId(owner)] = part_of.weight
        world.ledger.take_back(shelf)
        for app in map(AppId, sorted(shelf.all(AppPart))):
            world.apps[app] = AppState.restored(app, shelf, world._marks)
        world._take_back_clocks(shelf)
        world.sharing = ShareTracker.restored(shelf)
        return world

    def _take_back_clocks(self, shelf: Shelf) -> None:
        classes: dict[Hashable, IntegralState] = {}
        for part in shelf.all(CapacityPart).values():
            classes[part.constraint] = part.integral
            self._constraints[part.constraint] = self._matching(part.constraint)
        clocks = {app: shelf.one(ClockPart, app) for app in self.apps}
        self.contention.take_back(
            shelf.one(ContentionPart).integral,
            {app: clock.contention for app, clock in clocks.items() if clock.contention},
        )
        meters: dict[AppId, tuple[Hashable, MeterState]] = {}
        for app, clock in clocks.items():
            constraint = self.apps[app].spec.constraint
            if constraint not in classes:
                raise RefusedError("capacity", f"the capacity for {app} is missing")
            if clock.capacity is not None:
                meters[app] = (constraint, clock.capacity)
            if clock.stretches:
                self._stretches[app] = list(clock.stretches)
            if self.contention.is_active(app):
                self._active_of.setdefault(self.apps[app].spec.owner, set()).add(app)
        self.capacity.take_back(classes, meters)


def first_beat_after(now: float, settings: Settings) -> float:
    """The first beat whose round has not opened yet."""
    # A microsecond, because times as large as a calendar's are not exact to less.
    beats = math.floor((now + settings.round_lead + 1e-6) / settings.lease) + 1
    return beats * settings.lease


def is_newcomer(state: AppState, now: float, settings: Settings) -> bool:
    """Whether no round at a beat has opened since an app was submitted."""
    return first_beat_after(state.submitted, settings) >= first_beat_after(now, settings)
