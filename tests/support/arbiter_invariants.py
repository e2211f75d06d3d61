"""Promises an arbiter keeps after every event, checked from what it said and what it holds.

    watch = Watch()
    world = ScriptedWorld(topology, policy, on_event=[watch])

`Watch` listens to the commands, and raises `InvariantError` as soon as one promise is broken.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from themis.core.arbiter import Arbiter, GpuState, check_ledger, events
from themis.core.arbiter.commands import Ask, Assign, Command, End, RecordRound, Solve
from themis.core.arbiter.records import RoundRecord
from themis.core.model import AppId, GpuId, Lease, OwnerId
from themis.core.model.reasons import SUSPENSIONS, Reason
from themis.errors import InvariantError

_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Told:
    """A lease as the commands told of it."""

    lease: Lease
    leaving: bool = False


Chains = dict[GpuId, tuple[Told, ...]]
"""Per GPU the leases that were granted and are not over, the present one first."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What held when a round opened."""

    demand: dict[AppId, int]
    active: frozenset[AppId]
    quotas: dict[OwnerId, int]


class Watch:
    """Follows an arbiter event by event; the checks read its fields."""

    def __init__(self, checks: "Iterable[Check] | None" = None) -> None:
        self.checks = tuple(ALL_CHECKS if checks is None else checks)
        self.chains: Chains = {}
        self.before: Chains = {}
        self.commands: Sequence[Command] = ()
        self.highest: dict[GpuId, int] = {}
        """The highest token seen on each GPU before this event."""
        self.openings: dict[int, Opening] = {}
        self.open_round: int | None = None
        """The round whose questions are out, before this event."""
        self.cordoned: set[int] = set()
        self.held: dict[AppId, int] = {}
        """GPUs whose last promised lease is an app's: a share that somebody follows is over soon,
        and the round of the next beat deals as if it were."""
        self.held_before: dict[AppId, int] = {}
        self.broken = False
        """Whether a check has failed; what follows would only say so again."""
        self._rounds = 0
        self._arbiter: Arbiter | None = None

    def __call__(self, arbiter: Arbiter, event: events.Event, commands: Sequence[Command]) -> None:
        """Take in one event and what came of it, then check every promise."""
        self._arbiter = arbiter
        self.commands = commands
        self.before = dict(self.chains)
        self.held_before = self.held
        self.held = _held_to_the_end(arbiter)
        self._note_cordon(arbiter, event)
        if isinstance(event, events.ServiceRestarted):
            self.open_round = None
        self._note_openings(arbiter)
        self._follow()
        self.broken = True
        for check in self.checks:
            check(self)
        self.broken = False
        for lease in self.granted:
            self.highest[lease.gpu] = max(lease.token, self.highest.get(lease.gpu, 0))
        for command in commands:
            self.open_round = _round_after(command, self.open_round)

    @property
    def arbiter(self) -> Arbiter:
        """The one that is watched."""
        if self._arbiter is None:
            raise InvariantError("nothing was watched yet")
        return self._arbiter

    @property
    def granted(self) -> list[Lease]:
        """Leases granted in this event."""
        return [lease for item in self._assigns() for lease in item.granted]

    @property
    def renewed(self) -> list[Lease]:
        """Leases renewed in this event."""
        return [lease for item in self._assigns() for lease in item.renewed]

    @property
    def records(self) -> list[RoundRecord]:
        """Rounds settled in this event."""
        return [item.record for item in self.commands if isinstance(item, RecordRound)]

    def standing(self) -> list[Lease]:
        """Leases whose holders were not told to go."""
        return [told.lease for chain in self.chains.values() for told in chain if not told.leaving]

    def _assigns(self) -> list[Assign]:
        return [item for item in self.commands if isinstance(item, Assign)]

    def _note_cordon(self, arbiter: Arbiter, event: events.Event) -> None:
        numbers = arbiter.world.topology.number_of
        if isinstance(event, events.MachineCordoned) and event.machine in numbers:
            self.cordoned.add(numbers[event.machine])
        elif isinstance(event, events.MachineUncordoned) and event.machine in numbers:
            self.cordoned.discard(numbers[event.machine])

    def _note_openings(self, arbiter: Arbiter) -> None:
        apps = arbiter.world.apps
        opening = Opening(
            {name: state.demand for name, state in apps.items()},
            frozenset(name for name, state in apps.items() if state.active),
            dict(arbiter.world.quotas),
        )
        for number in range(self._rounds + 1, arbiter.rounds + 1):
            self.openings[number] = opening
        self._rounds = arbiter.rounds

    def _follow(self) -> None:
        for command in self.commands:
            if isinstance(command, End):
                for lease in command.leases:
                    self._remove(lease)
            elif isinstance(command, Assign):
                for lease in command.revoked:
                    self._revoke(lease)
                for lease in command.renewed:
                    self._replace(lease)
                for lease in command.granted:
                    chain = (*self.chains.get(lease.gpu, ()), Told(lease))
                    self.chains[lease.gpu] = tuple(sorted(chain, key=lambda t: t.lease.token))

    def _remove(self, lease: Lease) -> None:
        chain = self.chains.get(lease.gpu, ())
        self.chains[lease.gpu] = tuple(t for t in chain if t.lease.token != lease.token)

    def _revoke(self, lease: Lease) -> None:
        chain = self.chains.get(lease.gpu, ())
        if chain and chain[0].lease.token == lease.token:
            self.chains[lease.gpu] = (Told(chain[0].lease, leaving=True), *chain[1:])
        else:
            self._remove(lease)

    def _replace(self, lease: Lease) -> None:
        self.chains[lease.gpu] = tuple(
            Told(lease, told.leaving) if told.lease.token == lease.token else told
            for told in self.chains.get(lease.gpu, ())
        )


Check = Callable[[Watch], None]


def _held_to_the_end(arbiter: Arbiter) -> dict[AppId, int]:
    held = dict.fromkeys(arbiter.world.apps, 0)
    for index in range(len(arbiter.ledger)):
        tail = arbiter.ledger.tail(GpuId(index))
        if tail is not None:
            held[tail.app] += 1
    return held


def _round_after(command: Command, present: int | None) -> int | None:
    if isinstance(command, Ask) and command.offer.round > 0:
        return command.offer.round
    if isinstance(command, Solve):
        return command.round
    return None if isinstance(command, RecordRound) else present


def check_exclusive(watch: Watch) -> None:
    """No GPU has two holders: a later one waits for the earlier one to go or to be over."""
    for gpu, chain in watch.chains.items():
        for earlier, later in itertools.pairwise(chain):
            waits = earlier.leaving or earlier.lease.end <= later.lease.start + _EPSILON
            if not waits or (not earlier.leaving and earlier.lease.app == later.lease.app):
                raise InvariantError(f"GPU {gpu} has two holders", chain)


def check_conservation(watch: Watch) -> None:
    """The ledger agrees with itself and with what was told; every GPU is in one state."""
    ledger = watch.arbiter.ledger
    check_ledger(ledger)
    if len(ledger) != watch.arbiter.world.topology.gpus:
        raise InvariantError("the ledger has not the GPUs of the cluster")
    for index in range(len(ledger)):
        gpu = GpuId(index)
        present = ledger.lease(gpu)
        chain = (*((present,) if present else ()), *ledger.queue(gpu))
        told = watch.chains.get(gpu, ())
        if [(x.token, x.end, x.app) for x in chain] != [
            (t.lease.token, t.lease.end, t.lease.app) for t in told
        ]:
            raise InvariantError(f"GPU {gpu}: what was told is not what is", (*chain, *told))
        if (ledger.state(gpu) is GpuState.FENCING) != (bool(told) and told[0].leaving):
            raise InvariantError(f"GPU {gpu} is {ledger.state(gpu)}", told)


def check_tokens(watch: Watch) -> None:
    """Each new lease of a GPU has a higher token than all before it."""
    highest = dict(watch.highest)
    # Commands go by app, not by token: a GPU given to two in turn may be told of in any order.
    for lease in sorted(watch.granted, key=lambda lease: lease.token):
        if lease.token <= highest.get(lease.gpu, 0):
            raise InvariantError(f"token {lease.token} of GPU {lease.gpu} is not new", [lease])
        highest[lease.gpu] = lease.token


def check_renewals(watch: Watch) -> None:
    """A renewal keeps token and holder, and takes no time away except for a share of time."""
    for lease in watch.renewed:
        known = [
            told.lease
            for told in watch.before.get(lease.gpu, ())
            if told.lease.token == lease.token
        ]
        fresh = [new for new in watch.granted if new.token == lease.token]
        if not (known or fresh) or any(old.app != lease.app for old in known):
            raise InvariantError("a renewal without its lease", [lease, *known])
        for old in known:
            if lease.end < old.end - _EPSILON and not _is_share(watch, lease):
                raise InvariantError("a renewal takes time away", [old, lease])


def _is_share(watch: Watch, lease: Lease) -> bool:
    return any(
        item.until is not None and item.app == lease.app and lease.gpu in item.gpus
        for record in watch.records
        for item in record.allotments
    )


def check_partition(watch: Watch) -> None:
    """What was allotted and what stayed idle make up the offer, and nothing is given twice."""
    for record in watch.records:
        given = [gpu for item in record.allotments for gpu in item.gpus]
        later = [gpu for item in record.followups for gpu in item.gpus]
        together = sorted([*given, *record.idle])
        if len(set(together)) != len(together) or len(together) != record.offered:
            raise InvariantError(f"round {record.round} does not partition its offer", [record])
        if len(set(later)) != len(later) or not set(later) <= set(given):
            raise InvariantError(f"round {record.round} has followers of nobody", [record])


def check_room(watch: Watch) -> None:
    """Nobody's holdings grow beyond its demand, nor an owner's beyond its quota."""
    if not watch.records:
        return
    opening = watch.openings[watch.records[-1].round]
    owners: dict[OwnerId, list[AppId]] = {}
    for app, state in watch.arbiter.world.apps.items():
        owners.setdefault(state.spec.owner, []).append(app)
        grew = watch.held.get(app, 0) > watch.held_before.get(app, 0)
        if grew and watch.held[app] > opening.demand.get(app, 0):
            raise InvariantError(f"{app} holds {watch.held[app]} and wants {opening.demand[app]}")
    for owner, apps in owners.items():
        held = sum(watch.held.get(app, 0) for app in apps)
        grew = held > sum(watch.held_before.get(app, 0) for app in apps)
        if grew and held > opening.quotas.get(owner, held):
            raise InvariantError(f"{owner} holds {held}, its quota is {opening.quotas[owner]}")


def check_failed_rounds(watch: Watch) -> None:
    """A failed round renews everybody whose lease was up and who may still run."""
    world = watch.arbiter.world
    renewed = {lease.token for lease in watch.renewed}
    for record in watch.records:
        if not record.failed:
            continue
        horizon = record.opened + watch.arbiter.settings.round_lead
        for chain in watch.before.values():
            lease = chain[-1].lease if chain else None
            if lease is None or chain[-1].leaving or lease.end > horizon:
                continue
            state = world.apps.get(lease.app)
            if record.trigger != "beat" or state is None or state.suspended or state.outcome:
                continue
            if world.keeps_leases(lease.gpu) and lease.token not in renewed:
                raise InvariantError(f"failed round {record.round} ended a lease", [lease])


def check_reasons(watch: Watch) -> None:
    """Every app has one reason, and every round has one line for each app that took part."""
    apps = watch.arbiter.world.apps
    for state in apps.values():
        expected = min(state.suspended, key=list(Reason).index, default=None)
        if not isinstance(state.reason, Reason):
            raise InvariantError(f"{state.id} has no reason")
        if not state.outcome and (state.reason in SUSPENSIONS) != (expected is not None):
            raise InvariantError(f"{state.id}: {state.reason} while {state.suspended}")
        if expected is not None and not state.outcome and state.reason != expected:
            raise InvariantError(f"{state.id}: {state.reason} hides {expected}")
    for record in watch.records:
        names = [line.app for line in record.apps]
        suspended = {app for app, state in apps.items() if state.suspended}
        there = sorted(
            app
            for app in {*watch.openings[record.round].active, *suspended}
            if app in apps and not apps[app].outcome
        )
        if names != there:
            raise InvariantError(f"round {record.round} explains {names}, not {there}")


def check_one_offer(watch: Watch) -> None:
    """One round at a time, so no GPU is in two open offers."""
    present = watch.open_round
    for command in watch.commands:
        following = _round_after(command, present)
        if present is not None and following not in {None, present}:
            raise InvariantError(f"round {following} asks while round {present} is open")
        present = following


def check_barred(watch: Watch) -> None:
    """No new lease on a cordoned or quarantined machine, nor on one that the app may not use."""
    world = watch.arbiter.world
    for lease in watch.granted:
        number = world.topology.seats[lease.gpu].machine
        if number in watch.cordoned:
            raise InvariantError("a new lease on a cordoned machine", [lease])
        state = world.apps.get(lease.app)
        if state and not state.spec.constraint.allows(world.topology.machines[number]):
            raise InvariantError("a lease on a machine that does not match", [lease])


def check_suspended(watch: Watch) -> None:
    """Who is suspended or over holds nothing."""
    for app, state in watch.arbiter.world.apps.items():
        if (state.suspended or state.outcome) and watch.arbiter.ledger.holdings(app):
            raise InvariantError(f"{app} holds GPUs while {state.reason} {state.outcome}")
    for lease in watch.granted:
        state_of = watch.arbiter.world.apps.get(lease.app)
        if state_of is None or state_of.suspended or state_of.outcome:
            raise InvariantError("a lease for an app that must not run", [lease])


def check_no_refund(watch: Watch) -> None:
    """A bidder never gets back in the same round a GPU that it paid."""
    for record in watch.records:
        paid = {(app, gpu) for app, gpus in record.notes.paid.items() for gpu in gpus}
        whole = [item for item in record.allotments if item.until is None]
        for item in (*whole, *record.followups):
            for gpu in item.gpus:
                if (item.app, gpu) in paid:
                    raise InvariantError(f"{item.app} gets back GPU {gpu}, which it paid", [record])


def check_expiry(watch: Watch) -> None:
    """With a punctual driver no lease outlives its end without having been dealt with."""
    if watch.arbiter.round_open:
        return
    for chain in watch.chains.values():
        if chain and not chain[0].leaving and chain[0].lease.end < watch.arbiter.now - _EPSILON:
            raise InvariantError("a lease is past its end", [chain[0].lease])


ALL_CHECKS: tuple[Check, ...] = (
    check_exclusive,
    check_conservation,
    check_tokens,
    check_renewals,
    check_partition,
    check_room,
    check_failed_rounds,
    check_reasons,
    check_one_offer,
    check_barred,
    check_suspended,
    check_no_refund,
    check_expiry,
)
