"""Replay of a service's own log: its decisions, made again from the first entry on.

    with open_store(url, read_only=True) as store:
        result = replay_store(store)
        result.first_difference

Every start of the service is an event in the log, so a replay restarts where the service did. An
entry may hold several events; `WakeMe` commands are not in it.
"""

from typing import Any

from themis.core.arbiter import Arbiter
from themis.core.arbiter.commands import Command, Refuse, WakeMe
from themis.core.arbiter.saved_state import arbiter_from, parts
from themis.core.model import Topology
from themis.core.policies import Policy
from themis.core.policies import policy as policy_by_name
from themis.errors import ConfigError, CorruptLogError, RefusedError, StoreError
from themis.recording.codec import loads
from themis.recording.replay import ReplayResult, Stepper
from themis.service.persistence.log_entries import commands_in, events_in
from themis.service.persistence.recovery import seed_of
from themis.service.persistence.start_parameters import StartParameters, parameters_of
from themis.service.persistence.store.base import StoredEntry
from themis.service.persistence.store.sql import Store


class PrunedLogError(StoreError):
    """The beginning of the log is pruned, and a replay needs it."""

    def __init__(self, store: str, first: int) -> None:
        reason = (
            f"entries before {first} were pruned (retention), and a replay needs the first one; "
            "replay a backup from before that, or keep more with retention.age and retention.bytes"
        )
        super().__init__(store, reason)
        self.first = first


def replay_store(store: Store, *, policy: str | None = None, resolve: bool = False) -> ReplayResult:
    """Feed a store's log to a fresh arbiter and compare what it commands.

    Args:
        store: Read only; a service may be using it.
        policy: Instead of the one that the store names. Needed for policies from outside Themis:
            a store is data, and reading it imports no code.
        resolve: Also solve every auction again.

    Raises:
        PrunedLogError: The beginning of the log is gone.
        ConfigError: Its policy or solver is not available.
        CorruptLogError: An entry cannot be read.
    """
    first = store.usage().first_entry
    if first > 1:
        raise PrunedLogError(store.url, first)
    saved = store.load()
    script = _Script(
        parameters_of(saved.kept, store.url), policy, seed_of(saved, store.url), store.url
    )
    stepper: Stepper | None = None
    for stored in store.entries():
        if stepper is None:
            stepper = Stepper(script.first(stored.epoch), store.url, resolve=resolve)
        else:
            stepper.arbiter = script.next(stepper.arbiter, stored.epoch)
        events, commands = _read(stored, store.url)
        difference = stepper.step(stored.number, events, commands, _as_logged)
        if difference is not None and _only_own_refusals(commands, difference.got):
            difference = None
        if difference is not None:
            return ReplayResult(stepper.events, difference, False, stepper.resolved)
    if stepper is None:
        return ReplayResult(0, None, True)
    return ReplayResult(stepper.events, None, True, stepper.resolved)


def _as_logged(commands: tuple[Command, ...]) -> tuple[Command, ...]:
    return tuple(item for item in commands if not isinstance(item, WakeMe))


def _only_own_refusals(logged: tuple[Command, ...], got: tuple[Command, ...] | None) -> bool:
    """Whether the log only adds refusals: the steward makes some by itself."""
    if got is None:
        return False
    return got == tuple(item for item in logged if not isinstance(item, Refuse) or item in got)


class _Script:
    """The arbiter that a service had in each epoch."""

    def __init__(
        self, parameters: dict[int, StartParameters], policy: str | None, seed: int, url: str
    ) -> None:
        self._parameters = parameters
        self._policy = policy
        self._seed = seed
        self._url = url
        self._epoch = 0

    def first(self, epoch: int) -> Arbiter:
        """The arbiter of the first entry."""
        self._epoch = epoch
        began = self._of(epoch)
        return Arbiter(Topology(()), self._make(began), began.settings, seed=self._seed)

    def next(self, arbiter: Arbiter, epoch: int) -> Arbiter:
        """The arbiter of a later entry: another one only after a restart with another policy."""
        before, self._epoch = self._epoch, epoch
        if before == epoch:
            return arbiter
        old, new = self._of(before), self._of(epoch)
        if (old.policy, old.options) == (new.policy, new.options):
            return arbiter
        return arbiter_from(parts(arbiter), self._make(new), seed=self._seed)

    def _of(self, epoch: int) -> StartParameters:
        begun = [number for number in self._parameters if number <= epoch]
        if not begun:
            raise CorruptLogError(self._url, 0, f"no parameters are stored for epoch {epoch}")
        return self._parameters[begun[-1]]

    def _make(self, began: StartParameters) -> Policy:
        name = self._policy or began.policy
        if ":" in name and self._policy is None:
            allowed = f"--policy {name}, if you trust that code: a store imports none by itself"
            raise ConfigError("policy", name, allowed, self._url)
        return policy_by_name(name, **dict(began.options))


def _read(stored: StoredEntry, url: str) -> tuple[list[Any], tuple[Command, ...]]:
    try:
        body: Any = loads(stored.entry.body)
        return events_in(body), commands_in(body)
    except RefusedError as error:
        raise CorruptLogError(url, stored.number, f"{error.who}: {error.reason}") from None
    except (KeyError, TypeError) as error:
        raise CorruptLogError(url, stored.number, f"not an entry of a service: {error}") from None
